"""Sizes of concrete buffers."""

from __future__ import annotations

from search_space.ir.expr import dtype_bytes
from search_space.ir.stmt import Buffer


def constant_shape(buffer: Buffer) -> tuple[int, ...]:
    """Returns the extents as numbers."""
    return tuple(int(e.value) for e in buffer.shape)


def elements(buffer: Buffer) -> int:
    """Counts the elements from the first to the last, gaps of padded rows included; at least 1."""
    strides = [int(s.value) for s in buffer.strides]
    return 1 + sum((n - 1) * s for n, s in zip(constant_shape(buffer), strides, strict=True))


def buffer_bytes(buffer: Buffer) -> int:
    """Returns the bytes from the start of the first element to the end of the last."""
    return elements(buffer) * dtype_bytes(buffer.dtype)
