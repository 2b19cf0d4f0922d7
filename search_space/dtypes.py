"""Names of element types as NumPy's types."""

from __future__ import annotations

from typing import Any

import numpy as np


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The NumPy type that holds `dtype` (bfloat16 comes from ml_dtypes)."""
    if dtype == "bfloat16":
        import ml_dtypes

        kind: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return kind
    return np.dtype(dtype)
