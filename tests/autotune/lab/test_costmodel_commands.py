"""`autotune costmodel`: models trained, evaluated, compared and tuned on the small dataset kept for tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from autotune.cli.app import app
from autotune.lab.hyperparameters import make_folds, tune
from costmodel.dataset import TaskPrograms, split_by_network
from costmodel.models import folder as folders
from costmodel.models import registry
from tests.autotune.lab.shared_dataset import share
from tests.costmodel.fixture import FIXTURE, open_fixture

pytestmark = pytest.mark.xdist_group("dataset")
HOLD_OUT = ("--hold-out", "squeezenet")
ROW = {"name", "top1", "top5", "pairwise", "recall", "peak", "rmse", "rows_per_second"}
MINE = "from costmodel.models.ridge import RidgeModel\n\n\nclass Mine(RidgeModel):\n    '''One of my own.'''\n"


def call(*arguments):
    return CliRunner().invoke(app, ["costmodel", *(str(argument) for argument in arguments)])


@pytest.fixture
def data():
    return open_fixture()


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory; the dataset is opened, and its features are made, once for all tests."""
    monkeypatch.chdir(tmp_path)
    share(monkeypatch)
    return tmp_path


def test_a_model_is_trained_and_evaluated_again(here, data):
    done = call("train", FIXTURE, "--model", "ridge", "--set", "penalty=0.2", *HOLD_OUT, "-o", "models/ridge")
    assert done.exit_code == 0, done.output
    assert "evaluated on 3 tasks, held back by network: squeezenet" in done.output
    training = json.loads((here / "models/ridge/training.json").read_text())
    assert set(training) >= ROW and training["options"] == {"penalty": 0.2} and training["split"]["train_tasks"] == 3
    again = call("eval", "models/ridge", FIXTURE, *HOLD_OUT, "--json", "found.json")
    assert again.exit_code == 0, again.output
    found = json.loads((here / "found.json").read_text())
    assert {k: found[k] for k in ("top1", "pairwise", "rmse")} == {k: training[k] for k in ("top1", "pairwise", "rmse")}
    assert "squeezenet" in again.output and f"top-1 {found['top1']:.3f}" in again.output
    split = split_by_network(data, ["squeezenet"]).to_json()
    (here / "split.json").write_text(json.dumps({**split, "test_tasks": [*split["test_tasks"], "of another dataset"]}))
    assert "evaluated on 3 tasks" in call("eval", "models/ridge", FIXTURE, "--split", "split.json").output
    name, model = folders.load(here / "models/ridge")
    assert name == "ridge" and np.isfinite(model.predict(data.features(data.tasks[0])[0].features)).all()
    everything = call("train", FIXTURE, "--model", "roofline", "-o", "models/all")
    assert everything.exit_code == 0 and "evaluated on what it has learned from" in everything.output


def test_models_are_compared_in_a_table(here):
    (here / "mine.py").write_text(MINE)
    split = CliRunner().invoke(app, ["dataset", "split", str(FIXTURE), "--by", "within", "-o", "split.json"])
    assert split.exit_code == 0, split.output
    command = ("compare", FIXTURE, "--split", "split.json", "--models", "ridge", "--model", "mine.py:Mine")
    done = call(*command, "--json", "table.json")
    assert done.exit_code == 0, done.output
    table = json.loads((here / "table.json").read_text())
    rows = {row["name"]: row for row in table["models"]}
    assert list(rows) == ["ridge", "mine.py:Mine", "roofline", "random"] and table["split"]["kind"] == "within"
    for row in rows.values():
        assert set(row) >= ROW and all(np.isfinite(row[name]) for name in ROW - {"name"})
        assert 0 < row["top1"] <= row["top5"] <= 1 and row["rows_per_second"] > 0
    assert rows["mine.py:Mine"]["top1"] == rows["ridge"]["top1"]
    assert rows["ridge"]["pairwise"] > 0.7 > rows["random"]["pairwise"]
    assert all(name in done.output for name in rows)


def test_a_model_of_ones_own_is_read_again_only_where_it_is_asked_for(here):
    (here / "own.py").write_text(MINE)
    assert call("train", FIXTURE, "--model", "own.py:Mine", *HOLD_OUT, "-o", "m").exit_code == 0
    command = [sys.executable, "-m", "autotune", "costmodel", "eval", "m", str(FIXTURE)]
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    refused = subprocess.run(command, capture_output=True, text=True, env=path)
    assert refused.returncode == 2 and "must be asked for by its name" in refused.stderr, refused.stderr
    asked = call("eval", "m", FIXTURE, "--model", "own.py:Mine")
    assert asked.exit_code == 0, asked.output
    other = call("eval", "m", FIXTURE, "--model", "ridge")
    assert other.exit_code == 2 and "`name` must be that of the model in m, 'own.py:Mine'" in other.output


