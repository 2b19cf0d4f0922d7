"""Divisions of a dataset into training and test programs: within tasks, by task, by target, by network.

A split is a rule and a seed, not a list of rows. A dataset that has grown is split in the same way, and its earlier
test programs stay test programs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.dataset.dataset import Dataset, Rows, TaskData
from costmodel.dataset.errors import DatasetError
from search_space import strict_json

SCHEMA = "autotune.split/1"
KINDS = ("within", "task", "target", "network")
RANDOM_KINDS = ("within", "task")
"""Kinds that draw a share at random."""


class TaskPrograms(NamedTuple):
    """Programs of one task: `rows` (n,) are their indices among the task's."""

    task: TaskData
    rows: Rows


def working(data: Dataset) -> list[TaskPrograms]:
    """Lists the valid programs of each task; tasks without one are left out."""
    every = (TaskPrograms(task, np.flatnonzero(np.isfinite(data.seconds(task)))) for task in data.tasks)
    return [part for part in every if len(part.rows)]


def mixed_workloads(tasks: Iterable[TaskData], seed: int) -> list[str]:
    """Lists the keys of the tasks' workloads in random order."""
    keys = sorted({task.workload.key for task in tasks})
    return [keys[place] for place in np.random.default_rng(seed).permutation(len(keys)).tolist()]


@dataclass(frozen=True)
class Split:
    """A division of a dataset into training and test programs.

    Attributes:
        kind: kind of the test programs. `within`: a share of the programs of every task. `task`: a share of the
            workloads. `target`: all tasks of some targets. `network`: all tasks of some networks, whose workloads are
            not trained on.
        seed: seed of the draw of `within` and `task`.
        share: share of the programs or workloads that are tested on; None for the other kinds.
        held_out: names of the targets or networks that are tested on.
        train_tasks, test_tasks: keys of tasks.
    """

    kind: str
    seed: int
    share: float | None
    held_out: tuple[str, ...]
    train_tasks: tuple[str, ...]
    test_tasks: tuple[str, ...]

    def __post_init__(self) -> None:
        """Refuses a split that would evaluate a model on its training data.

        Raises:
            DatasetError: the kind is unknown, the share is out of range, or a task is on both sides.
        """
        if self.kind not in KINDS:
            raise DatasetError(f"`kind` must be one of {', '.join(KINDS)}, but got kind={self.kind!r}")
        if self.kind in RANDOM_KINDS:
            _check_share(self.share)
        elif self.share is not None:
            raise DatasetError(f"`share` must be null for kind={self.kind!r}, but got share={self.share!r}")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise DatasetError(f"`seed` must be a whole number from 0, but got seed={self.seed!r}")
        for name in ("held_out", "train_tasks", "test_tasks"):
            texts = getattr(self, name)
            if not isinstance(texts, tuple) or not all(isinstance(text, str) for text in texts):
                raise DatasetError(f"`{name}` must be a list of texts, but got {name}={texts!r}")
        if self.kind != "within" and (both := sorted({*self.train_tasks} & {*self.test_tasks})):
            raise DatasetError(f"`train_tasks` and `test_tasks` must have no task in common, but both have {both[0]!r}")

    def train(self, data: Dataset) -> list[TaskPrograms]:
        """Lists the training programs; tasks that the dataset lacks are left out."""
        return [
            TaskPrograms(task, self._rows(data, task, False)) for task in data.tasks if task.key in self.train_tasks
        ]

    def test(self, data: Dataset) -> list[TaskPrograms]:
        """Lists the test programs; tasks that the dataset lacks are left out."""
        return [TaskPrograms(task, self._rows(data, task, True)) for task in data.tasks if task.key in self.test_tasks]

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **dataclasses.asdict(self)}

    @staticmethod
    def read(path: str | Path) -> Split:
        """Reads a split from a JSON file.

        Raises:
            DatasetError: the file does not exist, has another schema, or is not a valid split.
        """
        data = strict_json.read(Path(path), "a split", "schema", SCHEMA, DatasetError)
        del data["schema"]
        names = {field.name for field in dataclasses.fields(Split)}
        if set(data) != names:
            raise DatasetError(
                f"{path}: a split must have {', '.join(sorted(names))}, but got {', '.join(sorted(data))}"
            )
        values: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in data.items()}
        try:
            return Split(**values)
        except DatasetError as error:
            raise DatasetError(f"{path}: {error}") from None

    def _rows(self, data: Dataset, task: TaskData, test: bool) -> Rows:
        if self.kind != "within":
            return np.arange(data.count(task))
        digests = np.array([program.digest for program in data.programs(task)], np.int64)
        return np.flatnonzero((_uniform(digests, self.seed) < _check_share(self.share)) == test)


