"""Losses on the order of the programs of a task: RankNet's on pairs (Burges, 2005), and LambdaRank's (Burges, 2006)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Gradients = tuple[NDArray[np.float64], NDArray[np.float64]]
Indices = NDArray[np.int64]

GAIN = 4.0
"""Gain of throughput in the discounted cumulative gain: a program of throughput y has the gain 2^(GAIN * y) - 1."""

_LEAST_CURVATURE = 1e-4  # boosting divides by it, and pairs in the right order have nearly no curvature


class PairLoss:
    """A logistic loss of pairs of programs of one task, with a new sample of pairs at each call.

    A pair weighs the difference of its throughputs. With `lambdarank` it weighs the change of the task's normalised
    discounted cumulative gain if the two changed places. So the top of the order counts.

    Args:
        counts: rows of each program, whose scores add up, (programs,).
        throughput: throughput of each program, (programs,).
        groups: task of each program, (programs,).
        offset: constant that is added to each program's score, (programs,).
        pairs: number of partners that each program is compared with in a call.
        lambdarank: whether pairs weigh as in LambdaRank.
        seed: seed of the sampling.
    """

    def __init__(
        self,
        counts: NDArray[np.int64],
        throughput: NDArray[np.float64],
        groups: NDArray[np.int64],
        offset: NDArray[np.float64],
        pairs: int,
        lambdarank: bool,
        seed: int,
    ) -> None:
        self.throughput, self.offset, self.pairs, self.lambdarank = throughput, offset, pairs, lambdarank
        self._rng = np.random.default_rng(seed)
        self._program = np.repeat(np.arange(len(counts)), counts)  # (rows,)
        self._counts = counts
        self._groups = np.unique(groups, return_inverse=True)[1]
        self._order = np.argsort(self._groups, kind="stable")  # programs, task by task
        sizes = np.bincount(self._groups)
        self._start, self._size = (np.cumsum(sizes) - sizes)[self._groups], sizes[self._groups]
        self._gain = np.exp2(GAIN * throughput) - 1.0
        by_gain = np.lexsort((-self._gain, self._groups))
        place = np.empty(len(counts), np.int64)
        place[by_gain] = np.arange(len(counts)) - self._start[by_gain]
        ideal = np.bincount(self._groups, self._gain * _discount(place))
        self._ideal = np.maximum(ideal, 1e-9)[self._groups]

    def __call__(self, scores: NDArray[np.float64]) -> Gradients:
        """Computes gradient and curvature by row: those of its program, as its rows' scores step together."""
        total = np.bincount(self._program, scores, minlength=len(self._counts)) + self.offset
        gradient, curvature = self.of_programs(total)
        return gradient[self._program], np.maximum(curvature * self._counts, _LEAST_CURVATURE)[self._program]

    def of_programs(self, total: NDArray[np.float64]) -> Gradients:
        """Computes gradient and curvature by the programs' scores, (programs,), over a sample of pairs."""
        first, second, weight = self._pairs(total)
        wrong = _wrong(total[first] - total[second])
        push, bend = weight * wrong / self.pairs, weight * wrong * (1.0 - wrong) / self.pairs
        count = len(total)
        gradient = np.bincount(second, push, count) - np.bincount(first, push, count)
        curvature = np.bincount(second, bend, count) + np.bincount(first, bend, count)
        return np.asarray(gradient, np.float64), np.asarray(curvature, np.float64)

    def slope(self, values: NDArray[np.float64], most: float = 8.0) -> float:
        """Finds the factor, from 0 to `most`, that makes the best scores of values (programs,), by Newton's method."""
        first, second, weight = self._pairs(values)
        ahead = values[first] - values[second]
        slope = 0.0
        for _ in range(12):
            wrong = _wrong(slope * ahead)
            bend = float((weight * wrong * (1.0 - wrong) * ahead**2).sum())
            if bend < 1e-12:
                break
            slope = min(max(slope + float((weight * wrong * ahead).sum()) / bend, 0.0), most)
        return slope

    def _pairs(self, total: NDArray[np.float64]) -> tuple[Indices, Indices, NDArray[np.float64]]:
        """Samples pairs of programs of one task, the faster first, with their weights by the present scores."""
        first = np.repeat(np.arange(len(total)), self.pairs)
        step = (self._rng.random(len(first)) * self._size[first]).astype(np.int64)
        second = self._order[self._start[first] + step]
        difference = self.throughput[first] - self.throughput[second]
        first, second = np.where(difference < 0, second, first), np.where(difference < 0, first, second)
        weight = np.abs(difference)
        if self.lambdarank:
            discount = _discount(self._ranks(total))
            change = np.abs((self._gain[first] - self._gain[second]) * (discount[first] - discount[second]))
            weight = weight * change / self._ideal[first] * self._size[first]
        return first, second, weight

    def _ranks(self, total: NDArray[np.float64]) -> NDArray[np.int64]:
        """Ranks each program in its task by score, from 0."""
        order = np.lexsort((-total, self._groups))
        place = np.empty(len(total), np.int64)
        place[order] = np.arange(len(total)) - self._start[order]
        return place


def _discount(rank: NDArray[np.int64]) -> NDArray[np.float64]:
    """Computes the discount of the gain of a program at a rank from 0."""
    found: NDArray[np.float64] = 1.0 / np.log2(rank + 2.0)
    return found


def _wrong(ahead: NDArray[np.float64]) -> NDArray[np.float64]:
    """Computes the probability that a pair is in the other order, by the lead of its first."""
    found: NDArray[np.float64] = 1.0 / (1.0 + np.exp(np.clip(ahead, -500.0, 500.0)))
    return found


def torch_pair_loss(scores: Any, throughput: Any, plain: float = 1.0) -> Any:
    """Computes LambdaRank's loss on all pairs of programs of one task, differentiable by PyTorch, plus a plain loss.

    Args:
        scores, throughput: tensors, (programs,).
        plain: weight of the mean logistic loss of pairs, which all weigh the same.
    """
    import torch

    discount = 1.0 / torch.log2(_torch_ranks(scores.detach()) + 2.0)
    gain = torch.exp2(GAIN * throughput) - 1.0
    ideal = (gain / torch.log2(_torch_ranks(gain) + 2.0)).sum().clamp(min=1e-9)
    weight = (gain[:, None] - gain[None]).abs() * (discount[:, None] - discount[None]).abs() / ideal
    better = throughput[:, None] > throughput[None]
    losses = torch.nn.functional.softplus(scores[None] - scores[:, None]) * better
    return (weight * losses).sum() + plain * losses.sum() / better.sum().clamp(min=1)


def _torch_ranks(values: Any) -> Any:
    """Ranks each program of one task from 0, the greatest value first; of equal values the first one.

    Comparisons of all pairs, as the loss has anyway: kernels of our own have no sort.
    """
    import torch

    number = torch.arange(len(values))
    equal = (values[None] == values[:, None]) & (number[None] < number[:, None])
    return ((values[None] > values[:, None]) | equal).sum(dim=1).to(values.dtype)
