"""Compilation of a network, with schedules of its workloads, to an executable: kernels, weights, memory plan.

An executable has cases, each with its own steps: ranges of open sizes, and points at which the network has its own
graph. A network of one shape is the case of one point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autotune.compiler.cache.kernels import KernelCache, symbol_name
from autotune.compiler.executable.arrangement import (
    ArenaOptions,
    arrange,
    check_stores,
    check_updates,
)
from autotune.compiler.executable.graph_family import GraphAt, GraphFamily
from autotune.compiler.executable.linking import Linking, ModuleBuilder
from autotune.compiler.executable.packing import Call, Constants, room
from autotune.compiler.executable.scopes import Roots, Scope, inside, listed_step, trip_places
from autotune.compiler.executable.shapes import FIXED, NotOpen, Range, ShapeSet
from autotune.compiler.executable.states import list_states
from autotune.compiler.executable.update_copies import separate_updates
from autotune.compiler.executable.weights import Weights
from autotune.graph.copies import executable_graph
from autotune.graph.ir import Array, Graph, Node
from autotune.graph.loops import list_loops
from autotune.graph.memory_plan import MemoryPlan, lower_bound
from autotune.graph.partition import Group
from autotune.graph.views import dense
from autotune.schedule import KernelSpec, OpenKernel, Schedule, build_module
from search_space.dtypes import numpy_dtype
from search_space.schedule.state import operations
from search_space.workloads import Workload
from targets import registry
from targets.arrays import round_up
from targets.base import (
    BufferRef,
    BuildError,
    Case,
    Choice,
    Loop,
    Module,
    NetworkPlan,
    Packing,
    Parameter,
    Step,
    Target,
)
from targets.cstyle.spelling import RESERVED_NAMES
from targets.manifest import describe_parameter, write_manifest

if TYPE_CHECKING:
    from autotune.compiler.executable.open_kernels import Candidate

__all__ = ["ModuleBuilder", "ChooseSchedule", "Compiler", "Schedule", "identifier"]

ChooseSchedule = Callable[[Workload], Schedule]


def identifier(name: str) -> str:
    """Makes a C identifier of a network's name."""
    found = "".join(c if c.isascii() and c.isalnum() else "_" for c in name)
    return f"n{found}" if found[:1].isdigit() or found in RESERVED_NAMES else found


@dataclass(frozen=True)
class _Case:
    """Sizes that have their own steps.

    Attributes:
        within: the sizes; no size for a fixed shape.
        scope: the network at these sizes, for a range at the largest ones.
        memory: offsets of its values in the arena.
        kernels: kernel of each call, for open sizes; empty where sizes are known, as workloads have schedules.
    """

    within: Range
    scope: Scope
    memory: MemoryPlan
    kernels: tuple[Candidate, ...] = ()


