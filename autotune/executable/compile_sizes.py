"""Compiles a network of open sizes: kernels for ranges of them, which a call chooses among.

All kernels of a range were chosen at its least sizes, so that their tiles fit there, and are open from these on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from autotune.cache.kernels import KernelCache, symbol_of_open
from autotune.executable.compile import Builder, Chosen, Compiler, is_dense
from autotune.executable.opening import NotOpen, Opening, Range
from autotune.executable.packing import Call
from autotune.executable.schedule import Kernel, OpenKernel, Schedule
from autotune.executable.scopes import Scope
from autotune.executable.weights import Weights
from autotune.graph.ir import Graph
from autotune.graph.memory_plan import MemoryPlan, plan
from autotune.graph.partition import Group
from search_space import te_json
from search_space.generalised import Generalised
from search_space.lower import cleanup, lower
from search_space.schedule.errors import ScheduleError
from search_space.schedule.opened import variants
from search_space.schedule.state import initial_state
from search_space.terms import Term
from search_space.workloads import Workload
from targets.base import Case, Choice, Loop, Module, Parameter, Step


class SizedCompiler(Compiler):
    """Compiles one network of open sizes.

    Args:
        opening: the network, and the ranges that have kernels of their own.
        chosen, target, threads, cache, builder, weights: as of `Compiler`.

    Raises:
        BuildError: a target whose kernels take no sizes.
    """

    def __init__(
        self,
        opening: Opening,
        chosen: Chosen,
        target: str = "cpu",
        threads: int = 1,
        cache: KernelCache | None = None,
        builder: Builder | None = None,
        weights: Weights | None = None,
    ) -> None:
        super().__init__(opening.graph, chosen, target, threads, cache, builder, weights)
        self._opening, self.sizes = opening, opening.sizes
        self._algorithms: list[str] = []  # of all calls
        self._opened_before: dict[tuple[Any, ...], OpenKernel] = {}

    def _parameter(self, name: str) -> Parameter:
        return self._opening.parameter(name)

    @property
    def _graphs(self) -> list[Graph]:
        known = [self._opening.scope(each.least).graph for each in self._opening.ranges if each.known]
        return [self.graph, *known]

    def pack(self, workload: Workload, module: Module) -> None:
        """Packs constants of known sizes: kernels of open sizes are built when all schedules are known."""
        for each in self._opening.ranges:
            scope = self._opening.scope(each.least)
            for group in scope.groups if each.known else ():
                if group.workload == workload and is_dense(scope, group):
                    self._constants.ahead(Call(scope.graph, group, module))

    def _calls(self) -> Iterator[tuple[Scope, Group, int]]:
        for each in self._opening.ranges:
            scope = self._opening.scope(each.least)
            yield from ((scope, group, 1) for group in scope.groups)

    def _arena_bytes(self, memory: MemoryPlan) -> int:
        known = (self._plan_at(each) for each in self._opening.ranges if each.known)
        return max(memory.nbytes, *(other.nbytes for other in known), 0)

    def _plan_at(self, known: Range) -> MemoryPlan:
        """Of a network of known sizes."""
        return plan(self._opening.scope(known.least).intervals(), self._target.spacing)

    def _kernels(self) -> tuple[list[int], Sequence[Kernel | OpenKernel]]:
        known: dict[str, int] = {}
        numbers: list[int] = []
        kernels: list[Kernel | OpenKernel] = []
        for each in self._opening.ranges:
            scope = self._opening.scope(each.least)
            for call, group in enumerate(scope.groups):
                number = len(kernels)
                made = self._of_known(scope, group, number) if each.known else self._opened(call, each, number)
                key = te_json.text({**made.to_json(), "name": ""})
                numbers.append(known.setdefault(key, number))
                if numbers[-1] == number:
                    kernels.append(made)
        return numbers, kernels

    def _of_known(self, scope: Scope, group: Group, number: int) -> Kernel:
        assert group.workload is not None
        schedule = self._chosen(group.workload)
        self._algorithms.append(schedule.algorithm)
        pitches = self._pitches(scope, group, schedule.algorithm)
        return self._kernel(group.workload, schedule, pitches, number)

    def _opened(self, call: int, within: Range, number: int) -> OpenKernel:
        """A call's kernel for a range, the same for all calls that compute the same on arrays that lie alike.

        Raises:
            NotOpen: no schedule that was chosen holds for the range.
        """
        group = self._opening.group(call, within.least)
        assert group.workload is not None
        schedule = self._chosen(group.workload)
        self._algorithms.append(schedule.algorithm)
        found = self._opening.definition(call, schedule.algorithm)
        strides = self._opening.pitches(call, schedule.algorithm)
        key = id(found), schedule.algorithm, schedule.trace.key, tuple(strides.items()), within
        if key not in self._opened_before:
            made = self._opened_to(within, found, schedule, strides, group.title)
            name = symbol_of_open(made, self._target) or self._symbol(number)
            self._opened_before[key] = replace(made, name=name)
        return self._opened_before[key]

    def _opened_to(
        self,
        within: Range,
        found: Generalised,
        schedule: Schedule,
        strides: Mapping[str, tuple[int | Term, ...]],
        title: str,
    ) -> OpenKernel:
        """A definition's kernel for a range, without a name.

        Raises:
            NotOpen: the schedule holds nowhere.
        """
        refused: list[ScheduleError] = []
        ends = within.least, within.greatest
        definition = found.plain(*ends)
        pitches = {name: tuple(found.filled(list(each), *ends)) for name, each in strides.items()}
        *inputs, output = te_json.from_json(definition, open_sizes=True)
        state = initial_state([output], inputs=inputs)
        for trace in variants(schedule.trace, state):
            try:
                cleanup(lower(trace.apply(state)))
            except ScheduleError as error:
                refused.append(error)
            else:
                return OpenKernel(definition, trace, pitches, "")
        shown = " to ".join("x".join(map(str, sizes)) for sizes in ends)
        raise NotOpen(f"the schedule of {title} must hold for sizes {shown}: {refused[-1] if refused else ''}")

    def _steps(self, offsets: Mapping[str, int], numbers: Iterator[int]) -> Sequence[Step | Loop | Choice]:
        algorithms = iter(self._algorithms)
        cases = []
        for each in self._opening.ranges:
            scope = self._opening.scope(each.least) if each.known else self._network
            where = self._roots(scope, self._plan_at(each).offsets if each.known else offsets)
            steps = []
            for call, group in enumerate(scope.groups):
                step, algorithm = self._step(scope, group, where, next(numbers)), next(algorithms)
                steps.append(step if each.known else self._sized(step, call, algorithm))
            cases.append(Case(each.spans, tuple(steps)))
        return [Choice(tuple(cases))]

    def _sized(self, step: Step, call: int, algorithm: str) -> Step:
        """A step that tells its kernel the sizes."""
        found = self._opening.definition(call, algorithm)
        terms = dict(zip(found.names, found.sizes, strict=True))
        return replace(step, sizes=tuple(self._opening.extent(terms[n]) for n in self._modules[step.module].sizes))
