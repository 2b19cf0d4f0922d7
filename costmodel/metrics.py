"""Ranking metrics, as the literature of learned cost models defines them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]  # (candidates,)


def pairwise_accuracy(predicted: Scores, throughput: Scores) -> float:
    """Share of pairs of different throughput that the prediction orders right; ties count half."""
    first, second = np.triu_indices(len(throughput), 1)
    true = np.sign(throughput[first] - throughput[second])
    found = np.sign(predicted[first] - predicted[second])
    known = true != 0
    return float(np.where(found[known] == 0, 0.5, found[known] == true[known]).mean()) if known.any() else 1.0


def recall_at(predicted: Scores, throughput: Scores, k: int) -> float:
    """|best k predicted ∩ best k true| / k."""
    best = set(np.argsort(-throughput, kind="stable")[:k].tolist())
    return len(best & set(np.argsort(-predicted, kind="stable")[:k].tolist())) / k


def peak_at(predicted: Scores, throughput: Scores, k: int) -> float:
    """Best throughput among the k best predicted, over the best there is."""
    return float(throughput[np.argsort(-predicted, kind="stable")[:k]].max() / throughput.max())


def spearman(predicted: Scores, throughput: Scores) -> float:
    """Rank correlation."""
    first, second = (np.argsort(np.argsort(v, kind="stable"), kind="stable") for v in (predicted, throughput))
    return float(np.corrcoef(first, second)[0, 1])
