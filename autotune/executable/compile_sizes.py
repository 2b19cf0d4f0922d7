"""Compiles a network of open sizes: kernels for ranges of them, which a call chooses among.

Each schedule was found at some sizes, so that its tiles fit there, and is open from these on; of those a range has the
ones that are estimated best.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.cache.kernels import KernelCache, symbol_of_open
from autotune.executable.compile import Builder, Chosen, Compiler, is_dense
from autotune.executable.opening import NotOpen, Opening
from autotune.executable.packing import Call
from autotune.executable.ranges import Packed, Sampling, divided, doubted
from autotune.executable.scopes import Scope
from autotune.executable.weights import Weights
from autotune.graph.ir import Graph
from autotune.graph.memory_plan import MemoryPlan, plan
from autotune.graph.partition import Group
from autotune.schedule import Kernel, OpenKernel, Schedule
from costmodel.features import FeatureExtractor
from search_space import te_json
from search_space.dtypes import numpy_dtype
from search_space.ir.stmt import LoopProgram
from search_space.lower import cleanup, lower
from search_space.schedule.errors import ScheduleError
from search_space.schedule.opened import exchanged, variants
from search_space.schedule.state import State, initial_state
from search_space.terms import Point, Term
from search_space.workloads import Workload
from targets.base import Case, Choice, Loop, Module, Parameter, Step

LEAST_SECONDS = 1e-12
"""That a kernel is taken to run for, so that shares of it are numbers."""


@dataclass(frozen=True)
class _Opened:
    """A kernel from some sizes on, the algorithm that it computes by, and what it takes in each cell."""

    kernel: OpenKernel
    algorithm: str
    seconds: NDArray[np.float64]
    packed: Packed


@dataclass(frozen=True)
class _Case:
    """Sizes that have kernels of their own: of open sizes those of each call."""

    least: Point
    greatest: Point
    kernels: tuple[_Opened, ...] = ()

    @property
    def known(self) -> bool:
        return not self.kernels


class SizedCompiler(Compiler):
    """Compiles one network of open sizes.

    Args:
        opening: the network.
        sampling: where its schedules are found, and what may become ranges.
        chosen, target, threads, cache, builder: as of `Compiler`.
        cold: whether estimates are those of constants that come from memory.
        weights: as of `Compiler`.

    Raises:
        BuildError: a target whose kernels take no sizes.
    """

    def __init__(
        self,
        opening: Opening,
        sampling: Sampling,
        chosen: Chosen,
        target: str = "cpu",
        threads: int = 1,
        cache: KernelCache | None = None,
        builder: Builder | None = None,
        cold: bool = True,
        weights: Weights | None = None,
    ) -> None:
        super().__init__(opening.graph, chosen, target, threads, cache, builder, weights)
        self._opening, self._sampling, self.sizes, self._cold = opening, sampling, opening.sizes, cold
        self._greatest = tuple(high for _, high in opening.sizes.values())
        self._unscheduled: dict[tuple[int, str, Point], tuple[Any, State]] = {}

    @property
    def workloads(self) -> list[Workload]:
        """At all sizes at which schedules are found."""
        known = [group.workload for point in self._opening.known for group in self._opening.scope(point).groups]
        found = [self._opening.workload(call, point) for point in self._sampling.found_at for call in self._distinct]
        return [*(workload for workload in known if workload is not None), *found]

    def _parameter(self, name: str) -> Parameter:
        return self._opening.parameter(name)

    @property
    def _graphs(self) -> list[Graph]:
        return [self.graph, *(self._opening.scope(point).graph for point in self._opening.known)]

    def pack(self, workload: Workload, module: Module) -> None:
        """Packs constants of known sizes: kernels of open sizes are built when all schedules are known."""
        for point in self._opening.known:
            scope = self._opening.scope(point)
            for group in scope.groups:
                if group.workload == workload and is_dense(scope, group):
                    self._constants.ahead(Call(scope.graph, group, module))

    def _calls(self) -> Iterator[tuple[Scope, Group, int]]:
        for case in self._cases:
            scope = self._scope(case)
            yield from ((scope, group, 1) for group in scope.groups)

    def _scope(self, case: _Case) -> Scope:
        """The network of known sizes, or at the largest ones."""
        return self._opening.scope(case.least) if case.known else self._network

    def _arena_bytes(self, memory: MemoryPlan) -> int:
        known = (self._plan_at(point) for point in self._opening.known)
        return max(memory.nbytes, *(other.nbytes for other in known), 0)

    def _plan_at(self, known: Point) -> MemoryPlan:
        """Of a network of known sizes."""
        return plan(self._opening.scope(known).intervals(), self._target.spacing)

    # ------------------------------------------------------------------ kernels
    @cached_property
    def _distinct(self) -> list[int]:
        """Calls that are not like an earlier one."""
        return [call for call in range(self._opening.count) if self._opening.first_alike(call) == call]

    @cached_property
    def _cases(self) -> list[_Case]:
        """What a call of the network chooses among.

        Raises:
            NotOpen: sizes at which no schedule holds that was found at these or lesser ones.
        """
        every = {call: self._found(call) for call in self._distinct}
        alike = [self._opening.first_alike(call) for call in range(self._opening.count)]
        seconds = np.full((len(every), max(map(len, every.values())), len(self._sampling.cells)), np.inf)
        for row, found in zip(seconds, every.values(), strict=True):
            for place, opened in enumerate(found):
                row[place] = opened.seconds
        cases = [_Case(point, point) for point in self._opening.known]
        counts = np.array([alike.count(call) for call in every])
        packed = [[opened.packed for opened in found] for found in every.values()]
        for within, places in divided(self._sampling.cells, seconds, counts, packed):
            chosen = {call: found[place] for (call, found), place in zip(every.items(), places, strict=True)}
            cases.append(_Case(within.least, within.greatest, tuple(chosen[call] for call in alike)))
        return cases

    def _found(self, call: int) -> list[_Opened]:
        """A call's kernels, each from where its schedule was found on.

        Raises:
            NotOpen: sizes at which none of them holds.
        """
        found: list[_Opened] = []
        refused: ScheduleError | None = None
        for point in self._sampling.found_at:
            schedule = self._chosen(self._opening.workload(call, point))
            other = exchanged(schedule.trace)
            for trace in (schedule.trace, *(() if other is None else (other,))):
                try:
                    found.append(self._opened(call, replace(schedule, trace=trace), point))
                except ScheduleError as error:
                    refused = error
        held = np.isfinite([opened.seconds for opened in found]).any(0) if found else [False]
        if not np.all(held):
            within = self._sampling.cells[int(np.argmin(held))]
            shown = " to ".join("x".join(map(str, sizes)) for sizes in (within.least, within.greatest))
            title = self._opening.group(call, self._greatest).title
            raise NotOpen(f"a schedule of {title} must hold for sizes {shown}: {refused or ''}")
        return found

    def _defined(self, call: int, algorithm: str, least: Point) -> tuple[Any, State]:
        """What a call computes from some sizes on, as `te_json` has it and as nobody has scheduled it yet."""
        key = call, algorithm, least
        if key not in self._unscheduled:
            definition = self._opening.definition(call, algorithm).plain(least, self._greatest)
            *inputs, output = te_json.from_json(definition, open_sizes=True)
            self._unscheduled[key] = definition, initial_state([output], inputs=inputs)
        return self._unscheduled[key]

    def _opened(self, call: int, schedule: Schedule, least: Point) -> _Opened:
        """The kernel of a schedule that was found at some sizes, for these and all larger ones.

        Raises:
            ScheduleError: it does not hold for them.
            NotOpen: what it computes is not one definition.
        """
        found, ends = self._opening.definition(call, schedule.algorithm), (least, self._greatest)
        strides = self._opening.pitches(call, schedule.algorithm)
        pitches = {name: tuple(found.filled(list(each), *ends)) for name, each in strides.items()}
        definition, state = self._defined(call, schedule.algorithm, least)
        refused = ScheduleError("no tail makes it hold where sizes are open")
        for trace in variants(schedule.trace, state):
            try:
                program = cleanup(lower(trace.apply(state)))
            except ScheduleError as error:
                refused = error
                continue
            made = OpenKernel(definition, trace, pitches, "")
            named = replace(made, name=symbol_of_open(made, self._target) or "")
            return _Opened(named, schedule.algorithm, self._estimated(program, found.terms, least), _packed(program))
        raise refused

    def _estimated(self, program: LoopProgram, sizes: Mapping[str, Term], least: Point) -> NDArray[np.float64]:
        """Seconds of a kernel in each cell by the roofline, in the mean of its ends; infinite where it is not open."""
        cells = self._sampling.cells
        if program.sizes:
            points = [point for cell in cells for point in (cell.least, cell.greatest)]
            columns = np.array([[sizes[name].at(point) for point in points] for name in program.sizes], np.float64)
            extractor = FeatureExtractor(
                program, tuple(program.sizes), self._target.hardware, self._cold, self._threads
            )
            seconds = extractor.roofline(columns).reshape(-1, 2).mean(1)
        else:
            seconds = np.ones(len(cells))
        holds = [all(a <= b for a, b in zip(least, cell.least, strict=True)) for cell in cells]
        return np.where(holds, doubted(np.maximum(seconds, LEAST_SECONDS), least, cells), np.inf)

    def _kernels(self) -> tuple[list[int], Sequence[Kernel | OpenKernel]]:
        known: dict[str, int] = {}
        numbers: list[int] = []
        kernels: list[Kernel | OpenKernel] = []
        for case in self._cases:
            scope = self._scope(case)
            for call, group in enumerate(scope.groups):
                number = len(kernels)
                made = self._of_known(scope, group, number) if case.known else case.kernels[call].kernel
                key = made.name if made.name and not case.known else te_json.text({**made.to_json(), "name": ""})
                numbers.append(known.setdefault(key, number))
                if numbers[-1] == number:
                    kernels.append(made if made.name else replace(made, name=self._symbol(number)))
        return numbers, kernels

    def _of_known(self, scope: Scope, group: Group, number: int) -> Kernel | OpenKernel:
        assert group.workload is not None
        schedule = self._chosen(group.workload)
        return self._kernel(group.workload, schedule, self._pitches(scope, group, schedule.algorithm), number)

    def _steps(self, offsets: Mapping[str, int], numbers: Iterator[int]) -> Sequence[Step | Loop | Choice]:
        cases = []
        for case in self._cases:
            scope = self._scope(case)
            where = self._roots(scope, self._plan_at(case.least).offsets if case.known else offsets)
            steps = []
            for call, group in enumerate(scope.groups):
                step = self._step(scope, group, where, next(numbers))
                steps.append(step if case.known else self._sized(step, call, case.kernels[call].algorithm))
            cases.append(Case(tuple(zip(case.least, case.greatest, strict=True)), tuple(steps)))
        return [Choice(tuple(cases))]

    def _sized(self, step: Step, call: int, algorithm: str) -> Step:
        """A step that tells its kernel the sizes."""
        terms = self._opening.definition(call, algorithm).terms
        return replace(step, sizes=tuple(self._opening.extent(terms[n]) for n in self._modules[step.module].sizes))


def _packed(program: LoopProgram) -> Packed:
    """How a kernel packs its constants."""
    outputs = [(p, b) for p in program.prologues for b in p.params if b.name in p.outputs]
    nbytes = sum(math.prod(int(str(n)) for n in b.shape) * numpy_dtype(b.dtype).itemsize for _, b in outputs)
    return Packed("\n".join(str(p) for p in program.prologues), nbytes)
