"""Searches guided by every model there is, and by how sure a model is."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.tuner.scorer import ModelScorer
from autotune.tuner.settings import check_exploration
from costmodel.features import FeatureExtractor
from costmodel.models import registry
from costmodel.models.base import UncertainModel
from search_space import workloads
from search_space.space import generate
from targets import registry as targets
from tests.autotune import fakes

WORKLOAD = workloads.matmul(24, 32, 16)
SEARCH = {"trials": 15, "batch": 12, "finalists": 0}


def list_trace_keys(**options):
    result = fakes.tune(WORKLOAD, pool=fakes.HashPool(), **{**SEARCH, **options})
    return [record.trace_key for record in result.records]


@pytest.mark.parametrize("name", sorted(set(registry.MODELS) - {"lightgbm", "random", "roofline"}))
def test_every_model_guides_a_search_and_repeats_itself(name):
    keys = list_trace_keys(cost_model=name)
    assert len(set(keys)) == 15 and list_trace_keys(cost_model=name) == keys


def test_a_model_of_ones_own_guides_a_search(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "from costmodel.models.ridge import RidgeModel\n\n\nclass Mine(RidgeModel):\n    '''One of my own.'''\n"
    )
    assert (
        list_trace_keys(cost_model="mine.py:Mine")
        == list_trace_keys(cost_model="mine:Mine")
        == list_trace_keys(cost_model="ridge")
    )
    assert len(list_trace_keys(cost_model="mine.py:Mine", cost_model_options={"penalty": 0.5})) == 15


class Sure(UncertainModel):
    """Scores by one feature, and is unsure by another."""

    def fit(self, features, throughput):
        pass

    def predict_with_deviation(self, features):
        return features[:, 0, 0].astype(np.float64), features[:, 0, 1].astype(np.float64)


def test_deviations_are_added_to_the_scores():
    space = generate(WORKLOAD, targets.get("cpu").hardware)
    sketch = space.sketches[0]
    choices = np.random.default_rng(0).integers(0, [len(g.table) for g in sketch.groups], (50, len(sketch.groups)))
    features = FeatureExtractor(sketch.program, sketch.columns, space.hardware)(sketch.expand(choices))
    for exploration in (0.0, 2.5):
        scorer = ModelScorer(space, Sure(), np.random.default_rng(0), exploration=exploration)
        scorer.is_fitted = True
        expected = features[:, 0, 0].astype(np.float64) + exploration * features[:, 0, 1]
        np.testing.assert_allclose(scorer(0, choices.astype(np.int32)), expected)


def test_exploration_changes_the_search_of_an_uncertain_model():
    usual = list_trace_keys(cost_model="ensemble", trials=24)
    assert list_trace_keys(cost_model="ensemble", trials=24, exploration=4.0) != usual


def test_exploration_needs_a_model_that_knows_how_sure_it_is():
    with pytest.raises(ValueError, match="`exploration` must be 0 for a model that does not know how sure it is, but"):
        list_trace_keys(exploration=1.0)
    with pytest.raises(ValueError, match="`exploration` must not be negative, but got exploration=-1"):
        check_exploration(Sure(), -1.0)
