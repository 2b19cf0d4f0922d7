"""Which of many measured programs a model learns from, so that a refit's cost has a bound."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


def faster_half(throughput: NDArray[np.float64], count: int, seed: int) -> Rows:
    """Places of at most `count` programs, ascending: the fastest are half of them, the others are drawn."""
    if len(throughput) <= count:
        return np.arange(len(throughput))
    order = np.argsort(-throughput, kind="stable")
    fast, rest = order[: count // 2], order[count // 2 :]
    drawn = np.random.default_rng(seed).choice(rest, count - len(fast), replace=False)
    return np.sort(np.concatenate([fast, drawn]))


def spread(groups: NDArray[np.int64], count: int, seed: int) -> Rows:
    """Places of at most `count` programs, ascending: drawn, of each task as near to an equal number as there is."""
    if len(groups) <= count:
        return np.arange(len(groups))
    mixed = np.random.default_rng(seed).permutation(len(groups))
    turn = np.empty(len(groups), np.int64)  # place of each within its task, in the mixed order
    order = mixed[np.argsort(groups[mixed], kind="stable")]
    starts = np.flatnonzero(np.diff(groups[order], prepend=groups[order[0]] - 1))
    sizes = np.diff(np.append(starts, len(groups)))
    turn[order] = np.arange(len(groups)) - np.repeat(starts, sizes)
    return np.sort(mixed[np.argsort(turn[mixed], kind="stable")][:count])
