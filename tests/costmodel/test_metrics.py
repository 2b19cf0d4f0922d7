"""Ranking metrics on orders whose values are known."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.metrics import pairwise_accuracy, peak_at, recall_at, spearman

TRUE = np.array([1.0, 0.8, 0.5, 0.2])


@pytest.mark.parametrize(
    ("predicted", "pairs", "rank"), [([4, 3, 2, 1], 1.0, 1.0), ([1, 2, 3, 4], 0.0, -1.0), ([3, 4, 2, 1], 5 / 6, 0.8)]
)
def test_orders(predicted: list[float], pairs: float, rank: float) -> None:
    scores = np.array(predicted, float)
    assert pairwise_accuracy(scores, TRUE) == pytest.approx(pairs)
    assert spearman(scores, TRUE) == pytest.approx(rank)


def test_ties_count_half() -> None:
    assert pairwise_accuracy(np.zeros(4), TRUE) == 0.5


def test_the_best_of_k() -> None:
    scores = np.array([0.0, 3.0, 2.0, 1.0])
    assert peak_at(scores, TRUE, 1) == 0.8
    assert recall_at(scores, TRUE, 2) == 0.5
