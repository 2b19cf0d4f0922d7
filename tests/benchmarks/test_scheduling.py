"""The benchmark of schedulers gives out recorded rounds."""

from pathlib import Path

import numpy as np
import pytest

from autotune.graph.frontends.onnx.model import ZOO, model_path
from autotune.tuner.schedulers import Gradient, RoundRobin, TaskState
from benchmarks import scheduling
from benchmarks.collected import RowCollection
from benchmarks.scheduling import again, compare_schedulers, count_rounds_to, simulate_scheduler
from benchmarks.survey.models import load_models

FIRST = (4.0, 2.0)
"""Seconds of the first trials."""


def test_schedulers_give_out_recorded_rounds() -> None:
    heavy = TaskState(10, 1e9, "a", (4.0, 3.0, 2.0, 1.0), True)
    light = TaskState(1, 1e9, "b", (1.0, 1.0, 1.0, 1.0), True)
    in_turn = simulate_scheduler(RoundRobin(), [heavy, light], 6, FIRST)
    np.testing.assert_array_equal(in_turn, [42, 41, 31, 31, 21, 21])  # without a round: its first trial
    steep = simulate_scheduler(Gradient(), [heavy, light], 6, FIRST)
    assert steep[-1] == 11 and count_rounds_to(steep, 21.0) == 4 and count_rounds_to(in_turn, 20.0) is None


def test_what_is_recorded_ends() -> None:
    task = TaskState(1, 1e9, "a", (2.0, 1.0), True)
    assert len(simulate_scheduler(RoundRobin(), [task], 9, [2.0])) == 2


def test_budgets_are_compared() -> None:
    heavy = TaskState(10, 1e9, "a", (4.0, 3.0, 2.0, 1.0), True)
    light = TaskState(1, 1e9, "b", (1.0, 1.0, 1.0, 1.0), True)
    (row,) = compare_schedulers([heavy, light], [12], 2, FIRST)
    assert row == {"trials": 12, "final_seconds": {"gradient": 11.0, "round_robin": 21.0}, "reached_after": 8}


def test_what_was_recorded_is_given_out_again() -> None:
    recorded = [
        {"weight": 10, "flops": 1e9, "kind": "a", "first": 4.0, "history": [4.0, 3.0, 2.0, 1.0]},
        {"weight": 1, "flops": 1e9, "kind": "b", "first": 2.0, "history": [1.0, 1.0, 1.0, 1.0]},
    ]
    row = {"name": "n", "tasks": 2, "trials": 8, "batch": 2, "budgets": [], "recorded": recorded}
    found = again(row)
    assert [budget["trials"] for budget in found["budgets"]] == [2, 4, 8, 12]
    assert found["recorded"] == recorded and found["budgets"][-1]["final_seconds"]["gradient"] == 11.0


def test_the_command_shows_what_is_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded = [{"weight": 1, "flops": 1e9, "kind": "a", "first": 4.0, "history": [4.0, 3.0, *[1.0] * 6]}]
    row = {"name": "n", "tasks": 1, "trials": 8, "batch": 2, "budgets": [], "recorded": recorded}
    RowCollection("scheduling", {}, ["n"], tmp_path).add("n", row)
    assert scheduling.main(["--recorded", "--results", str(tmp_path)]) == 0
    assert "| n | 1 | 8 | 1000.000 | 1000.000 | 1.000 |" in capsys.readouterr().out


def test_every_network_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "export_model", lambda folder, name: folder / f"{name}.onnx")
    surveyed = {model.name for model in load_models()}
    for name in scheduling.NETWORKS:
        model = scheduling.locate_model(name)
        assert model_path(model).exists() if model == name and model in ZOO else name in surveyed
    assert scheduling.locate_model("squeezenet") == "squeezenet"
