"""Kernels of a network of open sizes: candidates, and the ranges of sizes in which each is called.

Each schedule was found at some sizes. It holds from there on, as its tiles fit in there, and its time at any size is
estimated: with tiles of 8 rows, 16 rows are computed for 9; with tiles of 5, 10. `tuner.size_ranges` divides sizes into
few ranges, each with the schedules of the best estimates there, such that the network loses the least time over all
sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.compiler.cache.kernels import symbol_of_open
from autotune.compiler.executable.graph_family import GraphFamily
from autotune.compiler.executable.shapes import NotOpen, Range
from autotune.schedule import OpenKernel, Schedule
from autotune.tuner.open_traces import OpenTrace, open_trace
from autotune.tuner.size_ranges import choose_candidates, choose_ranges
from search_space import te_json
from search_space.dtypes import numpy_dtype
from search_space.ir.stmt import LoopProgram
from search_space.schedule.errors import ScheduleError
from search_space.schedule.opened import exchange_axes
from search_space.schedule.state import State, initial_state
from search_space.terms import SizePoint, Term
from search_space.workloads import Workload
from targets.base import Target

MOST = 16
"""Largest number of ranges of an open size."""
LEAST_GAIN = 0.001
"""Share of the time that one more range must save."""
COPY = 0.005
"""Share of the time that another copy of all weights must save; kernels that pack in their own ways have one each."""
DOUBT = 0.02
"""Share of its time by which a schedule is assumed slower for each doubling from where it was found: the search at a
size optimises also effects that the estimate does not model."""


@dataclass(frozen=True)
class ConstantPacking:
    """Way in which a kernel packs its constants.

    Attributes:
        how: text that is equal for kernels that pack alike.
        nbytes: bytes of the packed constants.
    """

    how: str
    nbytes: int


@dataclass(frozen=True)
class Candidate:
    """Kernel of a call from some sizes on.

    Attributes:
        kernel: kernel whose code holds for these sizes and all larger ones.
        terms: term of the network's sizes for each of the kernel's sizes.
        seconds: estimated time, (cells,); infinite where the kernel does not hold.
        packing: way in which it packs constants.
    """

    kernel: OpenKernel
    terms: Mapping[str, Term]
    seconds: NDArray[np.float64]
    packing: ConstantPacking


class OpenKernels:
    """Candidates of a network's calls at open sizes.

    Args:
        family: the network.
        choose_schedule: function workload → its schedule.
        target: target that builds the kernels.
        threads: number of threads that the kernels run on.
        cold: whether to estimate times for constants that come from memory.
    """

    def __init__(
        self,
        family: GraphFamily,
        choose_schedule: Callable[[Workload], Schedule],
        target: Target,
        threads: int,
        cold: bool,
    ) -> None:
        self._family, self._choose_schedule, self._target = family, choose_schedule, target
        self._threads, self._cold = threads, cold
        self._definitions: dict[tuple[int, str, SizePoint], tuple[Any, State]] = {}

    def choose(self) -> list[tuple[Range, tuple[Candidate, ...]]]:
        """Chooses ranges of sizes, each with the kernel of every call.

        Raises:
            NotOpen: sizes have no schedule that was found at these or lesser ones and holds for them.
        """
        family, cells = self._family, self._family.shapes.cells
        every = {call: self._candidates(call) for call in family.distinct}
        alike = [family.first_alike(call) for call in range(family.count)]
        seconds = np.full((len(every), max(map(len, every.values())), len(cells)), np.inf)
        for rows, candidates in zip(seconds, every.values(), strict=True):
            rows[: len(candidates)] = [candidate.seconds for candidate in candidates]
        counts = np.array([alike.count(call) for call in every])
        packed = [[candidate.packing for candidate in candidates] for candidates in every.values()]
        ranges = []
        for within, numbers in choose_kernels(cells, seconds, counts, packed):
            best = {call: every[call][number] for call, number in zip(every, numbers, strict=True)}
            ranges.append((within, tuple(best[call] for call in alike)))
        return ranges

    def _candidates(self, call: int) -> list[Candidate]:
        """Lists the kernels of a call, each for the sizes from where its schedule was found.

        Raises:
            NotOpen: no kernel holds for some sizes.
        """
        family, cells = self._family, self._family.shapes.cells
        candidates: list[Candidate] = []
        refused: ScheduleError | None = None
        listed: list[tuple[Workload, SizePoint]] = []
        for point in family.shapes.samples:
            workload = family.workload(call, point)
            schedule = self._choose_schedule(workload)
            holds_here = any(same == workload and bool(np.less_equal(least, point).all()) for same, least in listed)
            if holds_here and not family.definition(call, schedule.algorithm).terms:
                continue  # a call without open sizes has the kernel of lesser sizes
            listed.append((workload, point))
            other = exchange_axes(schedule.trace)
            for trace in (schedule.trace, *(() if other is None else (other,))):
                try:
                    candidates.append(self._candidate(call, replace(schedule, trace=trace), point))
                except ScheduleError as error:
                    refused = error
        holds = np.isfinite([candidate.seconds for candidate in candidates]).any(0) if candidates else [False]
        if not np.all(holds):
            within = cells[int(np.argmin(holds))]
            shown = " to ".join("x".join(map(str, sizes)) for sizes in (within.least, within.greatest))
            title = family.group(call, family.shapes.greatest).title
            raise NotOpen(f"a schedule of {title} must hold for sizes {shown}: {refused or ''}")
        return candidates

    def _candidate(self, call: int, schedule: Schedule, least: SizePoint) -> Candidate:
        """Makes the kernel of a schedule that was found at some sizes, for these and all larger ones.

        Raises:
            ScheduleError: the schedule does not hold for them.
            NotOpen: the call's definition differs between sizes.
        """
        family = self._family
        general, ends = family.definition(call, schedule.algorithm), (least, family.shapes.greatest)
        strides = family.pitches(call, schedule.algorithm)
        pitches = {name: tuple(general.to_expressions(list(each), *ends)) for name, each in strides.items()}
        definition, state = self._define(call, schedule.algorithm, least)
        opened = open_trace(schedule.trace, state)
        kernel = OpenKernel(definition, opened.trace, pitches, "")
        named = replace(kernel, name=symbol_of_open(kernel, self._target) or "")
        return Candidate(
            named, general.terms, self._estimate(opened, general.terms, least), _describe_packing(opened.program)
        )

    def _define(self, call: int, algorithm: str, least: SizePoint) -> tuple[Any, State]:
        """Returns the definition of a call from some sizes on, as `te_json`, and its state without a schedule."""
        key = call, algorithm, least
        if key not in self._definitions:
            definition = self._family.definition(call, algorithm).plain(least, self._family.shapes.greatest)
            *inputs, output = te_json.from_json(definition, open_sizes=True)
            self._definitions[key] = definition, initial_state([output], inputs=inputs)
        return self._definitions[key]

    def _estimate(self, trace: OpenTrace, terms: Mapping[str, Term], least: SizePoint) -> NDArray[np.float64]:
        """Estimates the seconds of a kernel in each cell, as the mean of its ends; infinite where it does not hold."""
        cells, sizes = self._family.shapes.cells, trace.program.sizes
        points = [point for cell in cells for point in (cell.least, cell.greatest)]
        columns = np.array([[terms[name].at(point) for point in points] for name in sizes], np.float64)
        ends = trace.seconds(columns.reshape(len(sizes), len(points)), self._target.hardware, self._cold, self._threads)
        begins = np.array([cell.least for cell in cells])  # (cells, sizes)
        doubt = 1 + DOUBT * np.log2(begins / least).sum(1) * bool(sizes)  # fixed kernels: no doubt
        return np.where((begins >= least).all(1), ends.reshape(-1, 2).mean(1) * doubt, np.inf)


def choose_kernels(
    cells: Sequence[Range],
    seconds: NDArray[np.float64],
    counts: NDArray[np.int64],
    packings: Sequence[Sequence[ConstantPacking]],
) -> list[tuple[Range, list[int]]]:
    """Chooses ranges of sizes, and the candidate of each kernel there.

    The cost of a candidate is its share of the time of all kernels by the fastest candidates; each cell counts by the
    logarithm of its sizes.

    Args:
        cells: cells of a `ShapeSet`. If several sizes are open each is a range.
        seconds: estimated times, (kernels, candidates, cells); infinite where a candidate does not hold. Each kernel
            has one that holds in each cell.
        counts: number of calls of each kernel, (kernels,).
        packings: ways of packing, by kernel and candidate.
    """
    weights = np.array([sum(math.log((b + 1) / a) for a, b in each.spans) for each in cells])
    of_all = (seconds.min(1) * counts[:, None]).sum(0)  # (cells,)
    costs = seconds * counts[:, None, None] / of_all * (weights / weights.sum())
    once = sum(min(p.nbytes for p in each) * count for each, count in zip(packings, counts.tolist(), strict=True))
    for rows, each, count in zip(costs, packings, counts.tolist(), strict=True):
        rows[: len(each)][_rare(rows[: len(each)], each, COPY * count / max(1, once))] = np.inf
    if len(cells[0].least) > 1:
        return list(zip(cells, costs.argmin(1).T.tolist(), strict=True))
    return [
        (Range(cells[begin].least, cells[end - 1].greatest), best.tolist())
        for begin, end, best in choose_ranges(costs, LEAST_GAIN, MOST)
    ]


def _rare(costs: NDArray[np.float64], packings: Sequence[ConstantPacking], price: float) -> NDArray[np.bool_]:
    """Marks candidates whose way of packing is not worth its memory, at a price per byte."""
    ways = {p.how: p.nbytes for p in packings}
    way = np.array([list(ways).index(p.how) for p in packings])
    least = np.full((len(ways), costs.shape[1]), np.inf)  # (ways, cells)
    np.minimum.at(least, way, costs)
    return ~np.isin(way, choose_candidates(least, price * np.array([*ways.values()])))


def _describe_packing(program: LoopProgram) -> ConstantPacking:
    """Describes how a kernel packs its constants."""
    outputs = [(p, b) for p in program.prologues for b in p.params if b.name in p.outputs]
    nbytes = sum(math.prod(int(str(n)) for n in b.shape) * numpy_dtype(b.dtype).itemsize for _, b in outputs)
    return ConstantPacking("\n".join(str(p) for p in program.prologues), nbytes)
