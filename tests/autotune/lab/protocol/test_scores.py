"""Scores and intervals, held against enumeration, SciPy and samples whose truth is known."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.lab.evaluate.scores import METRICS, TOP, Tasks, by_chance, expected_first, score_rankings
from costmodel import metrics

POOL = st.lists(st.floats(0.1, 10), min_size=2, max_size=9)


@given(POOL, st.integers(1, 9))
def test_what_chance_finds_is_the_mean_over_all_choices(seconds, k):
    k = min(k, len(seconds))
    found = [min(chosen) for chosen in combinations(seconds, k)]
    assert expected_first(np.sort(seconds), k) == pytest.approx(np.mean(found))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=12))
def test_kendall_is_that_of_pairs(pairs):
    one, other = (np.array(of, np.float64) for of in zip(*pairs, strict=True))
    first, second = np.triu_indices(len(pairs), 1)
    a, b = np.sign(one[first] - one[second]), np.sign(other[first] - other[second])
    scale = np.sqrt((a != 0).sum() * (b != 0).sum())
    assert metrics.kendall(one, other) == pytest.approx((a * b).sum() / scale if scale else 0.0)


def pools(tasks=12, programs=60, seed=0):
    rng = np.random.default_rng(seed)
    return [np.exp(rng.normal(0, 0.5, programs)) for _ in range(tasks)]


def make_tasks(seconds, networks=3):
    weights = {
        str(n): np.array([1.0 + i if i % networks == n else 0.0 for i in range(len(seconds))]) for n in range(networks)
    }
    return Tasks(weights, np.array([of.min() for of in seconds]), by_chance(seconds))


def rankings(seconds, noise, seeds=3):
    rng = np.random.default_rng(7)
    return score_rankings(
        [[-np.log(of) + noise * rng.normal(size=len(of)) for of in seconds] for _ in range(seeds)], seconds
    )


def test_a_perfect_order_has_every_score_and_chance_the_scores_of_chance():
    seconds = pools()
    tasks, perfect = make_tasks(seconds), rankings(seconds, 0.0)
    for metric in METRICS:
        assert tasks.value(metric, perfect) == pytest.approx(1.0)
        assert tuple(tasks.estimate(metric, perfect)) == pytest.approx((1.0, 1.0, 1.0))
    for k in TOP:
        assert tasks.value(f"normalised{k}", by_chance(seconds)) == pytest.approx(0.0, abs=1e-12)
    many = rankings(seconds, 1e6, seeds=400)  # an order that says nothing
    for metric in METRICS:
        # the mean of ratios is a little more than the ratio of means that chance stands for
        assert tasks.value(metric, many) == pytest.approx(tasks.value(metric, by_chance(seconds)), abs=0.04), metric


def test_top_k_is_the_ratio_of_sums_that_tenset_takes():
    seconds = [np.array([1.0, 2.0, 4.0]), np.array([3.0, 6.0])]
    scores = [np.array([0.0, 2.0, 1.0]), np.array([1.0, 2.0])]  # the second of each is thought the fastest
    found = score_rankings([scores], seconds)
    tasks = Tasks({"net": np.array([2.0, 1.0])}, np.array([1.0, 3.0]), by_chance(seconds))
    assert tasks.value("top1", found) == pytest.approx((2 * 1 + 3) / (2 * 2 + 6))
    assert tasks.value("top5", found) == pytest.approx(1.0)
    chance = (2 * 1 + 3) / (2 * 7 / 3 + 4.5)
    assert tasks.value("normalised1", found) == pytest.approx((0.5 - chance) / (1 - chance))
    assert tasks.value("best1", found) == pytest.approx(0.5)


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    inside = 0
    for trial in range(60):
        rng = np.random.default_rng(trial)
        seconds = pools(24, 40, trial + 1000)
        found = score_rankings([[-np.log(of) + 0.4 * rng.normal(size=len(of)) for of in seconds]], seconds)
        _, low, high = make_tasks(seconds).estimate("pairwise", found)
        inside += low <= TRUE_PAIRWISE <= high
    assert inside >= 50  # of 57 to be expected


TRUE_PAIRWISE = 0.5 + np.arctan2(0.5, 0.4) / np.pi
"""Chance that a normal difference of deviation .5 √2 keeps its sign under noise of deviation .4 √2."""


def test_a_better_model_is_told_from_one_that_is_the_same():
    seconds = pools(30)
    tasks = make_tasks(seconds)
    good, same, poor = rankings(seconds, 0.2), rankings(seconds, 0.2), rankings(seconds, 1.0)
    better = tasks.difference("pairwise", good, poor)
    assert better.low > 0 and better.p < 0.01
    nothing = tasks.difference("pairwise", good, same)
    assert nothing.value == 0 and nothing.p > 0.5
    back = tasks.difference("pairwise", poor, good)
    assert back.value == pytest.approx(-better.value) and back.p == better.p


def test_the_same_seed_draws_the_same_tasks():
    seconds = pools()
    found = rankings(seconds, 0.5)
    assert make_tasks(seconds).estimate("top1", found) == make_tasks(seconds).estimate("top1", found)
