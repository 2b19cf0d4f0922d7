"""Seconds of kernels in float32 and in 16 bits, and the share of each place of a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np
from numpy.typing import NDArray

from autotune.compiler.schedules import Schedules
from autotune.graph.copies import executable_graph
from autotune.graph.ir import Graph
from autotune.graph.mixed.rounding_sites import RoundingSite
from autotune.graph.partition import Group, partition
from autotune.graph.precision import is_lowered, list_narrow_kernels, lowered_with_origins, moved_together
from autotune.schedule_store import MemoryStore
from search_space.workloads import Workload


class Times:
    """Seconds of kernels: measured, or the roofline's estimate, scaled by the ratio of measurements to estimates.

    Args:
        schedules: schedules by the roofline, without records.
        store: measured schedules.
    """

    def __init__(self, schedules: Schedules, store: MemoryStore) -> None:
        self._schedules, self._measured_seconds = schedules, {each.workload.key: each.seconds for each in store}
        self._ratios: dict[str, float] = {}  # first node of a kernel -> its measured seconds over the roofline's

    def prepare(self, workloads: Sequence[Workload]) -> None:
        """Makes all estimates in parallel."""
        self._schedules.prepare(workloads)

    def learn(self, kernels: Mapping[str, Group]) -> None:
        """Learns the ratio of measurement to estimate of each measured kernel."""
        for name, group in kernels.items():
            assert group.workload is not None
            seconds = self._measured_seconds.get(group.workload.key)
            estimate = self._schedules.find_schedule(group.workload).seconds
            if seconds is not None and estimate > 0:
                self._ratios[name] = seconds / estimate

    def __call__(self, name: str, workload: Workload) -> float:
        """Returns the measured seconds of a kernel, or its estimate times its own or the median measured ratio."""
        seconds = self._measured_seconds.get(workload.key)
        if seconds is not None:
            return seconds
        ratio = self._ratios.get(name, median(self._ratios.values()) if self._ratios else 1.0)
        return ratio * self._schedules.find_schedule(workload).seconds


class Kernels:
    """Kernels of a graph with some of them in 16 bits, by the names of their first nodes in float32.

    A cast that is a separate kernel has the name of the value that it rounds.

    Args:
        graph: graph in float32, after the passes.
        dtype: type of the kernels in 16 bits.
        full: kernels in float32.
        alignment: bytes of which the places of values must be multiples, see `partition`.
    """

    def __init__(self, graph: Graph, dtype: str, full: Sequence[str], alignment: int = 1) -> None:
        lowered, origins = lowered_with_origins(graph, dtype, full)
        self.graph = executable_graph(lowered, alignment)
        self._origins = dict(origins)
        for node in self.graph.nodes:
            if node.op == "cast" and node.name not in origins:
                self._origins[node.name] = self.origin(node.inputs[0])
        self.groups: dict[str, Group] = {}
        self.casts: list[Group] = []
        for group in partition(self.graph, alignment=alignment):
            if group.workload is not None and group.nodes[0].name not in origins and group.nodes[0].op == "cast":
                self.casts.append(group)
            elif group.workload is not None:
                self.groups[self.origin(group.nodes[0].name)] = group

    def origin(self, name: str) -> str:
        """Returns the value of the graph in float32 that a value is, or is rounded from."""
        return self._origins.get(name, name)

    @property
    def workloads(self) -> list[Workload]:
        """Workloads of all kernels, casts included."""
        return [g.workload for g in (*self.groups.values(), *self.casts) if g.workload is not None]

    def seconds(self, times: Times) -> float:
        """Sums the seconds of all kernels."""
        groups = [*self.groups.items(), *((self.origin(g.output), g) for g in self.casts)]
        return sum(times(name, group.workload) for name, group in groups if group.workload is not None)


def saved_seconds(
    graph: Graph, sites: Sequence[RoundingSite], wide: Kernels, narrow: Kernels, times: Times, bandwidth: float
) -> NDArray[np.float64]:  # (places + layers,)
    """Computes seconds that 16 bits save at each place, then by the products of each layer; their sum is the total.

    A layer's saving is split between stored values, by the time of their bytes at `bandwidth` but at most its saving,
    and its products. The saving of another kernel is split between the values that it reads and writes. Casts that are
    kernels cost their seconds where they round.

    Args:
        graph: graph in float32.
        sites: places of the graph.
        wide: its kernels, all in float32.
        narrow: its kernels, all in 16 bits.
        times: seconds of both.
        bandwidth: memory bandwidth in bytes per second.
    """
    same = moved_together(graph)
    stored = {same[value]: row for row, place in enumerate(sites) for value in place.values}
    operands = {place.operand: row for row, place in enumerate(sites) if place.operand}
    layers = list_layers(graph)
    rows = {name: len(sites) + number for number, name in enumerate(layers)}
    saved_by_row = np.zeros(len(sites) + len(layers))

    for name, group in narrow.groups.items():
        before = wide.groups.get(name)
        if before is None or before.workload is None or group.workload is None:
            continue
        if before.workload.key == group.workload.key:
            continue
        saved = times(name, before.workload) - times(name, group.workload)
        sizes: dict[int, int] = {}  # row -> bytes saved
        for value in dict.fromkeys((*before.inputs, before.output)):
            row = stored.get(same.get(wide.origin(value), ""))
            if row is not None:
                sizes[row] = sizes.get(row, 0) + graph.type(wide.origin(value)).nbytes // 2
        moved = sum(sizes.values()) / bandwidth
        if name in rows:
            share = min(max(saved, 0.0) / moved, 1.0) if moved else 0.0
            saved_by_row[rows[name]] += saved - share * moved
            saved = share * moved
        for row, size in sizes.items():
            saved_by_row[row] += saved * size / sum(sizes.values())
    for cast in narrow.casts:
        value = narrow.origin(cast.output)
        row = operands.get(value, stored.get(same.get(value, "")))
        if row is not None and cast.workload is not None:
            saved_by_row[row] -= times(value, cast.workload)
    return saved_by_row


def list_layers(graph: Graph) -> tuple[str, ...]:
    """Lists the kernels whose products may be in 16 bits, in order."""
    return tuple(
        n for n in list_narrow_kernels(graph) if (node := graph.node(n)) is not None and is_lowered(graph, node)
    )
