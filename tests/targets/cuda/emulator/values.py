"""Operations on values of many threads, with the rounding of their dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from search_space.dtypes import numpy_dtype
from search_space.ir.semantics import BINARY

COMBINE = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}


def combine(op: str, a: Any, b: Any) -> Any:
    """A binary operation on values of one dtype."""
    row = BINARY[op]
    return (row.array if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else row.number)(a, b)


def evaluate_cast(value: Any, dtype: str) -> Any:
    """The value in another dtype; floats lose their fraction where it has none."""
    array = np.asarray(value)
    if dtype in ("int8", "uint8", "int32", "int64") and array.dtype.kind not in "iub":
        return array.astype(np.int64).astype(dtype)
    return array.astype(numpy_dtype(dtype))
