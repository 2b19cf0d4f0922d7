"""Candidates and ranges of sizes, held to the best of all that there are."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from autotune.tuner.size_ranges import Matrix, choose_candidates, choose_ranges

COSTS = st.integers(0, 20).map(lambda n: n / 16 if n < 18 else np.inf)  # sums of sixteenths have no rounding error


def matrices(*least: int, most: int = 5) -> st.SearchStrategy[Matrix]:
    shapes = st.tuples(*(st.integers(low, most) for low in least))
    return shapes.flatmap(lambda shape: arrays(np.float64, shape, elements=COSTS))


def total_cost(costs: Matrix, prices: Matrix, rows: tuple[int, ...] | list[int]) -> float:
    return float(costs[list(rows)].min(0, initial=np.inf).sum() + prices[list(rows)].sum())


@given(matrices(1, 1), st.lists(st.integers(0, 8), min_size=5, max_size=5), st.integers(1, 5))
def test_no_candidate_more_or_less_or_other_would_cost_less(costs: Matrix, sixteenths: list[int], limit: int) -> None:
    prices = np.array(sixteenths[: len(costs)]) / 16
    rows = choose_candidates(costs, prices, limit)
    assert len(rows) == len(set(rows)) <= limit
    cost, count = total_cost(costs, prices, rows), len(costs)
    every = [each for size in range(1, min(limit, count) + 1) for each in combinations(range(count), size)]
    near = [each for each in every if len({*rows} - {*each}) <= 1 and len({*each} - {*rows}) <= 1]
    if np.isfinite(cost):
        assert cost <= min(total_cost(costs, prices, each) for each in near)
    if limit == 1 or count <= 2:  # all sets are near each other
        assert cost == min(total_cost(costs, prices, each) for each in every)
    if limit >= count and np.isfinite(costs).any(0).all():
        assert np.isfinite(cost)


def test_chosen_candidates_are_mostly_the_best_there_are() -> None:
    rng, best = np.random.default_rng(0), 0
    for _ in range(100):
        tiles, sizes = rng.integers(1, 33, 8)[:, None], np.arange(1, 64, 7)
        costs = (-(-sizes // tiles) * tiles / sizes - 1) * rng.uniform(0.9, 1.1, (8, len(sizes)))
        prices = np.full(8, 0.05)
        every = [each for size in (1, 2, 3) for each in combinations(range(8), size)]
        found = total_cost(costs, prices, choose_candidates(costs, prices, 3))
        best += found <= min(total_cost(costs, prices, each) for each in every) + 1e-9
    assert best >= 95


def test_a_candidate_that_others_make_superfluous_is_dropped() -> None:
    costs = np.array([[1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 9.0, 9.0], [9.0, 9.0, 0.0, 0.0]])
    assert sorted(choose_candidates(costs, np.full(3, 0.5))) == [1, 2]
    assert choose_candidates(costs, np.full(3, 0.5), 1) == [0]
    assert choose_candidates(costs, np.array([0.5, 3.0, 3.0])) == [0]


def divisions(count: int) -> list[list[int]]:
    """All ways to divide points into ranges, by the ends of these."""
    return [[*ends, count] for size in range(count) for ends in combinations(range(1, count), size)]


def least_costs(costs: Matrix) -> Matrix:
    """The least cost of each number of ranges, by trying all of them."""
    least = np.full(costs.shape[2], np.inf)
    for ends in divisions(costs.shape[2]):
        cost = sum(costs[:, :, a:b].sum(2).min(1).sum() for a, b in pairwise([0, *ends]))
        least[len(ends) - 1] = min(least[len(ends) - 1], cost)
    return least


@given(matrices(1, 1, 1), st.integers(0, 8), st.one_of(st.none(), st.integers(1, 6)))
def test_no_other_ranges_cost_less(costs: Matrix, sixteenths: int, limit: int | None) -> None:
    kernels, _, count = costs.shape
    least, price = least_costs(costs)[:limit], sixteenths / 16
    if np.isinf(least.min()):
        with pytest.raises(ValueError, match="candidates must hold in at most `limit` ranges, but got limit="):
            choose_ranges(costs, price, limit)
        return
    ranges = choose_ranges(costs, price, limit)
    assert [begin for begin, _, _ in ranges] == [0, *(end for _, end, _ in ranges[:-1])] and ranges[-1][1] == count
    cost = sum(costs[np.arange(kernels), best, begin:end].sum() for begin, end, best in ranges)
    assert cost == least[len(ranges) - 1]
    if price or limit is not None:  # with any other number of ranges there are more that save nothing
        worth = least + price * np.arange(len(least))
        assert len(ranges) == np.argmax(worth <= worth[-1]) + 1
    else:
        assert cost == least.min()
        assert all((a[2] != b[2]).any() for a, b in pairwise(ranges))
