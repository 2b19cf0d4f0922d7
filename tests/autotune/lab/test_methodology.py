"""Scores of searches on measured spaces: 0 is random search, 1 the best at once."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.lab.dataset.measured_space import MeasuredSpace
from autotune.lab.methodology import Yardstick
from search_space.parameters import Parameter, ParameterSpace


def make_space(count: int = 400, seed: int = 0) -> MeasuredSpace:
    rng = np.random.default_rng(seed)
    space = ParameterSpace("numbers", (Parameter("n", tuple(range(count))),))
    seconds = rng.lognormal(0.0, 1.0, count)
    failed = rng.random(count) < 0.05
    return MeasuredSpace(
        space,
        np.arange(count, dtype=np.int32)[:, None],
        [np.empty(0) if bad else np.array([s]) for s, bad in zip(seconds, failed, strict=True)],
        ["runtime" if bad else "ok" for bad in failed],
        np.full(count, 2.0) - np.where(failed, 0.0, seconds),
        np.zeros(count),
    )


def draw_search(of: MeasuredSpace, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    order = np.random.default_rng(seed).permutation(len(of))
    return of.seconds[order], np.cumsum(of.cost_seconds[order])


def test_random_search_scores_nothing() -> None:
    of = make_space()
    scores = Yardstick(of).score([draw_search(of, seed) for seed in range(600)])
    assert abs(scores.mean()) < 4 * scores.std() / np.sqrt(len(scores)) + 0.02


def test_the_best_at_once_scores_one() -> None:
    of = make_space()
    best = np.array([of.best])
    assert Yardstick(of).score([(best, np.array([0.0]))]) == pytest.approx([1.0])


def test_nothing_found_counts_as_random_search() -> None:
    of = make_space()
    assert Yardstick(of).score([(np.array([np.nan]), np.array([1.0])), (np.empty(0), np.empty(0))]) == pytest.approx(
        [0.0, 0.0]
    )


def test_what_lies_behind_the_end_of_a_search_keeps_its_best() -> None:
    of = make_space()
    yardstick = Yardstick(of)
    seconds, elapsed = draw_search(of, 0)
    half = int(np.searchsorted(elapsed, yardstick.seconds / 2))
    ended = (seconds[:half], elapsed[:half])
    whole, part, none = yardstick.after_end([(seconds, elapsed), ended, (np.empty(0), np.empty(0))])
    assert (whole, none) == (0.0, 1.0) and part == pytest.approx(0.5, abs=0.02)
    performance = yardstick.performance(*ended)[yardstick.times > elapsed[half - 1]]
    left = (yardstick.random - np.nanmin(seconds[:half])) / (yardstick.random - of.best)
    np.testing.assert_allclose(performance, left[-len(performance) :])


def test_time_is_up_where_random_search_has_gone_most_of_the_way() -> None:
    of = make_space()
    yardstick = Yardstick(of)
    median = np.nanmedian(of.seconds)
    assert yardstick.value == pytest.approx(of.best + 0.05 * (median - of.best))
    good = np.count_nonzero(of.seconds <= yardstick.value)
    assert yardstick.trials == np.ceil(np.isfinite(of.seconds).sum() / (good + 1) - good / (good + 1))
    assert yardstick.seconds == pytest.approx(yardstick.trials * 2.0)
    assert np.all(np.diff(yardstick.random) <= 0)
    with pytest.raises(ValueError, match="must be between 0 and 1, but got cutoff=1"):
        Yardstick(of, 1.0)
