"""Runs of configurations with `sizes`: a task for each size, what they come to together; bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.config import ConfigError, load_config
from autotune.run.run import run
from autotune.run.workloads import list_tasks
from measure.database import Database
from search_space import workloads
from tests.autotune import fakes

DENSE = "workload: {operator: dense, in_features: 6, out_features: 16, bias: true}\n"
SIZES = "sizes: {argument: batch, at: [1, 4, 12], weights: [2, 1, 1], search_at: [1, 12], carried: 2, schedules: 2}\n"
REST = "trials: 3\ncost_model: {name: roofline}\nmeasure: {threads: 1}\ntracking: {backend: none}\n"


def write_config(folder: Path, text: str) -> Path:
    path = folder / "layer.yaml"
    path.write_text(text)
    return path


def test_a_run_for_sizes_has_a_task_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pools: list[fakes.HashPool] = []

    def pool(*_: object) -> fakes.HashPool:
        pools.append(fakes.HashPool())
        return pools[-1]

    monkeypatch.setattr("autotune.run.run.make_pool", pool)
    monkeypatch.setattr("autotune.run.run._references", lambda tasks, *_: ([None] * len(tasks), None))
    for drawn in ("draw_curves", "draw_rooflines", "write_best"):  # which take seconds, and are those of any run
        monkeypatch.setattr(f"autotune.run.folder.{drawn}", lambda *_: "")
    config = load_config(write_config(tmp_path, DENSE + SIZES + REST))
    assert [task.workload for task in list_tasks(config)] == [workloads.dense(n, 6, 16, bias=True) for n in (1, 4, 12)]
    said: list[str] = []
    outcome = run(config, "layer.yaml", say=said.append)
    assert not outcome.problems and not outcome.interrupted
    summary = json.loads((tmp_path / "runs/layer/summary.json").read_text())
    assert [task["name"] for task in summary["tasks"]] == ["batch1", "batch12", "batch4"]
    assert [task["trials"] for task in summary["tasks"]] == [3, 3, 2]
    sizes = summary["sizes"]
    assert [(row["at"], row["weight"]) for row in sizes["sizes"]] == [(1, 2), (4, 1), (12, 1)]
    assert sizes["size"] == "batch" and sizes["parts"][-1]["high"] == 12 and len(sizes["traces"]) <= 2
    assert any(text.startswith("SizesResult of batch from 1 to 12") for text in said)
    assert len(pools[0].trials) == 8
    run(config, "layer.yaml", resume=True)
    assert not pools[1].trials
    with Database(tmp_path / "runs/layer/records.jsonl", readonly=True) as database:
        assert len(list(database.records(workloads.dense(4, 6, 16, bias=True).key))) > 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            DENSE + SIZES.replace("argument: batch", "argument: bach"),
            "sizes.argument: `argument` must be one of batch, ",
        ),
        (DENSE.replace("in_features: 6, ", "") + SIZES, "workload: `dense` must be given in_features"),
        (
            DENSE + SIZES.replace("search_at: [1, 12]", "search_at: [1, 5]"),
            "sizes: `search_at` must be some of the sizes",
        ),
        (DENSE + SIZES.replace("[2, 1, 1]", "[2, 1]"), "`weights` must be one for each of 3 sizes, but got 2"),
        (DENSE + SIZES.replace("[1, 4, 12]", "[1, 4, 4]"), r"`at` must be distinct sizes, but got \[1, 4, 4\]"),
        ("model: resnet18\n" + SIZES, "`sizes` must stand beside a `workload` without a template, but got a model"),
        (DENSE + SIZES + "search: {template: conv2d.cpu}\n", "without a template, but got a `search.template`"),
    ],
)
def test_sizes_that_a_run_cannot_have_are_refused(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("autotune.run.run.make_pool", lambda *_: fakes.HashPool())
    with pytest.raises(ConfigError, match=message):
        run(load_config(write_config(tmp_path, text + REST)), "layer.yaml")
