"""Kernels for ranges of a size: schedules are found at some sizes, opened to those between, and chosen by the mean.

A schedule that is found at one size is a trace, which holds at others, too: `opened`. Every trace is timed at all sizes
that it holds for, and so many of them are kept as make the mean over the distribution of sizes smallest; each has
kernels for the sizes where it is the fastest. DietCode (Zheng et al., MLSys 2022) searches micro-kernels that serve a
distribution of shapes together; here the sketches and the search are those of known sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.config import Measure
from autotune.tuning.finals import finalists
from autotune.tuning.result import TuneResult
from autotune.tuning.tuner import tune
from measure.timing import TimingPolicy
from measure.timing import measure as timed
from search_space import te
from search_space.ir.stmt import LoopProgram
from search_space.lower import cleanup, lower
from search_space.schedule.errors import ScheduleError
from search_space.schedule.opened import variants
from search_space.schedule.state import initial_state
from search_space.schedule.trace import Trace
from search_space.workloads import Workload
from targets import registry
from targets.base import BuildError, Kernel, RunError
from targets.dispatch import Dispatch

Define = Callable[[Any], Sequence[te.Tensor]]
"""A size, as a number or as a variable → inputs..., output."""

LEAST_GAIN = 0.01
"""Share of the mean that one more schedule must save."""


@dataclass(frozen=True)
class Part:
    """A range of sizes, both ends inclusive, and its schedule."""

    low: int
    high: int
    trace: Trace


@dataclass(frozen=True)
class SizesResult:
    """Outcome of `tune_for_sizes`.

    Attributes:
        define: what was tuned, by its size.
        target: name of the target; size: name of the size.
        parts: ranges of sizes, in order, which together have all of them.
        weights: how often each size comes; seconds: of one call at that size, by the kernel of its part.
        tuned: the searches, by the size at which each looked.
    """

    define: Define
    target: str
    size: str
    parts: tuple[Part, ...]
    weights: Mapping[int, float]
    seconds: Mapping[int, float]
    tuned: Mapping[int, TuneResult]

    @property
    def mean_seconds(self) -> float:
        """Of a call, over the distribution of sizes."""
        return _mean(self.weights, list(self.seconds.values()))

    @cached_property
    def kernel(self) -> Dispatch:
        """Takes the arrays of any size in range, the output last."""
        return Dispatch([_built(self.define, p.trace, p.low, p.high, self.target, self.size) for p in self.parts])


@dataclass(frozen=True)
class _Candidate:
    """A trace, the least size from which on it holds, and seconds at every size; infinite below."""

    trace: Trace
    least: int
    seconds: tuple[float, ...]


def tune_for_sizes(
    define: Define,
    sizes: Mapping[int, float] | Sequence[int],
    target: str = "cpu",
    trials: int = 64,
    seed: int = 0,
    *,
    schedules: int = 4,
    finals: int = 3,
    search_at: Sequence[int] | None = None,
    size: str = "n",
    measure: Measure = Measure(),
    **options: Any,
) -> SizesResult:
    """Searches schedules for all sizes of a range, such that the mean over a distribution is small.

    Args:
        define: the definition, by its size: inputs, in the order in which kernels take them, then the output.
        sizes: with how often each comes (equally often: a sequence). The smallest and the largest are the ends of the
            range; kernels are chosen by their times at all of these.
        target: a name of `targets.registry`; one whose kernels take open sizes.
        trials: candidates to measure, for each of the sizes at which schedules are searched.
        seed: of every random draw, and of the inputs.
        schedules: how many there are to be at most; each has a kernel for every range of sizes where it is the fastest.
        finals: traces of each search that are timed at all sizes.
        search_at: those of the sizes at which schedules are searched; None: all of them. With the smallest among them,
            there is a schedule whose tiles are small enough for it.
        size: name of the size.
        measure: how candidates are measured; those at all sizes in this process, with warm caches.
        options: further ones of `autotune.tune`.

    Raises:
        ValueError: no sizes, or a size, a weight or a number that is not positive.
        ScheduleError: no schedule that was found holds from the smallest size on.
        RunError: a kernel computes something else than the definition.
        NoLegalSchedule, AllTrialsFailed: as of `autotune.tune`.
    """
    weights = _weights(sizes)
    for name, number in (("schedules", schedules), ("finals", finals)):
        if number < 1:
            raise ValueError(f"`{name}` must be at least 1, but got {name}={number}")
    searched = list(weights) if search_at is None else sorted(set(search_at))
    if not searched or not set(searched) <= weights.keys():
        raise ValueError(f"`search_at` must be some of the sizes {list(weights)}, but got {searched}")
    tuned = {n: tune(define(n), target, trials, seed, measure=measure, **options) for n in searched}
    traces: dict[str, Trace] = {}
    for result in tuned.values():
        for record in finalists([*result.records, *result.others], finals):
            traces.setdefault(record.trace_key, Trace.from_json(record.trial.trace))
    clock = _Clock(define, tuple(weights), target, size, seed, measure.threads)
    candidates = [c for c in map(clock.candidate, traces.values()) if c is not None]
    low, high = min(weights), max(weights)
    if not any(c.least <= low for c in candidates):
        raise ScheduleError(f"a schedule must hold for {size} from {low} to {high}, but none of {len(traces)} does")
    chosen = _chosen(candidates, weights, schedules)
    winners = [min(chosen, key=lambda c: c.seconds[i]) for i in range(len(weights))]
    seconds = {n: winner.seconds[i] for i, (n, winner) in enumerate(zip(weights, winners, strict=True))}
    return SizesResult(define, target, size, _parts(list(weights), winners), weights, seconds, tuned)


def _weights(sizes: Mapping[int, float] | Sequence[int]) -> dict[int, float]:
    """In the order of the sizes."""
    given = dict(sizes) if isinstance(sizes, Mapping) else dict.fromkeys(sizes, 1.0)
    if not given:
        raise ValueError("`sizes` must not be empty, but got none")
    for n, weight in given.items():
        if not isinstance(n, (int, np.integer)) or n < 1:
            raise ValueError(f"`sizes` must be integers of at least 1, but got {n!r}")
        if not 0 < weight < math.inf:
            raise ValueError(f"a weight of `sizes` must be positive, but got {weight} for {n}")
    return {int(n): float(given[n]) for n in sorted(given)}


def _mean(weights: Mapping[int, float], seconds: Sequence[float]) -> float:
    """Weighted."""
    return sum(w * s for w, s in zip(weights.values(), seconds, strict=True)) / sum(weights.values())


def opened(define: Define, trace: Trace, low: int, high: int, size: str = "n") -> LoopProgram:
    """The program of a trace for a range of sizes, where it was found at another one.

    A split that must divide is peeled or guarded where the loop is open; whatever else a step demands must hold for
    all of the range.

    Raises:
        ScheduleError: the trace does not hold for the range.
    """
    *inputs, output = define(low if low == high else te.var(size, low, high))
    state = initial_state([output], inputs=inputs)
    refused: list[ScheduleError] = []
    for variant in variants(trace, state):
        try:
            return cleanup(lower(variant.apply(state)))
        except ScheduleError as error:
            refused.append(error)
    if refused:
        raise refused[-1]  # of what would be the most likely to hold
    trace.apply(state)  # which no variant could be: it says why
    raise ScheduleError(f"a trace must hold for {size} from {low} to {high}, but got {trace}")


def _built(define: Define, trace: Trace, low: int, high: int, target: str, size: str) -> Kernel:
    on: Any = registry.get(target)
    kernel: Kernel = on.load(on.build(opened(define, trace, low, high, size)))
    return kernel


class _Clock:
    """Times traces at all sizes that they hold for."""

    def __init__(
        self, define: Define, sizes: tuple[int, ...], target: str, size: str, seed: int, threads: int | None
    ) -> None:
        self._define, self._sizes, self._target, self._size = define, sizes, target, size
        self._seed, self._threads = seed, threads
        self._fastest = [math.inf] * len(sizes)
        self._tasks: dict[int, tuple[Workload, list[NDArray[Any]], NDArray[Any]]] = {}

    def candidate(self, trace: Trace) -> _Candidate | None:
        """The trace, timed; None where it holds for no range up to the largest size, or there is no code for it."""
        low, high = self._sizes[0], self._sizes[-1]
        least = self._least(trace, low, high)
        if least is None:
            return None
        try:
            kernel = _built(self._define, trace, least, high, self._target, self._size)
        except BuildError:
            return None
        seconds = [self._seconds(kernel, i) if n >= least else math.inf for i, n in enumerate(self._sizes)]
        return _Candidate(trace, least, tuple(seconds))

    def _least(self, trace: Trace, low: int, high: int) -> int | None:
        """The size from which on the trace holds: where one is large enough for its tiles, larger ones are, too."""
        if not self._holds(trace, high - 1 if high > low else high, high):
            return None
        first, last = low, max(low, high - 1)
        while first < last:
            middle = (first + last) // 2
            if self._holds(trace, middle, high):
                last = middle
            else:
                first = middle + 1
        return first

    def _holds(self, trace: Trace, low: int, high: int) -> bool:
        try:
            opened(self._define, trace, low, high, self._size)
        except ScheduleError:
            return False
        return True

    def _seconds(self, kernel: Kernel, place: int) -> float:
        """Of a call at one of the sizes, once its output is checked."""
        n = self._sizes[place]
        if n not in self._tasks:
            workload = Workload.of(self._define(n))
            inputs = workload.make_inputs(self._seed)
            self._tasks[n] = workload, inputs, workload.reference(*inputs)
        workload, inputs, expected = self._tasks[n]
        bound = kernel.bind(inputs)
        rtol, atol = workload.tolerance
        found = bound.run(self._threads)
        if not np.allclose(found.astype(np.float64), expected.astype(np.float64), rtol, atol, equal_nan=True):
            raise RunError(f"a kernel must compute its definition, but at {self._size} = {n} it does not")
        best = None if math.isinf(self._fastest[place]) else self._fastest[place]
        seconds = timed(partial(bound.time, threads=self._threads), TimingPolicy(), best).seconds
        self._fastest[place] = min(self._fastest[place], seconds)
        return seconds


def _chosen(candidates: Sequence[_Candidate], weights: Mapping[int, float], schedules: int) -> list[_Candidate]:
    """Those that together have the smallest mean, taken one by one; one that holds from the least size on is first."""
    chosen: list[_Candidate] = []
    mean = math.inf

    def with_one_more(candidate: _Candidate) -> float:
        fastest = [min(c.seconds[i] for c in (*chosen, candidate)) for i in range(len(weights))]
        return _mean(weights, fastest)

    while len(chosen) < schedules:
        best = min(candidates, key=with_one_more)
        found = with_one_more(best)
        if not found < mean * (1 - LEAST_GAIN):
            break
        chosen.append(best)
        mean = found
    return chosen


def _parts(sizes: Sequence[int], winners: Sequence[_Candidate]) -> tuple[Part, ...]:
    """Neighbouring sizes of one winner are one range; between two winners it ends in the middle."""
    parts: list[Part] = []
    low = sizes[0]
    for i, winner in enumerate(winners):
        last = i + 1 == len(winners)
        if last or winners[i + 1] is not winner:
            high = sizes[i] if last else max((sizes[i] + sizes[i + 1]) // 2, winners[i + 1].least - 1)
            parts.append(Part(low, high, winner.trace))
            low = high + 1
    return tuple(parts)
