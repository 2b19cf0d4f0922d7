"""Models of one's own that cannot be saved, or predict what is no score, are refused by name in one sentence."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.config import check_config
from autotune.run.workloads import make_settings
from autotune.tuner.tuner import tune
from costmodel.models import registry, text
from costmodel.models.base import CostModel, UncertainModel, need_fit
from costmodel.models.errors import CostModelError
from search_space.workloads import matmul
from tests.costmodel.data import population


class Mean(CostModel):
    """The mean of the features, weighted by what was learned."""

    state_attributes: Any = ("weights",)
    weights: Any = None
    fit_count = 0

    def fit(self, features, throughput):
        type(self).fit_count += 1
        self.weights = np.linspace(0, 1, features[0].shape[1]) + float(np.mean(throughput))

    def predict(self, features):
        return features.mean(axis=1) @ need_fit(self.weights)


class KeepsNothing(Mean):
    state_attributes = ()


class NamesNothing(Mean):
    """Its attribute is there only once it was fitted."""

    state_attributes = ()

    def fit(self, features, throughput):
        self.level = float(np.mean(throughput))

    def predict(self, features):
        return np.full(len(features), self.level)


class KeepsAnObject(Mean):
    def fit(self, features, throughput):
        super().fit(features, throughput)
        self.weights, self.copies = object(), self.weights

    def predict(self, features):
        return features.mean(axis=1) @ need_fit(self.copies)


class KeepsNoNumber(Mean):
    def fit(self, features, throughput):
        self.weights = np.full(features[0].shape[1], np.nan)


class NamesWhatIsNot(Mean):
    state_attributes = ("wieghts",)


class Pickles(Mean):
    def save(self, path):
        path.write_bytes(pickle.dumps(self.weights))

    def load(self, path):
        raise AssertionError("nothing of a pickle is read")


class WritesElsewhere(Mean):
    def save(self, path):
        Path(f"{path}.json").write_text("{}")


class CannotLoad(Mean):
    def load(self, path):
        raise KeyError("weights")


class ForgetsAnOption(Mean):
    def __init__(self, power: float = 1.0) -> None:
        self.power = power

    def predict(self, features):
        return super().predict(features) * self.power


class NeedsAnOption(Mean):
    def __init__(self, power: float) -> None:
        self.power = power


class ForgetsItsDeviation(UncertainModel, Mean):
    deviation: Any = None

    def fit(self, features, throughput):
        super().fit(features, throughput)
        self.deviation = 3.0

    def predict_with_deviation(self, features):
        scores = Mean.predict(self, features)
        return scores, np.full(len(scores), 1.0 if self.deviation is None else self.deviation)


def make_model(kind: type[CostModel], **options: Any) -> CostModel:
    return registry.make(registry.model_name(kind), options, seed=0)


REFUSED_MODELS = (
    (KeepsNothing, {}, "KeepsNothing: a model must predict once it was loaded, but a model must be fitted"),
    (NamesNothing, {}, "`state_attributes` must name every attribute that `predict` reads, but 'level' is not among"),
    (KeepsAnObject, {}, "what a model learns must be saved, but KeepsAnObject: .* 'weights' is not: Object"),
    (KeepsNoNumber, {}, "finite"),
    (NamesWhatIsNot, {}, "must be saved, but got AttributeError: .*wieghts"),
    (Pickles, {}, r"`save` must write text, never code or pickles, but got b'\\x80"),
    (WritesElsewhere, {}, "`save` must write the file that it is given, but there is none"),
    (CannotLoad, {}, "what a model saved must be loaded again, but got KeyError: 'weights'"),
    (ForgetsAnOption, {"power": 2.0}, "must predict after loading what it did before saving, to the last bit"),
    (NeedsAnOption, {"power": 2.0}, "must be made without options where it is loaded, but .*'power'"),
    (ForgetsItsDeviation, {}, "must predict after loading what it did before saving, to the last bit, but got .*1.0"),
)


@pytest.mark.parametrize(
    ("kind", "options", "message"), REFUSED_MODELS, ids=[kind.__name__ for kind, *_ in REFUSED_MODELS]
)
def test_a_model_that_cannot_be_saved_is_refused_when_it_is_made(kind, options, message) -> None:
    with pytest.raises(CostModelError, match=message) as caught:
        make_model(kind, **options)
    assert kind.__name__ in str(caught.value)
    if kind is not NeedsAnOption and options:
        make_model(kind)  # what is refused is the model with its options


def test_one_that_can_be_saved_is_tried_once_in_a_process() -> None:
    before = Mean.fit_count
    make_model(Mean), make_model(Mean)
    assert Mean.fit_count == before + 1


def test_an_ensemble_tries_its_members() -> None:
    with pytest.raises(CostModelError, match="KeepsNothing: a model must predict"):
        registry.make("ensemble", {"member": registry.model_name(KeepsNothing)}, seed=0)


def test_a_run_and_tune_refuse_it_before_anything_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import numpy as np\nfrom costmodel.models.base import CostModel\n\n\nclass Mine(CostModel):\n"
        "    def fit(self, features, throughput):\n        self.weights = np.ones(features[0].shape[1])\n\n"
        "    def predict(self, features):\n        return features.sum(axis=1) @ self.weights\n\n"
        "    def save(self, path):\n        path.write_bytes(bytes([128, 4]))\n"
    )
    config = check_config(
        {
            "name": "mine",
            "workload": {"operator": "matmul", "m": 8, "n": 8, "k": 8},
            "trials": 4,
            "cost_model": {"name": f"{file}:Mine"},
        },
        "run.yaml",
    )
    with pytest.raises(ValueError, match=r"cost_model: .*mine.py:Mine: `save` must write text"):
        make_settings(config)
    with pytest.raises(CostModelError, match="`save` must write text"):
        tune(matmul(8, 8, 8), trials=1, cost_model=f"{file}:Mine")


class Answers(CostModel):
    """A model that predicts the constant that it is constructed with."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def fit(self, features, throughput):
        pass

    def predict(self, features):
        return self.answer


