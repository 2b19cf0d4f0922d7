"""Semantics of VTA's instructions: their modules, the tokens between these, their accesses and their results.

The simulators, the checkers and the emitters read these definitions. They follow VTA's functional simulator; a table of
fields is made by `isa.to_table`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from targets.vta.hardware import VtaHardware
from targets.vta.isa import ACC, ACC_8BIT, ALU, COLUMN, GEMM, INP, LOAD, OUT, STORE, UOP, WGT, Table

Indices = NDArray[np.int64]

LOAD_MODULE, COMPUTE_MODULE, STORE_MODULE = range(3)
MODULES = ("load", "compute", "store")

TOKEN_QUEUES = ("load to compute", "compute to load", "compute to store", "store to compute")
POPS = ((-1, 1), (0, 3), (2, -1))
"""The token queue that `pop_prev` and `pop_next` of each module take from; -1 without a neighbour."""
PUSHES = ((-1, 0), (1, 2), (3, -1))
"""The token queue that `push_prev` and `push_next` of each module give to."""

LOADABLE = (UOP, WGT, INP, ACC, ACC_8BIT)


def column(table: Table, name: str) -> Indices:
    """Returns one field of all instructions: (instructions,)."""
    return table[:, COLUMN[name]]


def instruction_module(opcode: int, memory: int) -> int:
    """Returns the module that runs an instruction."""
    if opcode == STORE:
        return STORE_MODULE
    return LOAD_MODULE if opcode == LOAD and memory in (INP, WGT) else COMPUTE_MODULE


_MODULES = np.array([[instruction_module(opcode, memory) for memory in range(8)] for opcode in range(8)], np.int64)


def modules(table: Table) -> Indices:
    """Returns the module that runs each instruction: (instructions,)."""
    of: Indices = _MODULES[column(table, "opcode") & 7, column(table, "memory") & 7]
    return of


@dataclass(frozen=True)
class Memory:
    """One kind of data that is loaded or stored.

    Attributes:
        sram: name of the buffer on the chip.
        depth: elements of the buffer.
        sram_bytes, dram_bytes: bytes of an element, in the buffer and in DRAM.
    """

    sram: str
    depth: int
    sram_bytes: int
    dram_bytes: int


def memories(hardware: VtaHardware) -> dict[int, Memory]:
    """Describes the memory of each number."""
    acc = hardware.acc_depth, hardware.acc_bytes
    return {
        UOP: Memory("uop", hardware.uop_depth, hardware.uop_bytes, hardware.uop_bytes),
        WGT: Memory("wgt", hardware.wgt_depth, hardware.wgt_bytes, hardware.wgt_bytes),
        INP: Memory("inp", hardware.inp_depth, hardware.inp_bytes, hardware.inp_bytes),
        ACC: Memory("acc", *acc, hardware.acc_bytes),
        OUT: Memory("acc", *acc, hardware.out_bytes),
        ACC_8BIT: Memory("acc", *acc, hardware.out_bytes),
    }


def of_memory(table: Table, values: dict[int, int]) -> Indices:
    """Looks up a number for each instruction's memory, 0 for instructions without one: (instructions,)."""
    lookup = np.zeros(8, np.int64)
    for memory, value in values.items():
        lookup[memory] = value
    return np.where(is_transfer(table), lookup[column(table, "memory")], 0)


def is_transfer(table: Table) -> NDArray[np.bool_]:
    """Tells which instructions move data; without elements in a row they do nothing, pads included."""
    opcode = column(table, "opcode")
    moves: NDArray[np.bool_] = ((opcode == LOAD) | (opcode == STORE)) & (column(table, "x_size") > 0)
    return moves


def row_elements(table: Table) -> Indices:
    """Counts the elements that each row of a transfer covers on the chip, pads included: (instructions,)."""
    return column(table, "x_pad_0") + column(table, "x_size") + column(table, "x_pad_1")


def sram_elements(table: Table) -> Indices:
    """Counts the elements that a transfer covers on the chip, pads included: (instructions,)."""
    rows = column(table, "y_pad_0") + column(table, "y_size") + column(table, "y_pad_1")
    return np.where(is_transfer(table), rows * row_elements(table), 0)


