"""Models on the programs of many tasks of a dataset: metrics by network and over all, for one model or several."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.lab.evaluate.samples import samples, timed_fit
from autotune.lab.evaluate.scores import RECALL, TOP, Rankings, score_rankings, top_score
from costmodel.dataset import Dataset, TaskData
from costmodel.dataset.split import Split, TaskPrograms
from costmodel.metrics import relative
from costmodel.models.base import CostModel
from costmodel.models.errors import CostModelError

RECALL_AT = RECALL
PEAK_AT = TOP[-1]
NO_NETWORK = "(all tasks)"
"""Name of the network in which every task occurs once, where no task comes from a network."""

_POPULATION = 8192  # candidates that the speed is taken on, as many as a search scores at once
_SPEED_SECONDS = 0.15  # processor time that predictions are repeated for, over all blocks
_SPEED_BLOCKS = 3  # blocks of features that the speed is averaged over


@dataclass(frozen=True)
class Evaluation:
    """Metrics of a model.

    Attributes:
        tasks: evaluated tasks, each with a valid program.
        rankings: scores of these tasks.
        networks: network → k → top-k score.
        top: k → mean of the networks' top-k scores, as TenSet averages.
        pooled_top: k → top-k score over the tasks of all networks together, as TLP pools.
        rmse: root mean squared error of the throughput by the best straight line of the score, as scores learned from
            an order have no unit.
        statements_per_second, programs_per_second: speed of prediction on one core, features given.
    """

    tasks: tuple[TaskData, ...]
    rankings: Rankings
    networks: Mapping[str, Mapping[int, float]]
    top: Mapping[int, float]
    pooled_top: Mapping[int, float]
    rmse: float
    statements_per_second: float
    programs_per_second: float

    def mean(self, metric: str) -> float:
        """Averages a metric of `scores.TASK_METRICS` over tasks."""
        return float(self.rankings.metrics[metric][0].mean())

    @property
    def pairwise(self) -> float:
        """Share of the pairs of different throughput that are in the right order, mean over tasks."""
        return self.mean("pairwise")

    @property
    def recall(self) -> float:
        """Share of the `RECALL_AT` fastest programs that are among as many best-predicted, mean over tasks.

        Failures have no order: of a task with fewer valid programs, all of these are taken.
        """
        return self.mean("recall")

    @property
    def peak(self) -> float:
        """Throughput of the fastest of the `PEAK_AT` best-predicted, by that of the fastest of all, mean over tasks."""
        return self.mean(f"best{PEAK_AT}")

    def to_json(self) -> dict[str, Any]:
        """Returns the figures over all, and the top-k scores by network."""
        return {
            **{f"top{k}": self.top[k] for k in TOP},
            **{name: getattr(self, name) for name in ("pairwise", "recall", "peak", "rmse")},
            "rows_per_second": self.statements_per_second,
            "programs_per_second": self.programs_per_second,
            **{f"top{k}_pooled": self.pooled_top[k] for k in TOP},
            "networks": {
                name: {f"top{k}": score for k, score in scores.items()} for name, scores in self.networks.items()
            },
        }


@dataclass(frozen=True)
class Comparison:
    """A row of the table of models.

    Attributes:
        name: name of the model.
        options: its options, besides the seed.
        model: the trained model.
        fit_seconds: duration of training.
        evaluation: its metrics.
    """

    name: str
    options: Mapping[str, Any]
    model: CostModel
    fit_seconds: float
    evaluation: Evaluation

    def to_json(self) -> dict[str, Any]:
        """Returns plain data."""
        found = {"name": self.name, **self.evaluation.to_json(), "fit_seconds": self.fit_seconds}
        return {**found, "options": dict(self.options)}


def compare(
    data: Dataset,
    split: Split,
    models: Sequence[str],
    seed: int = 0,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    progress: Callable[[str], None] = lambda text: None,
    speed: bool = True,
) -> Iterator[Comparison]:
    """Trains each model on the split's training part, and evaluates it on the test part.

    Args:
        data: measured programs.
        split: division of the data.
        models: names, see `costmodel.models.registry`.
        seed: seed of the models that take one.
        options: model → options of its constructor.
        progress: called with a sentence about the next step.
        speed: whether to take the speed of prediction, see `evaluate`.
    """
    of, held_back = samples(data, split.train(data), progress), split.test(data)
    networks = split.held_out if split.kind == "network" else ()
    for name in models:
        progress(f"learning and evaluating {name}")
        own = dict((options or {}).get(name, {}))
        model, seconds = timed_fit(name, own, seed, of)
        yield Comparison(name, own, model, seconds, evaluate(model, data, held_back, networks, speed))


def evaluate(
    model: CostModel, data: Dataset, parts: Sequence[TaskPrograms], networks: Sequence[str] = (), speed: bool = True
) -> Evaluation:
    """Evaluates a trained model.

    Args:
        model: the trained model.
        data: measured programs.
        parts: parts of the data on which the model was not trained.
        networks: networks whose tasks the top-k scores are of; all by default.
        speed: whether to take the speed of prediction; NaN otherwise.

    Raises:
        CostModelError: no task has a valid program.
    """
    seconds = [(task, rows, data.seconds(task)[rows]) for task, rows in parts]
    valid = [(task, rows, of) for task, rows, of in seconds if np.isfinite(of).any()]
    if not valid:
        raise CostModelError("a model must be evaluated on tasks with valid programs, but got none")
    tasks, measured = tuple(task for task, _, _ in valid), [of for _, _, of in valid]
    predicted = [predictions(model, data, task)[rows] for task, rows, _ in valid]
    scores = score_rankings([predicted], measured, ("pairwise", "recall", *(f"best{k}" for k in TOP)))
    best, members = np.array([np.nanmin(of) for of in measured]), _members(tasks, networks)

    def top(of: Sequence[tuple[float, int]], k: int) -> float:
        weight, at = np.array([weight for weight, _ in of]), [place for _, place in of]
        return float(top_score(weight, best[at], scores.fastest[k][0, at]))

    by_network = {name: {k: top(of, k) for k in TOP} for name, of in members.items()}
    everything = [one for of in members.values() for one in of]
    return Evaluation(
        tasks,
        scores,
        by_network,
        {k: float(np.mean([of[k] for of in by_network.values()])) for k in TOP},
        {k: top(everything, k) for k in TOP},
        _rmse(np.concatenate(predicted), np.concatenate([relative(of) for of in measured])),
        *(statements_per_second(model, data, parts) if speed else (math.nan, math.nan)),
    )


def predictions(model: CostModel, data: Dataset, task: TaskData) -> NDArray[np.float64]:
    """Predicts the scores of all programs of a task: (programs,)."""
    scores = np.empty(data.count(task))
    for block in data.features(task):
        scores[block.rows] = model.predict(block.features)
    return scores


def statements_per_second(model: CostModel, data: Dataset, parts: Sequence[TaskPrograms]) -> tuple[float, float]:
    """Measures the statements and programs whose score a core predicts in a second, features given.

    By the processor's time over populations of the size that a search asks for, made of the largest sketches.
    """
    blocks = sorted((block for part in parts for block in data.features(part.task)), key=lambda b: -len(b.rows))
    statements = programs = 0
    spent = 0.0
    for block in blocks[:_SPEED_BLOCKS]:
        repeats = -(-_POPULATION // len(block.rows))
        population = np.tile(block.features.transpose(2, 1, 0), repeats).transpose(2, 1, 0)
        model.predict(population)
        begin = time.process_time()
        while time.process_time() - begin < _SPEED_SECONDS / _SPEED_BLOCKS:
            model.predict(population)
            statements += population.shape[0] * population.shape[1]
            programs += len(population)
        spent += time.process_time() - begin
    return statements / spent, programs / spent


def _members(tasks: Sequence[TaskData], networks: Sequence[str]) -> dict[str, list[tuple[float, int]]]:
    """Lists weight and index of each network's tasks; a network that was measured on several targets is several."""
    members: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for index, task in enumerate(tasks):
        for name, times in task.networks.items():
            if not networks or name in networks:
                members.setdefault((name, task.target), []).append((float(times), index))
    if not members:
        return {NO_NETWORK: [(1.0, index) for index in range(len(tasks))]}
    several = {name for name, _ in members if len([key for key in members if key[0] == name]) > 1}
    return {f"{name} on {target}" if name in several else name: of for (name, target), of in members.items()}


def _rmse(scores: NDArray[np.float64], throughput: NDArray[np.float64]) -> float:
    basis = np.stack([scores - scores.mean(), np.ones(len(scores))], axis=1)
    line = np.linalg.lstsq(basis, throughput, rcond=None)[0]
    return float(np.sqrt(np.mean((basis @ line - throughput) ** 2)))
