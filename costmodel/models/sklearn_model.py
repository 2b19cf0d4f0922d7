"""Any regressor of scikit-learn as a cost model, by the name of its class."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.models import text
from costmodel.models.base import Scores
from costmodel.models.errors import CostModelError
from costmodel.models.program_model import ProgramModel, Rows, fitting, one_thread, round_to_float32
from search_space.extras import require
from search_space.operators.checks import nearest

ESTIMATORS: Mapping[str, str] = {
    "ARDRegression": "linear_model",
    "AdaBoostRegressor": "ensemble",
    "BaggingRegressor": "ensemble",
    "BayesianRidge": "linear_model",
    "DecisionTreeRegressor": "tree",
    "ElasticNet": "linear_model",
    "ExtraTreeRegressor": "tree",
    "ExtraTreesRegressor": "ensemble",
    "GaussianProcessRegressor": "gaussian_process",
    "GradientBoostingRegressor": "ensemble",
    "HistGradientBoostingRegressor": "ensemble",
    "HuberRegressor": "linear_model",
    "KNeighborsRegressor": "neighbors",
    "KernelRidge": "kernel_ridge",
    "Lars": "linear_model",
    "Lasso": "linear_model",
    "LassoLars": "linear_model",
    "LinearRegression": "linear_model",
    "LinearSVR": "svm",
    "MLPRegressor": "neural_network",
    "NuSVR": "svm",
    "OrthogonalMatchingPursuit": "linear_model",
    "PLSRegression": "cross_decomposition",
    "RandomForestRegressor": "ensemble",
    "Ridge": "linear_model",
    "SGDRegressor": "linear_model",
    "SVR": "svm",
    "TheilSenRegressor": "linear_model",
}
"""Class → module of scikit-learn. Names in a configuration or in a file can import nothing else."""

SET_HERE = ("n_jobs", "random_state", "verbose", "warm_start")
"""Parameters of estimators that are not options: one thread, the model's seed, and no state between fits."""

_STATE_KEYS = ("estimator", "options", "seed", "rows", "target", "weight")
_TRIAL_ROWS = 16  # rows that an estimator is tried on before it learns from expensive measurements


