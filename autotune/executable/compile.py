"""From a partitioned graph and a schedule for each of its workloads to an executable: kernels, weights, memory plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from autotune.cache.kernels import KernelCache, symbol_of
from autotune.cache.linked import Linked, plan_digest
from autotune.executable.packing import Call, Constants, room
from autotune.executable.schedule import Kernel, Schedule, module_of
from autotune.executable.scopes import Roots, Scope, scope_of, trip_places
from autotune.executable.weights import Weights
from autotune.graph.copies import executable_graph
from autotune.graph.ir import Array, Graph, Node
from autotune.graph.loops import loops_of
from autotune.graph.memory_plan import Interval, MemoryPlan, lower_bound, plan
from autotune.graph.partition import Group
from autotune.graph.views import dense
from search_space.dtypes import numpy_dtype
from search_space.schedule.state import operations
from search_space.workloads import Workload
from targets import registry
from targets.base import BuildError, Loop, Module, NetworkPlan, Packing, Parameter, Place, Step, Target
from targets.manifest import contents, listed, replace_file, write_manifest

__all__ = ["Builder", "Chosen", "Compiler", "Schedule", "identifier"]

Chosen = Callable[[Workload], Schedule]
Builder = Callable[[Sequence[Kernel]], Iterable[Module]]
"""Kernels → their modules in this order, each when it is asked for."""


def identifier(name: str) -> str:
    """A C identifier of a network's name."""
    found = "".join(c if c.isascii() and c.isalnum() else "_" for c in name)
    return f"n{found}" if found[:1].isdigit() else found


def _inside(loop: str) -> str:
    """What the memory plan calls that which a trip needs; no value is called so."""
    return f"{loop}\0inside"


