"""Arrays as kernels take them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_space.dtypes import numpy_dtype

C_TYPE = {
    "float32": "float",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "bool": "uint8_t",
}
"""C type of each element type; 16-bit floats are passed as their bits."""


def round_up(number: int, spacing: int) -> int:
    """Rounds a number up to a multiple of a spacing."""
    return -(-number // spacing) * spacing


def allocate_aligned(shape: Sequence[int], dtype: str, make: Callable[..., NDArray[Any]] = np.zeros) -> NDArray[Any]:
    """Allocates an array that starts on a 64-byte boundary: zeroed, or as `make` fills it."""
    kind = numpy_dtype(dtype)
    size = int(np.prod(shape)) * kind.itemsize
    raw = make(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(kind).reshape(shape)


STRIP = 64
"""Columns that are copied at a time: the lines of as many rows of the source stay in cache."""


def contiguous(array: NDArray[Any]) -> NDArray[Any]:
    """Returns the elements in row-major order: the array itself if it is so already, otherwise a copy.

    The copy is blocked, so that transposed arrays are copied fast, too.
    """
    if array.flags.c_contiguous or array.ndim < 2 or array.strides[-1] == array.itemsize:
        return np.ascontiguousarray(array)
    made = np.empty(array.shape, array.dtype)
    for start in range(0, array.shape[-1], STRIP):
        made[..., start : start + STRIP] = array[..., start : start + STRIP]
    return made
