"""Transfer from other tasks: a source is opened once for a run, fitted to each task, and watched while it helps."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.dataset import SHIPPED, Dataset, DatasetError
from costmodel.dataset.build import build
from costmodel.transfer import align, methods, similarity
from costmodel.transfer.base import SCHEMA, Base, Known
from costmodel.transfer.errors import TransferError
from costmodel.transfer.guard import FIRST_SHARE, LITTLE_SHARES, MOST_SHARE, Guard
from costmodel.transfer.methods import Method
from costmodel.transfer.tasks import Features, SourceTask, TargetTask
from costmodel.transfer.trees import Column
from measure.database import Database
from search_space.hardware import Hardware

PREFERRED = 3
"""Of so many times as many tasks as are wanted, those nearest by what they compute, features are made to choose by."""


@dataclass(frozen=True)
class Options:
    """How a search uses measurements of other tasks.

    Attributes:
        source: a dataset's folder, `shipped` (the one that comes along), a records file, or a model that `Base.save`
            wrote; or what was opened of one.
        method: a name of `methods.METHODS`; `auto`: `kriging` where the source's model is made of boosted trees, else
            `residual`.
        options: of the method.
        model: of the source's programs, a name of `costmodel.models.registry`; a saved model has its own.
        model_options: of that.
        align: a name of `align.ALIGNMENTS`; a saved model has its own.
        similarity: by what the distance of tasks is taken, see `similarity.distances`.
        tasks: so many of the nearest tasks to learn from, those less alike with fewer programs; None: from all alike,
            once for all tasks.
        guard: whether a source that misleads is dropped; without, it chooses every round.
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
        similarity.names_of(self.similarity)
        if self.tasks is not None and self.tasks < 1:
            raise TransferError(f"`tasks` must be at least 1, but got tasks={self.tasks}")


