"""Models on whole programs: they predict what scikit-learn does with the same, and their features are what they say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.features import NAMES, SECONDS
from costmodel.features.program import PROGRAM_NAMES, SUMMED_FEATURES, program_features, program_rows
from costmodel.models import registry
from costmodel.models.gaussian_process import GaussianProcessModel
from costmodel.models.learner import faster_half, spread
from costmodel.models.mlp import MLPModel
from costmodel.models.program_model import CLIP
from costmodel.models.random_forest import RandomForestModel
from costmodel.models.ridge import RidgeModel
from tests.costmodel.data import population


def column(features, name):
    return program_features(features)[PROGRAM_NAMES.index(name)]


def test_features_of_a_program_by_hand():
    features, _ = population(20, statements=3)
    share = features[:, :, NAMES.index("roofline.share")]
    some = features[:, :, NAMES.index("buffer1.bytes")]
    np.testing.assert_allclose(column(features, "statements"), 2.0)
    np.testing.assert_allclose(column(features, "greatest.buffer1.bytes"), some.max(axis=1))
    np.testing.assert_allclose(column(features, "mean.buffer1.bytes"), (some * share).sum(1) / share.sum(1), rtol=1e-5)
    total = np.log2(1 + (np.exp2(some.astype(np.float64)) - 1).sum(axis=1))
    np.testing.assert_allclose(column(features, "total.buffer1.bytes"), total, rtol=1e-6)
    kinds = [i for i, name in enumerate(NAMES) if name.startswith("operations.")]
    operations = np.log2(1 + (np.exp2(features[:, :, kinds].astype(np.float64)) - 1).sum(axis=(1, 2)))
    np.testing.assert_allclose(column(features, "total.operations"), operations, rtol=1e-6)
    relative = column(features, "relative.program.nanoseconds")
    np.testing.assert_allclose(relative, features[:, 0, SECONDS] - operations, rtol=1e-4, atol=1e-5)
    assert len(set(PROGRAM_NAMES)) == len(PROGRAM_NAMES) and set(SUMMED_FEATURES) <= set(NAMES)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=12), st.integers(0, 99))
def test_programs_of_any_lengths_have_the_features_that_each_has_alone(lengths, seed):
    programs = [population(1, seed=seed + i, statements=n)[0][0] for i, n in enumerate(lengths)]
    rows = program_rows(programs)
    assert rows.dtype == np.float32 and np.isfinite(rows).all()
    for row, program in zip(rows, programs, strict=True):
        np.testing.assert_array_equal(row, program_features(program[None])[:, 0])


def test_huge_programs_have_finite_features():
    features = np.full((3, 2, len(NAMES)), 60.0, np.float32)
    assert np.isfinite(program_features(features)).all()
    assert np.isfinite(program_features(np.zeros_like(features))).all()


def standardise(features):
    rows = program_rows(features).astype(np.float64)
    kept = rows.std(axis=0) > 1e-6
    return ((rows - rows.mean(axis=0)) / np.maximum(rows.std(axis=0), 1e-6))[:, kept]


def fit_population(model, count=150):
    features, throughput = population(count)
    model.fit(list(features), throughput)
    return features, throughput


def test_the_forest_predicts_what_scikit_learn_does():
    from sklearn.ensemble import RandomForestRegressor

    model = RandomForestModel(seed=5, trees=7, prior=False)
    features, throughput = fit_population(model)
    rows = standardise(features)
    options = {"min_samples_leaf": 2, "max_features": 0.2, "max_samples": 150, "random_state": 5}
    forest = RandomForestRegressor(7, **options).fit(rows, throughput, 0.1 + throughput)
    np.testing.assert_allclose(model.predict(features), forest.predict(rows), rtol=1e-12)
    by_tree = np.stack([tree.predict(rows) for tree in forest.estimators_])
    np.testing.assert_allclose(model.predict_with_deviation(features)[1], by_tree.std(axis=0), atol=1e-12)


def test_the_process_predicts_what_scikit_learn_does():
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    model = GaussianProcessModel(prior=False)
    features, throughput = fit_population(model)
    points = np.clip(standardise(features), -CLIP, CLIP).astype(np.float32).astype(np.float64)
    at = model.state
    kernel = ConstantKernel(at["variance"]) * RBF(at["length"])
    middle = throughput.mean()
    process = GaussianProcessRegressor(kernel, alpha=at["noise"], optimizer=None).fit(points, throughput - middle)
    mean, deviation = process.predict(points, return_std=True)
    scores, found = model.predict_with_deviation(features)
    np.testing.assert_allclose(scores, mean + middle, atol=1e-4)
    np.testing.assert_allclose(found, deviation, atol=1e-3)
    unknown = population(150, seed=1)[0]
    assert model.predict_with_deviation(unknown)[1].mean() > 1.2 * found.mean()  # less sure of what it has not seen


def test_the_ridge_solves_its_equations():
    model = RidgeModel(penalty=0.5, prior=False)
    features, throughput = fit_population(model)
    rows, weight = standardise(features), 0.1 + throughput
    centred = rows - np.average(rows, axis=0, weights=weight)
    target = throughput - np.average(throughput, weights=weight)
    gram = (centred * weight[:, None]).T @ centred + 0.5 * 150 * np.eye(rows.shape[1])
    expected = np.linalg.solve(gram, (centred * weight[:, None]).T @ target)
    np.testing.assert_allclose(model.state["weights"], expected, atol=1e-8)
    np.testing.assert_allclose(model.predict(features), rows @ expected + model.state["intercept"], atol=1e-6)


def test_the_perceptron_predicts_what_scikit_learn_does(monkeypatch):
    from sklearn import neural_network

    made = []

    class WatchedRegressor(neural_network.MLPRegressor):
        def fit(self, rows, target):
            made.append((self, rows))
            return super().fit(rows, target)

    monkeypatch.setattr(neural_network, "MLPRegressor", WatchedRegressor)
    model = MLPModel(epochs=3, prior=False)
    features, throughput = fit_population(model)
    ((network, rows),) = made
    expected = network.predict(rows) * throughput.std() + throughput.mean()
    np.testing.assert_allclose(model.predict(features), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["ridge", "random_forest", "gaussian_process"])
def test_the_prior_makes_few_measurements_enough(name):
    new, truth = population(300, seed=1)
    found = {}
    for prior in (True, False):
        model = registry.make(name, {"prior": prior}, 0)
        fit_population(model, 10)
        found[prior] = np.corrcoef(model.predict(new), truth)[0, 1]
    assert found[True] > max(found[False], 0.8)


def test_what_cannot_be_is_refused():
    for make, said in (
        (lambda: RidgeModel(penalty=0.0), "`penalty` must be positive"),
        (lambda: RidgeModel(programs=0), "`programs` must be at least 1"),
        (lambda: MLPModel(units=1), "`units` must be at least 2"),
        (lambda: GaussianProcessModel(sample=1), "`sample` at least 2"),
        (lambda: registry.make("ensemble", {"members": 1}, 0), "`members` must be at least 2"),
        (lambda: registry.make("ensemble", {"member": "lightgmb"}, 0), "did you mean 'lightgbm'"),
    ):
        with pytest.raises(ValueError, match=said):
            make()


def test_an_ensemble_may_be_of_any_model():
    features, throughput = population(60)
    model = registry.make("ensemble", {"member": "ridge", "members": 3, "penalty": 0.5}, 0)
    model.fit(list(features), throughput)
    assert np.corrcoef(model.predict(features), throughput)[0, 1] > 0.8


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.integers(1, 70), st.integers(0, 9))
def test_samples_of_programs(groups, count, seed):
    groups = np.array(groups)
    chosen = spread(groups, count, seed)
    assert len(chosen) == min(count, len(groups)) and (np.diff(chosen) > 0).all()
    taken, there = np.bincount(groups[chosen], minlength=5), np.bincount(groups, minlength=5)
    least = min((t for t, n in zip(taken, there, strict=True) if t < n), default=count)
    assert (taken <= np.minimum(there, least + 1)).all()  # no task has two more than one that has programs left
    throughput = np.random.default_rng(seed).random(len(groups))
    fast = faster_half(throughput, count, seed)
    assert len(fast) == len(chosen) and (np.diff(fast) > 0).all()
    assert set(np.argsort(-throughput)[: count // 2]) <= set(fast) or count >= len(groups)
