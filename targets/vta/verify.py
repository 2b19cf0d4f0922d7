"""Rules that every stream must keep, each with a clear message: the rule, the instruction and the value."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from targets.vta.hardware import VtaHardware
from targets.vta.isa import (
    ALU,
    ALU_OPCODES,
    COLUMN,
    FINISH,
    GEMM,
    LOAD,
    MEMORIES,
    OPCODES,
    OUT,
    STORE,
    Table,
    misfits,
)
from targets.vta.problems import Problem
from targets.vta.semantics import (
    LOAD_MODULE,
    LOADABLE,
    MODULES,
    STORE_MODULE,
    column,
    is_transfer,
    iterations,
    memories,
    modules,
    of_memory,
    sram_elements,
)

MOST_MULTIPLICATIONS = 1 << 40
"""Multiplications of a stream, about a minute of the functional simulator; ResNet-18 takes 2**31 in all."""
_LEAST = 256
"""Least number of multiplications that a micro-operation counts as: small ones take no less time."""
PADS = ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")


def static_problems(table: Table, hardware: VtaHardware, dram_bytes: int | None) -> list[Problem]:
    """Finds broken rules of single instructions, independent of micro-operations and tokens.

    If values do not even fit their fields, no other rule is checked.
    """
    problems = [Problem(index, message) for index, message in misfits(table, hardware)]
    if problems:
        return problems
    problems = [
        *_stream(table),
        *_opcodes(table),
        *_tokens(table),
        *_loops(table, hardware),
        *work_problems(table, hardware),
    ]
    problems += _transfers(table, hardware, dram_bytes)
    return sorted(problems, key=lambda problem: problem.index if problem.index >= 0 else len(table))


def _where(wrong: NDArray[np.bool_]) -> Iterator[int]:
    return iter(np.flatnonzero(wrong).tolist())


def _stream(table: Table) -> Iterator[Problem]:
    """Checks that FINISH is there, and last."""
    ends = np.flatnonzero(column(table, "opcode") == FINISH)
    if not len(ends):
        yield Problem(-1, f"a stream must end with FINISH, but got {len(table)} instructions without one")
    elif ends[0] != len(table) - 1:
        count = len(table) - 1 - int(ends[0])
        yield Problem(int(ends[0]) + 1, f"FINISH must be the last instruction, but got {count} after it")


def _opcodes(table: Table) -> Iterator[Problem]:
    """Checks that opcodes and operations exist."""
    opcode, operation = column(table, "opcode"), column(table, "alu_op")
    for index in _where((opcode < 0) | (opcode >= len(OPCODES))):
        yield Problem(index, f"`opcode` must be one of 0 to {len(OPCODES) - 1}, but got opcode={opcode[index]}")
    for index in _where((opcode == ALU) & ((operation < 0) | (operation >= len(ALU_OPCODES)))):
        yield Problem(index, f"`alu_op` must be one of 0 to {len(ALU_OPCODES) - 1}, but got alu_op={operation[index]}")


def _tokens(table: Table) -> Iterator[Problem]:
    """Checks that load takes no token from a module before it, and store none from one after it."""
    of = modules(table)
    for module, flags, neighbour in (
        (LOAD_MODULE, ("pop_prev", "push_prev"), "before"),
        (STORE_MODULE, ("pop_next", "push_next"), "after"),
    ):
        for flag in flags:
            for index in _where((of == module) & (column(table, flag) != 0)):
                yield Problem(
                    index,
                    f"`{flag}` must be 0 as no module is {neighbour} the {MODULES[module]} module, but got {flag}=1",
                )


def _transfers(table: Table, hardware: VtaHardware, dram_bytes: int | None) -> Iterator[Problem]:
    """Checks memories, pads, and ranges of buffers and DRAM."""
    opcode, memory, moves = column(table, "opcode"), column(table, "memory"), is_transfer(table)
    loads, stores = moves & (opcode == LOAD), moves & (opcode == STORE)
    unknown = np.zeros(len(table), np.bool_)
    for what, chosen, kinds in (("LOAD", loads, LOADABLE), ("STORE", stores, (OUT,))):
        wrong = chosen & ~np.isin(memory, kinds)
        unknown |= wrong
        names = ", ".join(MEMORIES[kind] for kind in kinds)
        for index in _where(wrong):
            number = int(memory[index])
            name = MEMORIES[number] if number < len(MEMORIES) else str(number)
            yield Problem(index, f"`memory` of {what} must be one of {names}, but got memory={name}")
    for pad in PADS:
        for index in _where(stores & (column(table, pad) != 0)):
            yield Problem(index, f"`{pad}` of STORE must be 0, but got {pad}={column(table, pad)[index]}")
    kinds_of_memory = memories(hardware)
    good = moves & ~unknown
    end = column(table, "sram_base") + sram_elements(table)
    depth = of_memory(table, {number: kind.depth for number, kind in kinds_of_memory.items()})
    for index in _where(good & (end > depth)):
        name = kinds_of_memory[int(memory[index])].sram
        yield Problem(
            index, f"the transfer must end within the {depth[index]} elements of {name}, but got end={end[index]}"
        )
    if dram_bytes is None:
        return
    size = of_memory(table, {number: kind.dram_bytes for number, kind in kinds_of_memory.items()})
    rows = column(table, "y_size")
    last = column(table, "dram_base") + (rows - 1) * column(table, "x_stride") + column(table, "x_size")
    for index in _where(good & (rows > 0) & (last * size > dram_bytes)):
        yield Problem(
            index,
            f"the transfer must end within the {dram_bytes} bytes of DRAM, but got end={last[index] * size[index]}",
        )


def _loops(table: Table, hardware: VtaHardware) -> Iterator[Problem]:
    """Checks the range of micro-operations."""
    begin, end = column(table, "uop_begin"), column(table, "uop_end")
    loops = np.isin(column(table, "opcode"), (GEMM, ALU))
    for index in _where(loops & (end < begin)):
        yield Problem(index, f"`uop_end` must be at least uop_begin={begin[index]}, but got uop_end={end[index]}")
    for index in _where(loops & (iterations(table) > 0) & (end > hardware.uop_depth)):
        yield Problem(index, f"`uop_end` must be at most {hardware.uop_depth}, but got uop_end={end[index]}")


def most_micro_operations(hardware: VtaHardware) -> int:
    """Returns the number of micro-operations that a stream may execute, so that simulating it comes to an end."""
    return MOST_MULTIPLICATIONS // max(_LEAST, hardware.batch * hardware.block_in * hardware.block_out)


def work_problems(table: Table, hardware: VtaHardware) -> list[Problem]:
    """Checks that the simulator can execute the number of micro-operations in acceptable time."""
    loops = np.isin(column(table, "opcode"), (GEMM, ALU))
    done = np.cumsum(np.where(loops, iterations(table), 0), dtype=np.float64)  # which no number of them overflows
    most = most_micro_operations(hardware)
    if not len(done) or done[-1] <= most:
        return []
    rule = f"a stream must execute at most {most} micro-operations, but got {done[-1]:.0f}"
    return [Problem(int(np.argmax(done > most)), rule)]


def index_problem(row: NDArray[np.int64], most: list[int], hardware: VtaHardware) -> str:
    """Returns the message about indices of micro-operations that lead out of a buffer; empty if they do not.

    Args:
        row: the instruction's fields.
        most: the largest dst, src and wgt.
    """
    gemm = row[0] == GEMM
    buffers = ("acc", "inp", "wgt") if gemm else ("acc", "acc")
    for name, buffer, value in zip(("dst", "src", "wgt"), buffers, most, strict=False):
        depth = getattr(hardware, f"{buffer}_depth")
        if value >= depth and not (name != "dst" and gemm and row[COLUMN["reset"]]):
            return f"`{name}` must stay within the {depth} elements of {buffer}, but got {name}={value}"
    return ""
