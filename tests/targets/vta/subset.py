"""Operations that do not run on all of VTA's designs: its functional simulator allows more than the hardware does."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from targets.vta.hardware import VtaHardware
from targets.vta.isa import ACC_8BIT, ALU, COLUMN, GEMM, INP, LOAD, MUL, SHR, STORE, UOP, Table
from targets.vta.problems import Problem
from targets.vta.semantics import column, is_transfer, iterations
from targets.vta.tokens import execution_order
from tests.targets.vta.accesses import UopBuffer, accesses

LARGEST_SHIFT = 15
DISTANCE = 2  # micro-operations after which the HLS design may write the same element again


def outside_common_subset(table: Table, hardware: VtaHardware, dram: NDArray[np.uint8]) -> list[Problem]:
    """Lists operations of a legal stream that some designs run unlike the functional simulator, in the stream's order.

    Args:
        dram: memory that the stream starts with.
    """
    found = [*_operations(table), *_loads(table), *_repeats_and_stores(table, hardware, dram)]
    return sorted(found, key=lambda problem: problem.index)


def _operations(table: Table) -> Iterator[Problem]:
    """The ALU's operations that not all have."""
    alu, operation = column(table, "opcode") == ALU, column(table, "alu_op")
    for index in np.flatnonzero(alu & (operation == MUL)).tolist():
        yield Problem(index, "`alu_op` must not be MUL, which the HLS and Chisel designs do not have")
    imm, use_imm = column(table, "imm"), column(table, "use_imm") != 0
    for index in np.flatnonzero(alu & (operation == SHR)).tolist():
        if not use_imm[index]:
            yield Problem(index, "SHR must have a number as second operand, as designs read a tensor's differently")
        elif not 0 <= imm[index] <= LARGEST_SHIFT:
            yield Problem(index, f"`imm` of SHR must be between 0 and {LARGEST_SHIFT}, but got imm={imm[index]}")


def _loads(table: Table) -> Iterator[Problem]:
    """Loads that designs treat differently."""
    loads, memory = is_transfer(table) & (column(table, "opcode") == LOAD), column(table, "memory")
    for index in np.flatnonzero(loads & (memory == ACC_8BIT)).tolist():
        yield Problem(index, "`memory` must not be ACC_8BIT, which the HLS and Chisel designs do not have")
    pads = sum(column(table, pad) for pad in ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1"))
    for index in np.flatnonzero(loads & (memory != INP) & (pads > 0)).tolist():
        yield Problem(index, "only loads of INP may have pads, as the HLS design ignores those of others")
    rows = column(table, "y_size")
    for index in np.flatnonzero(loads & (memory == UOP) & (rows != 1)).tolist():
        yield Problem(index, f"`y_size` of LOAD UOP must be 1, but got y_size={rows[index]}")


def _repeats_and_stores(table: Table, hardware: VtaHardware, dram: NDArray[np.uint8]) -> Iterator[Problem]:
    """Lists repeats of a dst that come too soon, and stores of elements that neither GEMM nor ALU has computed.

    Outputs have a memory of their own in hardware, which only GEMM and ALU write.
    """
    uops, executed = UopBuffer(hardware, dram), iterations(table)
    made = np.zeros(hardware.acc_depth, np.bool_)
    for index in execution_order(table).tolist():
        row = table[index]
        uops.run(row)
        if row[0] in (GEMM, ALU) and executed[index]:
            if found := _again(row, uops.select(row)):
                yield Problem(
                    index,
                    f"dst must differ from those of the {DISTANCE} micro-operations before, but got dst={found[0]} "
                    f"again after {found[1]}",
                )
            (written,) = (access.indices for access in accesses(row, hardware, uops) if access.write)
            made[written] = not (row[0] == GEMM and row[COLUMN["reset"]])
        elif row[0] in (LOAD, STORE):
            for access in accesses(row, hardware, uops):
                if access.space != "acc":
                    continue
                if access.write:
                    made[access.indices] = False
                elif not made[access.indices].all():
                    element = access.indices[~made[access.indices]][0]
                    yield Problem(
                        index, f"STORE must follow a GEMM or ALU operation on what it stores, but got acc {element}"
                    )


def _again(row: NDArray[np.int64], uops: NDArray[np.int64]) -> tuple[int, int] | None:
    """The first dst that comes again within `DISTANCE` micro-operations, and after how many it does.

    How far neighbours are apart is the same in every turn. So three turns of the inner loop tell of all, and so do the
    last two with the first two of the next turn of the outer loop.
    """
    outer, inner = int(row[COLUMN["iter_out"]]), int(row[COLUMN["iter_in"]])
    sequences = [[(i, j) for i in range(min(outer, 1 + DISTANCE)) for j in range(min(inner, 2 * DISTANCE))]]
    if inner > 2 * DISTANCE:
        around = [(0, inner - 2), (0, inner - 1), (1, 0), (1, 1)]
        sequences = [sequences[0][: 1 + DISTANCE], [turn for turn in around if turn[0] < outer]]
    for distance in range(1, DISTANCE + 1):
        for sequence in sequences:
            i, j = np.array(sequence, np.int64).T[:, :, None]
            dst = (uops[:, 0] + i * row[COLUMN["dst_out"]] + j * row[COLUMN["dst_in"]]).reshape(-1)
            again = np.flatnonzero(dst[distance:] == dst[:-distance])
            if len(again):
                return int(dst[again[0]]), distance
    return None
