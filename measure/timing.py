"""Repeated timing until the result is stable, and the statistics of the samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from measure.steadiness import compute_spread, steady_seconds

Timer = Callable[[int], NDArray[np.float64]]
"""Function from a number of iterations to the seconds of each, `(iterations,)`, timed in native code."""


@dataclass(frozen=True)
class TimingPolicy:
    """Rule for when to stop repeating.

    Attributes:
        budget_seconds: time spent on samples after the first `min_samples`.
        min_samples: minimum samples of every trial that is not cut short.
        max_samples: most samples of one trial.
        stable_samples: number of samples from which on a stable timing ends early.
        stable_spread: stable means (p25 - min) / min of the samples is at most this.
        settle_seconds: seconds of samples, of `budget_seconds` at most, before anything is concluded from them. The
            first calls wake sleeping threads and fill caches: they take several times as long as the later ones.
        cut_ratio: a trial whose fastest sample until then is over this many times the best latency ends.
        loser_ratio: a trial whose fastest sample is over this many times the best latency ends after these seconds
            and `loser_samples`, as its exact distance does not matter.
        loser_samples: number of samples of such a trial.
        keep: most latencies reported; more samples are reported as medians of consecutive groups.
        rotation_bytes: most memory for rotated copies of constants, bytes.
    """

    budget_seconds: float = 0.015
    min_samples: int = 3
    max_samples: int = 2000
    stable_samples: int = 10
    stable_spread: float = 0.002
    settle_seconds: float = 0.001
    cut_ratio: float = 3.0
    loser_ratio: float = 1.2
    loser_samples: int = 5
    keep: int = 32
    rotation_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        for name in ("min_samples", "stable_samples", "loser_samples", "keep", "rotation_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1, but got {name}={getattr(self, name)}")
        if self.max_samples < self.min_samples:
            raise ValueError(
                f"`max_samples` must be at least min_samples={self.min_samples}, but got max_samples={self.max_samples}"
            )
        for name in ("budget_seconds", "settle_seconds"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"`{name}` must not be negative, but got {name}={getattr(self, name)}")
        for name in ("cut_ratio", "loser_ratio"):
            if not getattr(self, name) > 1:
                raise ValueError(f"`{name}` must be over 1, but got {name}={getattr(self, name)}")

    def to_json(self) -> dict[str, Any]:
        """Returns the plain form, for the worker and for records."""
        return asdict(self)


@dataclass(frozen=True)
class Timing:
    """Result of repeated timing.

    Attributes:
        latencies: seconds, in order of time: every sample, or medians of consecutive groups of equal size.
        seconds: median of `latencies`.
        spread: (p75 - p25) / median of `latencies`.
        cut: whether the trial was ended early as a clear loser, after its first samples.
    """

    latencies: tuple[float, ...]
    seconds: float
    spread: float
    cut: bool = False

    @property
    def steady(self) -> float:
        """Median of the faster half of the latencies, which other programs on the machine disturb least."""
        return steady_seconds(self.latencies)


def measure(
    time: Timer, policy: TimingPolicy, best_seconds: float | None = None, checked_seconds: float = math.inf
) -> Timing:
    """Samples until the timing is stable or the budget is spent.

    Args:
        time: the native timer; caches are warm already.
        policy: rule for when to stop.
        best_seconds: latency to beat, or None.
        checked_seconds: wall time of the checked run before. A loser is cut only if this run was slow, too, so that one
            interrupt does not reject a good candidate.
    """
    samples = time(1)  # (samples,) seconds
    while (missing := _missing_to_settle(samples, policy)) > 0:
        samples = np.concatenate([samples, time(missing)])
    if best_seconds is not None and min(float(samples.min()), checked_seconds) > policy.cut_ratio * best_seconds:
        return _summary(samples, policy.keep, cut=True)
    lost = math.inf if best_seconds is None else policy.loser_ratio * best_seconds
    while len(samples) < policy.max_samples and not _enough(samples, policy, lost):
        samples = np.concatenate([samples, time(_batch(samples, policy, lost))])
    return _summary(samples, policy.keep)


MOST_COPIES = 16384
"""Greatest number of copies of constants: making millions of a few bytes takes longer than a trial may."""

TICK = 1e-9
"""Resolution of clocks, seconds: they count in nanoseconds."""


def rotation_copies(constant_bytes: int, cache_bytes: int, rotation_bytes: int) -> int:
    """Returns how many copies of the constants make each cold when its turn comes.

    The copies fill 1.5 last-level caches, but at most `rotation_bytes`; a larger constant is cold anyway. Their number
    is at most `MOST_COPIES`: making millions of a constant of a few bytes would take longer than any trial may.
    """
    if constant_bytes <= 0:
        return 1
    return max(1, min(MOST_COPIES, math.ceil(min(1.5 * cache_bytes, rotation_bytes) / constant_bytes)))


def _missing_to_settle(samples: NDArray[np.float64], policy: TimingPolicy) -> int:
    """Returns how many more samples complete `settle_seconds`, by the fastest so far; 0 if none are missing."""
    missing = min(policy.settle_seconds, policy.budget_seconds) - float(samples.sum())
    count = math.ceil(missing / max(float(samples.min()), TICK))
    return max(0, min(count, policy.max_samples - len(samples)))


def _enough(samples: NDArray[np.float64], policy: TimingPolicy, loss_limit: float) -> bool:
    if len(samples) < policy.min_samples:
        return False
    if len(samples) >= policy.loser_samples and float(samples.min()) > loss_limit:
        return True
    if samples.sum() >= policy.budget_seconds:
        return True
    low = float(samples.min())
    return (
        len(samples) >= policy.stable_samples and float(np.quantile(samples, 0.25)) - low <= policy.stable_spread * low
    )


def _batch(samples: NDArray[np.float64], policy: TimingPolicy, loss_limit: float) -> int:
    """Returns the size of the next batch of samples.

    It completes the minimum, or takes a quarter of the budget, so that stability is examined in between.
    """
    if len(samples) < policy.loser_samples and float(samples.min()) > loss_limit:
        return min(policy.loser_samples, policy.max_samples) - len(samples)
    missing = policy.min_samples - len(samples)
    typical = max(float(np.median(samples)), 1e-9)
    remaining = policy.budget_seconds - float(samples.sum())
    affordable = math.ceil(min(remaining, policy.budget_seconds / 4) / typical)
    return min(max(1, missing, affordable), policy.max_samples - len(samples))


def replace_zeros(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    """Replaces samples of 0, which are shorter than a tick of the clock, by a tick."""
    return np.where(samples == 0, TICK, samples)


def summary(latencies: Sequence[float] | NDArray[np.float64]) -> Timing:
    """Makes the timing of latencies, which are in order of time."""
    seconds = replace_zeros(np.asarray(latencies, np.float64)).tolist()
    return Timing(tuple(seconds), float(np.median(seconds)), compute_spread(seconds))


def _summary(samples: NDArray[np.float64], keep: int, cut: bool = False) -> Timing:
    samples = replace_zeros(samples)
    group = math.ceil(len(samples) / keep)
    whole = len(samples) // group * group  # the last, incomplete group is left out
    latencies = np.median(samples[:whole].reshape(-1, group), axis=1)
    return replace(summary(latencies), cut=cut)
