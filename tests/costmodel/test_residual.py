"""The model of what the roofline misses: its loss looks within tasks alone, and its features say how, not how much."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.features import NAMES, SECONDS
from costmodel.features.program import program_features
from costmodel.features.relative import RELATIVE_NAMES, relative_features, relative_rows
from costmodel.metrics import pairwise_accuracy
from costmodel.models.lightgbm_residual import CentredLoss, ResidualModel
from tests.costmodel.data import population


def test_shares_by_hand():
    features, _ = population(20, statements=3)
    column = relative_features(features)[RELATIVE_NAMES.index("share.roofline.loading")]
    loading = np.exp2(features[:, :, NAMES.index("roofline.loading")].astype(np.float64)) - 1
    np.testing.assert_allclose(column, np.log2(1 + loading.sum(axis=1)) - features[:, 0, SECONDS], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(relative_rows(list(features)).T, relative_features(features))
    assert len(set(RELATIVE_NAMES)) == len(RELATIVE_NAMES) < len(program_features(features))


def test_the_heaviest_statement_is_described_by_itself():
    features, _ = population(50, statements=4)
    found, names = relative_features(features), list(RELATIVE_NAMES)
    heaviest = features[:, :, NAMES.index("roofline.share")].argmax(axis=1)
    for name in ("inner0.extent", "buffer1.stride", "roofline.balance"):
        wanted = features[np.arange(50), heaviest, NAMES.index(name)]
        np.testing.assert_array_equal(found[names.index(f"heaviest.{name}")], wanted)
    loading, iterations = (
        features[np.arange(50), heaviest, NAMES.index(n)] for n in ("roofline.loading", "iterations")
    )
    np.testing.assert_array_equal(found[names.index("heaviest.roofline.loading.an_iteration")], loading - iterations)


def test_of_many_tasks_fast_programs_are_told_apart_before_slow_ones():
    """A feature that the estimate does not know has opposite effects on fast and on slow programs."""
    features, throughput = population(600, seed=5)
    place = NAMES.index("inner0.extent")
    speed = np.where(features[:, :, place].max(axis=1) > 6, 1.0, 0.7)
    fast = throughput > np.median(throughput)
    truth = np.where(fast, speed, 0.5 / speed) * throughput
    groups = np.arange(600) % 2

    def right(**options: float) -> float:
        model = ResidualModel(members=1, tasks_leaf_programs=200, tasks_leaves=2, tasks_trees=20, **options)
        model.fit_tasks(list(features), truth / truth.max(), groups)
        return pairwise_accuracy(model.predict(features[fast]), truth[fast])

    assert right() > right(tasks_base_weight=1.0, tasks_sharpness=1.0)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 999), st.integers(1, 4))
def test_the_gradient_is_that_of_the_squared_error_about_the_means_of_tasks(seed, tasks):
    rng = np.random.default_rng(seed)
    groups = np.concatenate([np.arange(tasks), rng.integers(0, tasks, 12)])
    target, scores = rng.normal(size=(2, len(groups)))
    weight = rng.uniform(0.1, 2, len(groups))
    loss = CentredLoss(target, weight, groups)

    def value(at):
        error, total = at - target, 0.0
        for task in range(tasks):
            own = groups == task
            mean = np.average(error[own], weights=weight[own])
            total += 0.5 * float((weight[own] * (error[own] - mean) ** 2).sum())
        return total / weight.mean()

    step = 1e-5
    found = [(value(scores + step * unit) - value(scores - step * unit)) / (2 * step) for unit in np.eye(len(groups))]
    np.testing.assert_allclose(loss(scores)[0], found, atol=1e-6)
    shifted = CentredLoss(target + rng.normal(size=tasks)[groups], weight, groups)  # by something for each task
    np.testing.assert_allclose(shifted(scores)[0], loss(scores)[0], atol=1e-9)


def slow_population(count, seed):
    """A population in which short innermost loops take four times as long, which no estimate knows."""
    features, throughput = population(count, seed=seed)
    return features, throughput * np.where(features[:, :, NAMES.index("inner0.extent")].max(axis=1) > 6, 1.0, 0.25)


def test_it_learns_what_the_roofline_misses_and_begins_with_its_order():
    (features, throughput), (later, truth) = slow_population(600, 1), slow_population(400, 2)
    groups = np.arange(600) % 3
    model = ResidualModel(members=2)
    model.fit_tasks(list(features), throughput / np.array([1.0, 3.0, 9.0])[groups], groups)
    roofline = pairwise_accuracy(-later[:, 0, SECONDS].astype(np.float64), truth)
    assert pairwise_accuracy(model.predict(later), truth) > roofline + 0.05
    model.fit([features[0]] * 4, throughput[[0] * 4])  # nothing varies, nothing is learned
    np.testing.assert_array_equal(np.argsort(model.predict(later)), np.argsort(-later[:, 0, SECONDS]))


@pytest.mark.parametrize("tasks", [1, 2])
def test_failures_come_last(tasks):
    features, throughput = population(400, seed=3)
    waste = NAMES.index("inner0.extent")
    fails = features[:, 0, waste] > 6
    model = ResidualModel(members=1)
    model.fit_tasks(list(features), np.where(fails, 0.0, throughput), np.arange(400) % tasks)
    scores = model.predict(features)
    assert scores[fails].max() < np.quantile(scores[~fails], 0.5)


@pytest.mark.parametrize("options", [{"members": 0}, {"leaf_programs": 0}])
def test_options_that_are_none(options):
    with pytest.raises(ValueError, match="must be at least 1"):
        ResidualModel(**options)


def test_only_what_it_wrote_is_read(tmp_path):
    (tmp_path / "model").write_text("tree\n")
    with pytest.raises(ValueError, match="must end with a line autotune_residual=FORESTS"):
        ResidualModel().load(tmp_path / "model")