class Source:
    """What is known of other tasks.

    Args:
        tasks: measured ones; none where there is a model.
        base: a model that was learned before.
        name: for messages and summaries.
    """

    def __init__(self, tasks: Sequence[SourceTask] = (), base: Base | None = None, name: str = "source") -> None:
        self.tasks, self.base, self.name = tuple(tasks), base, name
        self._learned: dict[tuple[Any, ...], Base] = {}

    @classmethod
    def open(cls, path: str | Path) -> Source:
        """Reads a dataset's folder, a records file or a saved model.

        Raises:
            TransferError: there is no such thing.
            DatasetError, RecordError: there is, and it cannot be read.
        """
        place = Path(path)
        if place.is_dir() or str(path) == SHIPPED:
            return cls.of(Dataset.open(place), str(path))
        if not place.is_file():
            raise TransferError(f"`source` must be a dataset, a records file or a saved model, but got {path}")
        if _is_saved(place):
            return cls(base=Base.load(place), name=str(path))
        with Database(place, readonly=True) as database:
            try:
                return cls.of(build(database), str(path))
            except DatasetError as error:
                raise TransferError(f"{path}: {error}") from error

    @classmethod
    def of(cls, data: Dataset, name: str = "source") -> Source:
        """All tasks of a dataset."""
        return cls([SourceTask(data, task) for task in data.tasks], name=name)

    def knows(self, hardware: Hardware) -> bool:
        """Whether it can say something of a machine: a saved model does of the kinds that it learned from, if known."""
        if self.base is not None:
            return not self.base.kinds or hardware.kind in self.base.kinds
        return bool(self.comparable(hardware))

    def comparable(self, hardware: Hardware) -> list[SourceTask]:
        """Tasks of machines of the same kind, see `Hardware.kind`."""
        return [of for of in self.tasks if of.hardware.kind == hardware.kind]

    def for_task(self, task: TargetTask, options: Options, seed: int = 0, pretrained: bool = False) -> Transfer:
        """What the source says of a task.

        Args:
            task: to be searched.
            options: how the source is used.
            seed: of models that are learned.
            pretrained: whether the search has a pretrained model besides.

        Raises:
            TransferError: it holds nothing of machines of this kind, or the method needs what it does not hold.
            ValueError: an option that a method or model does not have or take.
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
            if options.tasks is not None and options.similarity == "all" and len(used) > PREFERRED * options.tasks:
                chosen = similarity.nearest(similarity.described_distances(used, task), PREFERRED * options.tasks)
                used = [used[place] for place in chosen.tolist()]
            found = similarity.distances(used, task, options.similarity)
            if options.tasks is not None:
                chosen = similarity.nearest(found, options.tasks)
                used, found = [used[place] for place in chosen.tolist()], found[chosen]
            weights = similarity.weights(found)
            base = self._base(used, None if options.tasks is None else weights, options, seed)
        known = Known(base, task, used, weights)
        name = methods.chosen(options.method, base.model)
        try:
            method = methods.get(name)(known, seed, **options.options)
        except TypeError as error:
            raise TransferError(f"`{name}` must have options that it takes, but {error}") from None
        first, most = LITTLE_SHARES if pretrained else (FIRST_SHARE, MOST_SHARE)
        return Transfer(method, name, self.name, Guard(first=first, most=most) if options.guard else None)

    def _base(
        self, used: Sequence[SourceTask], weights: NDArray[np.float64] | None, options: Options, seed: int
    ) -> Base:
        """The model of some tasks; that of all of them is learned once."""

        def learn() -> Base:
            return Base.learn(used, options.model, options.model_options, options.align, seed, weights)

        if weights is not None:
            return learn()
        how = (options.model, json.dumps(dict(options.model_options), sort_keys=True), options.align, seed)
        key = (tuple(of.key for of in used), how)
        if key not in self._learned:
            self._learned[key] = learn()
        return self._learned[key]


class Transfer:
    """The part of a source in the search of one task.

    Args:
        method: scores candidates.
        name: of the method.
        source: name of the source.
        guard: watches it; None: it is never dropped.
    """

    def __init__(self, method: Method, name: str, source: str, guard: Guard | None = None) -> None:
        self._method: Method | None = method
        self.name, self.source, self.guard = name, source, guard
        self.tasks, self.programs = method.known.base.tasks, method.known.base.programs

    @property
    def active(self) -> bool:
        """Whether the source is in use."""
        return self._method is not None

    @property
    def share(self) -> float:
        """Of the next round, that the source chooses, in [0, 1]."""
        if not self.active:
            return 0.0
        return 1.0 if self.guard is None else self.guard.share

    @property
    def trusted(self) -> bool:
        """Whether there is evidence for the source: what it chooses needs no random ones then, the others have them."""
        return self.active and self.guard is not None and self.guard.trusting

    @property
    def weight(self) -> float:
        """Share of the source in what is predicted with it, in [0, 1]; 0 where it was dropped."""
        return 0.0 if self._method is None else self._method.weight

    def predict(self, features: NDArray[np.float32]) -> Column:
        """Scores by the source and what is measured: (candidates, statements, features) -> (candidates,).

        Raises:
            TransferError: the source was dropped.
        """
        if self._method is None:
            raise TransferError("a source must be in use to predict, but this one was dropped")
        return self._method.predict(features)

    def observe(self, source: Column, local: Column, seconds: Column, chosen: NDArray[np.bool_]) -> None:
        """Takes a round in, see `Guard.observe`; drops the source where it misleads."""
        if self.guard is not None and self.active:
            self.guard.observe(source, local, seconds, chosen)
            if self.guard.dropped:
                self._method = None

    def fit(self, features: Sequence[Features], throughput: Column) -> None:
        """Learns from everything measured of the task."""
        if self._method is not None:
            self._method.fit(features, throughput)

    def report(self) -> dict[str, Any]:
        """What it did, as plain data; what is not known is None."""
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
            "rounds": [{name: _known(value) for name, value in vars(round_).items()} for round_ in rounds],
        }


def summary(report: Mapping[str, Any]) -> str:
    """A report in one sentence."""
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


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
