"""Element-wise operators: a function of one or two arrays of one shape."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from search_space import te
from search_space.operators.arithmetic import exact
from search_space.operators.base import Args, Array, Operator
from search_space.operators.checks import choice
from search_space.operators.checks import shape as shape_of
from search_space.operators.functions import BINARY, UNARY, names_for

FUNCTIONS = {**UNARY, **BINARY}


def elementwise(function: str, shape: Sequence[int], dtype: str = "float32") -> dict[str, Any]:
    """Computes a function of each element of a, or of a and b, of `shape`.

    Args:
        function: one of `functions.UNARY` or `functions.BINARY`.
        dtype: float32 or int32, which not every function is defined on.
    """
    dtype = choice("dtype", dtype, ("float32", "int32"))
    where = f" for dtype={dtype}" if dtype == "int32" else ""
    function = choice("function", function, names_for(FUNCTIONS, dtype), where)
    return {"function": function, "shape": shape_of("shape", shape), "dtype": dtype}


def direct(args: Args) -> list[te.Tensor]:
    """Defines one stage, with the function's name."""
    shape, name = args["shape"], args["function"]
    inputs = [te.placeholder(shape, args["dtype"], n) for n in ("a", "b")[: 1 if name in UNARY else 2]]
    out = te.compute(shape, lambda *i: FUNCTIONS[name].expression(*(x[i] for x in inputs)), name=name)
    return [*inputs, out]


def reference(args: Args, *arrays: Array) -> Array:
    """Applies the function to whole arrays."""
    return FUNCTIONS[args["function"]].reference(*map(exact, arrays))


ELEMENTWISE = Operator(
    "elementwise",
    elementwise,
    {"direct": direct},
    reference,
    lambda args: prod(args["shape"]),
    bounds=lambda args: FUNCTIONS[args["function"]].bounds,
)
