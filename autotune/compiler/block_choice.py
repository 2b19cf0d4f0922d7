"""Choice of the blocks in which a sparse weight is multiplied: by measured times if there are any, else by a table.

Each size needs constants of its own, so that sizes are no algorithms of one kernel: an executable would store all of
them. Instead a search also measures the kernels with blocks of the next best sizes. Then the pass runs again, and takes
the fastest kernel of each layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from autotune.compiler.lock import read_keys
from autotune.compiler.selection import Limits
from autotune.compiler.tasks import list_tasks
from autotune.graph.copies import executable_graph
from autotune.graph.ir import Graph
from autotune.graph.partition import partition
from autotune.graph.passes.pipeline import GraphPass, PassResult
from autotune.graph.passes.sparse_products import SPARSE, SparseProducts, count_sizes
from autotune.tuner.preparation import reusable_records
from autotune.tuner.record_store import RecordStore
from autotune.tuner.settings import Settings
from autotune.tuner.task import Task
from measure.database import Database
from search_space.workloads import Workload

Seconds = Callable[[Workload], float | None]
"""Function workload → measured seconds of its best schedule; None if it was not measured."""


def never_measured(workload: Workload) -> float | None:
    """Returns None for every workload."""
    return None


@dataclass(frozen=True)
class ChooseBlocks(GraphPass):
    """Pass that leaves blocks of zeros out of products; its fact is the tasks with blocks of other sizes.

    Attributes:
        least: least share of a weight that must lie in blocks of zeros.
        alignment: alignment of the target, in bytes.
        seconds: measured seconds of kernels.
    """

    least: float
    alignment: int
    seconds: Seconds = field(default=never_measured, repr=False)
    name = "sparse_products"

    def apply(self, graph: Graph) -> PassResult:
        """Rewrites the products.

        Raises:
            GraphError: no weight has as many zeros.
        """
        counts = count_sizes(graph, self.least)
        graphs = [
            SparseProducts(self.least, True, {name: min(rank, count - 1) for name, count in counts.items()})(graph)
            for rank in range(max(counts.values(), default=1))
        ]
        kernels = [_list_kernels(executable_graph(each, self.alignment)) for each in graphs]
        ranks = {
            name: self._find_fastest([of_rank[name] for of_rank in kernels][:count]) for name, count in counts.items()
        }
        chosen = SparseProducts(self.least, True, ranks)(graph)
        own = {task.workload.key for task in self._list_tasks(chosen)}
        others = {task.workload.key: task for each in graphs for task in self._list_tasks(each)}
        alternatives = [task for key, task in others.items() if key not in own]
        # Layers of one shape may have equal names here: a number tells results apart.
        named = (replace(task, name=f"{task.name}_alternative{place}") for place, task in enumerate(alternatives, 1))
        return PassResult(chosen, tuple(named))

    def _find_fastest(self, kernels: Sequence[Workload]) -> int:
        """Returns the place of the fastest kernel; 0 if the first was not measured."""
        seconds = [self.seconds(workload) for workload in kernels]
        measured = {place: each for place, each in enumerate(seconds) if each is not None}
        return min(measured, key=measured.__getitem__) if 0 in measured else 0

    def _list_tasks(self, graph: Graph) -> list[Task]:
        return [
            task
            for task in list_tasks(executable_graph(graph, self.alignment), None, self.alignment)
            if task.workload.anchor.operator in SPARSE
        ]


def _list_kernels(graph: Graph) -> Mapping[str, Workload]:
    """Maps sparse products to the kernels that they are part of."""
    return {
        node.name: group.workload
        for group in partition(graph)
        for node in group.nodes
        if node.op in SPARSE and group.workload is not None
    }


def read_locked_seconds(lock: Path) -> Seconds:
    """Makes a function by which the kernels of a lock file are fastest.

    Raises:
        ConfigError: the file is no lock file.
    """
    keys = read_keys(lock)
    return lambda workload: 0.0 if workload.key in keys else math.inf


def read_seconds(records: Path, settings: Settings, limits: Limits) -> Seconds:
    """Makes the function that looks measured seconds up in a file of records, which may be missing."""
    if not records.exists():
        return never_measured
    with Database(records, readonly=True) as database:
        store = RecordStore(reusable_records(database, None, settings), limits.list_algorithms)

    def seconds(workload: Workload) -> float | None:
        return next((best.seconds for best in store.best(workload, settings.target)), None)

    return seconds
