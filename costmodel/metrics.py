"""Ranking metrics, as the literature of learned cost models defines them (Ansor, TenSet, TLP).

`predicted` are scores, higher is better; `throughput` is best seconds / seconds of the same task, 0 for a failure.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]  # (candidates,)


def relative(seconds: Column) -> Column:
    """Computes best seconds / seconds, 0 for a failure (NaN); at least one must be finite."""
    return np.nan_to_num(np.nanmin(seconds) / seconds, nan=0.0)


def pairwise_accuracy(scores: Column, throughput: Column) -> float:
    """Computes the share of pairs of different throughput that are ordered right; a predicted tie counts half."""
    first, second = np.triu_indices(len(throughput), 1)
    true = np.sign(throughput[first] - throughput[second])
    guess = np.sign(scores[first] - scores[second])
    differs = true != 0
    if not differs.any():
        return 1.0
    return float(np.where(guess[differs] == 0, 0.5, guess[differs] == true[differs]).mean())


def recall_at(scores: Column, throughput: Column, k: int) -> float:
    """Computes |k best predicted ∩ k best true| / k."""
    true = set(best(throughput, k).tolist())
    return len(true & set(best(scores, k).tolist())) / k


def peak_at(scores: Column, throughput: Column, k: int) -> float:
    """Computes the best throughput among the k best predicted, relative to the best of all."""
    return float(throughput[best(scores, k)].max() / throughput.max())


def kendall(scores: Column, throughput: Column) -> float:
    """Computes Kendall's rank correlation τ-b, which allows for ties; 0 if one side is all ties."""
    from scipy.stats import kendalltau  # a dependency of scikit-learn

    value = float(kendalltau(scores, throughput).statistic)
    return value if value == value else 0.0


def spearman(scores: Column, throughput: Column) -> float:
    """Computes Spearman's rank correlation; equal values share the mean of their ranks."""
    return float(np.corrcoef(_ranks(scores), _ranks(throughput))[0, 1])


def best(values: Column, k: int) -> NDArray[np.int64]:
    """Returns the indices of the k greatest values, greatest first; of equal ones the earlier first.

    Raises:
        ValueError: k is not from 1 to the number of candidates.
    """
    if not 1 <= k <= len(values):
        raise ValueError(f"`k` must be from 1 to the number of candidates, but got k={k}, candidates={len(values)}")
    return np.argsort(-np.asarray(values, np.float64), kind="stable")[:k]


def _ranks(values: Column) -> Column:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: Column = (ends - (counts - 1) / 2.0)[place]
    return ranks
