"""From a partitioned graph and a schedule for each of its workloads to an executable: kernels, weights, memory plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from autotune.cache.kernels import KernelCache, symbol_of
from autotune.executable.linking import Builder, Linking
from autotune.executable.packing import Call, Constants, room
from autotune.executable.scopes import Roots, Scope, listed_step, scope_of, trip_places
from autotune.executable.states import states_of
from autotune.executable.weights import Weights
from autotune.graph.copies import executable_graph
from autotune.graph.ir import Array, Graph, Node
from autotune.graph.loops import loops_of
from autotune.graph.memory_plan import Interval, MemoryPlan, lower_bound, plan
from autotune.graph.partition import Group
from autotune.graph.views import dense
from autotune.schedule import Kernel, OpenKernel, Schedule, module_of
from search_space.dtypes import numpy_dtype
from search_space.schedule.state import operations
from search_space.workloads import Workload
from targets import registry
from targets.base import BuildError, Choice, Loop, Module, NetworkPlan, Packing, Parameter, Place, Step, Target
from targets.cstyle.spelling import RESERVED
from targets.manifest import listed, write_manifest

__all__ = ["Builder", "Chosen", "Compiler", "Schedule", "identifier", "is_dense"]

Chosen = Callable[[Workload], Schedule]


def identifier(name: str) -> str:
    """A C identifier of a network's name."""
    found = "".join(c if c.isascii() and c.isalnum() else "_" for c in name)
    return f"n{found}" if found[:1].isdigit() or found in RESERVED else found


def _inside(loop: str) -> str:
    """What the memory plan calls that which a trip needs; no value is called so."""
    return f"{loop}\0inside"


def is_dense(scope: Scope, group: Group) -> bool:
    return all(scope.locations[name].strides is None for name in (*group.inputs, group.output))


