"""Regressors of scikit-learn as cost models: by name and as objects, saved as what they have learned from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.ensemble import RandomForestRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor

from costmodel.models import registry
from costmodel.models.errors import CostModelError
from costmodel.models.random_forest import RandomForestModel
from costmodel.models.sklearn_model import ESTIMATORS, SklearnModel
from search_space import workloads
from tests.autotune import fakes
from tests.costmodel.data import population

SMALL: dict[str, dict[str, Any]] = {
    "ExtraTreesRegressor": {"n_estimators": 5},
    "RandomForestRegressor": {"n_estimators": 5},
    "GradientBoostingRegressor": {"n_estimators": 5},
    "HistGradientBoostingRegressor": {"max_iter": 5},
    "AdaBoostRegressor": {"n_estimators": 5},
    "MLPRegressor": {"hidden_layer_sizes": [8, 4], "max_iter": 5},
    "TheilSenRegressor": {"max_subpopulation": 50},
}


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_every_estimator_learns_is_saved_and_predicts_the_same(name: str, tmp_path: Path) -> None:
    features, throughput = population(40)
    model = registry.make("sklearn", {"estimator": name, **SMALL.get(name, {})}, seed=3)
    model.fit(list(features), throughput)
    new = population(20, seed=1)[0]
    scores = model.predict(new)
    np.testing.assert_array_equal(model.predict(new[7:9]), scores[7:9])
    model.save(tmp_path / "model.txt")
    loaded = registry.get("sklearn")()
    loaded.load(tmp_path / "model.txt")
    np.testing.assert_array_equal(loaded.predict(new), scores)
    assert registry.read_options(loaded).get("estimator", "ExtraTreesRegressor") == name


def test_an_object_stands_for_its_class_and_options() -> None:
    model = SklearnModel(MLPRegressor(hidden_layer_sizes=(8, 4), random_state=5), programs=99)
    assert (model.estimator, model.options) == ("MLPRegressor", {"hidden_layer_sizes": [8, 4]})
    found = {"estimator": "MLPRegressor", "hidden_layer_sizes": [8, 4], "programs": 99}
    assert registry.read_options(model) == found
    assert registry.model_name(SklearnModel) == "sklearn"
    assert repr(model) == "SklearnModel('MLPRegressor', hidden_layer_sizes=[8, 4])"
    with pytest.raises(CostModelError, match=r"or an object of one \(`SklearnModel` .*cost_model=MLPRegressor"):
        registry.model_name(MLPRegressor())  # type: ignore[arg-type]


def test_a_search_takes_an_object_as_it_takes_the_name() -> None:
    def keys(**options: Any) -> list[str]:
        search: dict[str, Any] = {"trials": 15, "batch": 12, "finalists": 0}
        result = fakes.tune(workloads.matmul(24, 32, 16), pool=fakes.HashPool(), **search, **options)
        return [record.trace_key for record in result.records]

    model = SklearnModel(KNeighborsRegressor(n_neighbors=3))
    named = {"estimator": "KNeighborsRegressor", "n_neighbors": 3}
    assert keys(cost_model=model) == keys(cost_model="sklearn", cost_model_options=named)


def test_objects_that_forget_their_options_are_refused() -> None:
    class Forgetful(RandomForestModel):
        def __init__(self, seed: int = 0, many: int = 3) -> None:
            super().__init__(seed, programs=many)

    with pytest.raises(CostModelError, match="must keep its options as attributes, but Forgetful has no 'many'"):
        registry.read_options(Forgetful())


class Ridge(BaseEstimator):  # type: ignore[misc]
    """An estimator from a module that is not scikit-learn's."""


@pytest.mark.parametrize(
    ("estimator", "options", "message"),
    [
        ("Rigde", {}, "must be one of ARDRegression, .*, but got estimator='Rigde'; did you mean 'Ridge'"),
        ("os.system", {}, "`estimator` must be one of"),
        (Ridge(), {}, r"`estimator` must be one of .*, but got Ridge\(\)"),
        (RandomForestRegressor(), {"n_estimators": 3}, "must have its options already, but got n_estimators"),
        (GaussianProcessRegressor(RBF()), {}, "must have options of numbers, texts and lists"),
        ("Ridge", {"alhpa": 1.0}, "`Ridge` must have options among alpha, .*, but got 'alhpa'; did you mean 'alpha'"),
        ("Ridge", {"alpha": "much"}, "Ridge must learn from 16 programs, but: The 'alpha' parameter of Ridge must be"),
        ("RandomForestRegressor", {"n_jobs": 8}, "must have options among .*, but got 'n_jobs'"),
    ],
)
def test_what_is_no_estimator_or_option_is_refused(estimator: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(CostModelError, match=message):
        SklearnModel(estimator, **options)


def test_too_few_programs_for_an_estimator_are_an_error_that_names_it() -> None:
    model, (features, throughput) = SklearnModel("KNeighborsRegressor", n_neighbors=9), population(4)
    model.fit(list(features), throughput)
    with pytest.raises(
        CostModelError, match="KNeighborsRegressor must predict, but: Expected n_neighbors <= n_samples_fit"
    ):
        model.predict(features)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("estimator", "subprocess.Popen", "`estimator` must be one of"),
        ("options", '{"n_jobs": 2}', "must have options among"),
        ("options", "[", "a saved model must be whole"),
        ("target", [1.0], "a saved model must be whole"),
        ("rows", None, "must have estimator, options|a saved model must"),
    ],
)
def test_files_that_say_something_else_are_refused(tmp_path: Path, key: str, value: Any, message: str) -> None:
    model, (features, throughput) = SklearnModel("Ridge"), population(8)
    model.fit(list(features), throughput)
    model.save(tmp_path / "model.txt")
    saved = json.loads((tmp_path / "model.txt").read_text())
    saved[key] = value
    (tmp_path / "model.txt").write_text(json.dumps(saved))
    with pytest.raises(CostModelError, match=rf"model\.txt: .*({message})"):
        SklearnModel().load(tmp_path / "model.txt")
