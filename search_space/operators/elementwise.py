"""Element-wise operators of one or two tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from search_space import te
from search_space.ir.expr import Expr
from search_space.operators.base import Args, Array, Operator, erf, one_of, positive

UNARY: dict[str, tuple[Callable[[Expr], Expr], Callable[[Array], Array]]] = {
    "relu": (lambda x: te.maximum(x, 0.0), lambda x: np.maximum(x, 0)),
    "exp": (te.exp, np.exp),
    "log": (te.log, np.log),
    "tanh": (te.tanh, np.tanh),
    "erf": (te.erf, lambda x: erf(x).astype(x.dtype)),
    "sigmoid": (te.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
    "sqrt": (te.sqrt, np.sqrt),
    "rsqrt": (te.rsqrt, lambda x: 1 / np.sqrt(x)),
    "abs": (te.abs, np.abs),
    "negative": (lambda x: -x, np.negative),
}
BINARY: dict[str, tuple[Callable[[Expr, Expr], Expr], Callable[[Array, Array], Array]]] = {
    "add": (lambda a, b: a + b, np.add),
    "subtract": (lambda a, b: a - b, np.subtract),
    "multiply": (lambda a, b: a * b, np.multiply),
    "divide": (lambda a, b: a / b, np.divide),
    "maximum": (te.maximum, np.maximum),
    "minimum": (te.minimum, np.minimum),
}


def elementwise_arguments(function: str, shape: Sequence[int]) -> dict[str, Any]:
    """`function` of one or two float32 tensors of `shape`."""
    one_of("function", function, (*UNARY, *BINARY))
    sizes = list(shape)
    for i, size in enumerate(sizes):
        positive(**{f"shape[{i}]": size})
    if not sizes:
        raise ValueError(f"`shape` must have at least one dimension, but got shape={sizes}")
    return {"function": function, "shape": sizes}


def _tensors(args: Args) -> list[te.Tensor]:
    function, shape = args["function"], args["shape"]
    a = te.placeholder(shape, name="a")
    if function in UNARY:
        return [a, te.compute(shape, lambda *i: UNARY[function][0](a[i]), name=function)]
    b = te.placeholder(shape, name="b")
    return [a, b, te.compute(shape, lambda *i: BINARY[function][0](a[i], b[i]), name=function)]


def _reference(args: Args, *arrays: Array) -> Array:
    table: Any = UNARY if args["function"] in UNARY else BINARY
    return np.asarray(table[args["function"]][1](*arrays), np.float32)


OPERATORS = (Operator("elementwise", elementwise_arguments, _tensors, _reference, lambda a: prod(a["shape"])),)
