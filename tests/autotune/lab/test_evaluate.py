"""The judgement of models: by hand on tasks made for it, and on the small dataset that is kept for tests."""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
import pytest

from autotune.lab.evaluate import compare, evaluate, evaluation, fit_model, samples
from autotune.lab.evaluate.evaluation import NO_NETWORK, predictions, statements_per_second
from costmodel import metrics
from costmodel.dataset import Block, TaskPrograms, split_by_network, split_by_task
from costmodel.features import NAMES, SECONDS
from costmodel.models.base import CostModel
from tests.costmodel.fixture import open_fixture

pytestmark = pytest.mark.xdist_group("dataset")


class First(CostModel):
    """Scores by the first feature of the first statement."""

    def fit(self, features, throughput):
        pass

    def predict(self, features):
        return features[:, 0, 0].astype(np.float64)


class Data:
    """A dataset whose tasks have these seconds, and features whose first is the score."""

    def __init__(self, tasks):
        self.tasks = [
            SimpleNamespace(networks=networks, target=target, workload=SimpleNamespace(key=str(i)))
            for i, (networks, target, *_) in enumerate(tasks)
        ]
        self._of = {id(task): given for task, given in zip(self.tasks, tasks, strict=True)}

    def seconds(self, task):
        return np.array(self._of[id(task)][2], np.float64)

    def count(self, task):
        return len(self.seconds(task))

    def features(self, task):
        scores = np.array(self._of[id(task)][3], np.float32)
        features = np.zeros((len(scores), 2, len(NAMES)), np.float32)
        features[:, 0, 0], features[:, :, SECONDS] = scores, 3.0
        odd, even = np.arange(1, len(scores), 2), np.arange(0, len(scores), 2)
        return [Block(odd, features[odd]), Block(even, features[even])]

    def parts(self, rows=None):
        return [
            TaskPrograms(task, np.arange(self.count(task)) if rows is None else np.array(rows)) for task in self.tasks
        ]


def evaluate_first(tasks, networks=(), rows=None):
    data = Data(tasks)
    return evaluate(First(), data, data.parts(rows), networks, speed=False)


def test_top_k_scores_are_by_network_averaged_and_pooled():
    first = ({"a": 3, "b": 1}, "cpu", [1.0, 2.0, 4.0], [5.0, 9.0, 1.0])  # best found at once: 2
    second = ({"a": 1}, "cpu", [6.0, 3.0, np.nan], [2.0, 1.0, 0.0])  # 6
    found = evaluate_first([first, second])
    assert found.networks["a"][1] == pytest.approx((3 * 1 + 3) / (3 * 2 + 6))
    assert found.networks["b"][1] == pytest.approx(1 / 2)
    assert found.top[1] == pytest.approx((0.5 + 0.5) / 2)
    assert found.pooled_top[1] == pytest.approx((3 * 1 + 3 + 1) / (3 * 2 + 6 + 2))
    assert found.top[5] == found.pooled_top[5] == 1.0
    assert found.pairwise == pytest.approx((2 / 3 + 2 / 3) / 2)
    assert found.recall == found.peak == 1.0
    assert evaluate_first([first, second], ["b"]).top[1] == pytest.approx(1 / 2)


def test_a_network_on_two_targets_is_two():
    one = ({"a": 1, "b": 1}, "cpu", [1.0, 2.0], [0.0, 1.0])
    other = ({"a": 1}, "vta", [1.0, 4.0], [0.0, 1.0])
    found = evaluate_first([one, other]).networks
    assert {name: scores[1] for name, scores in found.items()} == {"a on cpu": 0.5, "b": 0.5, "a on vta": 0.25}


def test_tasks_of_no_network_count_once_each_and_failing_ones_not_at_all():
    tasks = [({}, "cpu", [1.0, 2.0], [0.0, 1.0]), ({}, "cpu", [np.nan, np.nan], [0.0, 1.0])]
    found = evaluate_first([*tasks, ({}, "cpu", [3.0, 3.0], [0.0, 1.0])])
    assert found.networks == {NO_NETWORK: {1: pytest.approx(4 / 5), 5: 1.0}} and len(found.tasks) == 2
    with pytest.raises(ValueError, match="must be evaluated on tasks with valid programs"):
        evaluate_first(tasks[1:])


def test_failures_have_no_order_that_a_model_could_miss():
    seconds = np.concatenate([np.full(40, np.nan), np.arange(1.0, 6.0)])  # five worked, no order among the rest
    scores = np.concatenate([np.arange(40.0) / 100, 10 - seconds[40:]])
    assert evaluate_first([({}, "cpu", seconds, scores)]).recall == 1.0
    assert evaluate_first([({}, "cpu", seconds, np.where(np.arange(45) == 44, -1.0, scores))]).recall == 4 / 5


