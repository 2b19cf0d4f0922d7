"""Transfer of candidates from some sizes to another: the same sketch, with the factors that suit that size.

With tiles of 8 rows, 16 rows are computed for 9, and no tile fits 3: a size below or near a tile needs its own factors.
All other decisions, such as the order of loops and the tiles along axes of equal extents, mostly stay good. Therefore a
search at such a size begins near its neighbours' fastest candidates, and needs few trials.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from autotune.tuner.finals import finalists
from autotune.tuner.schedulers.base import TaskScheduler, TaskState
from autotune.tuner.scorer import ModelScorer
from autotune.tuner.search.base import Candidate, SearchStrategy
from autotune.tuner.task_tuning import TaskTuning
from measure.record import Record
from search_space.space import SearchSpace, Sketch

MOST = 4096
"""Largest number of candidates that are compared with one of another size; if there are more, they are drawn."""


class CarryStrategy(SearchStrategy):
    """Strategy that first proposes candidates from its caller.

    Args:
        inner: strategy that proposes all other candidates, and is told the results of all.
        first: function that returns the first candidates, called by the first request.
    """

    def __init__(self, inner: SearchStrategy, first: Callable[[], Sequence[Candidate]]) -> None:
        self.options, self.space, self.scorer, self.rng = inner.options, inner.space, inner.scorer, inner.rng
        self._inner, self._first = inner, first
        self._left: list[Candidate] | None = None

    def ask(self, n: int) -> list[Candidate]:
        if self._left is None:
            self._left = list(self._first())
        given, self._left = self._left[:n], self._left[n:]
        return given or self._inner.ask(n)

    def ask_greedy(self, n: int) -> list[Candidate]:
        return self._inner.ask_greedy(n)

    def tell(self, candidates: Sequence[Candidate], seconds: NDArray[np.float64]) -> None:
        self._inner.tell(candidates, seconds)


class InOrder(TaskScheduler):
    """Scheduler that runs the first tasks in turn, then each of the others until it is done.

    Args:
        together: number of tasks that run in turn.
    """

    def __init__(self, together: int) -> None:
        self._together = together

    def choose(self, tasks: Sequence[TaskState]) -> int | None:
        left = [i for i, task in enumerate(tasks) if not task.done]
        return min(left, key=lambda i: (0, len(tasks[i].history)) if i < self._together else (i, 0), default=None)


def like_neighbours(
    tuning: TaskTuning, n: int, others: Mapping[int, TaskTuning], count: int, of_each: int, rng: np.random.Generator
) -> list[Candidate]:
    """Lists candidates of one size like the fastest of others, those of the nearest sizes first.

    Args:
        tuning: task of the size.
        n: the size.
        others: tasks by size, in any state.
        count: largest number of candidates.
        of_each: number of the fastest candidates of each other size that are fitted.
        rng: source of draws, if a candidate has more than `MOST` that are like it.
    """
    near = sorted((m for m in others if m != n), key=lambda m: abs(math.log(m / n)))
    lists: list[list[Candidate]] = []
    for m in near:
        other = others[m]
        for record in finalists(other.records.fastest(of_each), of_each):
            lists.append(list_similar(record, other.space, tuning.space, tuning.scorer, other.scorer, count, rng))
    # The first pair of a list is its nearest and its best-scored candidate; pairs of all lists alternate.
    pairs = [[found[i : i + 2] for i in range(0, len(found), 2)] for found in lists]
    turns = [candidate for turn in zip_longest(*pairs, fillvalue=[]) for pair in turn for candidate in pair]
    return list(dict.fromkeys(turns))[:count]


def list_similar(
    record: Record,
    source: SearchSpace,
    space: SearchSpace,
    scorer: ModelScorer,
    model: ModelScorer,
    count: int,
    rng: np.random.Generator,
) -> list[Candidate]:
    """Lists legal candidates of a space that are like one of another size: the nearest, then the best-scored.

    A decision with the same values at both sizes keeps its value; if its values depend on the size, all of them are
    compared.

    Args:
        record: record of the candidate, with its sketch and choices.
        source: space of the candidate.
        space: space of the size to fit to.
        scorer: scorer of that size.
        model: scorer of the other size, whose model has learned from its trials; until then the roofline ranks.
        count: largest number of candidates.
        rng: argument of `like_neighbours`.
    """
    name, choices = record.provenance.sketch, record.provenance.choices
    source_sketch = next((s for s in source.sketches if s.name == name), None)
    number = next((i for i, s in enumerate(space.sketches) if s.name == name), None)
    if source_sketch is None or number is None or choices is None or len(choices) != len(source_sketch.groups):
        return []
    sketch = space.sketches[number]
    values = source_sketch.values(choices)
    if not set(sketch.columns) <= values.keys():
        return []
    rows, distances = _like(sketch, source_sketch, values, rng)
    legal = sketch.legal(rows)
    rows, distances = rows[legal], distances[legal]
    if not len(rows):
        return []
    scores = model.judge(scorer, number, rows)
    order = np.argsort(-scores, kind="stable")
    nearest = int(distances.argmin())
    picked = [nearest, *order[order != nearest].tolist()][:count]
    return [Candidate(number, tuple(row)) for row in rows[picked].tolist()]


def _like(
    sketch: Sketch, original: Sketch, values: Mapping[str, int], rng: np.random.Generator
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Lists choices (n, groups), all values of groups whose tables differ, and their distances from `values`."""
    tables = {group.name: group.table for group in original.groups}
    options: list[NDArray[np.int64]] = []
    gaps: list[NDArray[np.float64]] = []
    for group in sketch.groups:
        wanted = np.array([values[column] for column in group.columns], np.float64)
        gap = np.abs(np.log(group.table + 1.0) - np.log(wanted + 1.0)).sum(axis=1)  # (choices of the group,)
        same = group.name in tables and np.array_equal(tables[group.name], group.table)
        options.append(np.array([gap.argmin()]) if same else np.arange(len(group.table)))
        gaps.append(gap)
    lengths = [len(option) for option in options]
    if not lengths:
        return np.zeros((1, 0), np.int32), np.zeros(1)
    if math.prod(lengths) <= MOST:
        picked = np.unravel_index(np.arange(math.prod(lengths)), lengths)
    else:
        picked = tuple(rng.integers(length, size=MOST) for length in lengths)
    rows = np.stack([option[index] for option, index in zip(options, picked, strict=True)], axis=1).astype(np.int32)
    distances = np.sum([gap[rows[:, i]] for i, gap in enumerate(gaps)], axis=0)
    return rows, np.asarray(distances, np.float64)
