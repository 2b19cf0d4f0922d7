"""What every cost model promises; a model added to the registry is run through the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from costmodel.features import NAMES
from costmodel.models import registry
from costmodel.models.base import CostModel
from tests.costmodel.data import population


@pytest.fixture(params=sorted(registry.MODELS))
def kind(request: pytest.FixtureRequest) -> type[CostModel]:
    return registry.get(request.param)


def fitted(kind: type[CostModel], count: int = 40) -> CostModel:
    model = kind()
    features, throughput = population(count)
    model.fit(list(features), throughput)
    return model


def test_one_finite_score_a_candidate(kind: type[CostModel]) -> None:
    model = fitted(kind)
    for statements in (1, 2, 5):
        scores = model.predict(population(130, seed=1, statements=statements)[0])
        assert scores.shape == (130,) and scores.dtype == np.float64 and np.isfinite(scores).all()


def test_no_candidates_no_scores(kind: type[CostModel]) -> None:
    assert fitted(kind).predict(np.empty((0, 2, len(NAMES)), np.float32)).shape == (0,)


def test_scores_do_not_depend_on_company_or_layout(kind: type[CostModel]) -> None:
    model, features = fitted(kind), population(100, seed=1)[0]
    scores = model.predict(features)
    assert len(np.unique(scores)) > 10
    np.testing.assert_array_equal(model.predict(features[37:38]), scores[37:38])
    np.testing.assert_array_equal(model.predict(features[::-3]), scores[::-3])
    columnwise = np.ascontiguousarray(features.transpose(2, 1, 0)).transpose(2, 1, 0)
    np.testing.assert_array_equal(model.predict(columnwise), scores)


def test_the_same_measurements_teach_the_same(kind: type[CostModel]) -> None:
    features = population(100, seed=1)[0]
    np.testing.assert_array_equal(fitted(kind).predict(features), fitted(kind).predict(features))


def test_fitting_again_starts_anew(kind: type[CostModel]) -> None:
    model, (features, throughput) = fitted(kind, 20), population(40)
    model.fit(list(features), throughput)
    new = population(50, seed=1)[0]
    np.testing.assert_array_equal(model.predict(new), fitted(kind).predict(new))


def test_saved_and_loaded_models_agree(kind: type[CostModel], tmp_path: Path) -> None:
    model, features = fitted(kind), population(100, seed=1)[0]
    model.save(tmp_path / "model.txt")
    loaded = kind()
    loaded.load(tmp_path / "model.txt")
    np.testing.assert_array_equal(loaded.predict(features), model.predict(features))
    loaded.save(tmp_path / "again.txt")
    assert (tmp_path / "again.txt").read_text() == (tmp_path / "model.txt").read_text()


def test_programs_may_differ_in_statements_and_may_all_fail(kind: type[CostModel]) -> None:
    model = kind()
    mixed = [*population(12, statements=1)[0], *population(12, statements=4)[0]]
    model.fit(mixed, np.zeros(24))
    assert np.isfinite(model.predict(population(9, statements=3)[0])).all()
    model.fit(mixed[:1], np.ones(1))
    assert np.isfinite(model.predict(population(9)[0])).all()


def test_features_are_left_as_they_were(kind: type[CostModel]) -> None:
    features, throughput = population(40)
    before, model = features.copy(), kind()
    model.fit(list(features), throughput)
    model.predict(features)
    np.testing.assert_array_equal(features, before)


def test_a_model_that_learns_says_so_when_it_has_not(tmp_path: Path) -> None:
    model = registry.get("lightgbm")()
    with pytest.raises(ValueError, match="must be fitted or loaded before it is used"):
        model.predict(population(1)[0])
    with pytest.raises(ValueError, match="must be fitted or loaded before it is used"):
        model.save(tmp_path / "model.txt")


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(
        ValueError, match="must be one of lightgbm, .*random, or module:Class, but got cost_model='lightgmb'; did"
    ):
        registry.get("lightgmb")
