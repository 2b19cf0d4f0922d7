"""A builder of streams in the manner of VTA's runtime: cached micro-kernels, tokens on instructions, initial memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from targets.vta.hardware import VtaHardware
from targets.vta.isa import ALU, COLUMN, FINISH, GEMM, INP, LOAD, NAMES, OUT, STORE, UOP, Table, encode_uops
from targets.vta.semantics import COMPUTE_MODULE, LOAD_MODULE, STORE_MODULE, instruction_module


class BuilderError(ValueError):
    """A violation of the limits of a stream."""


@dataclass(frozen=True)
class Program:
    """A stream and the memory it starts with.

    Attributes:
        table: fields of the instructions.
        dram: bytes.
    """

    table: Table
    dram: NDArray[np.uint8]


class StreamBuilder:
    """A stream in the making.

    Tokens follow VTA's runtime. The next instruction of a module carries its `pop`, the last one its `push`. If the
    last one has that bit already, an instruction that does nothing carries it. Micro-kernels are recorded once. The
    buffer on the chip is a cache of them that fills from the start, and restarts at 0 when it is full.
    """

    def __init__(self, hardware: VtaHardware) -> None:
        """Creates an empty stream on an empty memory."""
        self.hardware = hardware
        self._rows: list[list[int]] = []
        self._of: list[int] = []
        self._last: dict[int, int] = {}
        self._pending: dict[int, dict[str, int]] = {module: {} for module in range(3)}
        self._parts: list[tuple[int, NDArray[np.uint8]]] = []
        self._end = 0
        self._kernels: dict[bytes, int] = {}
        self._cached_kernels: dict[int, tuple[int, int]] = {}
        self._uop_parts: list[NDArray[np.uint32]] = []
        self._uop_starts = [0]
        self._cache_end = 0

    def add_data(self, data: NDArray[Any], element_bytes: int) -> int:
        """Puts data into memory; the address in elements."""
        start = -(-self._end // element_bytes) * element_bytes
        flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        self._parts.append((start, flat))
        self._end = start + flat.size
        return start // element_bytes

    def load(self, memory: int, sram: int, dram: int, y: int, x: int, stride: int, **pads: int) -> int:
        """Appends a transfer to the chip."""
        return self._append(
            LOAD, memory=memory, sram_base=sram, dram_base=dram, y_size=y, x_size=x, x_stride=stride, **pads
        )

    def store(self, sram: int, dram: int, y: int, x: int, stride: int) -> int:
        """Appends a transfer from the accumulator to memory."""
        return self._append(STORE, memory=OUT, sram_base=sram, dram_base=dram, y_size=y, x_size=x, x_stride=stride)

    def gemm(self, uops: NDArray[np.int64], **fields: int) -> int:
        """Appends micro-operations (count, 3) of the GEMM unit in two loops."""
        return self._kernel(GEMM, uops, fields)

    def alu(self, uops: NDArray[np.int64], **fields: int) -> int:
        """Appends micro-operations (count, 3) of the ALU in two loops."""
        return self._kernel(ALU, uops, fields)

    def rows(self, rows: Sequence[list[int]], module: int) -> int:
        """Appends instructions of one module by their fields, in the order of `isa.NAMES`; returns the number of the
        last.
        """
        self._rows += rows
        self._of += [module] * len(rows)
        self._last[module] = len(self._rows) - 1
        return len(self._rows) - 1

    def micro_kernel(self, uops: NDArray[np.int64]) -> int:
        """Records micro-operations (count, 3); their number, the same for the same ones.

        Raises:
            BuilderError: more than the buffer holds.
        """
        key, count = uops.tobytes(), len(uops)
        if key not in self._kernels:
            if count > self.hardware.uop_depth:
                raise BuilderError(
                    f"a micro-kernel must have at most {self.hardware.uop_depth} micro-operations, but got {count}"
                )
            self._kernels[key] = len(self._uop_parts)
            self._uop_starts.append(self._uop_starts[-1] + count)
            self._uop_parts.append(encode_uops(uops, self.hardware))
        return self._kernels[key]

    def prefetch(self) -> None:
        """Loads all micro-operations recorded so far at once, if the buffer holds them: later ones need no load."""
        count = self._uop_starts[-1]
        if 0 < count <= self.hardware.uop_depth:
            self._cached_kernels = {
                k: (self._uop_starts[k], self._uop_starts[k + 1]) for k in range(len(self._uop_parts))
            }
            self._cache_end = count
            self.load(UOP, 0, 0, 1, count, count)

    def fetch(self, kernel: int) -> tuple[int, int]:
        """Returns the range of recorded micro-operations on the chip, after loading them if needed."""
        if kernel in self._cached_kernels:
            return self._cached_kernels[kernel]
        count = self._uop_starts[kernel + 1] - self._uop_starts[kernel]
        begin = self._cache_end if self._cache_end + count <= self.hardware.uop_depth else 0
        end = self._cache_end = begin + count
        self._cached_kernels = {k: at for k, at in self._cached_kernels.items() if at[1] <= begin or at[0] >= end}
        self._cached_kernels[kernel] = (begin, end)
        self.load(UOP, begin, self._uop_starts[kernel], 1, count, count)
        return begin, end

    def module(self, instruction: int) -> int:
        """Returns the module that runs an instruction."""
        return self._of[instruction]

    def order(self, first: int, second: int) -> None:
        """Adds a token from one instruction to a later one of a neighbouring module.

        Tokens between two modules must be asked for in the order of both instructions; each instruction gives and
        takes one a neighbour.
        """
        giver, taker = self._of[first], self._of[second]
        self._rows[first][COLUMN["push_next" if taker > giver else "push_prev"]] = 1
        self._rows[second][COLUMN["pop_prev" if taker > giver else "pop_next"]] = 1

    def push(self, giver: int, taker: int) -> None:
        """Adds a token from module `giver`, after all its instructions so far, to module `taker`."""
        flag = "push_next" if taker > giver else "push_prev"
        index = self._last.get(giver)
        if index is None or self._rows[index][COLUMN[flag]] or self._pending[giver]:
            index = self._noop(giver)
        self._rows[index][COLUMN[flag]] = 1

    def pop(self, giver: int, taker: int) -> None:
        """Lets the next instruction of module `taker` wait for a token from module `giver`."""
        flag = "pop_prev" if taker > giver else "pop_next"
        if flag in self._pending[taker]:
            self._noop(taker)
        self._pending[taker][flag] = 1

    def finish(self, after: int | None = None) -> Program:
        """Ends the stream and returns it with its memory; the end waits for the store `after`."""
        for module in (LOAD_MODULE, STORE_MODULE):
            if self._pending[module]:
                self._noop(module)
        end = self._append(FINISH)
        if after is not None:
            self.order(after, end)
        base = self.uop_base
        uops = np.concatenate([*self._uop_parts, np.zeros(0, np.uint32)])
        dram = np.zeros((base + len(uops)) * 4, np.uint8)
        for start, part in self._parts:
            dram[start : start + part.size] = part
        dram[base * 4 :] = uops.view(np.uint8)
        table = np.array(self._rows, np.int64)
        loads = (table[:, 0] == LOAD) & (table[:, COLUMN["memory"]] == UOP) & (table[:, COLUMN["x_size"]] > 0)
        table[loads, COLUMN["dram_base"]] += base
        return Program(table, dram)

    @property
    def uop_base(self) -> int:
        """Position in memory where micro-operations begin, behind everything else, counted in micro-operations."""
        return -(-self._end // 4)

    def _noop(self, module: int) -> int:
        """Appends an instruction that carries tokens only."""
        opcode, memory = {LOAD_MODULE: (LOAD, INP), COMPUTE_MODULE: (LOAD, UOP), STORE_MODULE: (STORE, OUT)}[module]
        return self._append(opcode, memory=memory)

    def _append(self, opcode: int, **fields: int) -> int:
        """Appends a new instruction with the tokens that wait for it; returns its number."""
        row = [0] * len(NAMES)
        row[0] = opcode
        for name, value in fields.items():
            row[COLUMN[name]] = value
        module = instruction_module(opcode, fields.get("memory", 0))
        for flag in self._pending[module]:
            row[COLUMN[flag]] = 1
        self._pending[module] = {}
        self._rows.append(row)
        self._of.append(module)
        self._last[module] = len(self._rows) - 1
        return len(self._rows) - 1

    def _kernel(self, opcode: int, uops: NDArray[np.int64], fields: dict[str, int]) -> int:
        """Appends an instruction; its micro-operations are fetched first if the chip does not hold them."""
        begin, end = self.fetch(self.micro_kernel(uops))
        return self._append(opcode, **({"iter_out": 1, "iter_in": 1} | fields), uop_begin=begin, uop_end=end)
