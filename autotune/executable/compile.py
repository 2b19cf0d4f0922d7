"""From a partitioned graph and a schedule for each of its workloads to an executable: kernels, weights, memory plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from autotune.cache.kernels import KernelCache
from autotune.executable.schedule import Kernel, Schedule, module_of
from autotune.executable.weights import Weights
from autotune.graph.copies import executable_graph
from autotune.graph.ir import Array, Graph
from autotune.graph.memory_plan import Interval, lower_bound, plan
from autotune.graph.partition import Group, partition
from autotune.graph.views import dense, locate
from search_space.dtypes import numpy_dtype
from search_space.schedule.state import operations
from search_space.workloads import Workload
from targets import registry
from targets.base import BuildError, Module, NetworkPlan, Packer, Packing, Parameter, Place, Step, Target
from targets.manifest import listed, replace_file, write_manifest

__all__ = ["Builder", "Chosen", "Compiler", "Schedule", "identifier"]

Chosen = Callable[[Workload], Schedule]
Builder = Callable[[Sequence[Kernel]], Iterable[Module]]
"""Kernels → their modules in this order, each when it is asked for."""


def identifier(name: str) -> str:
    """A C identifier of a network's name."""
    found = "".join(c if c.isascii() and c.isalnum() else "_" for c in name)
    return f"n{found}" if found[:1].isdigit() else found


