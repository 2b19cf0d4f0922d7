"""Random inputs of a task: the same seed gives the same arrays on every worker."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

SIGNED = (-1.0, 1.0)
POSITIVE = (0.1, 1.1)


def random_array(
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    rng: np.random.Generator,
    bounds: tuple[float, float] = SIGNED,
) -> NDArray[Any]:
    """Array of uniform values, never constant and never all zero.

    Floating point lies in `bounds`; integers use their whole range up to 8 bits and [-100, 100] above, so
    that sums of products stay in range; booleans are coin tosses.
    """
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        low, high = (info.min, info.max) if dtype.itemsize == 1 else (max(info.min, -100), 100)
        return rng.integers(low, high, shape, dtype=dtype, endpoint=True)
    low_bound, high_bound = bounds
    values = rng.random(shape, dtype=np.float32)
    values *= np.float32(high_bound - low_bound)
    values += np.float32(low_bound)
    return values.astype(dtype, copy=False)
