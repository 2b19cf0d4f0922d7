"""Reads and writes of each instruction of a stream, element by element, which the checkers of streams rest on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from targets.vta.hardware import VtaHardware
from targets.vta.isa import ALU, COLUMN, GEMM, LOAD, STORE, UOP, uop_widths
from targets.vta.semantics import Indices, iterations, memories


def transfer_indices(row: Indices, hardware: VtaHardware) -> tuple[Indices, Indices, Indices]:
    """Returns the elements that one transfer touches.

    Args:
        row: row of a table.

    Returns:
        elements on the chip that data go to (or come from), the elements in DRAM beside them, and the elements on the
        chip that become zero.
    """
    get = {name: int(row[number]) for name, number in COLUMN.items()}
    if get["x_size"] == 0:
        empty = np.zeros(0, np.int64)
        return empty, empty, empty
    width = get["x_pad_0"] + get["x_size"] + get["x_pad_1"]
    height = get["y_pad_0"] + get["y_size"] + get["y_pad_1"]
    places = get["sram_base"] + np.arange(width * height, dtype=np.int64).reshape(height, width)
    inside = np.zeros((height, width), np.bool_)
    inside[get["y_pad_0"] : get["y_pad_0"] + get["y_size"], get["x_pad_0"] : get["x_pad_0"] + get["x_size"]] = True
    y, x = np.ogrid[: get["y_size"], : get["x_size"]]
    dram = get["dram_base"] + y * get["x_stride"] + x
    return places[inside], dram.reshape(-1), places[~inside]


def list_reached(start: Indices, loops: Sequence[tuple[int, int]], depth: int) -> Indices:
    """The elements, in order and once each, that indices lead to in loops; as much work for few turns as for many.

    Args:
        start: indices of the micro-operations.
        loops: turns of each loop, at least one, and by how much each turn moves the indices.
        depth: elements of the buffer, in which all of it stays.
    """
    inside = np.zeros(depth, np.bool_)
    inside[start] = True
    for turns, factor in loops:
        if turns > 1 and factor:
            padded = np.zeros(-(-depth // factor) * factor, np.int32)
            padded[:depth] = inside
            sums = padded.reshape(-1, factor).cumsum(0)  # of the elements that are whole factors apart
            sums[turns:] -= sums[:-turns].copy()
            inside = (sums > 0).reshape(-1)[:depth]
    return np.flatnonzero(inside)


class UopBuffer:
    """The buffer of micro-operations as a stream fills it, which only the compute module does, in order."""

    def __init__(self, hardware: VtaHardware, dram: NDArray[np.uint8]) -> None:
        """An empty buffer. Micro-operations are taken from `dram` as it is, whatever the stream stores there."""
        self.hardware = hardware
        self._words = dram[: dram.size // 4 * 4].view(np.uint32)
        self._buffer = np.zeros(hardware.uop_depth, np.uint32)

    def run(self, row: Indices) -> None:
        """Executes one instruction, if it loads micro-operations."""
        if row[0] == LOAD and row[COLUMN["memory"]] == UOP:
            to, source, zeros = transfer_indices(row, self.hardware)
            self._buffer[to], self._buffer[zeros] = self._words[source], 0

    def select(self, row: Indices) -> NDArray[np.int64]:
        """Returns the micro-operations of a GEMM or ALU instruction, (micro-operations, 3)."""
        return decode_uops(self._buffer[row[COLUMN["uop_begin"]] : row[COLUMN["uop_end"]]], self.hardware)


@dataclass(frozen=True)
class Access:
    """Elements that an instruction reads or writes in one memory.

    Attributes:
        space: `uop`, `inp`, `wgt`, `acc` or `dram`.
        indices: elements; in DRAM bytes.
        write: whether it writes.
    """

    space: str
    indices: Indices
    write: bool


def accesses(row: Indices, hardware: VtaHardware, uops: UopBuffer) -> list[Access]:
    """All that one instruction touches; a GEMM or ALU instruction reads what it writes."""
    if row[0] in (LOAD, STORE):
        if row[COLUMN["x_size"]] == 0:
            return []
        kind = memories(hardware)[int(row[COLUMN["memory"]])]
        data, dram, zeros = transfer_indices(row, hardware)
        addresses = (dram[:, None] * kind.dram_bytes + np.arange(kind.dram_bytes)).reshape(-1)
        load = bool(row[0] == LOAD)
        return [Access("dram", addresses, not load), Access(kind.sram, np.concatenate([data, zeros]), load)]
    get = {name: int(row[number]) for name, number in COLUMN.items()}
    if row[0] not in (GEMM, ALU) or not iterations(row[None])[0]:
        return []
    chosen = uops.select(row)

    def make_access(number: int, name: str, space: str) -> Access:
        loops = [(get[f"iter_{loop}"], get[f"{name}_{loop}"]) for loop in ("out", "in")]
        depth: int = getattr(hardware, f"{space}_depth")
        return Access(space, list_reached(chosen[:, number], loops, depth), name == "dst")

    found = [Access("uop", np.arange(get["uop_begin"], get["uop_end"]), False), make_access(0, "dst", "acc")]
    if row[0] == ALU:
        return found if get["use_imm"] else [*found, make_access(1, "src", "acc")]
    return found if get["reset"] else [*found, make_access(1, "src", "inp"), make_access(2, "wgt", "wgt")]


def decode_uops(words: NDArray[np.uint32], hardware: VtaHardware) -> NDArray[np.int64]:
    """dst, src and wgt of micro-operations: (micro-operations, 3)."""
    uops = np.zeros((len(words), 3), np.int64)
    low = 0
    for column, (_, width) in enumerate(uop_widths(hardware)):
        uops[:, column] = (words >> np.uint32(low)) & np.uint32((1 << width) - 1)
        low += width
    return uops