def _is_dense(scope: Scope, group: Group) -> bool:
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

    Raises:
        BuildError: loops in the graph, and a target that has none.
    """

    def __init__(
        self,
        graph: Graph,
        chosen: Chosen,
        target: str = "cpu",
        threads: int = 1,
        cache: KernelCache | None = None,
        builder: Builder | None = None,
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
        self._chosen, self._threads, self._cache = chosen, threads, cache
        self._name = identifier(graph.name)
        self._modules: list[Module] = []
        self._constants = Constants(self._target)
        self._packings: dict[tuple[int, str, tuple[Place, ...]], Packing] = {}
        self._packed_bytes = 0
        self._weights = Weights(self._target.spacing)

    @property
    def workloads(self) -> list[Workload]:
        """Of all steps, in their order, those of a loop once."""
        return [group.workload for _, group, _ in self._calls() if group.workload is not None]

    def pack(self, workload: Workload, module: Module) -> None:
        """Packs the constants of a workload's steps whose kernel is this one, so that `write` finds them packed."""
        for scope, group, _ in self._calls():
            if group.workload == workload and _is_dense(scope, group):
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
        keys = self._keys(kernels)
        before = self._before(keys)
        modules = self._built(kernels, keys) if before is None else iter(before.modules)
        graphs = [self.graph, *(body.graph for body in self._bodies.values())]
        if before is not None:  # all kernels are there, so that their constants can be packed side by side
            calls = [
                Call(scope.graph, group, before.modules[number])
                for (scope, group, _), number in zip(self._calls(), called, strict=True)
            ]
            self._weights = Weights(self._target.spacing, room(graphs, calls, self._target.spacing))
            self._constants.all_ahead(calls, self._target.library(before.files))
        steps = self._steps(memory.offsets, self._numbered(called, modules))
        arena = self._spaced(memory.nbytes)
        network = NetworkPlan(
            self._name,
            tuple(self._modules),
            tuple(steps),
            tuple(Parameter(name, kind.shape, kind.dtype) for name, kind in self.graph.inputs.items()),
            tuple(
                Parameter(name, self.graph.type(name).shape, self.graph.type(name).dtype) for name in self.graph.outputs
            ),
            self._weights.nbytes,
            arena,
            tuple(self._packings.values()),
            self._packed_bytes,
            tuple(self._weights.parts),
        )
        linked = self._linked(network, folder, kernels, keys, before)
        weights = folder / f"{self._name}.weights"
        if weights_file:
            replace_file(weights, *(part.data for part in self._weights.parts))  # they are not copied into one
        original = sum(array.nbytes for graph in graphs for array in graph.constants.values())
        manifest = {
            "schema": linked["schema"],
            "name": self._name,
            "target": self._target.name,
            "threads": self._threads,
            "inputs": [listed(p) for p in network.inputs],
            "outputs": [listed(p) for p in network.outputs],
            **linked,
            "weights": {
                "file": weights.name,
                "nbytes": self._weights.nbytes,
                "sha256": self._weights.sha256(),
                "original_nbytes": original,
            },
            "memory": {
                "arena_bytes": arena,
                "arena_lower_bound": lower_bound(intervals),
                **linked["memory"],
            },
            "steps": [
                {"title": group.title, "workload": group.workload.key, "kernel": self._modules[step.module].name}
                | ({} if trips == 1 else {"trips": trips})
                for (_, group, trips), step in zip(self._calls(), network.calls, strict=True)
                if group.workload is not None
            ],
        }
        write_manifest(manifest, folder)
        return self._weights.whole

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

    def _within(self, loop: str) -> MemoryPlan:
        """Where the values of a body lie that no other trip reads."""
        return plan(self._bodies[loop].intervals(), self._target.spacing)

    def _roots(self, offsets: Mapping[str, int]) -> Roots:
        """Where the network's values lie that others lie in."""
        outputs = {self._network.root(name): number for number, name in enumerate(self.graph.outputs)}
        inputs = {name: number for number, name in enumerate(self.graph.inputs)}

        def where(root: str) -> Place:
            if root in outputs:
                return Place("output", outputs[root])
            if root in inputs:
                return Place("input", inputs[root])
            if root in self.graph.constants:
                return Place("weights", self._weights.place(np.asarray(self.graph.constants[root])))
            return Place("arena", offsets[root])

        return where

    def _steps(self, offsets: Mapping[str, int], numbers: Iterator[int]) -> list[Step | Loop]:
        """Steps of the network; `numbers` gives that of the kernel of each call."""
        outer, where = self._network, self._roots(offsets)
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
        constants = self._constants.of(Call(graph, group, module))
        arguments = []
        for parameter in module.parameters:
            made_of = parameter.packed_from or ((parameter.name,) if parameter.constant else ())
            computed = [names[source] for source in made_of if names[source] not in graph.constants]
            if computed and parameter.packed_from:
                raise BuildError(
                    f"`{parameter.name}` of {group.workload.key} must be made of constants, "
                    f"but {', '.join(computed)} is computed"
                )
            if parameter.name in constants and not computed:
                arguments.append(Place("weights", self._weights.place(constants[parameter.name])))
            elif parameter.name in module.outputs:
                arguments.append(scope.place(group.output, where))
            elif parameter.packed_from:
                sources = tuple(scope.place(names[source], where) for source in parameter.packed_from)
                arguments.append(self._packed(number, parameter, sources))
            else:
                arguments.append(scope.place(names[parameter.name], where))
        return Step(number, tuple(arguments), group.title)

    def _pitches(self, scope: Scope, group: Group, algorithm: str) -> dict[str, tuple[int, ...]]:
        """Strides of the kernel's activations that are not dense, by the workload's names."""
        assert group.workload is not None
        if _is_dense(scope, group):
            return {}
        *inputs, output = group.workload.tensors(algorithm)
        known = operations([output], inputs)
        found = {}
        for tensor, name in zip([*inputs, output], [*group.inputs, group.output], strict=True):
            strides = scope.locations[name].strides
            if strides is not None and strides != dense(tensor.shape):
                found[known[tensor.op]] = strides
        return found

    def _kernels(self) -> tuple[list[int], list[Kernel]]:
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
                symbol = symbol_of(group.workload, schedule, pitches, self._target) or f"{self._name}_kernel{number}"
                kernels.append(Kernel(group.workload, schedule, pitches, symbol))
        return numbers, kernels

    def _numbered(self, called: Sequence[int], modules: Iterator[Module]) -> Iterator[int]:
        """Numbers of the calls' kernels, each of which is built when its number is given."""
        for number in called:
            if number == len(self._modules):
                self._modules.append(next(modules))
            yield number

    def _keys(self, kernels: Sequence[Kernel]) -> list[str | None]:
        """Keys of kernels in the cache."""
        cache = self._cache
        return [None if cache is None else cache.module_key(kernel, self._target) for kernel in kernels]

    def _before(self, keys: Sequence[str | None]) -> Linked | None:
        """What the kernels were linked to before, if they were."""
        return (
            None
            if self._cache is None or None in keys
            else self._cache.linked(self._name, [key for key in keys if key])
        )

    def _linked(
        self,
        plan: NetworkPlan,
        folder: Path,
        kernels: Sequence[Kernel],
        keys: Sequence[str | None],
        before: Linked | None,
    ) -> Mapping[str, Any]:
        """Writes to `folder` what the target links, as it was linked before or anew; what `Target.link` says of it.

        Kernels are the same and where weights lie may differ: of one model values are equal that are not of another.
        """
        known = [key for key in keys if key]
        if self._cache is None or len(known) < len(keys):
            return self._target.link(plan, folder)
        found = plan_digest(plan, known)
        if before is not None and before.plan == found:
            for file, data in before.files.items():
                replace_file(folder / file, data)
            return before.facts
        if before is not None:
            plan = replace(plan, modules=tuple(self._built(kernels, keys)))
        facts = self._target.link(plan, folder)
        files = {item["file"]: contents(folder / item["file"], item["sha256"]) for item in facts.get("files", ())}
        if f"{self._name}.so" in files:
            self._cache.keep_linked(self._name, known, Linked.of(found, facts, files, plan.modules))
        return facts

    def _built(self, kernels: Sequence[Kernel], keys: Sequence[str | None]) -> Iterator[Module]:
        """Modules of kernels, of the cache or built; these are kept there.

        Args:
            keys: of the kernels there.
        """
        cache = self._cache
        found = [None if cache is None or key is None else cache.module(key) for key in keys]
        missing = [kernel for kernel, module in zip(kernels, found, strict=True) if module is None]
        building = iter(self._builder(missing))
        for key, known in zip(keys, found, strict=True):
            module = next(building) if known is None else known
            if known is None and cache is not None and key is not None:
                cache.keep_module(key, module)
            yield module

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
