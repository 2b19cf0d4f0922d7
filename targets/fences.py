"""Arrays for kernels on trial, between forbidden pages, with bytes around them that must not change."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_space.dtypes import numpy_dtype

_PAGE = mmap.PAGESIZE
_LARGE_PAGE = 2 << 20  # bytes of a huge page
_LARGE = 4 << 20  # bytes from which on NumPy asks for large pages; trials are to be as fast as what they stand for
_LINE = 64
FENCE_BYTE = 0xFF
"""Value of the bytes around fenced arrays: NaN in every type that has it."""


class Fences:
    """An allocator of fenced arrays, which detects writes around them.

    An array starts on a 64-byte boundary and ends less than 64 bytes before a page without access rights. Another such
    page is in front of it. An access to these pages ends the process; changed bytes between the array and the pages
    reveal a write.
    """

    def __init__(self) -> None:
        self._around: dict[str, tuple[NDArray[np.uint8], NDArray[np.uint8]]] = {}

    def array(self, name: str, shape: Sequence[int], dtype: str, fill: int = 0) -> NDArray[Any]:
        """Allocates an array whose bytes are all `fill`; it replaces an earlier one of its name."""
        kind = numpy_dtype(dtype)
        size = int(np.prod(shape)) * kind.itemsize
        room = max(_PAGE, -(-size // _PAGE) * _PAGE)
        raw = _between_guards(room)
        start = (room - size) // _LINE * _LINE
        self._around[name] = around = raw[:start], raw[start + size :]
        for zone in around:
            zone[:] = FENCE_BYTE
        if fill:
            raw[start : start + size] = fill
        return raw[start : start + size].view(kind).reshape(shape)

    def damage(self) -> str:
        """Describes in a sentence which bytes around an array were overwritten; empty if none were."""
        for name, (before, after) in self._around.items():
            for where, zone in (("in front of", before), ("behind", after)):
                changed = int(np.count_nonzero(zone != FENCE_BYTE))
                if changed:
                    return f"a kernel must write to its output alone, but it changed {changed} bytes {where} `{name}`"
        return ""


def copy_between_fences(array: NDArray[Any]) -> NDArray[Any]:
    """Copies an array to memory between pages without access rights."""
    out = Fences().array("", array.shape, str(array.dtype))
    out[...] = array
    return out


def _between_guards(room: int) -> NDArray[np.uint8]:
    """Maps whole pages of zeros with a forbidden page on either side; large pages if the system has them."""
    large = room >= _LARGE
    unit = _LARGE_PAGE if large else _PAGE
    at_once = 0 if large else getattr(mmap, "MAP_POPULATE", 0)  # a fault a page takes longer
    area = mmap.mmap(-1, room + _PAGE + unit, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | at_once)
    mapping = np.frombuffer(area, np.uint8)
    start = -(mapping.ctypes.data + _PAGE) % unit + _PAGE
    if large and hasattr(mmap, "MADV_HUGEPAGE"):
        area.madvise(mmap.MADV_HUGEPAGE)
    for guard in (start - _PAGE, start + room):
        if _mprotect()(mapping.ctypes.data + guard, _PAGE, 0):
            raise OSError(ctypes.get_errno(), "a page must lose its access rights, but mprotect failed")
    return mapping[start : start + room]


@cache
def _mprotect() -> Any:
    found = ctypes.CDLL(None, use_errno=True).mprotect
    found.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return found
