"""Finds races: two modules touch the same data, one of them writes, and no tokens say who comes first.

The functional simulator runs one order of many that the tokens allow, so a missing token goes unnoticed there. Here
each module has a vector clock, which tokens carry along (Lamport 1978; Fidge 1988): an instruction knows of what
happened before it in any order. Which token meets which `pop` does not depend on the order, as every token queue has
one giver and one taker; so one order is enough to find all pairs.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from targets.vta.hardware import VtaHardware
from targets.vta.isa import COLUMN, Table
from targets.vta.semantics import MODULES, POPS, PUSHES, modules
from targets.vta.tokens import execution_order
from tests.targets.vta.accesses import UopBuffer, accesses
from tests.targets.vta.checker import check


@dataclass(frozen=True)
class Race:
    """Two instructions that nothing orders.

    Attributes:
        first, second: their numbers.
        space: `inp`, `wgt`, `acc` or `dram`.
        index: the first element (in DRAM: byte) that both touch, and `count` how many there are.
        message: all of it in words.
    """

    first: int
    second: int
    space: str
    index: int
    count: int
    message: str

    def __str__(self) -> str:
        """The message."""
        return self.message


class _Space:
    """The last accesses to one memory: ordinals of the last read and write by module and element, 0 for none."""

    def __init__(self, size: int) -> None:
        self.last = np.zeros((len(MODULES), 2, size), np.int32)


def races(table: Table, hardware: VtaHardware, dram: NDArray[np.uint8]) -> list[Race]:
    """All pairs of instructions of different modules that race, each pair once for each place.

    An element's last read and write by each module are compared, so of many instructions that race with one other the
    latest is named.

    Args:
        dram: memory that the stream starts with.

    Raises:
        IllegalStream: the stream breaks a rule.
        Deadlock: it cannot run to its end.
    """
    check(table, hardware, dram)
    of = modules(table)
    members = [np.flatnonzero(of == module) for module in range(len(MODULES))]
    sizes = {name: getattr(hardware, f"{name}_depth") for name in ("uop", "inp", "wgt", "acc")}
    spaces = {name: _Space(size) for name, size in {**sizes, "dram": dram.size}.items()}
    clocks = np.zeros((len(MODULES), len(MODULES)), np.int32)
    tokens: list[deque[NDArray[np.int32]]] = [deque() for _ in range(4)]
    uops, found = UopBuffer(hardware, dram), []
    for index in execution_order(table).tolist():
        row, module = table[index], int(of[index])
        clock = clocks[module]
        for queue, flag in zip(POPS[module], ("pop_prev", "pop_next"), strict=True):
            if queue >= 0 and row[COLUMN[flag]]:
                np.maximum(clock, tokens[queue].popleft(), out=clock)
        clock[module] += 1
        uops.run(row)
        for access in accesses(row, hardware, uops):
            last = spaces[access.space].last
            for other in range(len(MODULES)):
                if other == module:
                    continue
                for kind in (0, 1) if access.write else (1,):
                    seen = last[other, kind, access.indices]
                    wrong = seen > clock[other]
                    if wrong.any():
                        ordinal = int(seen[wrong].max())
                        places = access.indices[seen == ordinal]
                        first = int(members[other][ordinal - 1])
                        what = ("read", "written")[kind], "written" if access.write else "read"
                        message = (
                            f"{access.space} {int(places.min())} is {what[0]} by instruction {first} "
                            f"({MODULES[other]}) and {what[1]} by instruction {index} ({MODULES[module]}), "
                            f"but no tokens order the two"
                        )
                        found.append(Race(first, index, access.space, int(places.min()), len(places), message))
            last[module, int(access.write), access.indices] = clock[module]
        for queue, flag in zip(PUSHES[module], ("push_prev", "push_next"), strict=True):
            if queue >= 0 and row[COLUMN[flag]]:
                tokens[queue].append(clock.copy())
    return found
