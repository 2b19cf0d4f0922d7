"""Ranking metrics on cases small enough to count by hand."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.metrics import best, pairwise_accuracy, peak_at, recall_at, spearman

TRUTH = np.array([1.0, 0.8, 0.5, 0.0])


def test_perfect_and_reversed_orders() -> None:
    for metric, worst in ((pairwise_accuracy, 0.0), (spearman, -1.0)):
        assert metric(TRUTH * 10, TRUTH) == pytest.approx(1.0)
        assert metric(-TRUTH, TRUTH) == pytest.approx(worst)


def test_pairwise_accuracy_counts_pairs() -> None:
    assert pairwise_accuracy(np.array([3.0, 4, 2, 1]), TRUTH) == pytest.approx(5 / 6)
    assert pairwise_accuracy(np.zeros(4), TRUTH) == 0.5
    assert pairwise_accuracy(np.array([1.0, 2, 3]), np.array([1.0, 1.0, 0.0])) == 0.0  # the equal pair is left out
    assert pairwise_accuracy(np.arange(3.0), np.ones(3)) == 1.0


def test_recall_and_peak_look_at_the_best_predicted() -> None:
    predicted = np.array([1.0, 4, 3, 2])
    assert recall_at(predicted, TRUTH, 2) == 0.5
    assert recall_at(predicted, TRUTH, 4) == 1.0
    assert peak_at(predicted, TRUTH, 1) == 0.8
    assert peak_at(predicted, TRUTH, 4) == 1.0


def test_what_cannot_be_predicted_stands_last_and_orders_nothing() -> None:
    predicted, throughput = np.array([np.nan, 1.0, 2.0]), np.array([1.0, 0.2, 0.5])
    assert best(predicted, 3).tolist() == [2, 1, 0]
    assert pairwise_accuracy(predicted, throughput) == 1 / 3


def test_spearman_shares_the_ranks_of_ties() -> None:
    assert spearman(np.array([1.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0])) == pytest.approx(0.8660254)


def test_k_must_be_a_number_of_candidates() -> None:
    with pytest.raises(ValueError, match="from 1 to the number of candidates, but got k=5, candidates=4"):
        recall_at(TRUTH, TRUTH, 5)
