"""Operations on values of many threads, with the rounding of their dtype."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from search_space.dtypes import numpy_dtype, round_tfloat32
from search_space.ir.expr import FLOATS, FOLD

COMBINE = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}
_ERF = np.frompyfunc(math.erf, 1, 1)
_CALLS: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "erf": lambda x: np.asarray(_ERF(x), np.float32),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "abs": np.abs,
    "floor": np.floor,
    "rint": np.rint,
    "tfloat32": round_tfloat32,
}


def combine(op: str, a: Any, b: Any, dtype: str) -> Any:
    """A binary operation on values of one dtype; of floats, a minimum or maximum leaves NaN out as devices do."""
    if op in ("min", "max"):
        if not isinstance(a, np.ndarray) and not isinstance(b, np.ndarray) and dtype == "int64":
            return FOLD[op](a, b)
        names = ("fmin", "fmax") if dtype in FLOATS else ("minimum", "maximum")
        return getattr(np, names[op == "max"])(a, b)
    if op in ("and", "or"):
        return np.logical_and(a, b) if op == "and" else np.logical_or(a, b)
    return FOLD[op](a, b)


def evaluate_call(function: str, x: Any, dtype: str) -> Any:
    """A math function, in float32 for 16-bit floats."""
    kind = numpy_dtype(dtype)
    return np.asarray(_CALLS[function](np.asarray(x).astype(np.float32))).astype(kind)


def evaluate_cast(value: Any, dtype: str) -> Any:
    """The value in another dtype; floats lose their fraction where it has none."""
    array = np.asarray(value)
    if dtype in ("int8", "uint8", "int32", "int64") and array.dtype.kind not in "iub":
        return array.astype(np.int64).astype(dtype)
    return array.astype(numpy_dtype(dtype))