class Compiler:
    """Compiles one graph.

    Args:
        graph: what to compile; constants are weights.
        chosen: workload → its schedule.
        target: name of the target.
        threads: that the network is meant to run on.
        cache: of kernels that were built before; None: every kernel is built.
        builder: builds those that are not known; by default one after the other.
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
        self.groups = [g for g in partition(self.graph, alignment=alignment) if g.workload is not None]
        self._locations = locate(self.graph, alignment=alignment)
        self._chosen, self._threads, self._cache = chosen, threads, cache
        self._name = identifier(graph.name)
        self._modules: list[Module] = []
        self._packers: list[Packer | None] = []
        self._packings: dict[tuple[int, str, tuple[Place, ...]], Packing] = {}
        self._packed_bytes = 0
        self._weights = Weights(self._target.spacing)

    @property
    def workloads(self) -> list[Workload]:
        """Of all steps, in their order."""
        return [group.workload for group in self.groups if group.workload is not None]

    def write(self, folder: Path, weights_file: bool = True) -> Sequence[Array]:
        """Writes to `folder` what the target links, weights and manifest.

        Args:
            weights_file: whether the weights are written; otherwise whoever loads the executable is to be given them.

        Returns:
            The bytes of the weights, in parts (n,) one after the other.

        Raises:
            BuildError: a kernel that cannot be built.
            RuntimeError: the linker failed.
        """
        folder.mkdir(parents=True, exist_ok=True)
        intervals = self._intervals()
        memory = plan(intervals, self._target.spacing)
        numbers, kernels = self._kernels()
        modules = self._built(kernels)
        steps = []
        for group, number in zip(self.groups, numbers, strict=True):
            if number == len(self._modules):  # kernels stand in the order of the steps that are their first
                self._modules.append(next(modules))
                self._packers.append(self._target.packer(self._modules[-1]))
            steps.append(self._step(group, number, memory.offsets))
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
        linked = self._target.link(network, folder)
        weights = folder / f"{self._name}.weights"
        if weights_file:
            replace_file(weights, *(part.data for part in self._weights.parts))  # they are not copied into one
        original = sum(array.nbytes for array in self.graph.constants.values())
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
                for group, step in zip(self.groups, steps, strict=True)
                if group.workload is not None
            ],
        }
        write_manifest(manifest, folder)
        return self._weights.parts

    def _root(self, name: str) -> str:
        return self._locations[name].root

    def _intervals(self) -> list[Interval]:
        """Of every value that lives in the arena; outputs of the network are written where the caller wants them."""
        given = {*self.graph.inputs, *self.graph.constants, *(self._root(name) for name in self.graph.outputs)}
        written: dict[str, int] = {}
        read: dict[str, int] = {}
        for number, group in enumerate(self.groups):
            written.setdefault(self._root(group.output), number)
            for name in (*group.inputs, group.output):
                read[self._root(name)] = number
        return [
            Interval(name, self.graph.type(name).nbytes, number, read[name])
            for name, number in written.items()
            if name not in given
        ]

    def _step(self, group: Group, number: int, offsets: Mapping[str, int]) -> Step:
        assert group.workload is not None
        module, packer = self._modules[number], self._packers[number]
        names = dict(zip((p.name for p in module.sources), group.inputs, strict=True))
        constants: Mapping[str, Array] = {}
        if packer is not None and any(p.constant or p.packed_from for p in module.parameters):
            arrays = [
                np.asarray(self.graph.constants[name])
                if name in self.graph.constants
                else np.zeros(source.shape, numpy_dtype(source.dtype))
                for source, name in zip(module.sources, group.inputs, strict=True)
            ]
            constants = packer(arrays)
        arguments = []
        for parameter in module.parameters:
            made_of = parameter.packed_from or ((parameter.name,) if parameter.constant else ())
            computed = [names[source] for source in made_of if names[source] not in self.graph.constants]
            if computed and parameter.packed_from:
                raise BuildError(
                    f"`{parameter.name}` of {group.workload.key} must be made of constants, "
                    f"but {', '.join(computed)} is computed"
                )
            if parameter.name in constants and not computed:
                arguments.append(Place("weights", self._weights.place(constants[parameter.name])))
            elif parameter.name in module.outputs:
                arguments.append(self._place(group.output, offsets))
            elif parameter.packed_from:
                sources = tuple(self._place(names[source], offsets) for source in parameter.packed_from)
                arguments.append(self._packed(number, parameter, sources))
            else:
                arguments.append(self._place(names[parameter.name], offsets))
        return Step(number, tuple(arguments), group.title)

    def _pitches(self, group: Group, algorithm: str) -> dict[str, tuple[int, ...]]:
        """Strides of the kernel's activations that are not dense, by the workload's names."""
        assert group.workload is not None
        if all(self._locations[name].strides is None for name in (*group.inputs, group.output)):
            return {}
        *inputs, output = group.workload.tensors(algorithm)
        known = operations([output], inputs)
        found = {}
        for tensor, name in zip([*inputs, output], [*group.inputs, group.output], strict=True):
            strides = self._locations[name].strides
            if strides is not None and strides != dense(tensor.shape):
                found[known[tensor.op]] = strides
        return found

    def _kernels(self) -> tuple[list[int], list[Kernel]]:
        """Number of each step's kernel, and the kernels, in the order of the steps that are their first."""
        known: dict[tuple[Any, ...], int] = {}
        numbers: list[int] = []
        kernels: list[Kernel] = []
        for group in self.groups:
            assert group.workload is not None
            schedule = self._chosen(group.workload)
            pitches = self._pitches(group, schedule.algorithm)
            key = (group.workload.key, schedule.algorithm, schedule.trace.key, tuple(sorted(pitches.items())))
            number = known.setdefault(key, len(known))
            numbers.append(number)
            if number == len(kernels):
                kernels.append(Kernel(group.workload, schedule, pitches, f"{self._name}_kernel{number}"))
        return numbers, kernels

    def _built(self, kernels: Sequence[Kernel]) -> Iterator[Module]:
        """Modules of kernels, of the cache or built; these are kept there."""
        cache = self._cache
        keys = [None if cache is None else cache.module_key(kernel, self._target) for kernel in kernels]
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

    def _place(self, name: str, offsets: Mapping[str, int]) -> Place:
        root = self._root(name)
        beyond = self._locations[name].offset * numpy_dtype(self.graph.type(name).dtype).itemsize
        for number, output in enumerate(self.graph.outputs):
            if root == self._root(output):
                return Place("output", number, beyond)
        if root in self.graph.inputs:
            return Place("input", list(self.graph.inputs).index(root), beyond)
        if root in self.graph.constants:
            return Place("weights", self._weights.place(np.asarray(self.graph.constants[root])) + beyond)
        return Place("arena", offsets[root] + beyond)
