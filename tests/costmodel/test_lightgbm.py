"""The boosted trees: they learn a sum over statements, and are applied exactly as LightGBM applies them."""

from __future__ import annotations

from pathlib import Path

import lightgbm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel import metrics
from costmodel.models.forest import MAX_LEAVES, Forest
from costmodel.models.learner import Programs
from costmodel.models.lightgbm_model import LightGBMModel, SumLoss
from tests.costmodel.data import population


def train(
    seed: int, leaves: int = 31, rows: int = 600, trees: int = 12
) -> tuple[lightgbm.Booster, np.random.Generator]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 9)).astype(np.float32)
    x[:, ::2] = np.round(x[:, ::2] * 3)
    y = x[:, 0] * x[:, 1] + np.sin(x[:, 5]) + (x[:, 2] > 1)
    options = {
        "num_leaves": leaves,
        "verbose": -1,
        "num_threads": 1,
        "use_missing": False,
        "min_data_in_leaf": 2,
    }
    return lightgbm.train(options, lightgbm.Dataset(x, y), trees), rng


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([2, 7, 32]), st.integers(1, 200))
def test_the_compiled_forest_predicts_what_lightgbm_does(seed: int, leaves: int, count: int) -> None:
    booster, rng = train(seed, leaves)
    forest = Forest.from_lightgbm(booster.model_to_string())
    rows = rng.normal(size=(count, 9)).astype(np.float32)
    rows[:, ::2] = np.round(rows[:, ::2] * 3)
    expected = booster.predict(rows)
    for layout in (
        rows.T,
        np.ascontiguousarray(rows.T),
        np.asfortranarray(np.repeat(rows, 2, axis=0)[::2].T),
    ):
        np.testing.assert_array_equal(forest.predict(layout), expected)


def test_values_that_are_thresholds_go_the_same_way() -> None:
    booster, _ = train(3)
    forest = Forest.from_lightgbm(booster.model_to_string())
    edges = np.unique(forest.thresholds)
    near = np.concatenate([edges, np.nextafter(edges, np.float32(-np.inf)), np.nextafter(edges, np.float32(np.inf))])
    rows = np.repeat(near[:, None], 9, axis=1)
    np.testing.assert_array_equal(forest.predict(rows.T), booster.predict(rows))


def test_trees_without_a_split() -> None:
    booster = lightgbm.train({"verbose": -1}, lightgbm.Dataset(np.zeros((30, 2)), np.ones(30)), 3)
    rows = np.zeros((2, 5), np.float32)
    np.testing.assert_array_equal(
        Forest.from_lightgbm(booster.model_to_string()).predict(rows), booster.predict(rows.T)
    )


def test_a_tree_it_has_no_code_for_is_refused() -> None:
    booster, _ = train(0, leaves=MAX_LEAVES + 8)
    with pytest.raises(ValueError, match=f"at most {MAX_LEAVES} leaves"):
        Forest.from_lightgbm(booster.model_to_string())


@pytest.mark.parametrize("roofline", [True, False])
def test_learns_a_ranking(roofline: bool) -> None:
    features, throughput = population(400, roofline=roofline)
    new, truth = population(300, seed=1, roofline=roofline)
    model = LightGBMModel()
    model.fit(list(features), throughput)
    assert metrics.spearman(model.predict(new), truth) > 0.8


def test_the_prior_makes_few_measurements_enough() -> None:
    features, throughput = population(12)
    new, truth = population(300, seed=1)
    found = {}
    for prior in (True, False):
        model = LightGBMModel(prior=prior)
        model.fit(list(features), throughput)
        found[prior] = metrics.spearman(model.predict(new), truth)
    assert found[True] > 0.8 > found[False]


def test_the_loss_is_on_the_sum_of_a_programs_statements() -> None:
    counts, target, weight = np.array([2, 1, 3]), np.array([0.5, 1.0, 0.0]), np.array([1.0, 2.0, 0.1])
    loss = SumLoss(counts, target, weight)

    def value(scores: np.ndarray) -> float:
        sums = np.array([scores[:2].sum(), scores[2:3].sum(), scores[3:].sum()])
        return float((weight * (sums - target) ** 2).sum() / 2)

    scores = np.random.default_rng(0).normal(size=6)
    gradient, curvature = loss(scores)
    steps = np.eye(6) * 1e-6
    numeric = [(value(scores + s) - value(scores - s)) / 2e-6 for s in steps]
    np.testing.assert_allclose(gradient, numeric, atol=1e-6)
    np.testing.assert_allclose(curvature, [2, 2, 2, 0.3, 0.3, 0.3])


def test_programs_of_different_length_learn_together() -> None:
    two, fast = population(150, statements=2)
    three, slow = population(150, seed=5, statements=3)
    model = LightGBMModel()
    model.fit([*two, *three], np.concatenate([fast, slow]))
    assert metrics.spearman(model.predict(two), fast) > 0.8
    assert metrics.spearman(model.predict(three), slow) > 0.8


def test_failures_rank_last() -> None:
    features, throughput = population(200)
    throughput = np.where(features[:, 0, 20] > 6, 0.0, throughput)
    model = LightGBMModel()
    model.fit(list(features), throughput)
    scores = model.predict(features)
    assert scores[throughput == 0].mean() < scores[throughput > 0].mean()


def test_only_so_many_programs_are_learned_from() -> None:
    features, throughput = population(90)
    seen = []

    class WatchedModel(LightGBMModel):
        def train(self, programs: Programs) -> None:
            seen.append(programs.throughput)
            super().train(programs)

    model = WatchedModel(programs=30)
    model.fit(list(features), throughput)
    place = {value: i for i, value in enumerate(throughput.tolist())}
    assert len(place) == 90
    chosen = [place[value] for value in seen[0].tolist()]
    assert len(chosen) == 30 and (np.diff(chosen) > 0).all()
    assert set(np.argsort(-throughput)[:15]) <= set(chosen)
    assert np.isfinite(model.predict(features)).all()


def test_a_saved_model_is_lightgbms_own_text(tmp_path: Path) -> None:
    features, throughput = population(60)
    model = LightGBMModel(prior=False)
    model.fit(list(features), throughput)
    model.save(tmp_path / "model.txt")
    booster = lightgbm.Booster(model_file=str(tmp_path / "model.txt"))
    rows = booster.predict(features.reshape(-1, features.shape[2]))
    np.testing.assert_allclose(model.predict(features), np.asarray(rows).reshape(60, -1).sum(axis=1), rtol=1e-12)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="`leaves` must be from 2 to 32, but got leaves=64"):
        LightGBMModel(leaves=64)
    features, throughput = population(10)
    with pytest.raises(ValueError, match="one entry a program, but got programs=10, throughput=9"):
        LightGBMModel().fit(list(features), throughput[:9])
