"""Behaviour of single strategies beyond their contract."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from autotune.tuner.search import STRATEGIES, Candidate, get
from autotune.tuner.search.base import make_options
from autotune.tuner.search.evolution import EvolutionOptions
from autotune.tuner.search.population import Frame, SeenCandidates
from autotune.tuner.search.sampling import LegalSampler
from search_space.schedule.errors import ScheduleError
from tests.autotune import fakes


def search(name, space, rounds, seed=0, **options):
    strategy = get(name)(space, fakes.oracle(space), np.random.default_rng(seed), **options)
    found = []
    for _ in range(rounds):
        batch = strategy.ask(16)
        seconds = np.array([space.seconds(c.sketch, c.choices) for c in batch])
        strategy.tell(batch, seconds)
        found.append(seconds)
    return np.array(found)


@pytest.mark.parametrize("name", ["annealing", "beam", "evolution"])
def test_guided_search_comes_close_to_the_best_and_random_does_not(name):
    space = fakes.space()
    best = space.seconds(0, space.sketches[0].best)
    assert search(name, space, 4).min() < 1.06 * best
    assert search("random", space, 4).min() > 1.06 * best
    later = search(name, space, 4)[1:]
    assert np.median(later) < 1.3 * best


def test_random_search_does_not_ask_the_scorer():
    space = fakes.space()
    asked = get("random")(space, None, np.random.default_rng(0)).ask(40)
    assert np.bincount([c.sketch for c in asked], minlength=3)[:2].min() >= 15


def test_every_sketch_is_tried_early_the_smallest_first():
    space = fakes.FakeSpace(
        (
            *(fakes.FakeSketch(f"s{i}", (30 + i, 20, 10), (i, i, i), base=1e-3 * (1 + i)) for i in range(5)),
            fakes.FakeSketch("call", (), (), base=1.0),
        )
    )
    strategy = get("evolution")(space, fakes.oracle(space), np.random.default_rng(0))
    first = strategy.ask(16)
    assert Candidate(5, ()) in first
    strategy.tell(first, np.array([space.seconds(c.sketch, c.choices) for c in first]))
    tried = {c.sketch for c in first} | {c.sketch for _ in range(3) for c in strategy.ask(16)}
    assert tried == set(range(6))


def test_later_rounds_go_to_the_sketch_that_measured_well():
    space = fakes.space()
    strategy = get("evolution")(space, lambda s, c: np.zeros(len(c)), np.random.default_rng(0))
    for _ in range(3):
        batch = strategy.ask(32)
        strategy.tell(batch, np.array([space.seconds(c.sketch, c.choices) for c in batch]))
    assert np.mean([c.sketch == 0 for c in batch]) > 0.5


def test_options_are_checked():
    assert make_options(EvolutionOptions, {"population": 10, "epsilon": 0}, "evolution").population == 10
    with pytest.raises(ValueError, match="`evolution` must have options among .*; did you mean 'population'"):
        make_options(EvolutionOptions, {"popluation": 10}, "evolution")
    with pytest.raises(ValueError, match="`population` of evolution must be .* int, but got population=1.5"):
        make_options(EvolutionOptions, {"population": 1.5}, "evolution")
    with pytest.raises(ValueError, match="`strategy` must be one of .*; did you mean 'evolution'"):
        get("evolutoin")


@pytest.mark.parametrize(
    ("name", "option", "value", "rule"),
    [
        ("evolution", "epsilon", -1.0, "from 0 to 1"),  # more candidates would be given than asked for
        ("evolution", "epsilon", float("nan"), "from 0 to 1"),
        ("evolution", "population", 0, "at least 1"),
        ("annealing", "chains", 0, "at least 1"),
        ("beam", "branches", 0, "at least 1"),
        ("beam", "first_sample", 0, "at least 1"),
        ("bandit", "window", 0, "at least 1"),
        ("tpe", "screen", -3, "at least 1"),
        ("nsga2", "population_size", 1, "at least 2"),
        ("cmaes", "popsize", 1, "0 or at least 2"),
    ],
)
def test_options_out_of_bounds_are_refused_before_anything_is_measured(name, option, value, rule):
    with pytest.raises(ValueError, match=f"^`{option}` of {name} must be {rule}, but got {option}={value}$"):
        make_options(get(name).Options, {option: value}, name)


@pytest.mark.parametrize("name", STRATEGIES)
def test_options_by_default_are_within_their_bounds(name):
    kind = get(name).Options
    make_options(kind, {item.name: item.default for item in fields(kind)}, name)


def sampler(space):
    frame = Frame(space)
    return LegalSampler(frame, SeenCandidates(), np.random.default_rng(0))


def test_sampling_filters_a_large_sketch_and_leaves_out_the_seen():
    draw = sampler(fakes.space(limit=25))
    first = draw.draw(0, 200)
    assert len(first) == 200 and draw.frame.legal(first).all()
    draw.seen_candidates.add(draw.frame.keys(first))
    second = draw.draw(0, 200)
    keys = np.concatenate([draw.frame.keys(first), draw.frame.keys(second)])
    assert len(np.unique(keys)) == 400


def test_a_large_sketch_with_few_legal_candidates_gives_all_and_ends():
    space = fakes.FakeSpace((fakes.FakeSketch("large", (30, 30, 30, 30), (0,) * 4, limit=1),))
    draw = sampler(space)
    found = draw.draw(0, 100)
    assert 1 <= len(found) <= 5
    draw.seen_candidates.add(draw.frame.keys(found))


class Unlowerable(fakes.FakeSketch):
    """A sketch whose program cannot be made."""

    def legal(self, choices):
        raise ScheduleError("`factor` must divide extent, but got factor=3, extent=8")


def test_a_sketch_that_cannot_be_lowered_is_left_out():
    space = fakes.FakeSpace((Unlowerable("broken", (3, 3), (0, 0)), fakes.FakeSketch("tiny", (4, 3), (1, 1))))
    asked = get("evolution")(space, fakes.oracle(space), np.random.default_rng(0)).ask(50)
    assert {c.sketch for c in asked} == {1} and len(asked) == 12
