"""Searches on tables: as the tuner searches, the same for a seed, never outside; random search honest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotune.tuner.loop import run_rounds
from autotune.tuner.preparation import prepare_task
from autotune.tuner.search import STRATEGIES
from autotune.tuner.task import Task
from benchmarks.search.play import UNIFORM, Method, WithoutEstimate, _make, play
from benchmarks.search.restrict import legal_rows
from benchmarks.search.uniform import UniformSearch
from costmodel.features import NAMES, SECONDS
from costmodel.models.base import CostModel
from measure.replay import ReplayError, ReplayPool
from tests.autotune.fakes import settings_with
from tests.benchmarks.search import made_up


@pytest.fixture(scope="module")
def table():
    return made_up.table()


@pytest.mark.parametrize("strategy", ["evolution", "annealing"])
def test_a_search_goes_as_the_tuner_goes(table, strategy):
    candidates = table.frame.candidates(table.population)
    keys = [table.space.sketches[c.sketch].trace(c.choices).key for c in candidates]
    pool = ReplayPool(dict(zip(keys, table.seconds.tolist(), strict=True)))
    settings = settings_with(target="vta", trials=96, seed=3, batch=16, strategy=strategy)
    (result,) = run_rounds([prepare_task(Task("tiny", table.workload), settings, space=table.space)], pool)
    expected = np.array([record.seconds for record in sorted(result.records, key=lambda r: r.provenance.order)])
    found = play(table, Method(strategy, "lightgbm"), 3, 96, 16).seconds
    assert len(found) > 16
    np.testing.assert_array_equal(found, expected[: len(found)])


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_every_strategy_stays_inside_and_is_the_same_for_a_seed(table, strategy):
    method = Method(strategy, "" if strategy == "random" else "lightgbm")
    first, again, other = (play(table, method, seed, 48, 16) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.seconds, again.seconds)
    assert len(first.seconds) != len(other.seconds) or (first.seconds != other.seconds).any()


def test_without_the_estimate_the_first_round_does_not_go_by_it(table):
    estimate = np.concatenate(
        [
            table.extractor(sketch.program, sketch.columns, table.hardware).roofline(sketch.expand(rows))
            for sketch, rows in ((sketch, legal_rows(sketch)) for sketch in table.space.sketches)
        ]
    )
    right = made_up.table(seconds=estimate)  # as if the roofline told the truth
    firsts = {
        known: np.mean(
            [play(right, Method("evolution", "lightgbm", knows=known), seed, 8).seconds.mean() for seed in range(6)]
        )
        for known in ("both", "learned")
    }
    assert firsts["both"] < 0.8 * firsts["learned"]
    _, scorer = _make(table, Method("evolution", "lightgbm", knows="learned"), settings_with())
    assert (
        not scorer.model.learner.prior and _make(table, Method("evolution", "lightgbm"), settings_with())[1].model.prior
    )
    assert _make(table, Method("evolution", "random", knows="learned"), settings_with())[1] is not None
    assert Method("evolution", "lightgbm", knows="learned").name == "evolution + lightgbm, no estimate"


def test_features_of_the_estimate_are_hidden_from_a_model_that_knows_what_is_measured_alone(table):
    class Watch(CostModel):
        def fit(self, features, throughput):
            seen.extend(features)

        def predict(self, features):
            seen.append(features)
            return np.zeros(len(features))

    seen: list[np.ndarray] = []
    sketch = table.space.sketches[0]
    features = table.extractor(sketch.program, sketch.columns, table.hardware)(sketch.expand(legal_rows(sketch)[:4]))
    of_estimate = np.array([name.startswith("roofline.") for name in NAMES])
    of_estimate[SECONDS] = True
    model = WithoutEstimate(Watch())
    model.fit([features], np.ones(4))
    model.predict(features)
    for got in seen:
        assert not got[..., of_estimate].any() and features[..., of_estimate].any()
        np.testing.assert_array_equal(got[..., ~of_estimate], features[..., ~of_estimate])


def test_searches_see_one_repeat_and_are_judged_by_the_other(table):
    played = play(replace(table, again=3e-3 - table.seconds), Method("evolution", "lightgbm"), 0, 24)
    seen = play(table, Method("evolution", "lightgbm"), 0, 24)
    assert 4 < len(played.seconds) <= len(seen.seconds)
    np.testing.assert_allclose(played.seconds, 3e-3 - seen.seconds[: len(played.seconds)])


def test_a_search_ends_at_the_best_or_with_its_trials(table):
    whole = play(table, Method(UNIFORM), 0, 10_000)
    assert whole.seconds[-1] == table.best and not (whole.seconds[:-1] <= table.best).any()
    lengths = [len(play(table, Method(UNIFORM), seed, 5).seconds) for seed in range(8)]
    assert max(lengths) == 5


def test_an_ask_outside_ends_the_search(table, monkeypatch):
    monkeypatch.setattr(UniformSearch, "ask", lambda self, n: [type(first)(first.sketch, (99,) * 4)])
    (first,) = table.frame.candidates(table.population.take(np.array([0])))
    with pytest.raises(ReplayError, match="`candidate` must be in the replay table of 168 candidates of tiny"):
        play(table, Method(UNIFORM), 0, 50)


def test_options_reach_strategy_and_model(table):
    with pytest.raises(ValueError, match="`evolution` must have options among .* but got 'populaton'"):
        play(table, Method("evolution", "lightgbm", {"populaton": 3}), 0, 8)
    with pytest.raises(ValueError, match="`lightgbm` must have options among .* but got 'leafs'"):
        play(table, Method("evolution", "lightgbm", {}, {"leafs": 3}), 0, 8)
    with pytest.raises(ValueError, match="`uniform` must have no options, but got x"):
        play(table, Method(UNIFORM, "", {"x": 1}), 0, 8)


def test_uniform_search_asks_each_legal_candidate_once(table):
    search = UniformSearch(table.space, None, np.random.default_rng(0))
    known = table.frame.candidates(table.population)
    search.tell(known[:10], np.zeros(10))
    asked = []
    while batch := search.ask(33):
        asked += batch
    assert len(asked) == len(set(asked)) == len(known) - 10 and set(asked) == set(known[10:])
    with pytest.raises(ValueError, match="`n` must be at least 1, but got n=0"):
        search.ask(0)


def test_uniform_search_is_uniform_over_candidates_and_not_over_sketches(table):
    first = [UniformSearch(table.space, None, np.random.default_rng(seed)).ask(1)[0] for seed in range(700)]
    keys = table.frame.keys(table.frame.population(first))
    counts = np.unique(keys, return_counts=True)[1]
    expected = len(first) / len(table.seconds)
    chi_square = ((counts - expected) ** 2).sum() / expected + expected * (len(table.seconds) - len(counts))
    assert chi_square < 167 + 4 * np.sqrt(2 * 167)
