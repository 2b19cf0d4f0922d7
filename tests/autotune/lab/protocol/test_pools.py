"""Registered pools: what they refuse, what stays apart, and studies on them."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from autotune.cli.app import app
from autotune.lab.protocol import REGISTRATION_FILE, Pools, Registration, study
from autotune.lab.protocol.curves import curve
from autotune.lab.protocol.importance import importance
from autotune.lab.protocol.pools import SHIPPED_POOLS
from autotune.lab.protocol.study import CEILING, HeldOut
from costmodel.dataset import Dataset, DatasetError
from costmodel.dataset.dataset import TaskMeasurements
from costmodel.models.errors import CostModelError
from tests.autotune.lab.protocol import made
from tests.costmodel.fixture import open_fixture

pytestmark = pytest.mark.xdist_group("dataset")


def change_program(pools: Pools, **program):
    """The pools, one program of the first task another."""
    task = pools.training.tasks[0]
    of = pools.training.copy_measurements(task)
    programs = [dataclasses.replace(of.programs[0], **program), *of.programs[1:]]
    rest = {other: pools.training.copy_measurements(other) for other in pools.training.tasks[1:]}
    return Dataset({task: TaskMeasurements(of.sketches, programs), **rest})


def test_a_registration_reads_back_and_has_a_fingerprint_of_its_own(tmp_path):
    registered = made.registration()
    registered.write(tmp_path / "registered.json")
    again = Registration.read(tmp_path / "registered.json")
    assert again.fingerprint == registered.fingerprint and again.networks == registered.networks
    assert [t.workload.key for t in again.tasks] == [t.workload.key for t in registered.tasks]
    assert made.registration(rounds=3).fingerprint != registered.fingerprint


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format="autotune.pools/9"), "`format` must be 'autotune.pools/1'"),
        (lambda d: d["tasks"].append(d["tasks"][0]), "`name` of a registered task must be unique"),
        (
            lambda d: d["tasks"][0].update(role="exam"),
            "`role` must be one of train, validation, test, but got role='exam'",
        ),
        (lambda d: d["tasks"][0].update(programs=0), "`programs` must be at least 1, but got programs=0"),
        (lambda d: d["tasks"][0]["networks"].update(three=1), "a network must have one role, but three is"),
        (lambda d: d["tasks"][0].pop("workload"), "registered pools must be whole"),
        (lambda d: d.update(tasks=[]), "pools must have at least 1 task"),
    ],
)
def test_what_a_registration_must_not_be_is_said(tmp_path, change, message):
    path = tmp_path / "registered.json"
    made.registration().write(path)
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(DatasetError, match=message):
        Registration.read(path)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ({"origin": "search"}, "must be drawn at random"),
        ({"latencies": np.ones(3, np.float32)}, "must have equally many samples"),
    ],
)
def test_programs_that_were_not_collected_as_registered_are_refused(program, message):
    pools = made.pools()
    with pytest.raises(DatasetError, match=message):
        Pools(pools.registration, change_program(pools, **program))


def test_tasks_for_another_role_are_refused():
    pools = made.pools()
    with pytest.raises(DatasetError, match="must be registered for train or validation"):
        Pools(pools.registration, pools.data("test"))


def test_what_is_tested_with_is_read_only_where_that_is_asked_for(tmp_path):
    registered = made.registration()
    Pools.write(tmp_path, registered, made.make_dataset(registered))
    pools = Pools.open(tmp_path)
    with pytest.raises(DatasetError, match="must be asked for"):
        pools.data("test")
    with pytest.raises(DatasetError, match="must be asked for"):
        study(pools, "test", ["roofline"], speed=False)
    with_test = Pools.open(tmp_path, test=True)
    (first, _) = with_test.parts("test")
    labels = with_test.labels("test", first)
    assert labels.shape == (2, len(first.rows)) and not np.array_equal(*labels)
    bursts = made.make_dataset(registered).copy_measurements(first.task).programs[int(first.rows[0])].latencies
    assert labels[:, 0] == pytest.approx(bursts.reshape(2, 2).min(axis=1), rel=1.3e-4)
    assert {len(pools.labels("train", part)) for part in pools.parts("train")} == {1}


def test_what_a_model_has_chosen_is_learned_from_beside_what_is_drawn_at_random(tmp_path):
    registered, searched = made.registration(), {}
    of = made.make_dataset(registered)
    for task in open_fixture().tasks:
        every = open_fixture().copy_measurements(task)
        programs = [p for p in every.programs if p.origin != "random"]
        searched[task] = TaskMeasurements(every.sketches, programs)
    train = [task for task in of.tasks if registered.by_workload[task.workload.key].role == "train"]
    Pools.write(tmp_path, registered, of)
    alone, parts = Pools.open(tmp_path).to_learn_from()
    assert {part.task for part in parts} == set(train)
    Dataset(searched).select(train[:2]).write(tmp_path / "chosen")
    pools = Pools.open(tmp_path)
    both, more = pools.to_learn_from()
    assert {part.task for part in more} == set(train)
    for part in more:
        before = next(len(old.rows) for old in parts if old.task == part.task)
        chosen = searched[part.task].programs if part.task in train[:2] else []
        assert len(part.rows) >= before + (len(chosen) > 0)
        assert both.count(part.task) <= alone.count(part.task) + len(chosen)  # what both have drawn is there once
    assert len(pools.parts("train")) == len(parts) and pools.training.count(train[0]) == alone.count(train[0])
    found = study(pools, "validation", ["ridge"], seeds=1, speed=False)
    assert found.programs == sum(len(part.rows) for part in more)
    Dataset(searched).write(tmp_path / "chosen")
    with pytest.raises(DatasetError, match="tasks of pools must be registered for train, but"):
        Pools.open(tmp_path)


def test_a_network_that_was_not_measured_whole_is_not_scored_on():
    pools = made.pools()
    one = pools.data("test").select(pools.data("test").tasks[:1])
    part = Pools(pools.registration, pools.training, one)
    assert len(part.missing("test")) == 1
    with pytest.raises(CostModelError, match="networks must be whole to be scored on"):
        HeldOut.of(part, "test")


def test_a_study_has_chance_at_the_bottom_and_an_oracle_at_the_top():
    found = study(made.pools(), "test", ["ridge", "roofline"], seeds=2, speed=False)
    assert list(found.models) == ["ridge", "roofline", "random", CEILING]
    assert found.programs == sum(len(part.rows) for part in made.pools().parts("train"))
    value = {name: found.held_out.tasks.value("pairwise", one.rankings) for name, one in found.models.items()}
    assert value["random"] == 0.5 < value["roofline"] < value[CEILING] < 1
    document = found.to_json()
    assert document["registered"] == made.registration().fingerprint
    assert set(document["models"]["roofline"]["behind_first"]) == set(document["models"]["ridge"]) - {
        "fit_seconds",
        "programs_per_second",
        "options",
    }
    assert len(document["tasks"]["names"]) == 2


def test_more_to_learn_from_is_a_longer_curve():
    points = curve(made.pools(), "ridge", "programs", shares=(0.25, 1.0), seeds=1)
    assert [point.tasks for point in points] == [3, 3] and points[0].programs < points[1].programs
    assert [p.tasks for p in curve(made.pools(), "ridge", "tasks", shares=(0.4, 1.0), seeds=1)] == [1, 3]
    with pytest.raises(ValueError, match="`by` must be programs or tasks"):
        curve(made.pools(), "ridge", "luck")


def test_the_estimate_is_what_the_roofline_goes_by():
    pools = made.pools()
    model = study(pools, "validation", ["roofline"], speed=False).models["roofline"].model
    losses = importance(model, pools)
    assert next(iter(losses)) == "program.nanoseconds" and losses["program.nanoseconds"] > 0.1
    assert all(loss == 0 for name, loss in losses.items() if name != "program.nanoseconds")


def test_commands_show_a_study_and_write_it(tmp_path):
    registered = made.registration()
    Pools.write(tmp_path / "pools", registered, made.make_dataset(registered))
    run = CliRunner().invoke
    command = ["costmodel", "study", str(tmp_path / "pools"), "--models", "ridge,roofline", "--seeds", "1", "--tasks"]
    done = run(app, [*command, "--json", str(tmp_path / "s.json"), "--plots", str(tmp_path / "p"), "--track", "none"])
    assert done.exit_code == 0, done.output
    assert "Kendall's τ" in done.output and "1 tasks of two" in done.output
    assert json.loads((tmp_path / "s.json").read_text())["role"] == "validation"
    assert {path.name for path in (tmp_path / "p").glob("*.png")} == {"ridge_validation.png", "models_validation.png"}
    tested = run(
        app, ["costmodel", "test", str(tmp_path / "pools"), "--models", "roofline", "--seeds", "1", "--track", "none"]
    )
    assert tested.exit_code == 0 and "ceiling" in tested.output and "2 tasks of three" in tested.output
    shown = run(app, ["costmodel", "importance", str(tmp_path / "pools"), "--model", "roofline", "--most", "1"])
    assert shown.exit_code == 0 and shown.output.startswith("program.nanoseconds")
    drawn = run(app, ["costmodel", "curve", str(tmp_path / "pools"), "--model", "roofline", "--seeds", "1"])
    assert drawn.exit_code == 0 and "norm. top-1" in drawn.output


def test_a_table_has_a_row_for_each_program_and_features_by_name():
    data = made.pools().training
    table = data.to_pandas(data.tasks[:2])
    assert len(table) == sum(data.count(task) for task in data.tasks[:2])
    assert {"task", "sketch", "seconds", "roofline", "mean.roofline.share", "statements"} <= set(table.columns)
    assert table["throughput"].max() == 1 and set(table["task"]) == {task.name for task in data.tasks[:2]}
    assert np.array_equal(table["seconds"][: data.count(data.tasks[0])], data.seconds(data.tasks[0]), equal_nan=True)


def test_the_pools_that_come_along_are_those_that_were_registered():
    registered = Registration.read(REGISTRATION_FILE)
    roles = {
        role: {n for n, of in registered.networks.items() if of == role} for role in ("train", "validation", "test")
    }
    assert all(roles.values()) and not roles["train"] & roles["test"]
    pools = Pools.open()
    assert not pools.missing("train") and not pools.missing("validation")
    assert sum(path.stat().st_size for path in SHIPPED_POOLS.rglob("*.parquet")) < 6e6


def test_one_module_opens_what_is_tested_with():
    root = Path(__file__).parents[4]
    found = [
        str(path.relative_to(root))
        for part in ("costmodel", "autotune", "benchmarks", "notebooks", "examples")
        for path in (root / part).rglob("*.py")
        if re.search(r"Pools\.open\([^)]*(test\s*=|,\s*True)", path.read_text())
    ]
    assert found == ["autotune/lab/test.py"]
