"""Comparisons, truth values, choices, conversions and the arithmetic of whole numbers, element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autotune.graph.ir import Array, Attributes
from autotune.graph.ops.base import GraphOp, Kind, Tensors, Types, exactly, register
from autotune.graph.ops.elementwise import computed
from search_space import te
from search_space.ir.expr import DTYPES, FLOATS, Expr, make
from search_space.ir.interp import numpy_dtype
from search_space.operators.checks import choice


def _function(name: str, expression: Callable[..., Expr], reference: Callable[..., Array]) -> GraphOp:
    def define(attrs: Attributes, tensors: Tensors) -> te.Tensor:
        return computed(name, expression, tensors)

    def compute(attrs: Attributes, *arrays: Array) -> Array:
        return reference(*arrays)

    return GraphOp(name, Kind.elementwise, exactly(), define, compute=compute)


def _sign(x: Expr) -> Expr:
    zero, one = (te.const(value, x.dtype) for value in (0, 1))
    below = te.if_then_else(x < zero, zero if x.dtype == "uint8" else te.const(-1, x.dtype), zero)
    return te.if_then_else(zero < x, one, below)


def _quotient(x: Expr, y: Expr) -> Expr:
    """Of whole numbers, towards zero; division by zero gives zero."""
    safe = te.if_then_else(te.eq(y, 0), te.const(1, y.dtype), y)
    size = te.abs(x) // te.abs(safe) if x.dtype != "uint8" else x // safe
    if x.dtype != "uint8":
        size = te.if_then_else(make("ne", x < 0, safe < 0), make("sub", 0, size), size)
    return te.if_then_else(te.eq(y, 0), te.const(0, x.dtype), size)


def _quotient_reference(x: Array, y: Array) -> Array:
    safe = np.where(y == 0, 1, y)
    size = np.abs(x) // np.abs(safe)
    return np.where(y == 0, 0, np.where((x < 0) != (safe < 0), -size, size))


def _remainder(x: Expr, y: Expr) -> Expr:
    """With the sign of the divisor; of floating-point numbers too."""
    return x - te.floor(x / y) * y if x.dtype in FLOATS else x % y


def _infinite(x: Expr) -> Expr:
    return te.eq(te.abs(x), float("inf"))


def _cast_attributes(given: Attributes, types: Types) -> dict[str, Any]:
    return {"dtype": choice("dtype", given["dtype"], DTYPES)}


def _cast(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    """Floats towards zero; whatever is not zero is true."""
    dtype = attrs["dtype"]

    def converted(x: Expr) -> Expr:
        return make("ne", x, 0) if dtype == "bool" and x.dtype != "bool" else x.astype(dtype)

    return computed("cast", converted, tensors)


def _not(x: Expr) -> Expr:
    return te.eq(x, te.const(False, "bool"))


register(
    _function("equal", te.eq, np.equal),
    _function("less", lambda x, y: x < y, np.less),
    _function("less_equal", lambda x, y: x <= y, np.less_equal),
    _function("and", te.all, np.logical_and),
    _function("or", lambda x, y: make("or", x, y), np.logical_or),
    _function("xor", lambda x, y: make("ne", x, y), np.logical_xor),
    _function("not", _not, np.logical_not),
    _function("where", te.if_then_else, np.where),
    _function("sign", _sign, np.sign),
    _function("quotient", _quotient, _quotient_reference),
    _function("remainder", _remainder, np.mod),
    _function("is_nan", lambda x: make("ne", x, x), np.isnan),
    _function("is_infinite", _infinite, np.isinf),
    GraphOp(
        "cast",
        Kind.elementwise,
        _cast_attributes,
        _cast,
        compute=lambda attrs, x: x.astype(numpy_dtype(attrs["dtype"])),
    ),
)
