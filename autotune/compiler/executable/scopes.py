"""Scopes: graphs whose kernels an executable calls, that is a network of known shape or the body of a loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autotune.graph.ir import Graph, Node
from autotune.graph.loops import list_loops
from autotune.graph.memory_plan import Interval, MemoryPlan, plan
from autotune.graph.ops.loops import lay_out_outputs
from autotune.graph.partition import Group, partition
from autotune.graph.views import Location, locate
from search_space.dtypes import numpy_dtype
from search_space.workloads import Workload
from targets.base import BufferRef

Roots = Callable[[str], BufferRef]
"""Function that maps a value which owns memory to where it begins."""


@dataclass(frozen=True)
class Scope:
    """Graph of kernels.

    Attributes:
        graph: graph in which every kernel writes to the final place of its value, see `executable_graph`.
        groups: kernels and loops, in execution order.
        locations: locations of all values, within others.
        bodies: bodies of its loops, by the name of the loop.
    """

    graph: Graph
    groups: tuple[Group, ...]
    locations: Mapping[str, Location]
    bodies: Mapping[str, Scope]

    @property
    def graphs(self) -> list[Graph]:
        """Graphs whose constants are weights."""
        return [self.graph, *(body.graph for body in self.bodies.values())]

    def calls(self) -> Iterator[tuple[Scope, Group, int]]:
        """Lists the groups that are computed with their scopes, in execution order, and the number of calls of each."""
        for group in self.groups:
            if group.loop is None:
                yield self, group, 1
            else:
                body, trips = self.bodies[group.loop.name], group.loop.attrs["trips"]
                yield from ((body, inner, trips) for inner in body.groups)

    def root(self, name: str) -> str:
        """Returns the value that owns the memory of a value."""
        return self.locations[name].root

    def buffer_ref(self, name: str, where: Roots) -> BufferRef:
        """Locates a value."""
        beyond = self.locations[name].offset * numpy_dtype(self.graph.type(name).dtype).itemsize
        return where(self.root(name)).shift(beyond)

    def is_dense(self, group: Group) -> bool:
        """Tells whether all arrays of a call are dense."""
        return all(self.locations[name].strides is None for name in (*group.inputs, group.output))

    def plan(self, spacing: int) -> MemoryPlan:
        """Plans the places of values in an arena.

        Args:
            spacing: bytes at whose multiples values begin.
        """
        return plan(self.intervals(spacing), spacing)

    def intervals(self, spacing: int) -> list[Interval]:
        """Lists the memory needs of every value in an arena; inputs, constants and outputs lie elsewhere.

        Everything that a trip of a loop needs besides the loop's results is one of them, `inside` the loop.
        """
        outside = {*self.graph.inputs, *self.graph.constants, *(self.root(name) for name in self.graph.outputs)}
        written: dict[str, int] = {}
        read: dict[str, int] = {}
        for number, group in enumerate(self.groups):
            written.setdefault(self.root(group.output), number)
            for name in (*group.inputs, group.output):
                read[self.root(name)] = number
        needs = [
            Interval(name, self.graph.type(name).nbytes, number, read[name])
            for name, number in written.items()
            if name not in outside
        ]
        for number, group in enumerate(self.groups):
            nbytes = 0 if group.loop is None else self.bodies[group.loop.name].plan(spacing).nbytes
            if group.loop is not None and nbytes:
                needs.append(Interval(inside(group.loop.name), nbytes, number, number))
        return needs


def inside(loop: str) -> str:
    """Names the memory that a trip of a loop needs in the memory plan; no value has such a name."""
    return f"{loop}\0inside"


def listed_step(title: str, workload: Workload, kernel: str, open_sizes: bool = False) -> dict[str, Any]:
    """Describes a step for a manifest: factors' types, and the operations unless sizes change them."""
    kinds = dict.fromkeys(spec.dtype for spec in workload.inputs[:2])
    found = {"title": title, "workload": workload.key, "kernel": kernel, "dtype": " x ".join(kinds)}
    return found if open_sizes else {**found, "flops": workload.flops}


def make_scope(graph: Graph, alignment: int) -> Scope:
    """Partitions a graph and the bodies of its loops.

    Args:
        graph: graph that `executable_graph` returned.
        alignment: alignment of the target.
    """
    groups = [group for group in partition(graph, alignment=alignment) if group.workload or group.loop]
    bodies = {node.name: make_scope(node.attrs["body"].graph, alignment) for node in list_loops(graph)}
    return Scope(graph, tuple(groups), locate(graph, alignment=alignment), bodies)


def trip_places(node: Node, body: Scope, data: BufferRef, inputs: Sequence[BufferRef]) -> dict[str, BufferRef]:
    """Locates inputs and outputs of a loop's body in each trip, by their roots.

    Args:
        node: the loop.
        body: scope of its body.
        data: place of the loop's results.
        inputs: places of its inputs.
    """
    of, trips = node.attrs["body"], node.attrs["trips"]
    results = lay_out_outputs(node.attrs)[0]
    outputs = [replace(data.shift(at.base), advance=at.advance, period=at.period) for at in results]
    by_root = {body.root(name): address for name, address in zip(body.graph.outputs, outputs, strict=True)}
    states, backs = len(of.state_outputs), node.attrs["reads_back"]
    for number, (name, kind, address) in enumerate(zip(body.graph.inputs, of.inputs, inputs, strict=True)):
        by_root[name] = address
        if number < states:
            by_root[name] = replace(_before(outputs[of.state_outputs[number]]), first=address)
        elif number < states + of.sequences:
            last, step = address.shift((trips - 1) * kind.nbytes), kind.nbytes
            back = backs[number - states]
            by_root[name] = replace(last, advance=-step) if back else replace(address, advance=step)
    return by_root


def _before(ref: BufferRef) -> BufferRef:
    """Locates an output of the trip before; the first trip has none."""
    if ref.period:  # trips alternate between places
        return replace(ref.shift(ref.advance), advance=-ref.advance)
    return replace(ref.shift(-ref.advance), advance=ref.advance)