class Compiler:
    """Compiler of one network for a set of shapes.

    Args:
        graph: graph to compile, whose constants are weights; where sizes are open, a function of them.
        choose_schedule: function workload → its schedule.
        target: name of the target.
        threads: number of threads that the network will run on.
        cache: cache of kernels; None: every kernel is built.
        builder: function that builds kernels that are not cached; by default one after the other.
        weights: weights of executables compiled before, which this one's follow; None: it has its own alone.
        shapes: shapes that the executable takes; by default the graph's own.
        cold: whether to choose kernels of open sizes for constants that come from memory.
        arena: conditions on the memory of the graph's values; only for known sizes.
        estimate: function that estimates the seconds of a workload, for recomputation within a memory budget.

    Attributes:
        graph: compiled graph, at the largest sizes.

    Raises:
        BuildError: the graph has loops or states, and the target has none; or a state's rows are no output.
        NotOpen: the network differs between sizes, or the target's kernels take no sizes.
    """

    def __init__(
        self,
        graph: Graph | GraphAt,
        choose_schedule: ChooseSchedule,
        target: str = "cpu",
        threads: int = 1,
        cache: KernelCache | None = None,
        builder: ModuleBuilder | None = None,
        weights: Weights | None = None,
        shapes: ShapeSet = FIXED,
        cold: bool = True,
        arena: ArenaOptions | None = None,
        estimate: Callable[[Workload], float] = lambda workload: 0.0,
    ) -> None:
        self._arena, self._estimate = arena, estimate
        self._target: Target = registry.get(target)
        if shapes.sizes and not self._target.open_sizes:
            raise NotOpen(f"`target` of open sizes must be one whose kernels take them, but got {target}")
        self._builder = builder or partial(map, partial(build_module, target=self._target))
        alignment = self._target.alignment
        if isinstance(graph, Graph):
            fixed = executable_graph(graph, alignment)
            if arena is not None:
                fixed = separate_updates(fixed, arena.updates, alignment)
            if (loops := list_loops(fixed)) and not self._target.loops:
                raise BuildError(f"`graph` must have no loop for target {target}, but got {loops[0].name!r}")
            self._family = GraphFamily(lambda point: fixed, shapes, alignment)
        else:
            self._family = GraphFamily(graph, shapes, alignment)
        self.graph = self._family.graph
        self._states = list_states(self._family.largest)
        if self._states and not self._target.states:
            raise BuildError(f"`graph` must have no state for target {target}, but got {self._states[0][0]!r}")
        self._choose_schedule, self._threads, self._cache, self._cold = choose_schedule, threads, cache, cold
        self._replacing: set[Group] = set()
        self._name = identifier(self.graph.name)
        self._modules: list[Module] = []
        self._constants = Constants(self._target)
        self._packings: dict[tuple[int, str, tuple[BufferRef, ...]], Packing] = {}
        self._packed_bytes = 0
        self._placements: dict[tuple[object, ...], Mapping[str, BufferRef]] = {}
        self._shared = weights is not None
        self._weights = Weights(self._target.spacing) if weights is None else weights

    @property
    def workloads(self) -> list[Workload]:
        """Workloads that need schedules: of all steps of known sizes, in order, then of samples of open sizes."""
        family, shapes = self._family, self._family.shapes
        exact = [group.workload for scope in self._exact for _, group, _ in scope.calls()]
        opened = [family.workload(call, point) for point in shapes.samples for call in family.distinct]
        return [*(workload for workload in exact if workload is not None), *opened]

    @property
    def _exact(self) -> list[Scope]:
        """The network at points at which it has its own kernels."""
        return [self._family.scope(point) for point in self._family.shapes.exact]

    @property
    def _graphs(self) -> list[Graph]:
        """Graphs whose constants are weights."""
        return [graph for scope in self._family.scopes for graph in scope.graphs]

    def pack(self, workload: Workload, module: Module) -> None:
        """Packs the constants of a workload's steps whose kernel this is, so that `write` need not wait for them.

        Kernels of open sizes are built after all schedules are known.
        """
        for exact in self._exact:
            for scope, group, _ in exact.calls():
                if group.workload == workload and scope.is_dense(group):
                    self._constants.ahead(Call(scope.graph, group, module))

    @cached_property
    def _cases(self) -> list[_Case]:
        """Cases that a call of the network chooses among.

        Raises:
            NotOpen: sizes have no schedule that was found at these or lesser ones and holds for them.
        """
        shapes, spacing = self._family.shapes, self._target.spacing
        exact = self._exact
        if self._arena is not None:
            exact = [arrange(scope, self._arena, spacing, self._estimate) for scope in exact]
            self._replacing = {group for scope in exact for group in check_updates(scope, self._arena.updates)}
        cases = [
            _Case(Range(point, point), scope, scope.plan(spacing))
            for point, scope in zip(shapes.exact, exact, strict=True)
        ]
        if shapes.cells:
            from autotune.compiler.executable.open_kernels import (
                OpenKernels,  # imported late: its estimates take a while to import
            )

            largest, memory = self._family.largest, self._family.largest.plan(spacing)
            candidates = OpenKernels(self._family, self._choose_schedule, self._target, self._threads, self._cold)
            cases += [_Case(within, largest, memory, kernels) for within, kernels in candidates.choose()]
        return cases

    def write(self, folder: Path, weights_file: bool = True) -> Sequence[Array] | Array:
        """Writes the target's files, weights and manifest to `folder`.

        Args:
            weights_file: whether to write the weights; otherwise the caller of the loader must pass them.

        Returns:
            The bytes of the weights, in parts (n,) one after the other or in an array of their own
            (`Weights.joined_parts`).

        Raises:
            BuildError: a kernel cannot be built, or an output cannot share the memory of an input.
            BudgetError: the arena is larger than its limit.
            NotOpen: sizes have no schedule of a kernel.
            RuntimeError: the linker failed.
        """
        folder.mkdir(parents=True, exist_ok=True)
        sizes = self._family.shapes.sizes
        called, kernels = self._kernels()
        linking = Linking(kernels, self._name, self._target, self._cache, self._builder)
        graphs, before = self._graphs, linking.before
        ahead: AbstractContextManager[None] = nullcontext()
        calls = None
        if before is not None:  # all kernels are cached, so that their constants can be packed in parallel
            calls = [
                Call(scope.graph, group, before.modules[number])
                for (scope, group, _), number in zip(self._calls(), called, strict=True)
            ]
            distinct = {call.packing_key: call for call in reversed(calls)}
            ahead = self._constants.all_ahead(
                [call for call in calls if distinct[call.packing_key] is call], self._target.library(before.files)
            )
        if not self._shared:
            self._weights = Weights(self._target.spacing, room(graphs, calls, self._target.spacing))
        with ahead:
            steps = self._steps(self._build_in_order(called, linking.modules()))
        arena = round_up(max(case.memory.nbytes for case in self._cases), self._target.spacing)
        network = NetworkPlan(
            self._name,
            tuple(self._modules),
            tuple(steps),
            tuple(map(self._family.parameter, self.graph.inputs)),
            tuple(self._outputs()),
            self._weights.nbytes,
            arena,
            tuple(self._packings.values()),
            self._packed_bytes,
            tuple(self._weights.parts),
            sizes,
        )
        linked = linking.link(network, folder)
        original = sum(array.nbytes for graph in graphs for array in graph.constants.values())
        manifest = {
            "kind": linked["kind"],
            "name": self._name,
            "target": self._target.name,
            "threads": self._threads,
            "inputs": [describe_parameter(p) for p in network.inputs],
            "outputs": [describe_parameter(p) for p in network.outputs],
            **({"sizes": {name: list(span) for name, span in sizes.items()}} if sizes else {}),
            **({"states": [list(pair) for pair in self._states]} if self._states else {}),
            **({"updates": [list(pair) for pair in self._arena.updates.items()]} if self._arena else {}),
            **linked,
            "weights": self._weights.write(folder / f"{self._name}.weights", original, weights_file),
            "memory": {
                "arena_bytes": arena,
                "arena_lower_bound": lower_bound(self._cases[-1].scope.intervals(self._target.spacing)),
                **linked["memory"],
            },
            "steps": [
                listed_step(group.title, group.workload, self._modules[step.module].name, bool(sizes))
                | ({} if trips == 1 else {"trips": trips})
                for (_, group, trips), step in zip(self._calls(), network.calls, strict=True)
                if group.workload is not None
            ],
        }
        write_manifest(manifest, folder)
        return self._weights.joined_parts

    def _outputs(self) -> Iterator[Parameter]:
        """Lists the outputs of the network, by the names that a caller uses."""
        for value, name in zip(self.graph.outputs, self.graph.output_names, strict=True):
            yield replace(self._family.parameter(value), name=name)

    def _calls(self) -> Iterator[tuple[Scope, Group, int]]:
        """Lists the calls of all cases, one case after the other; see `Scope.calls`."""
        for case in self._cases:
            yield from case.scope.calls()

    def _roots(self, scope: Scope, offsets: Mapping[str, int]) -> Roots:
        """Makes the function that locates the values that own memory."""
        graph = scope.graph
        outputs = {scope.root(name): number for number, name in enumerate(graph.outputs)}
        inputs = {name: number for number, name in enumerate(graph.inputs)}

        def where(root: str) -> BufferRef:
            if root in outputs:
                return BufferRef("output", outputs[root])
            if root in inputs:
                return BufferRef("input", inputs[root])
            if root in graph.constants:
                return BufferRef("weights", self._weights.add(np.asarray(graph.constants[root])))
            return BufferRef("arena", offsets[root])

        return where

    def _steps(self, numbers: Iterator[int]) -> Sequence[Step | Loop | Choice]:
        """Makes the steps of the network; `numbers` yields the number of each call's kernel."""
        steps = [self._case_steps(case, numbers) for case in self._cases]
        if not self._family.shapes.sizes:
            return steps[0]
        return [Choice(tuple(Case(c.within.spans, tuple(own)) for c, own in zip(self._cases, steps, strict=True)))]

    def _case_steps(self, case: _Case, numbers: Iterator[int]) -> list[Any]:
        """Makes the steps of a case, and its loops if sizes are fixed."""
        scope, offsets = case.scope, case.memory.offsets
        where = self._roots(scope, offsets)
        steps: list[Step | Loop] = []
        for call, group in enumerate(scope.groups):
            if group.loop is not None:
                steps.append(self._loop(scope, group.loop, where, offsets, numbers))
                continue
            step = self._step(scope, group, where, next(numbers))
            if case.kernels:
                terms, sizes = case.kernels[call].terms, self._modules[step.module].sizes
                step = replace(step, sizes=tuple(self._family.extent(terms[name]) for name in sizes))
            steps.append(step)
        return steps

    def _loop(self, outer: Scope, node: Node, where: Roots, offsets: Mapping[str, int], numbers: Iterator[int]) -> Loop:
        body = outer.bodies[node.name]
        data, given = outer.buffer_ref(node.name, where), [outer.buffer_ref(name, where) for name in node.inputs]
        places, inner = trip_places(node, body, data, given), body.plan(self._target.spacing).offsets

        def within(root: str) -> BufferRef:
            if root in places:
                return places[root]
            if root in body.graph.constants:
                return BufferRef("weights", self._weights.add(np.asarray(body.graph.constants[root])))
            return BufferRef("arena", offsets[inside(node.name)] + inner[root])

        return Loop(node.attrs["trips"], tuple(self._step(body, group, within, next(numbers)) for group in body.groups))

    def _step(self, scope: Scope, group: Group, where: Roots, number: int) -> Step:
        assert group.workload is not None
        graph = scope.graph
        module = self._modules[number]
        names = dict(zip((p.name for p in module.sources), group.inputs, strict=True))
        constants = self._constant_places(Call(graph, group, module))
        arguments = []
        for parameter in module.parameters:
            computed = [names[source] for source in parameter.packed_from if names[source] not in graph.constants]
            assert not computed, f"{parameter.name} is packed, and made of {computed}"
            if parameter.name in constants:
                arguments.append(constants[parameter.name])
            elif parameter.name in module.outputs:
                arguments.append(scope.buffer_ref(group.output, where))
            elif parameter.packed_from:
                sources = tuple(scope.buffer_ref(names[source], where) for source in parameter.packed_from)
                arguments.append(self._add_packing(number, parameter, sources))
            else:
                arguments.append(scope.buffer_ref(names[parameter.name], where))
        return Step(number, tuple(arguments), group.title)

    def _constant_places(self, call: Call) -> Mapping[str, BufferRef]:
        """Places the constants of a call that are packed at compile time, by the parameter's name."""
        key = call.packing_key
        if key not in self._placements:
            names = dict(zip((p.name for p in call.module.sources), call.group.inputs, strict=True))
            packed = self._constants.of(call)
            constant_names = [
                p.name
                for p in call.module.parameters
                if p.name in packed and all(names[n] in call.graph.constants for n in p.packed_from or (p.name,))
            ]
            self._placements[key] = {
                name: BufferRef("weights", self._weights.add(packed[name])) for name in constant_names
            }
        return self._placements[key]

    def _pitches(self, scope: Scope, group: Group, algorithm: str) -> dict[str, tuple[int, ...]]:
        """Returns the strides of the kernel's activations that are not dense, by the workload's names."""
        assert group.workload is not None
        if scope.is_dense(group):
            return {}
        *inputs, output = group.workload.tensors(algorithm)
        tensor_names = operations([output], inputs)
        pitches = {}
        for tensor, name in zip([*inputs, output], [*group.inputs, group.output], strict=True):
            strides = scope.locations[name].strides
            if strides is not None and strides != dense(tensor.shape):
                pitches[tensor_names[tensor.op]] = strides
        return pitches

    def _kernels(self) -> tuple[list[int], Sequence[KernelSpec | OpenKernel]]:
        """Returns the number of each call's kernel, and the kernels, in the order of their first calls."""
        number_by_key: dict[object, int] = {}
        numbers: list[int] = []
        kernels: list[KernelSpec | OpenKernel] = []
        for case in self._cases:
            for call, (scope, group, _) in enumerate(case.scope.calls()):
                kernel = case.kernels[call].kernel if case.kernels else self._kernel(scope, group)
                number = number_by_key.setdefault(kernel.key, len(kernels))
                numbers.append(number)
                if number == len(kernels):
                    kernels.append(self._name_kernel(kernel, number))
        return numbers, kernels

    def _kernel(self, scope: Scope, group: Group) -> KernelSpec:
        """Describes the kernel of a call of known sizes, without a name."""
        assert group.workload is not None
        schedule = self._choose_schedule(group.workload)
        if group in self._replacing:
            check_stores(group, schedule.trace)
        return KernelSpec(group.workload, schedule, self._pitches(scope, group, schedule.algorithm), "")

    def _name_kernel(self, kernel: KernelSpec | OpenKernel, number: int) -> KernelSpec | OpenKernel:
        """Names a kernel by all that its code depends on, or by its number if not all of that is known."""
        name: str | None = kernel.name
        if isinstance(kernel, KernelSpec):
            name = symbol_name(kernel.workload, kernel.schedule, kernel.pitches, self._target)
        return replace(kernel, name=name or f"{self._name}_kernel{number}")

    def _build_in_order(self, kernel_numbers: Sequence[int], modules: Iterator[Module]) -> Iterator[int]:
        """Yields the numbers of the calls' kernels; each kernel is built when its number is yielded."""
        for number in kernel_numbers:
            if number == len(self._modules):
                self._modules.append(next(modules))
            yield number

    def _add_packing(self, number: int, parameter: Parameter, sources: tuple[BufferRef, ...]) -> BufferRef:
        """Places a constant that is packed when the network is loaded; the same sources are packed once."""
        key = (number, parameter.name, sources)
        if key not in self._packings:
            result = BufferRef("packed", self._packed_bytes)
            self._packings[key] = Packing(number, parameter.name, sources, result)
            nbytes = math.prod(parameter.shape) * numpy_dtype(parameter.dtype).itemsize
            self._packed_bytes += round_up(nbytes, self._target.spacing)
        return self._packings[key].result
