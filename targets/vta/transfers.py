"""Copies between DRAM and the chip as two-dimensional transfers of LOAD and STORE, with their pads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from targets.base import BuildError
from targets.vta.nests import Interval

MOST_PAD = 15  # pads have 4 bits of an instruction
MOST_SIZE = 65535  # sizes and strides have 16 bits


@dataclass(frozen=True)
class Dimension:
    """One loop of a copy, in elements: its extent, its step on the chip and in DRAM, the part that is not padding."""

    extent: int
    sram: int
    dram: int
    valid: Interval

    @property
    def padded(self) -> bool:
        return self.valid != Interval(0, self.extent)


@dataclass(frozen=True)
class Transfer:
    """Fields of one LOAD or STORE."""

    sram: int
    dram: int
    y: int
    x: int
    stride: int
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)

    def fields(self) -> dict[str, int]:
        """Pads by the names of the instruction's fields, where there are any."""
        names = ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")
        return {name: pad for name, pad in zip(names, self.pads, strict=True) if pad}


def transfers(dimensions: Sequence[Dimension], sram: int, dram: int) -> Iterator[Transfer]:
    """Lists the instructions that copy a dense block on the chip from or to DRAM.

    Args:
        sram, dram: positions of the copy's first element, padding included.

    Raises:
        BuildError: a block with gaps on the chip, or more padding than an instruction has bits for.
    """
    dims = sorted((d for d in dimensions if d.extent > 1), key=lambda d: d.sram, reverse=True)
    expected = 1
    for d in reversed(dims):
        if d.sram != expected:
            raise BuildError(f"a copy must be dense on the chip, but a loop steps by {d.sram} where {expected} follow")
        expected *= d.extent
    if any(d.valid.empty for d in dimensions):
        yield from zeros(sram, expected, 1)
        return
    x, dims = _merge_dimensions(dims, Dimension(1, 1, 1, Interval(0, 1)), 1)
    y, dims = (
        _merge_dimensions(dims[:-1], dims[-1], dims[-1].dram) if dims else (Dimension(1, 0, 0, Interval(0, 1)), dims)
    )
    for index in product(*(range(d.extent) for d in dims)):
        at = sram + sum(i * d.sram for i, d in zip(index, dims, strict=True))
        outside = any(not d.valid.first <= i < d.valid.end for i, d in zip(index, dims, strict=True))
        if outside or x.valid.empty or y.valid.empty:
            yield from zeros(at, x.extent, y.extent)
            continue
        start = dram + sum(i * d.dram for i, d in zip(index, dims, strict=True))
        start += x.valid.first * x.dram + y.valid.first * y.dram
        pads = (y.valid.first, y.extent - y.valid.end, x.valid.first, x.extent - x.valid.end)
        width, height = x.valid.end - x.valid.first, y.valid.end - y.valid.first
        if max(pads) > MOST_PAD:
            raise BuildError(f"padding must be at most {MOST_PAD} on a side, but got {max(pads)}")
        if max(width, height, y.dram) > MOST_SIZE:
            raise BuildError(f"a transfer must be at most {MOST_SIZE} wide and high, but got {width} x {height}")
        yield Transfer(at, start, height, width, y.dram if height > 1 else width, pads)


def _merge_dimensions(dims: list[Dimension], block: Dimension, step: int) -> tuple[Dimension, list[Dimension]]:
    """Merges `block` with the loops around it that continue its steps in DRAM; also returns the other loops."""
    dims = list(dims)
    while dims and dims[-1].dram == step * block.extent and not block.padded:
        if dims[-1].padded and block.extent > 1:
            break
        outer = dims.pop()
        valid = outer.valid if block.extent == 1 else Interval(0, block.extent * outer.extent)
        block = Dimension(block.extent * outer.extent, block.sram, step, valid)
    return block, dims


def zeros(sram: int, width: int, height: int) -> Iterator[Transfer]:
    """Lists transfers that write rows of zeros: transfers of no rows, which write their pads."""
    for row in range(0, height, MOST_PAD):
        yield Transfer(sram + row * width, 0, 0, width, width, (min(MOST_PAD, height - row), 0, 0, 0))
