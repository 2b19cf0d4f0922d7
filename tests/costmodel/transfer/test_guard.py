"""The guard: who is kept, who is dropped and when, and how much of a round the source chooses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.transfer.guard import FIRST_SHARE, LITTLE_SHARES, MOST_SHARE, Guard


def run(source: float, local: float, rounds: int = 6, seed: int = 0, count: int = 16) -> Guard:
    """Rounds whose halves are chosen by two models that know the truth to some degree, from -1 to 1."""
    rng, guard = np.random.default_rng(seed), Guard()
    for _ in range(rounds):
        pool = rng.standard_normal(20 * count)  # speeds, on a logarithmic scale
        scores = [skill * pool + np.sqrt(1 - skill**2) * rng.standard_normal(len(pool)) for skill in (source, local)]
        first = np.argsort(-scores[0])[: round(count * guard.share)]
        second = np.setdiff1d(np.argsort(-scores[1])[:count], first)[: count - len(first)]
        chosen = np.concatenate([first, second])
        seconds = np.exp(-pool[chosen])
        guard.observe(scores[0][chosen], scores[1][chosen], seconds, np.arange(len(chosen)) < len(first))
    return guard


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32))
def test_a_reversed_source_is_dropped_after_a_round(seed: int) -> None:
    guard = run(-1.0, 0.5, seed=seed)
    assert guard.dropped_at == 16 and guard.share == 0.0
    assert len(guard.rounds) == 1 and guard.rounds[0].source_accuracy == 0.0


def test_a_source_that_knows_more_is_kept_and_chooses_most_of_a_round() -> None:
    guards = [run(0.9, 0.3, seed=seed) for seed in range(40)]
    assert sum(guard.dropped for guard in guards) <= 1
    assert np.mean([guard.share == MOST_SHARE for guard in guards]) > 0.8


def test_a_source_that_knows_less_is_dropped() -> None:
    guards = [run(0.0, 0.7, seed=seed) for seed in range(40)]
    assert np.mean([guard.dropped for guard in guards]) > 0.9
    assert np.median([guard.dropped_at for guard in guards if guard.dropped_at]) <= 32


def test_the_share_follows_the_evidence() -> None:
    guard = Guard(drop=-4.0, trust=4.0)
    assert guard.share == FIRST_SHARE
    seconds, half = np.linspace(1, 2, 8), np.arange(8) % 2 == 0
    guard.observe(-seconds, seconds, seconds, half)
    better = guard.share
    assert FIRST_SHARE < better < MOST_SHARE
    guard.observe(seconds, -seconds, seconds, half)
    assert 0.0 < guard.share < better and not guard.dropped


def test_failures_are_slower_than_all_and_rounds_that_say_nothing_change_nothing() -> None:
    guard = Guard()
    guard.observe(np.array([2.0, 1.0, 0.0]), np.zeros(3), np.array([1.0, 2.0, np.nan]), np.array([True, False, False]))
    assert guard.rounds[-1].source_accuracy == 1.0 and guard.rounds[-1].wins == 1.0
    before = guard.rounds[-1].evidence
    guard.observe(np.arange(3.0), np.zeros(3), np.full(3, np.nan), np.zeros(3, np.bool_))
    assert np.isnan(guard.rounds[-1].source_accuracy) and guard.rounds[-1].evidence == before
    guard.observe(np.arange(1.0), np.zeros(1), np.ones(1), np.zeros(1, np.bool_))
    assert guard.rounds[-1].evidence == before and guard.rounds[-1].trials == 7


def test_limits_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="`drop` must be below 0, `trust` above it, `memory` in"):
        Guard(drop=0.5)
    with pytest.raises(ValueError, match="got drop=-1.64, trust=1.0, memory=0"):
        Guard(memory=0)
    with pytest.raises(ValueError, match="`first` at most `most` in .0, 1., but got .*first=0.75, most=0.5"):
        Guard(most=0.5)


def test_beside_a_pretrained_model_a_source_chooses_little_before_there_is_evidence_and_never_most() -> None:
    guard = Guard(first=LITTLE_SHARES[0], most=LITTLE_SHARES[1])
    assert guard.share == 0.25
    seconds, half = 1.0 + np.arange(16.0), np.arange(16) < 8
    for _ in range(4):
        guard.observe(-seconds, np.zeros(16), seconds, half)
    assert guard.trusting and guard.share == 0.5
