"""Types shared by operations and graphs: arrays, attributes, and tensor types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_space.dtypes import numpy_dtype

Array = NDArray[Any]
Attributes = Mapping[str, Any]


@dataclass(frozen=True)
class TensorType:
    """The type of a value: its shape and dtype."""

    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def size(self) -> int:
        """Number of elements."""
        out = 1
        for extent in self.shape:
            out *= extent
        return out

    @property
    def nbytes(self) -> int:
        """Bytes of the dense array."""
        return self.size * numpy_dtype(self.dtype).itemsize

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


def array_type(array: Array) -> TensorType:
    """Describes the shape and element type of an array as a value of a graph."""
    return TensorType(tuple(array.shape), _dtype_name(array.dtype))


@cache
def _dtype_name(dtype: np.dtype[Any]) -> str:
    return str(dtype)  # cached: it takes NumPy microseconds, and a network asks thousands of times