def test_only_the_rows_of_a_part_count():
    task = ({"a": 1}, "cpu", [1.0, 2.0, 3.0, 4.0], [1.0, 4.0, 3.0, 2.0])
    assert evaluate_first([task]).pairwise == pytest.approx(3 / 6)
    assert evaluate_first([task], rows=[1, 2, 3]).pairwise == 1.0
    assert evaluate_first([task], rows=[3, 1, 2]).networks["a"][1] == 1.0


def test_the_error_is_by_the_best_straight_line():
    seconds = np.array([1.0, 2.0, 4.0, 8.0])
    exact = evaluate_first([({}, "cpu", seconds, 7 - 3 / seconds)])
    assert exact.rmse == pytest.approx(0.0, abs=1e-6) and exact.pairwise == 0.0
    constant = evaluate_first([({}, "cpu", seconds, np.zeros(4))])
    assert constant.rmse == pytest.approx(np.std(1 / seconds)) and constant.pairwise == 0.5


def test_json_has_the_figures_and_nothing_that_is_not_a_number():
    found = evaluate_first([({"a": 1}, "cpu", [1.0, 2.0], [0.0, 1.0])]).to_json()
    assert {"top1", "top5", "pairwise", "recall", "peak", "rmse", "rows_per_second"} <= set(found)
    assert found["top1"] == 0.5 and found["networks"] == {"a": {"top1": 0.5, "top5": 1.0}}


def test_speed_counts_statements_and_programs():
    class Slow(First):
        def predict(self, features):
            end = time.process_time() + 0.02
            while time.process_time() < end:
                pass
            return super().predict(features)

    data = Data([({}, "cpu", np.ones(50), np.ones(50))])
    statements, programs = statements_per_second(Slow(), data, data.parts())
    assert statements == pytest.approx(2 * programs)
    assert 8192 / 0.02 * 0.3 < programs < 8192 / 0.02 * 1.05
    assert statements_per_second(First(), data, data.parts())[0] > statements


@pytest.fixture
def data():
    return open_fixture()


def test_samples_are_the_programs_of_the_parts_in_order(data):
    parts = [TaskPrograms(data.tasks[1], np.array([5, 3, 60])), TaskPrograms(data.tasks[0], np.arange(10))]
    of = samples(data, parts)
    assert of.groups.tolist() == [0] * 3 + [1] * 10
    for number in (0, 1):
        assert of.throughput[of.groups == number].max() == 1.0
    seconds = data.seconds(data.tasks[1])
    expected = {row: features for block in data.features(data.tasks[1]) for row, features in zip(*block, strict=True)}
    for place, row in enumerate((5, 3, 60)):
        np.testing.assert_array_equal(of.features[place], expected[row])
        assert of.throughput[place] == pytest.approx(np.nanmin(seconds[[5, 3, 60]]) / seconds[row], nan_ok=True)
    assert samples(data, []).features == []


def test_what_is_predicted_stands_where_the_seconds_do(data):
    task = data.tasks[0]

    class Oracle(First):
        def predict(self, features):
            return np.array([truth[of.tobytes()] for of in np.ascontiguousarray(features)])

    truth = {}
    for block in data.features(task):
        for row, of in zip(block.rows, np.ascontiguousarray(block.features), strict=True):
            truth[of.tobytes()] = data.throughput(task)[row]
    found = predictions(Oracle(), data, task)
    assert metrics.pairwise_accuracy(found, data.throughput(task)) > 0.97  # but for programs that look the same


def test_models_are_compared_on_what_they_have_not_seen(data, monkeypatch):
    monkeypatch.setattr(evaluation, "_SPEED_SECONDS", 0.01)
    monkeypatch.setattr(evaluation, "_POPULATION", 256)
    split = split_by_network(data, ["squeezenet"])
    said: list[str] = []
    options = {"ridge": {"penalty": 0.1}}
    rows = list(compare(data, split, ["ridge", "roofline", "random"], options=options, progress=said.append))
    assert [text.split()[-1] for text in said] == ["3", "3", "3", "ridge", "roofline", "random"]
    by_name = {row.name: row.evaluation for row in rows}
    assert list(by_name) == ["ridge", "roofline", "random"] and rows[0].options == {"penalty": 0.1}
    assert set(by_name["ridge"].networks) == {"squeezenet"} and len(by_name["ridge"].tasks) == 3
    assert by_name["roofline"].pairwise > by_name["random"].pairwise and abs(by_name["random"].pairwise - 0.5) < 0.1
    assert rows[0].model.predict(data.features(data.tasks[0])[0].features).ndim == 1
    again = next(iter(compare(data, split, ["ridge"], options={"ridge": {"penalty": 0.1}}, speed=False)))
    assert rows[0].evaluation.statements_per_second > 0 and np.isnan(again.evaluation.statements_per_second)
    assert again.evaluation.top == by_name["ridge"].top and again.evaluation.rmse == by_name["ridge"].rmse


def test_a_model_needs_something_to_learn_from(data):
    with pytest.raises(ValueError, match="must have measured programs to learn from"):
        fit_model("ridge", {}, 0, samples(data, []))
    assert split_by_task(data).test(data)