def dram_elements(table: Table) -> Indices:
    """Counts the elements that a transfer moves: (instructions,)."""
    return np.where(is_transfer(table), column(table, "x_size") * column(table, "y_size"), 0)


def iterations(table: Table) -> Indices:
    """Counts the micro-operations that each GEMM or ALU instruction executes: (instructions,)."""
    uops = column(table, "uop_end") - column(table, "uop_begin")
    count: Indices = column(table, "iter_out") * column(table, "iter_in") * np.maximum(uops, 0)
    return count


@dataclass(frozen=True)
class Counters:
    """Work of a stream: bytes as the functional simulator of VTA counts them, and micro-operations.

    Pads are not counted, an element of ACC_8BIT counts as one of ACC, and resets are no work.
    """

    inp_bytes: int
    wgt_bytes: int
    acc_bytes: int
    uop_bytes: int
    out_bytes: int
    gemm: int
    alu: int
    reset: int


def counters(table: Table, hardware: VtaHardware) -> Counters:
    """Counts the work of a whole stream."""
    opcode, memory, reset = column(table, "opcode"), column(table, "memory"), column(table, "reset") > 0
    sizes = memories(hardware)
    elements, executed = dram_elements(table), iterations(table)

    def count_bytes(direction: int, *kinds: int) -> int:
        chosen = (opcode == direction) & np.isin(memory, kinds)
        size = sizes[kinds[0]]
        return int(elements[chosen].sum()) * (size.sram_bytes if direction == LOAD else size.dram_bytes)

    return Counters(
        inp_bytes=count_bytes(LOAD, INP),
        wgt_bytes=count_bytes(LOAD, WGT),
        acc_bytes=count_bytes(LOAD, ACC, ACC_8BIT),
        uop_bytes=count_bytes(LOAD, UOP),
        out_bytes=count_bytes(STORE, OUT),
        gemm=int(executed[(opcode == GEMM) & ~reset].sum()),
        alu=int(executed[opcode == ALU].sum()),
        reset=int(executed[(opcode == GEMM) & reset].sum()),
    )


@dataclass(frozen=True)
class Operation:
    """One operation of the ALU on int32 vectors that wrap around.

    Attributes:
        name: name in assembly.
        compute: function on NumPy arrays, the reference.
        emit: the same as LLVM instructions: (builder, x, y) to the result.
    """

    name: str
    compute: Callable[[NDArray[np.int32], NDArray[np.int32]], NDArray[np.int32]]
    emit: Callable[[Any, Any, Any], Any]


def _shift(x: NDArray[np.int32], y: NDArray[np.int32]) -> NDArray[np.int32]:
    """Shifts right by y >= 0, left by -y else, the amount taken modulo 32."""
    amount = np.where(y >= 0, y, np.negative(y)) & np.int32(31)
    left = np.left_shift(x.view(np.uint32), amount.view(np.uint32)).view(np.int32)
    return np.where(y >= 0, np.right_shift(x, amount), left)


def _emit_shift(b: Any, x: Any, y: Any) -> Any:
    """Emits `_shift`."""
    zero, mask = y.type([0] * y.type.count), y.type([31] * y.type.count)
    right = b.icmp_signed(">=", y, zero)
    amount = b.and_(b.select(right, y, b.sub(zero, y)), mask)
    return b.select(right, b.ashr(x, amount), b.shl(x, amount))


OPERATIONS: tuple[Operation, ...] = (
    Operation("MIN", np.minimum, lambda b, x, y: b.select(b.icmp_signed("<", x, y), x, y)),
    Operation("MAX", np.maximum, lambda b, x, y: b.select(b.icmp_signed(">", x, y), x, y)),
    Operation("ADD", np.add, lambda b, x, y: b.add(x, y)),
    Operation("SHR", _shift, _emit_shift),
    Operation("MUL", np.multiply, lambda b, x, y: b.mul(x, y)),
)
"""The ALU's operations by their number."""
