"""The guard of a source: trusts it by how it ranks later measurements, compared with the model of the task alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.metrics import pairwise_accuracy

Column = NDArray[np.float64]  # (candidates,)

FIRST_SHARE = 0.75
"""Share of a round that the source chooses before there is any evidence."""
LITTLE_SHARES = 0.25, 0.5
"""Both shares if a pretrained model orders candidates first, which has seen more than most sources."""
MOST_SHARE = 0.875
"""Share of a round that a proven source chooses: the rest keeps watching it."""


@dataclass(frozen=True)
class Round:
    """The evidence of one round.

    Attributes:
        trials: number of trials of the task by the end of the round.
        source_accuracy, local_accuracy: share of the pairs that each ordered right, of the candidates that the other
            chose; NaN if there are no such pairs.
        wins: share of the pairs, one candidate chosen by the source and one without it, in which the former was faster;
            NaN without such pairs.
        evidence: evidence for the source so far, in standard deviations.
    """

    trials: int
    source_accuracy: float
    local_accuracy: float
    wins: float
    evidence: float


class Guard:
    """The account of a source's evidence.

    A round gives two comparisons: whose choices were faster, and which of the two models ordered the other's choices
    better. A model's order of its own choices says little, as it took all of them for the best. Each difference is
    divided by its standard deviation under chance (Mann and Whitney, 1947; Kendall, 1938). The evidence is the sum over
    rounds, in which older ones count less. It determines the share of the next round that the source chooses; a source
    that falls below `drop` is dropped for good.

    Args:
        drop: evidence below which the source is dropped, in standard deviations.
        trust: evidence above which it chooses `most` of a round.
        memory: weight of a round, relative to the next one.
        first, most: shares of the first round, and of a round of a proven source.

    Attributes:
        rounds: evidence of each round.
        dropped_at: trials of the task at which the source was dropped; None while it is in use.
    """

    def __init__(
        self,
        drop: float = -1.64,
        trust: float = 1.0,
        memory: float = 0.8,
        first: float = FIRST_SHARE,
        most: float = MOST_SHARE,
    ) -> None:
        if not drop < 0 < trust or not 0 < memory <= 1 or not 0 < first <= most <= 1:
            raise ValueError(
                f"`drop` must be below 0, `trust` above it, `memory` in (0, 1] and `first` at most `most` in (0, 1], "
                f"but got drop={drop}, trust={trust}, memory={memory}, first={first}, most={most}"
            )
        self.drop, self.trust, self.memory, self.first, self.most = drop, trust, memory, first, most
        self.rounds: list[Round] = []
        self.dropped_at: int | None = None
        self._evidence, self._trials = 0.0, 0

    @property
    def dropped(self) -> bool:
        """Tells whether the source was dropped."""
        return self.dropped_at is not None

    @property
    def share(self) -> float:
        """Share of the next round that the source chooses."""
        if self.dropped:
            return 0.0
        if self._evidence > 0:
            return self.first + (self.most - self.first) * min(1.0, self._evidence / self.trust)
        return self.first * (1.0 - self._evidence / self.drop)

    @property
    def trusting(self) -> bool:
        """Tells whether there is evidence for the source."""
        return not self.dropped and self._evidence > 0

    def observe(self, source: Column, local: Column, seconds: Column, chosen: NDArray[np.bool_]) -> None:
        """Adds the evidence of a round.

        Args:
            source, local: scores of the two models before the round was measured, higher is better.
            seconds: measured seconds; NaN for a failure, which counts as slower than all.
            chosen: whether the source chose each candidate.
        """
        self._trials += len(seconds)
        if self.dropped:
            return
        speed = np.nan_to_num(1.0 / seconds, nan=0.0)
        theirs, ours = ~chosen, chosen if chosen.any() else ~chosen
        accuracies = _accuracy(source[theirs], speed[theirs]), _accuracy(local[ours], speed[ours])
        terms: list[float] = []
        if not math.isnan(sum(accuracies)):
            deviation = math.hypot(_deviation(int(theirs.sum())), _deviation(int(ours.sum())))
            terms.append((accuracies[0] - accuracies[1]) / deviation)
        wins = _wins(speed[chosen], speed[~chosen])
        if not math.isnan(wins):
            first, second = int(chosen.sum()), int((~chosen).sum())
            terms.append((wins - 0.5) / math.sqrt((first + second + 1) / (12.0 * first * second)))
        if terms:
            self._evidence = self.memory * self._evidence + sum(terms) / math.sqrt(len(terms))
        self.rounds.append(Round(self._trials, *accuracies, wins, self._evidence))
        if self._evidence < self.drop:
            self.dropped_at = self._trials


def _accuracy(scores: Column, speed: Column) -> float:
    """Computes the share of the pairs ordered right; NaN if all are equal."""
    return pairwise_accuracy(scores, speed) if len(np.unique(speed)) > 1 else math.nan


def _deviation(count: int) -> float:
    """Computes the standard deviation of the pairwise accuracy of a random order of `count` candidates."""
    return math.sqrt(2.0 * (2 * count + 5) / (9.0 * count * (count - 1))) / 2.0


def _wins(first: Column, second: Column) -> float:
    """Computes the share of the pairs in which the first is greater; equal ones count half."""
    if not len(first) or not len(second):
        return math.nan
    return float(np.mean(np.sign(first[:, None] - second[None]) / 2.0 + 0.5))