def split_within(data: Dataset, share: float = 0.2, seed: int = 0) -> Split:
    """Holds back a share of the programs of every task.

    Raises:
        DatasetError: `share` is out of range.
    """
    keys = tuple(task.key for task in data.tasks)
    return Split("within", seed, _check_share(share), (), keys, keys)


def split_by_task(data: Dataset, share: float = 0.2, seed: int = 0) -> Split:
    """Holds back a share of the workloads, on all targets.

    DatasetError: `share` is out of range, or leaves no workload on one side.
        DatasetError: `share` is no share, or leaves no workload on one side.
    """
    workloads = mixed_workloads(data.tasks, seed)
    count = round(_check_share(share) * len(workloads))
    if not 0 < count < len(workloads):
        raise DatasetError(f"`share` must leave workloads on both sides, but got share={share} of {len(workloads)}")
    test = set(workloads[:count])
    return _by_workload(data, "task", seed, share, (), {t.key for t in data.tasks if t.workload.key in test})


def split_by_target(data: Dataset, targets: Collection[str]) -> Split:
    """Holds back all programs of some targets.

    Raises:
        DatasetError: the dataset lacks a target, or no task is left to learn from.
    """
    known = {task.target for task in data.tasks}
    _check_names("targets", targets, known)
    test = tuple(task.key for task in data.tasks if task.target in targets)
    train = tuple(task.key for task in data.tasks if task.target not in targets)
    return _require_both_parts(Split("target", 0, None, tuple(targets), train, test))


def split_by_network(data: Dataset, networks: Collection[str]) -> Split:
    """Holds back all tasks of some networks; no target's tasks with their workloads are trained on.

    Raises:
        DatasetError: the dataset lacks a network, or no task is left to learn from.
    """
    known = {name for task in data.tasks for name in task.networks}
    _check_names("networks", networks, known)
    test = {task.key for task in data.tasks if set(networks) & set(task.networks)}
    return _by_workload(data, "network", 0, None, tuple(networks), test)


def _by_workload(
    data: Dataset, kind: str, seed: int, share: float | None, held_out: tuple[str, ...], test: set[str]
) -> Split:
    hidden = {task.workload.key for task in data.tasks if task.key in test}
    train = tuple(task.key for task in data.tasks if task.workload.key not in hidden)
    return _require_both_parts(
        Split(kind, seed, share, held_out, train, tuple(t.key for t in data.tasks if t.key in test))
    )


def _require_both_parts(split: Split) -> Split:
    if not split.train_tasks:
        raise DatasetError(f"`held_out` must leave tasks to learn from, but got {', '.join(split.held_out)}")
    return split


def _check_names(what: str, names: Collection[str], options: Collection[str]) -> None:
    if not names:
        raise DatasetError(f"`{what}` must name at least one of {', '.join(sorted(options)) or 'none'}, but got none")
    for name in names:
        if name not in options:
            raise DatasetError(f"`{what}` must be among {', '.join(sorted(options)) or 'none'}, but got {name!r}")


def _check_share(share: float | None) -> float:
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise DatasetError(f"`share` must be between 0 and 1, but got share={share}")
    return share


def _uniform(digests: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
    """Hashes digests with a seed to numbers in [0, 1), by SplitMix64's finaliser (Steele et al., 2014)."""
    z = digests.view(np.uint64) + np.uint64((seed * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) % 2**64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) / 2.0**53
