"""Element-wise operations, with broadcasting as in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autotune.graph.ops.base import STOP_GRADIENT, GraphOp, Kind, Tensors, Types, at, broadcast, exactly, register
from autotune.graph.types import Array, Attributes, TensorType
from search_space import te
from search_space.dtypes import FLOATS
from search_space.operators.functions import BINARY, UNARY

Checker = Callable[[Attributes, Types], dict[str, Any]]


def elementwise(
    name: str,
    expression: Callable[..., Any],
    compute: Callable[..., Array] | None = None,
    attributes: Checker | None = None,
) -> GraphOp:
    """Defines an operation on elements aligned by broadcasting.

    Args:
        name: name that nodes refer to.
        expression: attributes and an element of each input → the element of the output.
        compute: attributes and arrays → the output in NumPy.
        attributes: checker of the attributes; no attributes by default.
    """

    def define(attrs: Attributes, tensors: Tensors) -> te.Tensor:
        shape = broadcast([TensorType(t.shape, t.dtype) for t in tensors])
        return te.compute(shape, lambda *index: expression(attrs, *(at(t, index) for t in tensors)), name=name)

    return GraphOp(name, Kind.elementwise, attributes or exactly(), define, compute=compute)


def from_function(
    name: str, expression: Callable[..., Any], function: Callable[..., Array], attributes: Checker | None = None
) -> GraphOp:
    """Defines an element-wise operation whose expression and NumPy function read no attributes."""
    return elementwise(
        name, lambda attrs, *elements: expression(*elements), lambda attrs, *arrays: function(*arrays), attributes
    )


def _integer(name: str, expression: Callable[..., Any], function: Callable[..., Array], *dtypes: str) -> GraphOp:
    """Defines an operation on inputs that share one of these dtypes."""

    def attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
        found = {kind.dtype for kind in types}
        if len(found) != 1 or not found <= set(dtypes):
            raise ValueError(f"inputs must be of one of {', '.join(dtypes)}, but got {', '.join(map(str, types))}")
        return exactly()(attributes, types)

    return from_function(name, expression, np.errstate(all="ignore")(function), attributes)


_NUMBERS = ("int8", "uint8", "int32", "int64", *FLOATS)

register(
    _integer("floor_divide", te.floor_divide, np.floor_divide, *_NUMBERS),
    _integer("floor_mod", te.floor_mod, np.mod, *_NUMBERS),
    _integer("bitwise_and", lambda x, y: x & y, np.bitwise_and, "int32"),
    _integer("left_shift", lambda x, y: x << y, lambda x, y: np.left_shift(x, y & 31), "int32"),
    _integer("right_shift", lambda x, y: x >> y, lambda x, y: np.right_shift(x, y & 31), "int32"),
    *(from_function(name, f.expression, f.reference) for name, f in {**UNARY, **BINARY}.items()),
    elementwise("copy", lambda attrs, x: x),
    elementwise(STOP_GRADIENT, lambda attrs, x: x),
    elementwise(
        "clip",
        lambda attrs, x: te.minimum(te.maximum(x, attrs["low"]), attrs["high"]),
        lambda attrs, x: np.clip(x, attrs["low"], attrs["high"]),
        exactly(low=0.0, high=6.0),
    ),
    # Batch normalisation with constant statistics.
    from_function("affine", lambda x, scale, shift: x * scale + shift, lambda x, scale, shift: x * scale + shift),
)
