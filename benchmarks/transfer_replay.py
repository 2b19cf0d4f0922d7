"""Replay of searches on the measured programs of a task: they ask for no other one.

A round is chosen as a search chooses one, from the measured programs that are left: by score,
and some at random.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.dataset import Dataset, TaskData
from costmodel.features import SECONDS
from costmodel.models.base import CostModel
from costmodel.transfer.tasks import Features, SourceTask, TargetTask
from costmodel.transfer.transfer import Transfer
from costmodel.transfer.trees import by_length
from search_space.hardware import Hardware
from search_space.workloads import Workload

LEAST_ROWS = 8
"""Least number of measured programs from which on a model is trusted more than the roofline, as in a search."""
NOISE = 0.2
"""Noise on the roofline's order, on the logarithm of seconds."""
LITTLE_NOISE = 0.03
"""Noise on the order of a pretrained model. Both are as in a search."""


@dataclass(frozen=True)
class Pool:
    """Measured programs of a task.

    Attributes:
        workload, hardware: workload and hardware of the task.
        features: features of each program, (statements, features).
        seconds: (programs,) NaN for a failure.
        drawn: (programs,) whether it was drawn at random from the task's space.
        again: (programs,) seconds of a repeat that no search sees, by which searches are judged; None: judged by
            `seconds`.
        first: (programs,) predictions of a pretrained model, logarithms of throughput; None: searches begin with the
            roofline alone.
    """

    workload: Workload
    hardware: Hardware
    features: Sequence[Features]
    seconds: NDArray[np.float64]
    drawn: NDArray[np.bool_]
    again: NDArray[np.float64] | None = None
    first: NDArray[np.float64] | None = None

    @staticmethod
    def of(data: Dataset, task: TaskData) -> Pool:
        """Makes the pool of a dataset's task from its measured programs."""
        drawn = data.origin(task) == "random"
        return Pool(task.workload, task.hardware, SourceTask(data, task).features, data.seconds(task), drawn)

    def target(self) -> TargetTask:
        """Describes the task as a search would see it, before anything is measured."""
        sample = [of for of, drawn in zip(self.features, self.drawn.tolist(), strict=True) if drawn]
        return TargetTask(self.workload, self.hardware, sample or self.features)


@dataclass(frozen=True)
class ReplayedSearch:
    """A replayed search.

    Attributes:
        order: (trials,) indices of the programs in the order of measuring.
        curve: (trials,) seconds of the fastest program so far for the search, by the unseen repeat if there is one;
            infinite until one has worked.
        report: facts about the transfer; None if it was not used.
    """

    order: NDArray[np.int64]
    curve: NDArray[np.float64]
    report: dict[str, Any] | None

    def trials_to(self, seconds: float) -> float:
        """Counts trials until a program at least so fast was measured; else infinite."""
        reached = np.flatnonzero(self.curve <= seconds)
        return float(reached[0] + 1) if len(reached) else math.inf


def replay(
    pool: Pool,
    model: CostModel,
    seed: int,
    trials: int,
    batch: int = 8,
    transfer: Transfer | None = None,
    epsilon: float = 0.05,
    first_epsilon: float = 0.125,
    estimate: bool = True,
) -> ReplayedSearch:
    """Replays a search of a pool.

    Args:
        pool: measured programs of one task.
        model: model of the task alone, which learns after each round.
        seed: seed of the roofline's noise and of the random share.
        trials: trials to measure; at most all programs.
        batch: trials of a round.
        transfer: measurements of other tasks.
        epsilon, first_epsilon: share of a round that is random, and of the first one.
        estimate: whether the roofline, or a pretrained model, orders candidates until the model has learned; else they
            are random.
    """
    rng = np.random.default_rng(seed)
    count = len(pool.seconds)
    blocks = by_length(pool.features)
    left, order = np.ones(count, np.bool_), np.empty(0, np.int64)
    roofline = -np.array([of[0, SECONDS] for of in pool.features], np.float64)
    first, noise = (roofline, NOISE) if pool.first is None else (pool.first, LITTLE_NOISE)
    noisy = (first if estimate else 0.0) + noise / math.log(2.0) * rng.standard_normal(count)
    fitted = False
    while len(order) < min(trials, count):
        wanted = min(batch, min(trials, count) - len(order))
        explored = epsilon if len(order) else first_epsilon
        local = _scores(model.predict, blocks, count) if fitted else noisy
        transferred = _scores(transfer.predict, blocks, count) if transfer is not None and transfer.active else None
        share = 0 if transferred is None or transfer is None else round(wanted * transfer.share)
        trusted = transfer is not None and transfer.trusted and share < wanted
        few = share < wanted - share  # who chooses most comes first
        asked = [(transferred, share, 0.0 if trusted or few else explored), (local, wanted - share, explored)]
        parts: list[NDArray[np.int64]] = []
        for scores, number, at_random in reversed(asked) if few else asked:
            parts.append(_pick(scores, left, number, at_random, rng))
            left[parts[-1]] = False
        chosen = np.concatenate(parts)
        if transferred is not None and transfer is not None:
            known = local if fitted else first if estimate else noisy
            of_source = np.repeat([not few, few], [len(part) for part in parts])
            transfer.observe(transferred[chosen], known[chosen], pool.seconds[chosen], of_source)
        order = np.concatenate([order, chosen])
        measured = pool.seconds[order]
        if np.isfinite(measured).sum() >= LEAST_ROWS:
            features = [pool.features[place] for place in order.tolist()]
            throughput = np.nan_to_num(np.nanmin(measured) / measured, nan=0.0)
            model.fit(features, throughput)
            fitted = True
            if transfer is not None:
                transfer.fit(features, throughput)
    return ReplayedSearch(order, _curve(pool, order), None if transfer is None else transfer.report())


def _curve(pool: Pool, order: NDArray[np.int64]) -> NDArray[np.float64]:
    """Computes seconds of the best program after each trial, by the repeat that the search has not seen."""
    seen = np.where(np.isfinite(pool.seconds[order]), pool.seconds[order], np.inf)
    best = np.minimum.accumulate(seen)
    if pool.again is None:
        return best
    newest = np.maximum.accumulate(np.where(seen <= best, np.arange(len(order)), 0))  # the place of the best so far
    return np.where(np.isfinite(best), pool.again[order][newest], np.inf)


def _scores(
    predict: Callable[[NDArray[np.float32]], NDArray[np.float64]],
    blocks: Sequence[tuple[NDArray[np.int64], NDArray[np.float32]]],
    count: int,
) -> NDArray[np.float64]:
    found = np.empty(count)
    for places, features in blocks:
        found[places] = predict(features)
    return found


def _pick(
    scores: NDArray[np.float64] | None,
    left: NDArray[np.bool_],
    count: int,
    share: float,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Selects `count` of the programs left: by score, and a share, rounded up, at random; returns their indices."""
    if scores is None or count < 1:
        return np.empty(0, np.int64)
    places = np.flatnonzero(left)
    explorers = min(count, math.ceil(share * count))
    best = places[np.argsort(-scores[places], kind="stable")][: count - explorers]
    rest = np.setdiff1d(places, best)
    return np.concatenate([best, rng.permutation(rest)[:explorers]])
