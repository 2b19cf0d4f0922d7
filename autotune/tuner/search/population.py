"""Populations as arrays, and the frame that puts the candidates of all sketches into one array."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.tuner.search.base import Candidate, Scorer
from search_space.decisions import Space

Keys = NDArray[Any]  # int64 (n,), or void (n,) where the space is too large to be numbered
_MAX_NUMBER = 1 << 62


@dataclass(frozen=True)
class Population:
    """Candidates of any sketches.

    Attributes:
        sketches: number of each member's sketch, int32 (n,).
        rows: choices, int32 (n, width), followed by zeros where a sketch has fewer groups than the widest.
    """

    sketches: NDArray[np.int32]
    rows: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.sketches)

    def take(self, index: NDArray[Any]) -> Population:
        """Selects members by indices or a mask."""
        return Population(self.sketches[index], self.rows[index])

    @staticmethod
    def concatenate(parts: Sequence[Population]) -> Population:
        """Concatenates populations in order."""
        return Population(
            np.concatenate([part.sketches for part in parts]), np.concatenate([part.rows for part in parts])
        )

    def by_sketch(self) -> Iterator[tuple[int, NDArray[np.intp]]]:
        """Yields (sketch, positions of its members), sketches in order."""
        order = np.argsort(self.sketches, kind="stable")
        sketches, starts = np.unique(self.sketches[order], return_index=True)
        yield from zip(sketches.tolist(), np.split(order, starts[1:]), strict=False)


class Frame:
    """Arrays over all sketches of a space.

    Attributes:
        groups: number of decision groups of each sketch, int64 (sketches,).
        lengths: number of entries of each group's table, int64 (sketches, width); 1 beyond a sketch's groups.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self.sketches = space.sketches
        self.width = max((len(sketch.groups) for sketch in self.sketches), default=0)
        self.groups = np.array([len(sketch.groups) for sketch in self.sketches], np.int64)
        self.lengths = np.ones((len(self.sketches), self.width), np.int64)
        for place, sketch in enumerate(self.sketches):
            self.lengths[place, : len(sketch.groups)] = [len(group.table) for group in sketch.groups]
        sizes = [sketch.size for sketch in self.sketches]
        self._uses_numbers = sum(sizes) < _MAX_NUMBER
        if self._uses_numbers:
            self._offsets = np.cumsum([0, *sizes[:-1]], dtype=np.int64)
            self._radices = np.ones_like(self.lengths)
            if self.width > 1:
                self._radices[:, :-1] = np.cumprod(self.lengths[:, :0:-1], axis=1)[:, ::-1]

    def of(self, sketch: int, choices: NDArray[np.int32]) -> Population:
        """Makes a population of one sketch from choices (n, groups)."""
        rows = np.zeros((len(choices), self.width), np.int32)
        rows[:, : choices.shape[1]] = choices
        return Population(np.full(len(choices), sketch, np.int32), rows)

    def empty(self) -> Population:
        """Returns a population without members."""
        return Population(np.empty(0, np.int32), np.empty((0, self.width), np.int32))

    def population(self, candidates: Sequence[Candidate]) -> Population:
        """Converts candidates to arrays."""
        rows = np.zeros((len(candidates), self.width), np.int32)
        for place, candidate in enumerate(candidates):
            rows[place, : len(candidate.choices)] = candidate.choices
        return Population(np.array([candidate.sketch for candidate in candidates], np.int32), rows)

    def candidates(self, population: Population) -> list[Candidate]:
        """Converts arrays to candidates."""
        return [
            Candidate(sketch, tuple(row[: len(self.sketches[sketch].groups)]))
            for sketch, row in zip(population.sketches.tolist(), population.rows.tolist(), strict=True)
        ]

    def uniform(self, sketch: int, n: int, rng: np.random.Generator) -> NDArray[np.int32]:
        """Draws random choices of one sketch, legal or not: (n, groups)."""
        lengths = self.lengths[sketch, : self.groups[sketch]].astype(np.float32)
        choices: NDArray[np.int32] = (rng.random((n, len(lengths)), np.float32) * lengths).astype(np.int32)
        return choices

    def keys(self, population: Population) -> Keys:
        """Computes a key of each member: two keys are equal if and only if sketch and choices are: (n,)."""
        if self._uses_numbers:
            radices = self._radices[population.sketches]
            places: Keys = np.einsum("ng,ng->n", population.rows, radices)
            return self._offsets[population.sketches] + places
        whole = np.ascontiguousarray(np.column_stack([population.sketches, population.rows]))
        keys: Keys = whole.view(np.dtype((np.void, whole.shape[1] * whole.itemsize))).reshape(-1)
        return keys

    def legal(self, population: Population) -> NDArray[np.bool_]:
        """Tells whether each member keeps the limits of its sketch: (n,)."""
        legal = np.empty(len(population), np.bool_)
        for sketch, places in population.by_sketch():
            legal[places] = self.sketches[sketch].legal(self.choices(sketch, population.rows[places]))
        return legal

    def score(self, population: Population, scorer: Scorer) -> NDArray[np.float64]:
        """Scores each member by the scorer: (n,)."""
        scores = np.empty(len(population))
        for sketch, places in population.by_sketch():
            scores[places] = scorer(sketch, self.choices(sketch, population.rows[places]))
        return scores

    def choices(self, sketch: int, rows: NDArray[np.int32]) -> NDArray[np.int32]:
        """Selects the columns of `rows` that a sketch uses: (n, groups)."""
        return rows[:, : self.groups[sketch]]


class SeenCandidates:
    """Candidates that must not be proposed again."""

    def __init__(self) -> None:
        self._keys: Keys | None = None

    def __len__(self) -> int:
        return 0 if self._keys is None else len(self._keys)

    def add(self, keys: Keys) -> None:
        """Adds candidates by their keys."""
        self._keys = np.unique(keys if self._keys is None else np.concatenate([self._keys, keys]))

    def fresh(self, keys: Keys) -> NDArray[np.bool_]:
        """Tells whether each key is new, neither added nor a repetition of one before it in `keys`: (n,)."""
        fresh = np.zeros(len(keys), np.bool_)
        fresh[np.unique(keys, return_index=True)[1]] = True
        if self._keys is not None:
            fresh &= ~np.isin(keys, self._keys)
        return fresh