class SklearnModel(ProgramModel):
    """A regressor of scikit-learn on the standardised features of programs.

    Its file holds the programs that it has learned from, and loading fits it again: storing the state of an estimator
    would need a pickle.

    Args:
        estimator: name of a class in `ESTIMATORS`; or an object of such a class, whose parameters become the options.
        options: parameters of the estimator: numbers, texts, truth values, None, and lists of these.

    Attributes:
        estimator: name of the class.
        options: parameters that differ from the defaults of the class.

    Raises:
        CostModelError: the class is not in `ESTIMATORS`, or it lacks or refuses an option.
        MissingExtra: scikit-learn is not installed.
    """

    name = "sklearn"

    def __init__(
        self,
        estimator: Any = "ExtraTreesRegressor",
        seed: int = 0,
        programs: int = 2048,
        tasks_programs: int = 8192,
        prior: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(seed, programs=programs, tasks_programs=tasks_programs, prior=prior)
        require("the cost model sklearn", "sklearn")
        if not isinstance(estimator, str):
            estimator, options = _taken_apart(estimator, options)
        self.estimator, self.options = estimator, _check_options(estimator, options)
        self._regressor: Any = None

    def __repr__(self) -> str:
        """Names the estimator and its options."""
        return f"SklearnModel({', '.join([repr(self.estimator), *(f'{k}={v!r}' for k, v in self.options.items())])})"

    def learn(self, rows: Rows, target: Scores, weight: Scores) -> dict[str, Any]:
        """Stores the data that `prepare` fits the estimator to."""
        learned = {"estimator": self.estimator, "options": json.dumps(self.options), "seed": self.seed}
        return {**learned, "rows": rows.astype(np.float32), "target": target, "weight": weight}

    def prepare(self, state: dict[str, Any]) -> None:
        """Fits the estimator.

        Raises:
            CostModelError: the estimator cannot learn from these programs.
        """
        regressor = _make_estimator(state["estimator"], json.loads(state["options"]), state["seed"])
        self._regressor = _fit_estimator(regressor, state["rows"], state["target"], state["weight"])

    def score(self, rows: Rows) -> Scores:
        """Predicts by the estimator; rounds to float32, as the library's sums depend on a row's position."""
        try:
            found = self._regressor.predict(round_to_float32(rows))
        except ValueError as error:
            raise CostModelError(f"{self.estimator} must predict, but: {_first_line(error)}") from error
        return round_to_float32(np.asarray(found, np.float64).reshape(len(rows)))

    def predict(self, features: NDArray[np.float32]) -> Scores:
        with one_thread():
            return super().predict(features)

    def load(self, path: Path) -> None:
        """Reads the file of any estimator."""
        learned = text.read(path, self.name, _STATE_KEYS)
        try:
            self.options = _check_options(str(learned["estimator"]), json.loads(learned["options"]))
            self.prepare(learned)
        except (TypeError, ValueError, AttributeError) as error:
            raise CostModelError(f"{path}: a saved model must be whole, but {error}") from None
        self.estimator, self._state = str(learned["estimator"]), learned


def _taken_apart(estimator: Any, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Takes an estimator apart into the name of its class and its parameters."""
    name = type(estimator).__name__
    if name not in ESTIMATORS or not type(estimator).__module__.startswith(f"sklearn.{ESTIMATORS[name]}"):
        raise CostModelError(f"`estimator` must be one of {', '.join(ESTIMATORS)}, but got {estimator!r:.80}")
    if options:
        raise CostModelError(f"an estimator that is made must have its options already, but got {', '.join(options)}")
    own, actual = _estimator_class(name)().get_params(deep=False), estimator.get_params(deep=False)
    return name, {k: v for k, v in actual.items() if k not in SET_HERE and repr(v) != repr(own[k])}


def _estimator_class(name: str) -> Any:
    if name not in ESTIMATORS:
        raise CostModelError(
            f"`estimator` must be one of {', '.join(ESTIMATORS)}, but got estimator={name!r}{nearest(name, ESTIMATORS)}"
        )
    return getattr(import_module(f"sklearn.{ESTIMATORS[name]}"), name)


def _check_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns options as plain data, after a trial fit with them.

    Raises:
        CostModelError: an option is unknown, refused, or not plain data.
    """
    allowed = [option for option in _estimator_class(name)().get_params(deep=False) if option not in SET_HERE]
    for option in options:
        if option not in allowed:
            raise CostModelError(
                f"`{name}` must have options among {', '.join(allowed)}, but got {option!r}{nearest(option, allowed)}"
            )
    try:
        plain = json.dumps(dict(options), allow_nan=False)
    except (TypeError, ValueError):
        raise CostModelError(
            f"`{name}` must have options of numbers, texts and lists, but got {options!r:.200}"
        ) from None
    _try(name, plain)
    accepted: dict[str, Any] = json.loads(plain)
    return accepted


@cache
def _try(name: str, options: str) -> None:
    """Fits an estimator with these options to a few made-up rows, as it validates values only then.

    Raises:
        CostModelError: the estimator refuses the options.
    """
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(_TRIAL_ROWS, 4)).astype(np.float32)
    _fit_estimator(
        _make_estimator(name, json.loads(options), 0), rows, rng.uniform(size=_TRIAL_ROWS), np.ones(_TRIAL_ROWS)
    )


def _make_estimator(name: str, options: Mapping[str, Any], seed: int) -> Any:
    kind = _estimator_class(name)
    fixed = {"n_jobs": 1, "random_state": seed}
    return kind(**{k: v for k, v in fixed.items() if k in kind().get_params(deep=False)}, **options)


def _fit_estimator(regressor: Any, rows: NDArray[np.float32], target: Scores, weight: Scores) -> Any:
    """Fits the estimator to all rows, by their weights if it takes weights."""
    from sklearn.utils.validation import has_fit_parameter

    weights = {"sample_weight": weight} if has_fit_parameter(regressor, "sample_weight") else {}
    name = type(regressor).__name__
    try:
        with fitting():
            return regressor.fit(rows.astype(np.float64), target, **weights)
    except (ValueError, TypeError, np.linalg.LinAlgError) as error:
        raise CostModelError(f"{name} must learn from {len(rows)} programs, but: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
