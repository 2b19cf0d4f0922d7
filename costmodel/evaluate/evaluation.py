"""One model on the programs of many tasks: metrics by task, by network, and over all."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel import metrics
from costmodel.dataset import Dataset, TaskData
from costmodel.dataset.split import Part
from costmodel.evaluate.samples import relative
from costmodel.models.base import CostModel
from costmodel.models.errors import ModelError

RECALL_AT = 30
PEAK_AT = 5
TOP = (1, 5)
NO_NETWORK = "(all tasks)"
"""Stands for a network where no task comes from one: every task occurs once in it."""

_POPULATION = 8192  # candidates that the speed is taken on, as many as a search scores at once
_SPEED_SECONDS = 0.15
_SPEED_BLOCKS = 3


@dataclass(frozen=True)
class TaskScores:
    """Metrics of one task.

    Attributes:
        task: which.
        programs: that it was evaluated on.
        pairwise: share of the pairs of different throughput that are ordered right.
        recall: share of the `RECALL_AT` fastest that are among as many best-predicted; of all that are valid where
            those are fewer, for failures have no order.
        peak: throughput of the fastest of the `PEAK_AT` best-predicted, by that of the fastest of all.
        best: seconds of the fastest.
        found: k → seconds of the fastest of the k best-predicted; infinite where all of them fail.
    """

    task: TaskData
    programs: int
    pairwise: float
    recall: float
    peak: float
    best: float
    found: Mapping[int, float]


@dataclass(frozen=True)
class Evaluation:
    """Metrics of a model.

    Attributes:
        tasks: of each task with a program that is valid.
        networks: network → k → top-k score.
        top: k → mean of the networks' top-k scores, as TenSet averages.
        pooled: k → top-k score over the tasks of all networks together, as TLP pools.
        pairwise, recall, peak: means over tasks.
        rmse: root mean squared error of the throughput by the straight line of the score that fits it best: scores
            that were learned from an order have no unit.
        statements_per_second, programs_per_second: predicted by one core, features given.
    """

    tasks: tuple[TaskScores, ...]
    networks: Mapping[str, Mapping[int, float]]
    top: Mapping[int, float]
    pooled: Mapping[int, float]
    pairwise: float
    recall: float
    peak: float
    rmse: float
    statements_per_second: float
    programs_per_second: float

    def to_json(self) -> dict[str, Any]:
        """The figures over all, and the top-k scores by network."""
        return {
            **{f"top{k}": self.top[k] for k in TOP},
            "pairwise": self.pairwise,
            "recall": self.recall,
            "peak": self.peak,
            "rmse": self.rmse,
            "rows_per_second": self.statements_per_second,
            "programs_per_second": self.programs_per_second,
            **{f"top{k}_pooled": self.pooled[k] for k in TOP},
            "networks": {
                name: {f"top{k}": score for k, score in scores.items()} for name, scores in self.networks.items()
            },
        }


def evaluate(
    model: CostModel, data: Dataset, parts: Sequence[Part], networks: Sequence[str] = (), speed: bool = True
) -> Evaluation:
    """Evaluates a trained model.

    Args:
        model: trained.
        data: measured programs.
        parts: of the data, which the model was not trained on.
        networks: whose tasks the top-k scores are of; all that there are by default.
        speed: whether to take the speed of prediction; NaN otherwise.

    Raises:
        ModelError: no task has a program that is valid.
    """
    tasks, predicted, throughput = [], [], []
    for task, rows in parts:
        seconds = data.seconds(task)[rows]
        if not np.isfinite(seconds).any():
            continue
        scores, truth = predictions(model, data, task)[rows], relative(seconds)
        tasks.append(_scores(task, scores, truth, seconds))
        predicted.append(scores)
        throughput.append(truth)
    if not tasks:
        raise ModelError("a model must be evaluated on tasks with valid programs, but got none")
    members = _members(tasks, networks)
    by_network = {name: {k: _top(of, k) for k in TOP} for name, of in members.items()}
    everything = [one for of in members.values() for one in of]
    return Evaluation(
        tuple(tasks),
        by_network,
        {k: float(np.mean([scores[k] for scores in by_network.values()])) for k in TOP},
        {k: _top(everything, k) for k in TOP},
        float(np.mean([one.pairwise for one in tasks])),
        float(np.mean([one.recall for one in tasks])),
        float(np.mean([one.peak for one in tasks])),
        _rmse(np.concatenate(predicted), np.concatenate(throughput)),
        *(statements_per_second(model, data, parts) if speed else (math.nan, math.nan)),
    )


def predictions(model: CostModel, data: Dataset, task: TaskData) -> NDArray[np.float64]:
    """(programs,) scores of all programs of a task."""
    scores = np.empty(data.count(task))
    for block in data.features(task):
        scores[block.rows] = model.predict(block.features)
    return scores


def statements_per_second(model: CostModel, data: Dataset, parts: Sequence[Part]) -> tuple[float, float]:
    """Statements and programs whose score a core predicts in a second, features given.

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


def _scores(
    task: TaskData, scores: NDArray[np.float64], truth: NDArray[np.float64], seconds: NDArray[np.float64]
) -> TaskScores:
    finite = np.where(np.isfinite(seconds), seconds, np.inf)
    count, valid = len(scores), int(np.isfinite(seconds).sum())
    return TaskScores(
        task,
        count,
        metrics.pairwise_accuracy(scores, truth),
        metrics.recall_at(scores, truth, min(RECALL_AT, valid)),
        metrics.peak_at(scores, truth, min(PEAK_AT, count)),
        float(finite.min()),
        {k: float(finite[metrics.best(scores, min(k, count))].min()) for k in TOP},
    )


def _members(tasks: Sequence[TaskScores], networks: Sequence[str]) -> dict[str, list[tuple[float, TaskScores]]]:
    """Weight and scores of the tasks of each network; a network that was measured on several targets is several."""
    found: dict[tuple[str, str], list[tuple[float, TaskScores]]] = {}
    for one in tasks:
        for name, times in one.task.networks.items():
            if not networks or name in networks:
                found.setdefault((name, one.task.target), []).append((float(times), one))
    if not found:
        return {NO_NETWORK: [(1.0, one) for one in tasks]}
    several = {name for name, _ in found if len([key for key in found if key[0] == name]) > 1}
    return {f"{name} on {target}" if name in several else name: of for (name, target), of in found.items()}


def _top(members: Sequence[tuple[float, TaskScores]], k: int) -> float:
    """How near a network comes to its best when each task measures its k best-predicted programs alone (TenSet).

    Sum over tasks of weight x least seconds, over the same sum with the least seconds among the k.
    """
    ideal = sum(weight * one.best for weight, one in members)
    return ideal / sum(weight * one.found[k] for weight, one in members)


def _rmse(scores: NDArray[np.float64], throughput: NDArray[np.float64]) -> float:
    basis = np.stack([scores - scores.mean(), np.ones(len(scores))], axis=1)
    line = np.linalg.lstsq(basis, throughput, rcond=None)[0]
    return float(np.sqrt(np.mean((basis @ line - throughput) ** 2)))
