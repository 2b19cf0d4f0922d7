"""Transfer from other tasks: a source is opened once for a run, fitted to each task, and dropped if it misleads."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.dataset import SHIPPED_DATASET, Dataset, DatasetError
from costmodel.dataset.build import build
from costmodel.transfer import align, methods, similarity
from costmodel.transfer.base import SCHEMA, Base, PriorKnowledge
from costmodel.transfer.errors import TransferError
from costmodel.transfer.guard import FIRST_SHARE, LITTLE_SHARES, MOST_SHARE, Guard
from costmodel.transfer.methods import Method
from costmodel.transfer.tasks import Features, SourceTask, TargetTask
from costmodel.transfer.trees import Column
from measure.database import Database
from search_space.hardware import Hardware

PREFERRED_FACTOR = 3
"""Number of tasks whose features are computed for each wanted one: those nearest by workload."""


@dataclass(frozen=True)
class Options:
    """Settings for using measurements of other tasks in a search.

    Attributes:
        source: folder of a dataset, `shipped` (the dataset in the package), a records file, or a model that `Base.save`
            wrote; or an opened source.
        method: name in `methods.METHODS`; `auto`: `kriging` if the source's model is made of boosted trees, else
            `residual`.
        options: options of the method.
        model: model of the source's programs, a name of `costmodel.models.registry`; a saved model has its own.
        model_options: options of that model.
        align: name in `align.ALIGNMENTS`; a saved model has its own.
        similarity: measure of the distance of tasks, see `similarity.distances`.
        tasks: number of nearest tasks to learn from, with fewer programs of less similar ones; None: all tasks,
            equally, by one model for all searches.
        guard: whether a source that misleads is dropped; otherwise it chooses every round.
    """

    source: str | Source
    method: str = methods.AUTO
    options: Mapping[str, Any] = field(default_factory=dict)
    model: str = "lightgbm_lambdarank"
    model_options: Mapping[str, Any] = field(default_factory=dict)
    align: str = "none"
    similarity: str = "all"
    tasks: int | None = None
    guard: bool = True

    def __post_init__(self) -> None:
        if self.method != methods.AUTO:
            methods.get(self.method)
        align.get(self.align)
        similarity.measure_names(self.similarity)
        if self.tasks is not None and self.tasks < 1:
            raise TransferError(f"`tasks` must be at least 1, but got tasks={self.tasks}")


class Source:
    """Knowledge of other tasks.

    Args:
        tasks: measured tasks; empty if there is a model.
        base: model that was learned before.
        name: name for messages and summaries.
    """

    def __init__(self, tasks: Sequence[SourceTask] = (), base: Base | None = None, name: str = "source") -> None:
        self.tasks, self.base, self.name = tuple(tasks), base, name
        self._bases: dict[tuple[Any, ...], Base] = {}

    @classmethod
    def open(cls, path: str | Path) -> Source:
        """Reads a dataset's folder, a records file or a saved model.

        Raises:
            TransferError: the path does not exist.
            DatasetError, RecordError: the path exists, but cannot be read.
        """
        location = Path(path)
        if location.is_dir() or str(path) == SHIPPED_DATASET:
            return cls.of(Dataset.open(location), str(path))
        if not location.is_file():
            raise TransferError(f"`source` must be a dataset, a records file or a saved model, but got {path}")
        if _is_saved(location):
            return cls(base=Base.load(location), name=str(path))
        with Database(location, readonly=True) as database:
            try:
                return cls.of(build(database), str(path))
            except DatasetError as error:
                raise TransferError(f"{path}: {error}") from error

    @classmethod
    def of(cls, data: Dataset, name: str = "source") -> Source:
        """Makes a source of all tasks of a dataset."""
        return cls([SourceTask(data, task) for task in data.tasks], name=name)

    def knows(self, hardware: Hardware) -> bool:
        """Tells whether it applies to a machine: a saved model does if its kinds include it or are unknown."""
        if self.base is not None:
            return not self.base.kinds or hardware.kind in self.base.kinds
        return bool(self.comparable(hardware))

    def comparable(self, hardware: Hardware) -> list[SourceTask]:
        """Lists the tasks of machines of the same kind, see `Hardware.kind`."""
        return [of for of in self.tasks if of.hardware.kind == hardware.kind]

    def for_task(self, task: TargetTask, options: Options, seed: int = 0, pretrained: bool = False) -> Transfer:
        """Fits the source to a task.

        Args:
            task: task to be searched.
            options: settings of the transfer.
            seed: seed of models that are learned.
            pretrained: whether the search also has a pretrained model.

        Raises:
            TransferError: it has no task of machines of this kind, or lacks data that the method needs.
            ValueError: a method or model lacks or refuses an option.
        """
        used: list[SourceTask] = []
        weights = np.empty(0)
        base = self.base
        if base is None:
            used = self.comparable(task.hardware)
            if not used:
                raise TransferError(
                    f"`source` must hold tasks of machines like {task.hardware.name}, but {self.name} has none"
                )
            if (
                options.tasks is not None
                and options.similarity == "all"
                and len(used) > PREFERRED_FACTOR * options.tasks
            ):
                chosen = similarity.nearest(
                    similarity.described_distances(used, task), PREFERRED_FACTOR * options.tasks
                )
                used = [used[index] for index in chosen.tolist()]
            apart = similarity.distances(used, task, options.similarity)
            if options.tasks is not None:
                chosen = similarity.nearest(apart, options.tasks)
                used, apart = [used[index] for index in chosen.tolist()], apart[chosen]
            weights = similarity.weights(apart)
            base = self._base(used, None if options.tasks is None else weights, options, seed)
        known = PriorKnowledge(base, task, used, weights)
        name = methods.resolve_method(options.method, base.model)
        try:
            method = methods.get(name)(known, seed, **options.options)
        except TypeError as error:
            raise TransferError(f"`{name}` must have options that it takes, but {error}") from None
        first, most = LITTLE_SHARES if pretrained else (FIRST_SHARE, MOST_SHARE)
        return Transfer(method, name, self.name, Guard(first=first, most=most) if options.guard else None)

    def _base(
        self, tasks: Sequence[SourceTask], weights: NDArray[np.float64] | None, options: Options, seed: int
    ) -> Base:
        """Returns the model of some tasks; that of all of them is learned once."""

        def learn() -> Base:
            return Base.learn(tasks, options.model, options.model_options, options.align, seed, weights)

        if weights is not None:
            return learn()
        how = (options.model, json.dumps(dict(options.model_options), sort_keys=True), options.align, seed)
        key = (tuple(of.key for of in tasks), how)
        if key not in self._bases:
            self._bases[key] = learn()
        return self._bases[key]


class Transfer:
    """The part of a source in the search of one task.

    Args:
        method: method that scores candidates.
        name: name of the method.
        source: name of the source.
        guard: guard that watches it; None: it is never dropped.
    """

    def __init__(self, method: Method, name: str, source: str, guard: Guard | None = None) -> None:
        self._method: Method | None = method
        self.name, self.source, self.guard = name, source, guard
        self.tasks, self.programs = method.prior.base.tasks, method.prior.base.programs

    @property
    def active(self) -> bool:
        """Tells whether the source is in use."""
        return self._method is not None

    @property
    def share(self) -> float:
        """Share of the next round that the source chooses, in [0, 1]."""
        if not self.active:
            return 0.0
        return 1.0 if self.guard is None else self.guard.share

    @property
    def trusted(self) -> bool:
        """Tells whether there is evidence for the source; then only the other choices include random candidates."""
        return self.active and self.guard is not None and self.guard.trusting

    @property
    def weight(self) -> float:
        """Share of the source in its predictions, in [0, 1]; 0 once it was dropped."""
        return 0.0 if self._method is None else self._method.weight

    def predict(self, features: NDArray[np.float32]) -> Column:
        """Predicts scores by source and measurements: (candidates, statements, features) -> (candidates,).

        Raises:
            TransferError: the source was dropped.
        """
        if self._method is None:
            raise TransferError("a source must be in use to predict, but this one was dropped")
        return self._method.predict(features)

    def observe(self, source: Column, local: Column, seconds: Column, chosen: NDArray[np.bool_]) -> None:
        """Adds the evidence of a round, see `Guard.observe`; drops the source if it misleads."""
        if self.guard is not None and self.active:
            self.guard.observe(source, local, seconds, chosen)
            if self.guard.dropped:
                self._method = None

    def fit(self, features: Sequence[Features], throughput: Column) -> None:
        """Learns from all measurements of the task."""
        if self._method is not None:
            self._method.fit(features, throughput)

    def report(self) -> dict[str, Any]:
        """Reports the effect of the source, as plain data; unknown values are None."""
        rounds = [] if self.guard is None else self.guard.rounds
        return {
            "source": self.source,
            "method": self.name,
            "source_tasks": self.tasks,
            "source_programs": self.programs,
            "kept": self.active,
            "dropped_at": None if self.guard is None else self.guard.dropped_at,
            "share": self.share,
            "weight": self.weight,
            "rounds": [{name: _none_if_nan(value) for name, value in vars(round_).items()} for round_ in rounds],
        }


def summary(report: Mapping[str, Any]) -> str:
    """Summarises a report in one sentence."""
    of = (
        ""
        if report["source_tasks"] is None
        else f", {report['source_programs']} programs of {report['source_tasks']} tasks"
    )
    what = f"transfer from {report['source']} ({report['method']}{of})"
    if report["kept"]:
        return f"{what}: kept, its weight is {report['weight']:.2f} by now"
    last = report["rounds"][-1]
    reason = ""
    if last["wins"] is not None:
        reason = f"; in the last round what it chose was faster in {last['wins']:.0%} of the comparisons with the rest"
    return f"{what}: dropped after {report['dropped_at']} trials{reason}"


def _is_saved(path: Path) -> bool:
    with path.open(encoding="utf-8") as file:
        head = file.read(len(SCHEMA) + 32)
    return SCHEMA in head


def _none_if_nan(value: float) -> float | None:
    return None if math.isnan(value) else value
