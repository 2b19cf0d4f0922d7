"""The contract of search strategies: those of the registry, that of the page on adding one, and one of your own.

AUTOTUNE_SEARCH_STRATEGY=mine.py:Mine adds a strategy to them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

from autotune.tuner.search import STRATEGIES, Candidate, NoLegalSchedule, get
from tests.autotune import fakes

PAGE = Path(__file__).parents[2] / "docs" / "adding_a_search_strategy.md"
OF_PAGE = "Climb of its page"
OWN = [name for name in (os.environ.get("AUTOTUNE_SEARCH_STRATEGY"),) if name]


@pytest.fixture(params=[*sorted(STRATEGIES), OF_PAGE, *OWN])
def make(request, tmp_path):
    """Maker of the strategy on a space."""
    name = request.param
    if name == OF_PAGE:
        (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
        (tmp_path / "page.py").write_text(code)
        name = f"{tmp_path / 'page.py'}:Climb"
    kind = get(name)

    def strategy(space, seed=0, scorer=None, **options):
        rng = np.random.default_rng(seed)
        return kind(space, scorer or fakes.oracle(space), rng, **options)

    return strategy


def tell(strategy, space, candidates):
    strategy.tell(candidates, np.array([space.seconds(c.sketch, c.choices) for c in candidates]))


def run(strategy, space, rounds=3, n=16):
    asked = []
    for _ in range(rounds):
        batch = strategy.ask(n)
        tell(strategy, space, batch)
        asked += batch
    return asked


def test_candidates_are_legal_and_never_asked_twice(make):
    space = fakes.space(limit=60)
    asked = run(make(space), space, rounds=4)
    assert len(asked) == len(set(asked)) == 64
    for candidate in asked:
        sketch = space.sketches[candidate.sketch]
        assert isinstance(candidate, Candidate) and len(candidate.choices) == len(sketch.lengths)
        assert all(0 <= c < length for c, length in zip(candidate.choices, sketch.lengths, strict=True))
        assert sketch.legal(np.array([candidate.choices], np.int32).reshape(1, -1))[0]


def test_the_same_seed_asks_the_same(make):
    space = fakes.space()
    first, second, other = (run(make(space, seed), space) for seed in (3, 3, 4))
    assert first == second != other


def test_every_candidate_of_a_small_space_is_asked_and_then_there_are_none(make):
    space = fakes.small()
    strategy = make(space)
    asked = []
    while batch := strategy.ask(5):
        tell(strategy, space, batch)
        asked += batch
    assert len(asked) == len(set(asked)) == 13
    assert strategy.ask(1) == []


def test_a_small_space_ends_with_nothing_told_too(make):
    assert len(make(fakes.small()).ask(100)) == 13


def test_asking_with_results_outstanding(make):
    strategy = make(fakes.space())
    asked = [candidate for _ in range(3) for candidate in strategy.ask(8)]
    assert len(set(asked)) == 24


def test_telling_any_part_in_any_order_with_failures(make):
    space = fakes.space()
    strategy = make(space)
    first, second = strategy.ask(12), strategy.ask(12)
    tell(strategy, space, second[7:2:-1])
    third = strategy.ask(12)
    strategy.tell(first, np.full(12, np.nan))
    strategy.tell([], np.empty(0))
    fourth = strategy.ask(12)
    assert len({*first, *second, *third, *fourth}) == 48


def test_failures_alone_do_not_end_the_search(make):
    strategy = make(fakes.space())
    for _ in range(3):
        batch = strategy.ask(8)
        assert len(batch) == 8
        strategy.tell(batch, np.full(8, np.nan))


def test_what_is_told_without_being_asked_is_not_asked(make):
    space = fakes.small()
    known = [Candidate(1, ()), Candidate(0, (2, 1))]
    strategy = make(space)
    tell(strategy, space, known)
    asked = strategy.ask(100)
    assert len(asked) == 11 and not set(known) & set(asked)


def test_a_space_too_large_to_be_numbered(make):
    space = fakes.FakeSpace((fakes.FakeSketch("huge", (1000,) * 12, (500,) * 12),))
    asked = run(make(space), space, rounds=2)
    assert len(set(asked)) == 32


def test_no_legal_candidate_says_which_limit_failed_for_how_many(make):
    strategy = make(fakes.barren())
    with pytest.raises(NoLegalSchedule, match=r"fake\(name=fake\): registers failed for \d+") as caught:
        strategy.ask(4)
    assert caught.value.violations["registers"] == caught.value.candidate_count >= 12


def test_a_space_of_no_sketches(make):
    with pytest.raises(NoLegalSchedule, match="there is no sketch"):
        make(fakes.FakeSpace(())).ask(1)


def test_wrong_use(make):
    strategy = make(fakes.space())
    with pytest.raises(ValueError, match="`n` must be at least 1, but got n=0"):
        strategy.ask(0)
    with pytest.raises(ValueError, match=r"`seconds` must have one entry a candidate, but got shape=\(2,\)"):
        strategy.tell([Candidate(2, ())], np.zeros(2))
    with pytest.raises(ValueError, match="but got 'poplation'"):
        make(fakes.space(), poplation=3)