def test_options_are_tuned_and_then_used(here):
    done = call("tune", FIXTURE, "--model", "ridge", *("--trials", 6, "--folds", 2, "--metric", "pairwise", "-o", "b"))
    assert done.exit_code == 0, done.output
    best = json.loads((here / "b").read_text())
    assert best["model"] == "ridge" and set(best["options"]) <= {"penalty"} and 0.5 < best["value"] <= 1
    assert done.output.count("pairwise 0.") == 7 and "by default" in done.output
    trained = call("train", FIXTURE, "--model", "ridge", "--options", "b", "-o", "m")
    assert trained.exit_code == 0, trained.output
    assert json.loads((here / "m/training.json").read_text())["options"] == best["options"]
    wrong = call("train", FIXTURE, "--model", "mlp", "--options", "b", "-o", "n")
    assert wrong.exit_code == 2 and "must be of the model 'mlp', but got options of 'ridge'" in wrong.output


def test_tuning_repeats_itself_and_prunes_what_is_hopeless(data):
    parts = [TaskPrograms(task, np.arange(data.count(task))) for task in data.tasks]
    fixed = {"trees": 20, "tasks_trees": 12}
    trials = [tune(data, parts, "lightgbm", 9, "pairwise", 3, seed=2, fixed=fixed) for _ in range(2)]
    assert trials[0] == trials[1] and len(trials[0]) == 9
    assert any(one.pruned and one.folds < 3 for one in trials[0]) and not trials[0][0].pruned
    whole = [one.value for one in trials[0] if not one.pruned]
    assert whole == sorted(whole, reverse=True)
    assert all(one.options["tasks_trees"] == 12 for one in trials[0])
    space = registry.get("lightgbm").tunable
    assert all(space["leaves"].low <= one.options["leaves"] <= 32 for one in trials[0] if "leaves" in one.options)


def test_folds_judge_every_workload_once(data):
    parts = [TaskPrograms(task, np.arange(3)) for task in data.tasks]
    found = make_folds(parts, 4, seed=1)
    assert sorted(part.task.key for _, held in found for part in held) == sorted(task.key for task in data.tasks)
    for learned, held in found:
        assert held and not {p.task.workload.key for p in learned} & {p.task.workload.key for p in held}
    with pytest.raises(ValueError, match="`folds` must be from 2 to the number of workloads, 6, but got folds=7"):
        make_folds(parts, 7, seed=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", FIXTURE, "--model", "lightgmb", "-o", "m"), "did you mean 'lightgbm'?"),
        (("train", FIXTURE, "--model", "ridge", "--set", "penalty=0", "-o", "m"), "ridge: `penalty` must be positive"),
        (("train", FIXTURE, "--model", "ridge", "--set", "penalti=1", "-o", "m"), "did you mean 'penalty'?"),
        (("train", "nowhere", "-o", "m"), "nowhere"),
        (("train", FIXTURE, "--hold-out", "resnet", "-o", "m"), "`networks` must be among resnet18, squeezenet"),
        (("train", FIXTURE, "--track", "paper", "-o", "m"), "`backend` must be one of none, mlflow"),
        (("compare", FIXTURE, "--models", "ridge,none.py:Mine"), "must name a file that exists"),
        (("compare", FIXTURE, *HOLD_OUT, "--split", "s.json"), "must not be given together"),
        (("compare", FIXTURE, "--json", "no/where.json"), "`--json` must be a file in an existing folder"),
        (("eval", "nowhere", FIXTURE), "nowhere/kind.json: No such file"),
        (("tune", FIXTURE, "--model", "roofline"), "must have options to vary, but got model='roofline'"),
        (("tune", FIXTURE, "--metric", "luck"), "`metric` must be one of top1, top5"),
        (("tune", FIXTURE, "--folds", "9"), "`folds` must be from 2 to the number of workloads, 6"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(here, arguments, message):
    done = call(*arguments)
    assert done.exit_code == 2 and message in done.output and "Traceback" not in done.output, done.output
    assert len(done.output.strip().splitlines()) == 1
