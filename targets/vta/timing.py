"""The timing simulator: three decoupled modules, their queues and tokens, and one memory port (see docs/vta.md)."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from targets.vta.hardware import VtaHardware
from targets.vta.isa import ALU, COLUMN, GEMM, WGT, Table
from targets.vta.native import CompiledModule
from targets.vta.problems import refusal
from targets.vta.semantics import (
    MODULES,
    column,
    dram_elements,
    is_transfer,
    iterations,
    memories,
    modules,
    of_memory,
)
from targets.vta.timing_core import ENTRY, FLAGS, timing_module
from targets.vta.tokens import token_problems
from targets.vta.verify import static_problems

Cycles = NDArray[np.int64]


@dataclass(frozen=True)
class Costs:
    """Costs of each instruction by itself: (instructions,) each.

    Attributes:
        work: cycles before the first row of a transfer, or all cycles of another instruction.
        rows: rows of a transfer.
        gap: cycles before each row.
        busy: cycles of the memory port for each row.
    """

    work: Cycles
    rows: Cycles
    gap: Cycles
    busy: Cycles

    @property
    def total(self) -> Cycles:
        """Cycles if nothing else wants the port."""
        return self.work + self.rows * (self.gap + self.busy)


@dataclass(frozen=True)
class Timing:
    """Times of a stream's events.

    Attributes:
        cycles: cycles of the whole stream, from its start to the end of its last instruction, and the host's cycles.
        start, end: cycles at which each instruction starts and ends: (instructions,).
        module: module of each instruction, by number: (instructions,).
        busy: cycles that each module was at work on instructions, waiting for the port included; for tokens it waits
            before an instruction starts.
        gemm_cycles, alu_cycles, reset_cycles: cycles of the compute module, by kind of work.
        port_cycles: cycles that the memory port was busy.
    """

    cycles: int
    start: Cycles
    end: Cycles
    module: Cycles
    busy: dict[str, int]
    gemm_cycles: int
    alu_cycles: int
    reset_cycles: int
    port_cycles: int

    @property
    def port_utilisation(self) -> float:
        """Share of the time that the memory port was busy."""
        return self.port_cycles / max(self.cycles, 1)


def costs(table: Table, h: VtaHardware) -> Costs:
    """Computes the costs of each instruction by itself from the timing constants of the hardware."""
    opcode = column(table, "opcode")
    moves, elements, executed = is_transfer(table), dram_elements(table), iterations(table)
    size = of_memory(table, {number: kind.dram_bytes for number, kind in memories(h).items()})
    gemm, alu = opcode == GEMM, opcode == ALU
    interval = np.where(column(table, "use_imm") != 0, h.alu_imm_interval, h.alu_tensor_interval)
    work = np.full(len(table), h.noop_latency, np.int64)
    work[gemm] = (h.gemm_latency + h.gemm_interval * executed)[gemm]
    work[alu] = (h.alu_latency + interval * executed)[alu]
    work[moves] = h.dma_latency
    rows = np.where(moves & (elements > 0), column(table, "y_size"), 0)
    weights = moves & (column(table, "memory") == WGT)
    rate = np.where(weights, min(h.wgt_bytes_per_cycle, h.dma_bytes_per_cycle), h.dma_bytes_per_cycle)
    busy = np.ceil(column(table, "x_size") * size / rate).astype(np.int64)
    return Costs(work, rows, np.full(len(table), h.dma_row_latency, np.int64), np.where(rows > 0, busy, 0))


@cache
def _compile() -> tuple[CompiledModule, Any]:
    """Compiles the event loop."""
    code = CompiledModule(timing_module())
    return code, ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * 9)(code.address(ENTRY))


def simulate(table: Table, h: VtaHardware, verified: bool = False) -> Timing:
    """Runs the clock over a stream.

    Args:
        table: fields of the stream, as `isa.to_table` and `isa.decode_table` give them.
        h: the design.
        verified: the stream is known to keep the rules of `verify.static_problems` and `tokens.token_problems`.

    Raises:
        Deadlock: modules wait for ever.
        IllegalStream: another rule is broken.
    """
    table = np.asarray(table, np.int64)
    if not verified and (problems := static_problems(table, h, None) or token_problems(table, h)):
        raise refusal(problems)
    count, of, each = len(table), modules(table), costs(table, h)
    following, first = np.full(count, count, np.int64), np.full(len(MODULES), count, np.int64)
    for module in range(len(MODULES)):
        members = np.flatnonzero(of == module)
        following[members[:-1]] = members[1:]
        first[module] = members[0] if len(members) else count
    flags = np.ascontiguousarray(table[:, [COLUMN[flag] for flag in FLAGS]])
    columns = np.ascontiguousarray(np.stack([each.work, each.rows, each.gap, each.busy], axis=1))
    settings = np.array([h.fetch_latency, h.fetch_interval, h.queue_depth, h.token_limit], np.int64)
    start, end, state = np.zeros(count, np.int64), np.full(count, -1, np.int64), np.zeros(len(MODULES), np.int64)
    _, run = _compile()
    arrays = (of, flags, columns, following, first, settings, start, end, state)
    ended = run(count, *(array.ctypes.data for array in arrays))
    if ended < count:
        raise refusal(token_problems(table, h))
    spent = end - start
    gemm, reset = column(table, "opcode") == GEMM, column(table, "reset") != 0
    return Timing(
        cycles=int(end.max(initial=0)) + h.host_cycles,
        start=start,
        end=end,
        module=of,
        busy={name: int(spent[of == number].sum()) for number, name in enumerate(MODULES)},
        gemm_cycles=int(spent[gemm & ~reset].sum()),
        alu_cycles=int(spent[column(table, "opcode") == ALU].sum()),
        reset_cycles=int(spent[gemm & reset].sum()),
        port_cycles=int((each.rows * each.busy).sum()),
    )
