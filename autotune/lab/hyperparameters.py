"""Options of a cost model, searched for by Optuna: tree-structured Parzen estimators, with pruning between folds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune.lab.evaluate import evaluate, fit_model, samples
from costmodel.dataset import Dataset, TaskPrograms
from costmodel.dataset.split import mixed_workloads
from costmodel.models import registry
from costmodel.models.errors import CostModelError
from costmodel.models.tunable import Range, Tunable
from search_space.extras import require

METRICS = {"top1": "best1", "top5": "best5", "pairwise": "pairwise", "recall": "recall", "peak": "best5"}
"""Metric to maximise → its name in `evaluate.scores`. Top-k are means over tasks: folds are no networks."""


@dataclass(frozen=True)
class Trial:
    """Model options of one trial, and their value.

    Attributes:
        options: options of the model.
        value: metric's mean over the evaluated folds.
        folds: number of evaluated folds.
        pruned: whether the remaining folds were skipped, as the value was below the median so far.
    """

    options: Mapping[str, Any]
    value: float
    folds: int
    pruned: bool


def make_folds(
    parts: Sequence[TaskPrograms], count: int, seed: int
) -> list[tuple[list[TaskPrograms], list[TaskPrograms]]]:
    """Splits parts into training and test parts, `count` times: each workload is tested on once, as a whole.

    Raises:
        CostModelError: fewer workloads than folds.
    """
    workloads = mixed_workloads((part.task for part in parts), seed)
    if not 2 <= count <= len(workloads):
        raise CostModelError(
            f"`folds` must be from 2 to the number of workloads, {len(workloads)}, but got folds={count}"
        )
    fold = {key: number % count for number, key in enumerate(workloads)}
    return [
        (
            [part for part in parts if fold[part.task.workload.key] != number],
            [part for part in parts if fold[part.task.workload.key] == number],
        )
        for number in range(count)
    ]


def tune(
    data: Dataset,
    parts: Sequence[TaskPrograms],
    name: str,
    trials: int,
    metric: str = "top1",
    folds: int = 3,
    seed: int = 0,
    fixed: Mapping[str, Any] | None = None,
    progress: Callable[[Trial], None] = lambda trial: None,
) -> list[Trial]:
    """Tries options of a model, defaults first; sorts trials by value, those of all folds before pruned ones.

    Args:
        data: measured programs.
        parts: parts of the dataset to train and evaluate on, fold by fold.
        name: name of the model.
        trials: number of options to try.
        metric: a name of `METRICS`.
        folds: number of folds that the tasks are split into.
        seed: seed of folds, draws and models.
        fixed: options that are not varied.
        progress: called after each trial.

    Raises:
        CostModelError: no such model or metric, or nothing about it can be varied.
    """
    require("tuning a model's options", "optuna")
    import optuna

    if metric not in METRICS:
        raise CostModelError(f"`metric` must be one of {', '.join(METRICS)}, but got metric={metric!r}")
    given = dict(fixed or {})
    space = {option: over for option, over in registry.get(name).tunable.items() if option not in given}
    if not space:
        raise CostModelError(f"`model` must have options to vary, but got model={name!r} with none in its `tunable`")
    split = make_folds(parts, folds, seed)
    learned = [samples(data, train) for train, _ in split]
    optuna.logging.set_verbosity(logging.WARNING)
    study = optuna.create_study(
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=seed),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=4),
    )
    tried: list[Trial] = []

    def evaluate_trial(trial: Any) -> float:
        # The first trial is what the model does by itself.
        options = {} if not trial.number else {option: _draw(trial, option, over) for option, over in space.items()}
        values: list[float] = []
        for number, (_, test) in enumerate(split):
            model = fit_model(name, {**given, **options}, seed, learned[number])
            values.append(evaluate(model, data, test, speed=False).mean(METRICS[metric]))
            trial.report(float(np.mean(values)), number)
            if number + 1 < folds and trial.number and trial.should_prune():
                break
        pruned = len(values) < folds
        tried.append(Trial({**given, **options}, float(np.mean(values)), len(values), pruned))
        progress(tried[-1])
        if pruned:
            raise optuna.TrialPruned
        return tried[-1].value

    study.optimize(evaluate_trial, n_trials=trials)
    return sorted(tried, key=lambda one: (one.pruned, -one.value))


def _draw(trial: Any, option: str, over: Tunable) -> Any:
    if not isinstance(over, Range):
        return trial.suggest_categorical(option, over.values)
    if over.is_integer:
        return trial.suggest_int(option, int(over.low), int(over.high), log=over.log)
    return trial.suggest_float(option, over.low, over.high, log=over.log)
