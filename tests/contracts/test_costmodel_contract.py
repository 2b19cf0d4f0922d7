"""What every registered cost model keeps; a model of one's own passes it too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from costmodel.features import NAMES, SECONDS
from costmodel.metrics import spearman
from costmodel.models import registry
from costmodel.models.base import CostModel

WIDTH = len(NAMES)


def data(count: int, statements: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Features, and a throughput that is a function of their sum over statements; the roofline knows nothing."""
    features = np.random.default_rng(seed).random((count, statements, WIDTH)).astype(np.float32)
    features[:, :, SECONDS] = 20.0
    score = (features[:, :, 0] - features[:, :, 1] * features[:, :, 2]).sum(axis=1)
    score = (score - score.min()) / (score.max() - score.min())
    return features, score.astype(np.float64)


@pytest.fixture(params=list(registry.MODELS))
def model(request: pytest.FixtureRequest) -> CostModel:
    return registry.get(request.param)()


def test_scores_are_one_finite_number_a_candidate(model: CostModel) -> None:
    features, throughput = data(40, 3, 0)
    model.fit(list(features), throughput)
    scores = model.predict(features)
    assert scores.shape == (40,) and np.isfinite(scores).all()


def test_programs_may_differ_in_their_statements(model: CostModel) -> None:
    first, second = data(30, 2, 1), data(30, 3, 2)
    model.fit([*first[0], *second[0]], np.concatenate([first[1], second[1]]))
    assert model.predict(first[0]).shape == (30,) and model.predict(second[0]).shape == (30,)


def test_failures_can_be_learned_from(model: CostModel) -> None:
    features, throughput = data(20, 2, 3)
    throughput[::2] = 0.0
    model.fit(list(features), throughput)
    assert np.isfinite(model.predict(features)).all()


def test_what_is_saved_predicts_the_same(model: CostModel, tmp_path: Path) -> None:
    features, throughput = data(50, 2, 4)
    model.fit(list(features), throughput)
    model.save(tmp_path / "model.txt")
    again = type(model)()
    again.load(tmp_path / "model.txt")
    if type(model) is not registry.get("random"):
        np.testing.assert_array_equal(model.predict(features), again.predict(features))


def test_the_same_seed_gives_the_same_model() -> None:
    features, throughput = data(200, 3, 5)
    scores = []
    for _ in range(2):
        model = registry.get("lightgbm")()
        model.fit(list(features), throughput)
        scores.append(model.predict(features))
    np.testing.assert_array_equal(*scores)


def test_trees_learn_the_sum_over_statements() -> None:
    features, throughput = data(400, 3, 6)
    model = registry.get("lightgbm")()
    model.fit(list(features[:300]), throughput[:300])
    assert spearman(model.predict(features[300:]), throughput[300:]) > 0.8


def test_an_unknown_model_is_named() -> None:
    with pytest.raises(ValueError, match="`cost_model` must be one of lightgbm, roofline, random"):
        registry.get("xgboost")


def test_a_model_that_learns_must_have_learned() -> None:
    with pytest.raises(ValueError, match="must be fitted or loaded"):
        registry.get("lightgbm")().predict(data(3, 2, 0)[0])
