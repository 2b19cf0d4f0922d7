"""The end of repeating, and the figures computed from the samples."""

from __future__ import annotations

import math

import numpy as np
import pytest

from measure.timing import TimingPolicy, measure, rotation_copies


class Clock:
    """A timer over a made-up series of seconds; counts what it was asked for."""

    def __init__(self, series):
        self.series, self.count = series, 0

    def __call__(self, iterations):
        samples = [self.series(self.count + place) for place in range(iterations)]
        self.count += iterations
        return np.array(samples)


def noisy(scale, rng):
    return lambda _: scale * (1 + 0.1 * rng.random())


def test_a_slow_kernel_gets_the_minimum():
    clock = Clock(lambda _: 0.5)
    timing = measure(clock, TimingPolicy())
    assert clock.count == 3 and timing.seconds == 0.5 and timing.spread == 0 and not timing.cut


def test_a_fast_noisy_kernel_uses_the_budget_and_little_more():
    clock = Clock(noisy(1e-3, np.random.default_rng(0)))
    measure(clock, TimingPolicy(budget_seconds=0.015))
    assert 13 <= clock.count <= 18


def test_a_steady_kernel_stops_early():
    clock = Clock(lambda _: 1e-5)
    measure(clock, TimingPolicy(budget_seconds=0.015))
    assert 10 <= clock.count < 1000


def test_the_number_of_samples_is_bounded_even_for_a_kernel_of_no_time():
    clock = Clock(noisy(1e-9, np.random.default_rng(0)))
    timing = measure(clock, TimingPolicy(max_samples=500))
    assert clock.count == 500 and len(timing.latencies) <= 32


def test_a_clear_loser_is_cut_after_one_sample():
    clock = Clock(lambda _: 4e-3)
    timing = measure(clock, TimingPolicy(), best_seconds=1e-3, checked_seconds=4e-3)
    assert clock.count == 1 and timing.cut and timing.latencies == (4e-3,) and timing.seconds == 4e-3


def test_slow_first_calls_of_a_fast_kernel_neither_cut_it_nor_make_it_a_loser():
    """The first calls wake a sleeping thread and fill caches, as measured in a virtual machine."""
    first = [44e-6, 256e-6, 50e-6, 60e-6, 45e-6]
    clock = Clock(lambda place: first[place] if place < len(first) else 13e-6)
    timing = measure(clock, TimingPolicy(), best_seconds=14e-6, checked_seconds=90e-6)
    assert not timing.cut and timing.seconds == 13e-6


def test_first_calls_that_are_equally_slow_do_not_end_the_timing():
    clock = Clock(lambda place: 50e-6 if place < 12 else 13e-6)
    timing = measure(clock, TimingPolicy())
    assert timing.seconds == 13e-6


def test_a_small_loser_is_cut_after_a_millisecond():
    clock = Clock(lambda _: 50e-6)
    timing = measure(clock, TimingPolicy(), best_seconds=13e-6, checked_seconds=90e-6)
    assert clock.count == 20 and timing.cut and timing.seconds == 50e-6


def test_the_first_samples_take_no_more_than_the_budget_and_the_most_samples():
    clock = Clock(lambda _: 1e-6)
    measure(clock, TimingPolicy(budget_seconds=0.0))
    assert clock.count == 3
    clock = Clock(lambda _: 1e-9)
    measure(clock, TimingPolicy(max_samples=50), best_seconds=1e-12)
    assert clock.count == 50


def test_a_loser_gets_a_few_samples():
    clock = Clock(lambda _: 1.3e-3)
    timing = measure(clock, TimingPolicy(), best_seconds=1e-3, checked_seconds=1.3e-3)
    assert clock.count == 5 and not timing.cut and timing.seconds == 1.3e-3


def test_one_good_sample_makes_no_loser():
    clock = Clock(lambda place: 1e-3 if place == 2 else 1.3e-3)
    measure(clock, TimingPolicy(), best_seconds=1e-3, checked_seconds=1.3e-3)
    assert clock.count > 5


def test_one_interrupt_does_not_cut_a_good_candidate():
    clock = Clock(lambda place: 4e-3 if place == 0 else 9e-4)
    timing = measure(clock, TimingPolicy(), best_seconds=1e-3, checked_seconds=1e-3)
    assert not timing.cut and timing.seconds == 9e-4


def test_a_near_loser_is_measured_in_full():
    assert measure(Clock(lambda _: 2.9e-3), TimingPolicy(), best_seconds=1e-3).latencies[1:]


def test_the_figure_is_the_median_and_ignores_a_spike():
    clock = Clock(lambda place: 1.0 if place == 1 else 1e-3)
    timing = measure(clock, TimingPolicy(min_samples=9, budget_seconds=0))
    assert timing.seconds == 1e-3 and timing.spread == 0


def test_many_samples_are_reported_as_medians_of_groups():
    clock = Clock(lambda place: 1e-3 + 1e-6 * place)
    timing = measure(clock, TimingPolicy(min_samples=100, budget_seconds=0, keep=10))
    assert len(timing.latencies) == 10
    assert timing.latencies[0] == pytest.approx(1e-3 + 4.5e-6)
    assert timing.seconds == pytest.approx(np.median(timing.latencies))
    low, high = np.quantile(timing.latencies, (0.25, 0.75))
    assert timing.spread == pytest.approx((high - low) / timing.seconds)


@pytest.mark.parametrize(
    ("constant", "cache", "limit", "copies"),
    [
        (0, 1 << 20, 1 << 26, 1),
        (1 << 18, 1 << 20, 1 << 26, 6),
        (1 << 20, 1 << 30, 1 << 26, 64),
        (1 << 28, 1 << 20, 1 << 26, 1),
        (12, 32 << 20, 64 << 20, 16384),
    ],
)
def test_rotated_copies_overflow_the_cache_within_the_limit(constant, cache, limit, copies):
    assert rotation_copies(constant, cache, limit) == copies


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"min_samples": 0}, "`min_samples` must be at least 1, but got min_samples=0"),
        ({"max_samples": 2}, "`max_samples` must be at least min_samples=3, but got max_samples=2"),
        ({"budget_seconds": -1.0}, "`budget_seconds` must not be negative"),
        ({"budget_seconds": math.nan}, "`budget_seconds` must not be negative"),
        ({"settle_seconds": -1e-3}, "`settle_seconds` must not be negative"),
        ({"cut_ratio": 1.0}, "`cut_ratio` must be over 1"),
    ],
)
def test_an_impossible_policy_is_refused(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        TimingPolicy(**options)
