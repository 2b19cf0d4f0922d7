"""Counts of trials, bounds for what was cut off, and intervals that hold what they promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from benchmarks.search.statistics import Estimate, bootstrap_mean, count_trials, curve, speedup, trials_to

NAN = float("nan")


def test_trials_are_counted_from_one_and_failures_reach_nothing():
    seconds = np.array([NAN, 4.0, 2.0, 1.0])
    assert trials_to(seconds, 1.0, 0.5) == 3 and trials_to(seconds, 1.0, 1.0) == 4
    assert trials_to(seconds, 0.9, 0.98) is None and trials_to(np.array([NAN]), 1.0, 0.1) is None


def test_the_curve_is_the_best_so_far_and_goes_on_as_it_ended():
    seconds = np.array([NAN, 4.0, 8.0, 2.0])
    np.testing.assert_allclose(curve(seconds, 1.0, [1, 2, 3, 4, 100]), [0, 0.25, 0.25, 0.5, 0.5])


@settings(max_examples=50, deadline=None)
@given(seconds=arrays(float, st.integers(1, 30), elements=st.floats(1.0, 100.0) | st.just(NAN)))
def test_the_curve_reaches_a_share_exactly_at_its_trial(seconds):
    at = list(range(1, len(seconds) + 1))
    line = curve(seconds, 1.0, at)
    assert (np.diff(line) >= 0).all()
    for share in (0.05, 0.5, 1.0):
        first = trials_to(seconds, 1.0, share)
        reached = np.flatnonzero(seconds <= 1.0 / share)
        assert first == (reached[0] + 1 if len(reached) else None)
        assert first is None or line[first - 1] >= share * (1 - 1e-12)
        assert first is None or first == 1 or line[first - 2] < share * (1 + 1e-12)


def test_what_was_cut_off_counts_as_its_bound():
    np.testing.assert_array_equal(count_trials([3, None, 5], 4096), [3, 4096, 5])


def test_a_speedup_without_spread_is_exact():
    tasks = {"a": (np.full(4, 800.0), np.full(3, 100.0)), "b": (np.full(4, 200.0), np.full(3, 100.0))}
    found = speedup(tasks, np.random.default_rng(0))
    assert found.value == pytest.approx(4.0)
    assert found.low == pytest.approx(2.0) and found.high == pytest.approx(8.0)
    same = speedup({"a": tasks["a"]}, np.random.default_rng(0))
    assert (same.value, same.low, same.high) == pytest.approx((8.0, 8.0, 8.0))
    with pytest.raises(ValueError, match="`tasks` must hold at least one, but got none"):
        speedup({}, np.random.default_rng(0))


def test_the_interval_holds_the_true_ratio_about_as_often_as_it_says():
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(60):
        tasks = {}
        for task in range(14):
            ratio = np.exp(rng.normal(np.log(5), 0.4))
            tasks[str(task)] = (rng.exponential(100 * ratio, 60), rng.exponential(100, 12))
        found = speedup(tasks, np.random.default_rng(0), 400)
        held += found.low <= 5 <= found.high
    assert 50 <= held <= 60


def test_a_mean_has_its_interval():
    values = np.random.default_rng(0).normal(10, 2, 100)
    found = bootstrap_mean(values, np.random.default_rng(0))
    assert found.value == pytest.approx(values.mean())
    assert found.high - found.low == pytest.approx(2 * 1.96 * values.std() / 10, rel=0.1)
    assert Estimate(1.0, 0.5, 2.0).to_json() == [1.0, 0.5, 2.0]