class AnswersTwice(UncertainModel):
    def __init__(self, *answer: Any) -> None:
        self.answer = answer

    def fit(self, features, throughput):
        pass

    def predict_with_deviation(self, features):
        return self.answer


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (np.zeros((4, 1)), r"Answers: `predict` must return one score a candidate, \(4,\), but got \(4, 1\)"),
        (np.zeros(3), r"Answers: `predict` must return one score a candidate, \(4,\), but got \(3,\)"),
        (0.5, r"Answers: `predict` must return one score a candidate, \(4,\), but got \(\)"),
        (np.array([0, 1, np.nan, 2]), "Answers: `predict` must return finite scores, but got nan for candidate 2 of 4"),
        (np.array([0, 1, 2, -np.inf]), "finite scores, but got -inf for candidate 3"),
        (["a", "b", "c", "d"], "Answers: `predict` must return numbers, but got list"),
        (None, "Answers: `predict` must return"),
    ],
)
def test_predictions_that_are_no_scores_are_refused_by_name(answer, message) -> None:
    features = population(4)[0]
    with pytest.raises(CostModelError, match=message):
        Answers(answer).predict(features)
    for both in ((answer, np.zeros(4)), (np.zeros(4), answer)):
        with pytest.raises(CostModelError, match=message.replace("Answers", "AnswersTwice")):
            AnswersTwice(*both).predict_with_deviation(features)
    with pytest.raises(CostModelError, match=message.replace("Answers", "AnswersTwice")):
        AnswersTwice(answer, np.zeros(4)).predict(features)


def test_predictions_that_are_scores_are_taken_as_doubles() -> None:
    features = population(4)[0]
    for answer in ([0, 1, 2, 3], np.arange(4, dtype=np.float32), np.arange(4)):
        found = Answers(answer).predict(features)
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, np.arange(4))


@pytest.mark.parametrize("value", [float("nan"), np.array([1.0, np.inf]), object(), {1, 2}, np.array([object()])])
def test_a_file_of_what_is_no_number_is_not_written(tmp_path: Path, value: Any) -> None:
    with pytest.raises(CostModelError, match="Mean: .* must be finite numbers, texts and arrays, but 'w' is not"):
        text.write(tmp_path / "model.txt", "Mean", {"w": value})
    assert not (tmp_path / "model.txt").exists()


def test_a_model_with_the_former_name_of_its_attributes_is_made_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match="^Former.saved is now state_attributes$") as caught:
        model = type(Mean)("Former", (Mean,), {"saved": ("weights",)})
    assert caught[0].filename == __file__ and model.state_attributes == ("weights",)
