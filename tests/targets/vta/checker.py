"""All rules of a stream, the indices that its micro-operations make included, checked without running it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from targets.vta.hardware import VtaHardware
from targets.vta.isa import ALU, COLUMN, GEMM, Table
from targets.vta.problems import Problem, refusal
from targets.vta.semantics import iterations
from targets.vta.tokens import token_problems
from targets.vta.verify import index_problem, static_problems
from tests.targets.vta.accesses import UopBuffer


def verify(table: Table, hardware: VtaHardware, dram: NDArray[np.uint8] | None = None) -> list[Problem]:
    """All that is illegal in a stream, in the order of its instructions.

    Args:
        table: fields of the stream, as `isa.to_table` and `isa.decode_table` give them.
        dram: memory that the stream starts with. With it transfers are held against its size, and the indices that
            micro-operations make against the buffers; micro-operations are taken from it as it is at the start.

    Indices are looked at where nothing else is wrong: what waits for ever has none.
    """
    found = static_problems(table, hardware, None if dram is None else dram.size) or token_problems(table, hardware)
    if dram is not None and not found:
        found = list(_indices(table, hardware, dram))
    return found


def check(table: Table, hardware: VtaHardware, dram: NDArray[np.uint8] | None = None) -> None:
    """Raises what `verify` finds.

    Raises:
        Deadlock: nothing is wrong but that modules wait for ever.
        IllegalStream: something else is.
    """
    if found := verify(table, hardware, dram):
        raise refusal(found)


def _indices(table: Table, hardware: VtaHardware, dram: NDArray[np.uint8]) -> Iterator[Problem]:
    """Indices that micro-operations make."""
    buffer = UopBuffer(hardware, dram)
    executed = iterations(table)
    for index, row in enumerate(table):
        buffer.run(row)
        if executed[index] and row[0] in (GEMM, ALU):
            most = buffer.select(row).max(axis=0).tolist()
            for number, name in enumerate(("dst", "src", "wgt")):
                for loop in ("out", "in"):
                    most[number] += int((row[COLUMN[f"iter_{loop}"]] - 1) * row[COLUMN[f"{name}_{loop}"]])
            message = index_problem(row, most, hardware)
            if message:
                yield Problem(index, message)
