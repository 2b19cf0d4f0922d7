"""Element-wise operations, with broadcasting as in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autotune.graph.ops.base import GraphOp, Kind, Tensors, Types, at, broadcast, exactly, register
from autotune.graph.types import Array, Attributes, TensorType
from search_space import te
from search_space.dtypes import FLOATS
from search_space.operators.functions import BINARY, UNARY, Function


def computed(name: str, function: Callable[..., Any], tensors: Tensors) -> te.Tensor:
    """`function` of the elements that broadcasting brings together."""
    shape = broadcast([TensorType(t.shape, t.dtype) for t in tensors])
    return te.compute(shape, lambda *index: function(*(at(t, index) for t in tensors)), name=name)


def _operation(name: str, function: Function) -> GraphOp:
    def define(attrs: Attributes, tensors: Tensors) -> te.Tensor:
        return computed(name, function.expression, tensors)

    def compute(attrs: Attributes, *arrays: Array) -> Array:
        return function.reference(*arrays)

    return GraphOp(name, Kind.elementwise, exactly(), define, compute=compute)


def _clip(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    return computed("clip", lambda x: te.minimum(te.maximum(x, attrs["low"]), attrs["high"]), tensors)


def _affine(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    """x * scale + shift, as batch normalisation is once its statistics are constants."""
    return computed("affine", lambda x, scale, shift: x * scale + shift, tensors)


def _of_types(name: str, expression: Callable[..., Any], function: Callable[..., Array], *dtypes: str) -> GraphOp:
    """An operation on numbers of one of these types."""

    def attributes(given: Attributes, types: Types) -> dict[str, Any]:
        found = {kind.dtype for kind in types}
        if len(found) != 1 or not found <= set(dtypes):
            raise ValueError(f"inputs must be of one of {', '.join(dtypes)}, but got {', '.join(map(str, types))}")
        return exactly()(given, types)

    def define(attrs: Attributes, tensors: Tensors) -> te.Tensor:
        return computed(name, expression, tensors)

    def compute(attrs: Attributes, *arrays: Array) -> Array:
        with np.errstate(all="ignore"):
            return function(*arrays)

    return GraphOp(name, Kind.elementwise, attributes, define, compute=compute)


_NUMBERS = ("int8", "uint8", "int32", "int64", *FLOATS)

register(
    _of_types("floor_divide", te.floor_divide, np.floor_divide, *_NUMBERS),
    _of_types("floor_mod", te.floor_mod, np.mod, *_NUMBERS),
    _of_types("left_shift", lambda x, y: x << y, lambda x, y: np.left_shift(x, y & 31), "int32"),
    _of_types("right_shift", lambda x, y: x >> y, lambda x, y: np.right_shift(x, y & 31), "int32"),
    *(_operation(name, function) for name, function in {**UNARY, **BINARY}.items()),
    GraphOp("copy", Kind.elementwise, exactly(), lambda attrs, tensors: computed("copy", lambda x: x, tensors)),
    GraphOp(
        "clip",
        Kind.elementwise,
        exactly(low=0.0, high=6.0),
        _clip,
        compute=lambda attrs, x: np.clip(x, attrs["low"], attrs["high"]),
    ),
    GraphOp("affine", Kind.elementwise, exactly(), _affine, compute=lambda attrs, x, scale, shift: x * scale + shift),
)
