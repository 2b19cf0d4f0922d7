"""Arrays as plain data: a description for a JSON header, and their bytes one after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_space.dtypes import numpy_dtype

_INTEGERS = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
DTYPES = _INTEGERS | {"bool", "bfloat16", "float16", "float32", "float64"}
"""Element types of arrays that travel."""

# Limits for descriptions from an untrusted peer:
_MOST_EXTENTS = 32
_MOST_ELEMENTS = 1 << 40


def pack_arrays(arrays: Sequence[NDArray[Any]]) -> tuple[list[dict[str, Any]], bytes]:
    """Returns the description of arrays for a JSON header, and their bytes in C order.

    Raises:
        ValueError: an element type that does not travel.
    """
    for array in arrays:
        _check_dtype(str(array.dtype))
    described = [{"dtype": str(array.dtype), "shape": list(array.shape)} for array in arrays]
    return described, b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)


def unpack_arrays(descriptions: Sequence[Any], blob: bytes) -> list[NDArray[Any]]:
    """Rebuilds writable arrays from a description and bytes, either of which may come from an untrusted peer.

    Raises:
        ValueError: the description is malformed, or does not fit the bytes.
    """
    arrays: list[NDArray[Any]] = []
    start = 0
    for item in descriptions:
        if not isinstance(item, dict) or set(item) != {"dtype", "shape"}:
            raise ValueError(f"an array must be described by dtype and shape, but got {item!r:.80}")
        kind, shape = _check_dtype(item["dtype"]), item["shape"]
        extents = isinstance(shape, list) and len(shape) <= _MOST_EXTENTS and all(type(n) is int for n in shape)
        if not extents or any(not 0 <= n <= _MOST_ELEMENTS for n in shape):
            raise ValueError(f"`shape` must be a list of at most {_MOST_EXTENTS} extents, but got shape={shape!r:.80}")
        end = start + math.prod(shape) * kind.itemsize
        if end > len(blob):
            raise ValueError(f"arrays must fill the {len(blob)} bytes that came with them, but need {end} or more")
        arrays.append(np.frombuffer(blob[start:end], kind).reshape(shape).copy())
        start = end
    if start != len(blob):
        raise ValueError(f"arrays must fill the {len(blob)} bytes that came with them, but need {start}")
    return arrays


def _check_dtype(name: Any) -> np.dtype[Any]:
    if not isinstance(name, str) or name not in DTYPES:
        raise ValueError(f"`dtype` must be one of {', '.join(sorted(DTYPES))}, but got dtype={name!r:.80}")
    return np.dtype(numpy_dtype(name))
