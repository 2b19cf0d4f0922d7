"""Features of a sketch: one traversal of its symbolic program serves all candidates."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from costmodel.columns import ColumnProgram
from costmodel.features import estimators
from costmodel.features.groups import COUNTS, NAMES, describe
from costmodel.features.nest import Nest
from costmodel.features.statement import Statement, statements
from search_space.hardware import Hardware
from search_space.ir.columns import Columns
from search_space.ir.stmt import LoopProgram
from search_space.ir.tape import Tape


class Nests:
    """Descriptions of statements on one tape, each made once: an algorithm's sketches share about every second one.

    Args:
        columns: names of the decision variables, in the order of the columns.

    Attributes:
        tape: tape of the statements' quantities.
        width: number of columns.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self.tape, self.width = Tape(), len(columns)
        self._convert = Columns(self.tape, columns, loops=True)
        self._nests: dict[Hashable, Nest] = {}

    def __len__(self) -> int:
        return len(self._nests)

    def of(self, statement: Statement) -> Nest:
        """Returns the nest of a statement."""
        key = statement.key
        found = self._nests.get(key)
        if found is None:
            found = self._nests[key] = Nest(statement, self._convert)
        return found


Shared = dict[tuple[str, ...], Nests]
"""Nests that several sketches share, by the names of their columns."""


class FeatureExtractor:
    """A function that computes the features of a population of one sketch.

    Args:
        program: the sketch's symbolic program, or a concrete one.
        columns: names of the decision variables, in the order of the columns.
        hardware: limits that the roofline needs.
        cold_constants: whether constants come from memory at each execution (the cache state `network`).
        threads: number of threads that kernels run on, of a CPU; None: one on each core.
        shared: nests to share with other sketches, which are reused and extended; None: not shared.

    Attributes:
        names: names of the features, equal for every program.
        statements: statements that are described, see `statement.statements`.
    """

    names: tuple[str, ...] = NAMES

    def __init__(
        self,
        program: LoopProgram,
        columns: Sequence[str],
        hardware: Hardware,
        cold_constants: bool = False,
        threads: int | None = None,
        shared: Shared | None = None,
    ) -> None:
        self.statements = statements(program)
        names = tuple(columns)
        on = (Shared() if shared is None else shared).setdefault(names, Nests(names))
        self._tape, self._width = on.tape, on.width
        self._nests = [on.of(s) for s in self.statements]
        self._estimate = estimators.get(hardware.kind)(program, self._nests, hardware.on(threads), cold_constants)

    def __call__(self, columns: NDArray[np.float64]) -> NDArray[np.float32]:
        """Computes candidates' features: (columns, n) → float32 (n, statements, features), a view with n innermost."""
        values = self._features(columns)
        cells = values.base if values.base is not None else values
        counts = cells[: len(COUNTS) * len(self.statements)]
        np.log2(np.add(counts, 1, out=counts), out=counts)
        return values.reshape(len(NAMES), len(self.statements), -1).transpose(2, 1, 0)

    def roofline(self, columns: NDArray[np.float64]) -> NDArray[np.float64]:
        """Computes estimated seconds: (columns, n) → (n,)."""
        seconds: NDArray[np.float64] = self._roofline(columns)[0].astype(np.float64)
        return seconds

    def disturbance(self, columns: NDArray[np.float64]) -> NDArray[np.float64]:
        """Computes the estimate of a machine that does other things as well, over `roofline`: (columns, n) → (n,)."""
        busy, idle = self._busy_and_idle(columns).astype(np.float64)
        ratio: NDArray[np.float64] = busy / idle
        return ratio

    @cached_property
    def _busy_and_idle(self) -> ColumnProgram:
        return ColumnProgram(self._tape, [self._estimate.busy_seconds, self._estimate.seconds], self._width)

    @cached_property
    def _roofline(self) -> ColumnProgram:
        return ColumnProgram(self._tape, [self._estimate.seconds], self._width)

    @cached_property
    def _features(self) -> ColumnProgram:
        """Program whose outputs are (features, statements), so that the arguments of the logarithms are contiguous."""
        terms, seconds = self._estimate.terms, self._estimate.seconds
        found = [describe(n, t, seconds) for n, t in zip(self._nests, terms, strict=True)]
        outputs = [self._tape.lift(of.get(name, 0)) for name in NAMES for of in found]
        return ColumnProgram(self._tape, outputs, self._width)


def get_extractor(
    program: LoopProgram,
    columns: Sequence[str],
    hardware: Hardware,
    cold_constants: bool = False,
    threads: int | None = None,
    shared: Shared | None = None,
) -> FeatureExtractor:
    """Returns the extractor of these arguments, which is cached as long as the program lives.

    The choice without trials, the first order of a search and its model ask for features of the same sketches. Making
    an extractor takes as long as scoring some thousands of candidates.
    """
    extractors = _EXTRACTORS.setdefault(program, {})
    key = (tuple(columns), hardware, cold_constants, threads)
    if key not in extractors:
        extractors[key] = FeatureExtractor(program, columns, hardware, cold_constants, threads, shared)
    return extractors[key]


_EXTRACTORS: WeakKeyDictionary[
    LoopProgram, dict[tuple[tuple[str, ...], Hardware, bool, int | None], FeatureExtractor]
] = WeakKeyDictionary()
