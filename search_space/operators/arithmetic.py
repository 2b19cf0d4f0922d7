"""Dtypes of operands and sums, and the expression of a product for each dtype of workloads."""

from __future__ import annotations

from typing import Any

import numpy as np

from search_space import te
from search_space.dtypes import round_tfloat32
from search_space.ir.expr import Expr
from search_space.ir.rounding import TFLOAT32
from search_space.operators.base import Array

OPERANDS = {
    "float32": ("float32", "float32"),
    "tfloat32": ("float32", "float32"),
    "float16": ("float16", "float16"),
    "bfloat16": ("bfloat16", "bfloat16"),
    "int8": ("uint8", "int8"),
}
"""Dtype of a workload → dtypes of activations and weights. Accumulated in float32, or int32 for int8.

Factors of tfloat32 are float32 in memory, and rounded before they are multiplied.
"""


def accumulator(dtype: str) -> str:
    """Returns the type in which products of a workload of `dtype` are accumulated, and the type of its output."""
    return "int32" if dtype == "int8" else "float32"


def product(left: Expr, right: Expr, dtype: str) -> Expr:
    """Multiplies two operands after their conversion, the form that dot instructions match."""
    wide = accumulator(dtype)
    if dtype == TFLOAT32:
        return te.tfloat32(left) * te.tfloat32(right)
    return left.astype(wide) * right.astype(wide)


def zero(dtype: str) -> Any:
    """Returns the padding value of activations of a workload of `dtype`."""
    return 0 if dtype == "int8" else 0.0


def exact(array: Array) -> Array:
    """Converts an array to 64 bits, for references: integers wrap as they do in 32, floats hardly round."""
    return array.astype(np.int64 if array.dtype.kind in "iu" else np.float64)


def factor(array: Array, dtype: str) -> Array:
    """Rounds an array as a workload of `dtype` does before it multiplies."""
    return round_tfloat32(array) if dtype == TFLOAT32 else array


def fast(array: Array, dtype: str = "float32") -> Array:
    """Converts a factor to a type with fast and still accurate matrix products: float64 for integers only."""
    array = factor(array, dtype)
    return array.astype(np.float64 if array.dtype.kind in "iu" else np.float32, copy=False)
