"""Lock files: what is built from one is what it was written for, and what does not fit is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from typer.testing import CliRunner

import autotune
from autotune.cli.app import app
from autotune.compiler.lock import SCHEMA
from autotune.config import ConfigError
from tests.autotune.compiler.test_cache import files
from tests.autotune.compiler.test_compiled import small

Edit = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a configuration and a run with trials."""
    folder = tmp_path_factory.mktemp("lock")
    onnx.save(small(), folder / "small.onnx")
    (folder / "small.yaml").write_text(
        f"model: {folder / 'small.onnx'}\noutput: {folder / 'run'}\nmeasure: {{threads: 1}}\n"
        "trials: 3\nsearch: {finalists: 0}\n"
    )
    done = CliRunner().invoke(app, ["run", str(folder / "small.yaml")])
    assert done.exit_code == 0, done.output
    return folder


def test_it_is_sorted_and_has_every_task(run: Path) -> None:
    document = json.loads((run / "run" / "schedules.lock").read_text())
    assert document["schema"] == SCHEMA
    assert list(document["tasks"]) == sorted(document["tasks"])
    steps = json.loads((run / "run" / "network" / "manifest.json").read_text())["steps"]
    assert {*document["tasks"]} == {step["workload"] for step in steps}
    for task in document["tasks"].values():
        assert task["seconds"] > 0
        assert task["target"] == "cpu"


def test_it_builds_the_executable_of_its_run(run: Path) -> None:
    lock = run / "run" / "schedules.lock"
    command = ["compile", str(run / "small.yaml"), "--lock", str(lock), "--output", str(run / "again")]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert files(run / "again") == files(run / "run" / "network")
    network = autotune.compile(run / "small.onnx", threads=1, lock=lock)
    assert files(network.save(run / "saved")) == files(run / "run" / "network")


def test_a_run_without_trials_takes_it_and_writes_the_same(run: Path) -> None:
    lock, other = run / "run" / "schedules.lock", run / "locked"
    command = ["run", str(run / "small.yaml"), "--output", str(other), "--set", f"lock={lock}"]
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 2
    assert "`trials` must be 0 where `lock` has the schedules, but got trials=3" in refused.output
    done = CliRunner().invoke(app, [*command, "--trials", "0"])
    assert done.exit_code == 0, done.output
    assert (other / "schedules.lock").read_text() == lock.read_text()
    assert json.loads((other / "summary.json").read_text())["network"]["max_error"] < 1e-4


def _first(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(iter(document["tasks"].values()))
    return found


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (lambda d: d["tasks"].popitem(), "`lock` must have the tasks of the network, but in .* 1 are missing, such as"),
        (lambda d: d["tasks"].update(relu={}), "must have the tasks of the network, but in .* 1 are unknown, .* relu"),
        (lambda d: d.update(schema="other/1"), "`lock` must be of schema autotune.lock/1 with its tasks, but .* other"),
        (lambda d: _first(d).pop("seconds"), "a task of `lock` must have algorithm, seconds, target, trace, but in"),
        (lambda d: _first(d).update(target="cuda"), "`lock` must be for cpu, but in .* is for cuda"),
        (lambda d: _first(d).update(algorithm="magic"), "the algorithm of .* must be one of .*, but .* has magic"),
        (lambda d: _first(d).update(seconds=-1), "seconds of .* must be a positive number, but .* has -1"),
        (lambda d: _first(d).update(trace=[{"step": "jump"}]), "the trace of .* must be a list of schedule steps, but"),
        (lambda d: _first(d).update(trace=[1]), "the trace of .* must be a list of schedule steps, but"),
        (lambda d: _first(d)["trace"].insert(0, _first(d)["trace"][-1]), "`lock` must have schedules that its tasks"),
    ],
)
def test_what_does_not_fit_is_refused(run: Path, tmp_path: Path, edit: Edit, sentence: str) -> None:
    document = json.loads((run / "run" / "schedules.lock").read_text())
    edit(document)
    lock = tmp_path / "edited.lock"
    lock.write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=sentence):
        autotune.compile(run / "small.onnx", threads=1, lock=lock)


def test_files_that_are_none_are_refused(run: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("{")
    (tmp_path / "list").write_text("[]")
    for name, sentence in (("none", "must be a file that can"), ("text", "must be a JSON"), ("list", "of schema")):
        with pytest.raises(ConfigError, match=f"`lock` must be .*{sentence.split(' ', 2)[-1]}"):
            autotune.compile(run / "small.onnx", threads=1, lock=tmp_path / name)


def test_it_stands_without_records(run: Path) -> None:
    lock = run / "run" / "schedules.lock"
    records = run / "run" / "records.jsonl"
    done = CliRunner().invoke(app, ["compile", str(run / "small.yaml"), "--lock", str(lock), "--records", str(records)])
    assert done.exit_code == 2
    assert "`records` must not stand beside `lock`" in done.output