class Compiler:
    """Compiles one graph.

    Args:
        graph: what to compile; constants are weights.
        chosen: workload → its schedule.
        target: name of the target.
        threads: that the network is meant to run on.
        cache: of kernels that were built before; None: every kernel is built.
        builder: builds those that are not known; by default one after the other.
        weights: of executables compiled before, which this one's follow; None: it has its own alone.

    Attributes:
        sizes: what shapes of inputs leave open, by name: least and greatest value.

    Raises:
        BuildError: loops or states in the graph, and a target that has none; a state whose rows are no output.
    """

    sizes: Mapping[str, tuple[int, int]] = {}

    def __init__(
        self,
        graph: Graph,
        chosen: Chosen,
        target: str = "cpu",
        threads: int = 1,
        cache: KernelCache | None = None,
        builder: Builder | None = None,
        weights: Weights | None = None,
    ) -> None:
        self._target: Target = registry.get(target)
        self._builder = builder or partial(map, partial(module_of, target=self._target))
        alignment = self._target.alignment
        self.graph = executable_graph(graph, alignment)
        loops = loops_of(self.graph)
        if loops and not self._target.loops:
            raise BuildError(f"`graph` must have no loop for target {target}, but got {loops[0].name!r}")
        self._network = scope_of(self.graph, alignment)
        self._bodies = {node.name: scope_of(node.attrs["body"].graph, alignment) for node in loops}
        self._states = states_of(self._network)
        if self._states and not self._target.states:
            raise BuildError(f"`graph` must have no state for target {target}, but got {self._states[0][0]!r}")
        self._chosen, self._threads, self._cache = chosen, threads, cache
        self._name = identifier(graph.name)
        self._modules: list[Module] = []
        self._constants = Constants(self._target)
        self._packings: dict[tuple[int, str, tuple[Place, ...]], Packing] = {}
        self._packed_bytes = 0
        self._placed: dict[tuple[object, ...], Mapping[str, Place]] = {}
        self._shared = weights is not None
        self._weights = Weights(self._target.spacing) if weights is None else weights

    @property
    def workloads(self) -> list[Workload]:
        """Of all steps, in their order, those of a loop once."""
        return [group.workload for _, group, _ in self._calls() if group.workload is not None]

    @property
    def _graphs(self) -> list[Graph]:
        """Whose constants are weights."""
        return [self.graph, *(body.graph for body in self._bodies.values())]

    def pack(self, workload: Workload, module: Module) -> None:
        """Packs the constants of a workload's steps whose kernel is this one, so that `write` finds them packed."""
        for scope, group, _ in self._calls():
            if group.workload == workload and is_dense(scope, group):
                self._constants.ahead(Call(scope.graph, group, module))

    def write(self, folder: Path, weights_file: bool = True) -> Sequence[Array] | Array:
        """Writes to `folder` what the target links, weights and manifest.

        Args:
            weights_file: whether the weights are written; otherwise whoever loads the executable is to be given them.

        Returns:
            The bytes of the weights, in parts (n,) one after the other or in an array of their own (`Weights.whole`).

        Raises:
            BuildError: a kernel that cannot be built.
            RuntimeError: the linker failed.
        """
        folder.mkdir(parents=True, exist_ok=True)
        intervals = self._intervals()
        memory = plan(intervals, self._target.spacing)
        called, kernels = self._kernels()
        linking = Linking(kernels, self._name, self._target, self._cache, self._builder)
        graphs, before = self._graphs, linking.before
        if before is not None:  # all kernels are there, so that their constants can be packed side by side
            calls = [
                Call(scope.graph, group, before.modules[number])
                for (scope, group, _), number in zip(self._calls(), called, strict=True)
            ]
            if not self._shared:
                self._weights = Weights(self._target.spacing, room(graphs, calls, self._target.spacing))
            distinct = {call.made_of: call for call in reversed(calls)}
            self._constants.all_ahead(
                [call for call in calls if distinct[call.made_of] is call], self._target.library(before.files)
            )
        steps = self._steps(memory.offsets, self._numbered(called, linking.modules()))
        arena = self._spaced(self._arena_bytes(memory))
        network = NetworkPlan(
            self._name,
            tuple(self._modules),
            tuple(steps),
            tuple(map(self._parameter, self.graph.inputs)),
            tuple(self._outputs()),
            self._weights.nbytes,
            arena,
            tuple(self._packings.values()),
            self._packed_bytes,
            tuple(self._weights.parts),
            self.sizes,
        )
        linked = linking.link(network, folder)
        original = sum(array.nbytes for graph in graphs for array in graph.constants.values())
        manifest = {
            "kind": linked["kind"],
            "name": self._name,
            "target": self._target.name,
            "threads": self._threads,
            "inputs": [listed(p) for p in network.inputs],
            "outputs": [listed(p) for p in network.outputs],
            **({"sizes": {name: list(span) for name, span in self.sizes.items()}} if self.sizes else {}),
            **({"states": [list(pair) for pair in self._states]} if self._states else {}),
            **linked,
            "weights": self._weights.write(folder / f"{self._name}.weights", original, weights_file),
            "memory": {
                "arena_bytes": arena,
                "arena_lower_bound": lower_bound(intervals),
                **linked["memory"],
            },
            "steps": [
                listed_step(group.title, group.workload, self._modules[step.module].name, bool(self.sizes))
                | ({} if trips == 1 else {"trips": trips})
                for (_, group, trips), step in zip(self._calls(), network.calls, strict=True)
                if group.workload is not None
            ],
        }
        write_manifest(manifest, folder)
        return self._weights.whole

    def _outputs(self) -> Iterator[Parameter]:
        """Outputs of the network, by the names that a caller knows."""
        for value, name in zip(self.graph.outputs, self.graph.output_names, strict=True):
            yield replace(self._parameter(value), name=name)

    def _parameter(self, name: str) -> Parameter:
        """An input or output of the network, by the name of its value."""
        kind = self.graph.type(name)
        return Parameter(name, kind.shape, kind.dtype)

    def _calls(self) -> Iterator[tuple[Scope, Group, int]]:
        """Groups that are computed with their scopes, in the order of their calls, and how often each one is called."""
        for group in self._network.groups:
            if group.loop is None:
                yield self._network, group, 1
            else:
                body, trips = self._bodies[group.loop.name], group.loop.attrs["trips"]
                yield from ((body, inner, trips) for inner in body.groups)

    def _intervals(self) -> list[Interval]:
        """Of every value that lives in the arena; what a trip of a loop needs besides its results is one of them."""
        found = self._network.intervals()
        for number, group in enumerate(self._network.groups):
            if group.loop is not None:
                nbytes = self._within(group.loop.name).nbytes
                found += [Interval(_inside(group.loop.name), nbytes, number, number)] if nbytes else []
        return found

    def _arena_bytes(self, memory: MemoryPlan) -> int:
        """Of the network's values, planned so."""
        return memory.nbytes

    def _within(self, loop: str) -> MemoryPlan:
        """Where the values of a body lie that no other trip reads."""
        return plan(self._bodies[loop].intervals(), self._target.spacing)

    def _roots(self, scope: Scope, offsets: Mapping[str, int]) -> Roots:
        """Where the network's values lie that others lie in."""
        graph = scope.graph
        outputs = {scope.root(name): number for number, name in enumerate(graph.outputs)}
        inputs = {name: number for number, name in enumerate(graph.inputs)}

        def where(root: str) -> Place:
            if root in outputs:
                return Place("output", outputs[root])
            if root in inputs:
                return Place("input", inputs[root])
            if root in graph.constants:
                return Place("weights", self._weights.place(np.asarray(graph.constants[root])))
            return Place("arena", offsets[root])

        return where

    def _steps(self, offsets: Mapping[str, int], numbers: Iterator[int]) -> Sequence[Step | Loop | Choice]:
        """Steps of the network; `numbers` gives that of the kernel of each call."""
        outer, where = self._network, self._roots(self._network, offsets)
        return [
            self._step(outer, group, where, next(numbers))
            if group.loop is None
            else self._loop(group.loop, where, offsets, numbers)
            for group in outer.groups
        ]

    def _loop(self, node: Node, where: Roots, offsets: Mapping[str, int], numbers: Iterator[int]) -> Loop:
        body, outer = self._bodies[node.name], self._network
        data, given = outer.place(node.name, where), [outer.place(name, where) for name in node.inputs]
        places, inner = trip_places(node, body, data, given), self._within(node.name).offsets

        def within(root: str) -> Place:
            if root in places:
                return places[root]
            if root in body.graph.constants:
                return Place("weights", self._weights.place(np.asarray(body.graph.constants[root])))
            return Place("arena", offsets[_inside(node.name)] + inner[root])

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
                arguments.append(scope.place(group.output, where))
            elif parameter.packed_from:
                sources = tuple(scope.place(names[source], where) for source in parameter.packed_from)
                arguments.append(self._packed(number, parameter, sources))
            else:
                arguments.append(scope.place(names[parameter.name], where))
        return Step(number, tuple(arguments), group.title)

    def _constant_places(self, call: Call) -> Mapping[str, Place]:
        """Where the constants of a call lie that are packed when it is compiled, by the parameter's name."""
        key = call.made_of
        if key not in self._placed:
            names = dict(zip((p.name for p in call.module.sources), call.group.inputs, strict=True))
            made = self._constants.of(call)
            known = [
                p.name
                for p in call.module.parameters
                if p.name in made and all(names[n] in call.graph.constants for n in p.packed_from or (p.name,))
            ]
            self._placed[key] = {name: Place("weights", self._weights.place(made[name])) for name in known}
        return self._placed[key]

    def _pitches(self, scope: Scope, group: Group, algorithm: str) -> dict[str, tuple[int, ...]]:
        """Strides of the kernel's activations that are not dense, by the workload's names."""
        assert group.workload is not None
        if is_dense(scope, group):
            return {}
        *inputs, output = group.workload.tensors(algorithm)
        known = operations([output], inputs)
        found = {}
        for tensor, name in zip([*inputs, output], [*group.inputs, group.output], strict=True):
            strides = scope.locations[name].strides
            if strides is not None and strides != dense(tensor.shape):
                found[known[tensor.op]] = strides
        return found

    def _kernels(self) -> tuple[list[int], Sequence[Kernel | OpenKernel]]:
        """Number of each call's kernel, and the kernels, in the order of the calls that are their first."""
        known: dict[tuple[Any, ...], int] = {}
        numbers: list[int] = []
        kernels: list[Kernel] = []
        for scope, group, _ in self._calls():
            assert group.workload is not None
            schedule = self._chosen(group.workload)
            pitches = self._pitches(scope, group, schedule.algorithm)
            key = (group.workload.key, schedule.algorithm, schedule.trace.key, tuple(sorted(pitches.items())))
            number = known.setdefault(key, len(known))
            numbers.append(number)
            if number == len(kernels):
                kernels.append(self._kernel(group.workload, schedule, pitches, number))
        return numbers, kernels

    def _kernel(
        self, workload: Workload, schedule: Schedule, pitches: Mapping[str, tuple[int, ...]], number: int
    ) -> Kernel:
        """A kernel of the network, named by what it is made of or by its number."""
        symbol = symbol_of(workload, schedule, pitches, self._target) or self._symbol(number)
        return Kernel(workload, schedule, pitches, symbol)

    def _symbol(self, number: int) -> str:
        """Name of a kernel of which not all is known that its code depends on."""
        return f"{self._name}_kernel{number}"

    def _numbered(self, called: Sequence[int], modules: Iterator[Module]) -> Iterator[int]:
        """Numbers of the calls' kernels, each of which is built when its number is given."""
        for number in called:
            if number == len(self._modules):
                self._modules.append(next(modules))
            yield number

    def _packed(self, number: int, parameter: Parameter, sources: tuple[Place, ...]) -> Place:
        """Where a constant will lie that is packed when the network is loaded; of the same sources it is made once."""
        key = (number, parameter.name, sources)
        if key not in self._packings:
            result = Place("packed", self._packed_bytes)
            self._packings[key] = Packing(number, parameter.name, sources, result)
            nbytes = math.prod(parameter.shape) * numpy_dtype(parameter.dtype).itemsize
            self._packed_bytes += self._spaced(nbytes)
        return self._packings[key].result

    def _spaced(self, nbytes: int) -> int:
        return -(-nbytes // self._target.spacing) * self._target.spacing
