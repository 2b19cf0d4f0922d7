"""Collecting registered pools: drawn at random, timed alike, twice where that is registered, and resumed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from autotune.cli.app import app
from autotune.config import ConfigError, check_config
from autotune.lab.collect import pooled
from autotune.lab.collect.pooled import collect_pools
from autotune.lab.protocol import Pools, PoolTask, Registration
from costmodel.dataset import Dataset
from measure.database import Database
from search_space import workloads

pytestmark = pytest.mark.xdist_group("timing")
PROGRAMS = 6


def write_pools(folder: Path) -> Path:
    """Two small products, the second to test with and so collected twice."""
    tasks = (
        PoolTask("one", workloads.matmul(8, 16, 8), "train", PROGRAMS, 1, {"a": 1}),
        PoolTask("two", workloads.matmul(16, 32, 8), "test", PROGRAMS, 2, {"b": 2}),
    )
    path = folder / "registered.json"
    Registration(tasks, rounds=2).write(path)
    return path


def make_config(folder: Path, **keys):
    given = {
        "name": "pools",
        "target": "cpu",
        "output": str(folder / "run"),
        "collect": {"pools": str(write_pools(folder))},
    }
    return check_config({**given, "measure": {"threads": 1, "cache": "network"}, **keys}, "pools.yaml")


def test_every_program_is_timed_alike_and_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
    config, said = make_config(tmp_path), []
    monkeypatch.setattr(pooled, "GROUP", 4)
    first = collect_pools(config, 0.0, said.append)  # no group is begun
    assert (first.measurements, first.dataset) == (0, None) and not first.complete
    whole, ended = pooled._groups, []

    def two_groups(*arguments):
        for number, group in enumerate(whole(*arguments)):
            if number == 2 and not ended:
                ended.append(True)
                return
            yield group

    monkeypatch.setattr(pooled, "_groups", two_groups)
    begun = collect_pools(config, None, said.append)
    assert begun.measurements == PROGRAMS and not begun.complete
    done = collect_pools(config, None, said.append)
    assert done.complete and done.measurements == 2 * PROGRAMS and done.trials == 3 * PROGRAMS
    with Database(config.records_path) as database:
        assert len({(r.trace_key, str(r.provenance.kind)) for r in database}) == 3 * PROGRAMS
        assert all(len(r.latencies) == 2 for r in database if r.ok)
    pools = Pools.open(tmp_path / "run" / "pools", test=True)
    assert not pools.missing("train") and not pools.missing("test")
    (train,), (test,) = pools.parts("train"), pools.parts("test")
    assert pools.labels("train", train).shape == (1, len(train.rows))
    assert pools.labels("test", test).shape == (2, len(test.rows)) and len(test.rows) >= PROGRAMS - 1
    assert np.isfinite(pools.labels("test", test)).all() and test.task.networks == {"b": 2}


def test_the_same_programs_are_drawn_whatever_was_interrupted(tmp_path):
    keys = []
    for name in ("a", "b"):
        folder = tmp_path / name
        folder.mkdir()
        collect_pools(make_config(folder), None, lambda text: None)
        with Database(folder / "run" / "records.jsonl") as database:
            keys.append({record.trace_key for record in database})
    assert keys[0] == keys[1]


def test_a_model_draws_of_the_tasks_to_learn_from(tmp_path):
    def collect(name, **keys):
        folder = tmp_path / name
        folder.mkdir()
        given = {"pools": str(write_pools(folder)), "pools_by": "model", **keys}
        done = collect_pools(make_config(folder, collect=given), None, lambda text: None)
        return done, Dataset.open(folder / "run" / "dataset")

    done, dataset = collect("all")
    assert done.complete and done.trials == PROGRAMS
    (task,) = dataset.tasks
    assert task.name == "one"
    programs = dataset.programs(task)
    assert len(programs) == PROGRAMS and {program.origin for program in programs} == {"search"}
    assert all(program.latencies.shape == (1,) for program in programs if program.ok)
    assert not (tmp_path / "all" / "run" / "pools").exists()
    fewer, few = collect("few", pools_at_most=2)
    assert fewer.trials == 2 and len(few) == 2


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"target": "vta"}, "must be of a target that is timed on this machine, but got target=vta"),
        ({"measure": {"pool": "ray"}}, "timed on this machine, but got target=cpu, measure.pool='ray'"),
        ({"collect": {"pools": "none.json"}}, "registered pools must be a readable file"),
    ],
)
def test_what_cannot_be_collected_is_said(tmp_path, keys, message):
    with pytest.raises((ConfigError, ValueError), match=message):
        collect_pools(make_config(tmp_path, **keys), None, lambda text: None)


def test_sources_and_pools_exclude_each_other(tmp_path):
    with pytest.raises(ConfigError, match="must have either sources or pools, but got 0 sources, pools=None"):
        make_config(tmp_path, collect={"programs": 3})
    with pytest.raises(ConfigError, match="`pools_by` must go with pools, but got pools_by=model alone"):
        make_config(tmp_path, collect={"sources": [{"random_programs": 1}], "pools_by": "model"})


def test_the_command_collects_pools(tmp_path):
    (tmp_path / "c.yaml").write_text(json.dumps(make_config(tmp_path).model_dump(mode="json", exclude_defaults=True)))
    done = CliRunner().invoke(
        app, ["collect", str(tmp_path / "c.yaml"), "--minutes", "0", "--output", str(tmp_path / "run")]
    )
    assert done.exit_code == 0, done.output
    assert "2 tasks, 18 measurements; 0 records are there" in done.output and "the same command goes on" in done.output
