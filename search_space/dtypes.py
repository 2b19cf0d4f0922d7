"""Element types: their names, sizes and NumPy's types, and the rounding of one that NumPy has not."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

FLOATS = ("float32", "float16", "bfloat16")
NARROW = ("float16", "bfloat16")
"""Floats that values are stored in, and that are widened to float32 where they are computed with."""
BITS = {
    "float32": 32,
    "float16": 16,
    "bfloat16": 16,
    "int8": 8,
    "uint8": 8,
    "int32": 32,
    "int64": 64,
    "bool": 8,
}
"""Bits of an element in memory, by type."""


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """Returns the NumPy type that holds `dtype` (bfloat16 comes from ml_dtypes)."""
    if dtype == "bfloat16":
        import ml_dtypes

        kind: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return kind
    return np.dtype(dtype)


def is_float_exact(number: int | float) -> bool:
    """Tells whether float64, in which attributes store numbers, represents a number exactly."""
    return number != number or isinstance(number, float) or (abs(number) < 1 << 1023 and int(float(number)) == number)


def round_tfloat32(values: Any) -> NDArray[np.float32]:
    """Rounds to float32 with 10 bits of mantissa, to nearest and ties away from zero: PTX's `cvt.rna.tf32.f32`.

    The 13 lowest bits become 0. A result beyond the largest number is infinite; NaN stays NaN.
    """
    wide = np.ascontiguousarray(values, np.float32)
    cut = ((wide.view(np.uint32) + np.uint32(1 << 12)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.asarray(np.where(np.isnan(wide), wide, cut), np.float32).reshape(np.shape(values))
