"""The problem of choosing types of kernels: places, seconds and noise of a network combined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autotune.compiler.mixed.byte_times import byte_seconds
from autotune.compiler.mixed.precision_times import Kernels, Times, list_layers, saved_seconds
from autotune.compiler.mixed.type_resolution import NARROW, TYPES
from autotune.compiler.schedules import Schedules
from autotune.compiler.selection import Limits, select
from autotune.compiler.tasks import list_tasks
from autotune.graph.ir import Graph
from autotune.graph.mixed import ByteLayers, Problem, RoundingSite
from autotune.graph.precision import list_narrow_kernels
from autotune.schedule_store import MemoryStore
from autotune.tuner.preparation import reusable_records
from autotune.tuner.record_store import RecordStore
from autotune.tuner.settings import Settings
from measure.database import Database

BYTES = TYPES.index("int8")


class Seconds:
    """Seconds of a network's kernels in each type.

    Args:
        graph: graph in float32, after the passes.
        layers: layers that may be on bytes; None: no layer may.
        settings: settings of the run.
        limits: limits of algorithms.
        records: file of measurements, which may be missing.
    """

    def __init__(
        self, graph: Graph, layers: ByteLayers | None, settings: Settings, limits: Limits, records: Path | None
    ) -> None:
        self.graph, self.layers, self._settings = graph, layers, settings
        self.wide, self.narrow = (self._kernels(graph, full) for full in (list_narrow_kernels(graph), ()))
        self.on_bytes = None if layers is None else self._kernels(layers.quantised_graph.graph, ())
        all_kernels = [each for each in (self.wide, self.narrow, self.on_bytes) if each is not None]
        self.times = Times(
            Schedules(None, settings, limits), _load_measurements(all_kernels, settings, limits, records)
        )
        self.times.prepare([workload for each in all_kernels for workload in each.workloads])
        self.times.learn(self.narrow.groups)
        self.times.learn(self.wide.groups)

    @property
    def in_float32(self) -> float:
        """Seconds of the whole network in float32."""
        return self.wide.seconds(self.times)

    def of(self, typed_graph: Graph) -> float:
        """Estimates the network with its kernels in some types, a result of `in_types`."""
        kernels = self._kernels(typed_graph, list_narrow_kernels(typed_graph))
        self.times.prepare(kernels.workloads)
        return kernels.seconds(self.times)

    def _kernels(self, graph: Graph, full: Sequence[str]) -> Kernels:
        return Kernels(graph, NARROW, full, self._settings.target.alignment)

    def compute_savings(self, sites: Sequence[RoundingSite]) -> NDArray[np.float64]:
        """Computes the seconds saved by 16 bits at each place and in each layer, see `saved_seconds`."""
        return saved_seconds(self.graph, sites, self.wide, self.narrow, self.times, self.bandwidth)

    @property
    def bandwidth(self) -> float:
        """Memory bandwidth in bytes per second."""
        return self._settings.target.hardware.bandwidth


@dataclass
class _Rows:
    """Rows of a problem: types of each kernel in which the row applies, its seconds and its noise."""

    placements: list[dict[str, tuple[int, ...]]]
    savings: list[float]
    noise: list[NDArray[np.float64]]

    def add(self, kernels: Sequence[str], types: tuple[int, ...], saving: float, noise: NDArray[np.float64]) -> None:
        self.placements.append(dict.fromkeys(kernels, types))
        self.savings.append(saving)
        self.noise.append(noise)


def make_problem(
    seconds: Seconds,
    sites: Sequence[RoundingSite],
    noise: NDArray[np.float64],
    byte_noise: NDArray[np.float64] | None = None,
) -> Problem:
    """Builds the problem of choosing types for the kernels of a network.

    Args:
        seconds: seconds of the network's kernels.
        sites: places that may be in 16 bits.
        noise: noise of these places, (places, outputs).
        byte_noise: noise of the places of layers that may be on bytes, (places, outputs); None if no layer may.
    """
    graph, layers = seconds.graph, seconds.layers
    silent = np.zeros(noise.shape[1])
    rows = _Rows([], [], [])
    holders = [*(site.kernels for site in sites), *((name,) for name in list_layers(graph))]
    loud = [*noise, *([silent] * (len(holders) - len(sites)))]
    for kernels, saved, each in zip(holders, seconds.compute_savings(sites), loud, strict=True):
        rows.add(kernels, (1,), float(saved), each)
    lowered = list_narrow_kernels(graph)
    names, types = lowered, 2
    if layers is not None and byte_noise is not None and seconds.on_bytes is not None:
        names = tuple(node.name for node in graph.nodes if node.name in {*lowered, *layers.names})
        types = 3
        saved_on_bytes = byte_seconds(layers, seconds.wide, seconds.on_bytes, seconds.times, seconds.bandwidth)
        for site, each in zip(layers.sites, byte_noise, strict=True):
            rows.add(site.kernels, (BYTES,), saved_on_bytes.values.get(site.name, 0.0), each)
        for name, saved in saved_on_bytes.layers.items():
            rows.add((name,), (BYTES,), saved, silent)
        for name, kernels in saved_on_bytes.readers.items():
            rows.add(kernels, (0, 1), saved_on_bytes.floats[name], silent)
    number = {name: row for row, name in enumerate(names)}
    at = np.zeros((len(rows.placements), len(names), types), bool)
    for row, held in enumerate(rows.placements):
        for name, kinds in held.items():
            at[row, number[name], list(kinds)] = True
    may = np.zeros((len(names), types), bool)
    may[:, 0] = True
    may[[number[name] for name in lowered], 1] = True
    if layers is not None and types == 3:
        may[[number[name] for name in layers.names], BYTES] = True
    return Problem(names, at, np.array(rows.savings), np.array(rows.noise).reshape(len(at), -1), may)


def _load_measurements(
    kernels: Sequence[Kernels], settings: Settings, limits: Limits, records: Path | None
) -> MemoryStore:
    if records is None or not records.exists():
        return MemoryStore()
    tasks = [task for each in kernels for task in list_tasks(each.graph, None, settings.target.alignment)]
    with Database(records, readonly=True) as database:
        measured = (r for task in tasks for r in reusable_records(database, task.workload, settings))
        store = RecordStore(measured, limits.list_algorithms)
    return select(tasks, store, settings, limits)
