"""Interface of the estimators: quantities of every statement, and the seconds of the program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from costmodel.features.nest import Nest
from search_space.hardware import Hardware
from search_space.ir.semantics import BINARY, FUNCTIONS
from search_space.ir.stmt import LoopProgram
from search_space.ir.tape import Value

OVERLAP = 0.3  # share of the lesser terms that is not hidden behind the greatest
COST = {name: row.cost for name, row in (BINARY | FUNCTIONS).items() if row.cost > 1}
"""Vector instructions that an operation counts for: those of a function's code, or the time that a division keeps its
unit busy."""


@dataclass(frozen=True)
class Terms:
    """A statement's analytic quantities; cycles are those of one core doing all the work.

    Attributes:
        instructions: vector executions of the statement.
        accumulators: vectors of results in flight.
        registers: vector registers wanted.
        body: executions in one pass of the innermost runtime loop.
        loads: vector loads and stores of a body.
        arithmetic, loading, overhead: cycles.
        traffic: bytes loaded into each cache level.
        misses: cycles to load them.
        balance: share of the cores that the parallel loops keep busy.
        seconds: estimated time.
    """

    instructions: Value
    accumulators: Value
    registers: Value
    body: Value
    loads: Value
    arithmetic: Value
    loading: Value
    overhead: Value
    traffic: tuple[Value, ...]
    misses: tuple[Value, ...]
    balance: Value
    seconds: Value


@dataclass(frozen=True)
class Estimate:
    """Estimate of a program.

    Attributes:
        terms: terms of each statement, in order.
        seconds: estimated time of all statements together.
        busy_seconds: the same on a machine that does other things as well, so that cores are late now and then.
    """

    terms: list[Terms]
    seconds: Value
    busy_seconds: Value


class Estimator(Protocol):
    """A function that estimates programs for one kind of machine, as columns over the candidates of a sketch."""

    def __call__(
        self, program: LoopProgram, nests: Sequence[Nest], hardware: Hardware, cold_constants: bool
    ) -> Estimate:
        """Estimates a program.

        Args:
            program: symbolic or concrete program.
            nests: nests of its statements.
            hardware: limits of the machine.
            cold_constants: whether constants come from memory at each execution (the cache state `network`).
        """
