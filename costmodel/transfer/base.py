"""The source's own model: any cost model, learned on many measured tasks in one frame of features, saved in a file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.models import roofline
from costmodel.models.base import CostModel
from costmodel.models.registry import make, remake
from costmodel.transfer import align
from costmodel.transfer.align import Alignment, FeatureMap
from costmodel.transfer.errors import TransferError
from costmodel.transfer.tasks import Features, SourceTask, Task
from costmodel.transfer.trees import Column
from search_space import strict_json
from search_space.files import replace_file
from search_space.scratch import ScratchFolder

SCHEMA = "autotune.transfer/1"
"""Name and version of a saved base; any change of a field's meaning requires a new version."""


@dataclass(frozen=True)
class Base:
    """A model of many tasks.

    Attributes:
        name: name of the model, see `costmodel.models.registry`.
        options: options that it was made with.
        model: learned model.
        frame: frame that features are mapped into.
        align: name of the alignment.
        tasks, programs: numbers of tasks and programs that it was learned from; None if unknown.
        kinds: kinds of the machines of these tasks, see `Hardware.kind`; empty if unknown.
    """

    name: str
    options: Mapping[str, Any]
    model: CostModel
    frame: Alignment
    align: str = "none"
    tasks: int | None = None
    programs: int | None = None
    kinds: tuple[str, ...] = ()

    @staticmethod
    def learn(
        source: Sequence[SourceTask],
        name: str,
        options: Mapping[str, Any] | None = None,
        alignment: str = "none",
        seed: int = 0,
        weights: NDArray[np.float64] | None = None,
    ) -> Base:
        """Learns from measured tasks.

        Args:
            source: measured tasks.
            name, options: name and options of the model.
            alignment: a name of `align.ALIGNMENTS`.
            seed: seed of every draw.
            weights: (tasks,) in (0, 1]: the share of each task's programs to learn from; all by default.

        Raises:
            TransferError: there are no tasks, or none has a program that worked.
        """
        used = [task for task in source if task.throughput.any()]
        if not used:
            raise TransferError("a source must hold tasks with programs that worked, but it holds none")
        shares = np.ones(len(source)) if weights is None else weights
        frame = align.get(alignment).fit(used)
        rng = np.random.default_rng([seed, 1])
        features: list[Features] = []
        throughput: list[Column] = []
        groups: list[NDArray[np.int64]] = []
        for number, (task, share) in enumerate(zip(source, shares.tolist(), strict=True)):
            if not task.throughput.any():
                continue
            mapped, count = frame.of(task), len(task.features)
            rows = np.sort(rng.permutation(count)[: max(1, round(share * count))])
            features += [mapped(task.features[row]) for row in rows.tolist()]
            throughput.append(task.throughput[rows])
            groups.append(np.full(len(rows), number, np.int64))
        model = make(name, options or {}, seed)
        model.fit_tasks(features, np.concatenate(throughput), np.concatenate(groups))
        kinds = tuple(sorted({task.hardware.kind for task in used}))
        return Base(name, dict(options or {}), model, frame, alignment, len(used), len(features), kinds)

    def save(self, path: Path) -> None:
        """Writes model and frame as one JSON file."""
        with ScratchFolder("transfer") as folder:
            self.model.save(Path(folder) / "model")
            text = (Path(folder) / "model").read_text()
        document = {
            "schema": SCHEMA,
            "model": self.name,
            "options": dict(self.options),
            "align": self.align,
            "frame": self.frame.to_json(),
            "tasks": self.tasks,
            "programs": self.programs,
            "kinds": list(self.kinds),
            "text": text,
        }
        replace_file(path, (json.dumps(document) + "\n").encode())

    @staticmethod
    def load(path: Path) -> Base:
        """Reads what `save` wrote.

        Raises:
            TransferError: the file does not exist, or has another schema.
        """
        document = strict_json.read(path, "a saved model", "schema", SCHEMA, TransferError)
        try:
            model = remake(document["model"], document["options"], 0)
            with ScratchFolder("transfer") as folder:
                (Path(folder) / "model").write_text(document["text"])
                model.load(Path(folder) / "model")
            frame = align.get(document["align"])(**document["frame"])
            fields = (document["model"], document["options"], model, frame, document["align"])
            kinds = tuple(map(str, document.get("kinds", ())))  # older files name no kinds
            return Base(*fields, document["tasks"], document["programs"], kinds)
        except (KeyError, TypeError, ValueError) as error:
            raise TransferError(f"{path}: a saved model must be whole, but {error}") from error


class PriorKnowledge:
    """Knowledge of one task before it is measured.

    Args:
        base: model of the source.
        task: new task.
        source: tasks of the source; empty if it is a saved model.
        weights: (tasks,) weights of these, by their similarity.
    """

    def __init__(
        self, base: Base, task: Task, source: Sequence[SourceTask] = (), weights: NDArray[np.float64] | None = None
    ) -> None:
        self.base, self.source = base, source
        self.weights = np.ones(len(source)) if weights is None else weights
        self.align: FeatureMap = base.frame.of(task)

    def __call__(self, features: NDArray[np.float32]) -> Column:
        """Predicts the source's scores: (candidates, statements, features) -> (candidates,), higher is better."""
        return np.asarray(self.base.model.predict(self.align(features)), np.float64)

    def programs(self, count: int, rng: np.random.Generator) -> SourcePrograms:
        """Draws at most `count` programs of the source, more of nearer tasks.

        Raises:
            TransferError: the source is a saved model, which has no programs.
        """
        if not self.source:
            raise TransferError("`source` must hold programs for the method joint, but it is a saved model")
        drawn = SourcePrograms([], np.empty(0), np.empty(0), np.empty(0))
        for task, weight in zip(self.source, self.weights.tolist(), strict=True):
            share = round(count * weight / float(self.weights.sum()))
            if not task.throughput.any() or not share:
                continue
            rows = np.sort(rng.permutation(len(task.features))[:share])
            mapped, own, target = self.base.frame.of(task), [task.features[row] for row in rows], task.throughput[rows]
            speeds = roofline.speeds(own)
            scale = roofline.fit_scale(speeds, target, 0.1 + target)
            drawn = SourcePrograms(
                [*drawn.features, *(mapped(of) for of in own)],
                np.concatenate([drawn.throughput, target]),
                np.concatenate([drawn.missing, target - roofline.expected(speeds, scale)]),
                np.concatenate([drawn.weights, np.full(len(rows), weight)]),
            )
        return drawn


@dataclass(frozen=True)
class SourcePrograms:
    """Programs of the source in its frame.

    Attributes:
        features: features of each program.
        throughput: (programs,) throughput relative to the best of its task.
        missing: (programs,) throughput less that of the roofline, scaled to its task.
        weights: (programs,) weight of its task.
    """

    features: Sequence[Features]
    throughput: Column
    missing: Column
    weights: NDArray[np.float64]
