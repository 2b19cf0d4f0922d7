"""Designs of an accelerator beside each other, by way of the command line, on the simulator."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from autotune.cli.app import app
from autotune.run.sweep import SweepPoint, front

CONFIG = """\
name: small
target: vta
workload: {operator: conv2d_blocked, height: 7, width: 7, in_channels: 32, out_channels: 32, kernel: 3, padding: 1}
trials: 6
search: {batch: 3}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(CONFIG)
    return tmp_path


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_designs_are_tuned_drawn_and_not_tuned_again(folder: Path) -> None:
    varied = ("log_wgt_buffer=17", "log_inp_buffer=12,14,2", "log_block_in=3,4")
    command = ("sweep", "small.yaml", *(part for field in varied for part in ("--vary", field)))
    done = call(*command)
    assert done.exit_code == 0, done.output
    out = folder / "runs/small_sweep"
    points = json.loads((out / "sweep.json").read_text())["points"]
    assert [p["values"] for p in points] == [
        {"log_wgt_buffer": 17, "log_inp_buffer": size, "log_block_in": block}
        for size in (12, 14, 2)
        for block in (3, 4)
    ]
    good, none = points[:4], points[4:]
    assert all(p["seconds"] > 0 and p["trials"] == 6 and not p["problem"] for p in good)
    assert all(p["seconds"] is None and "log_inp_buffer" in p["problem"] for p in none)
    assert good[0]["memory_bytes"] == good[2]["memory_bytes"] - (1 << 14) + (1 << 12)
    assert (out / "sweep.png").read_bytes().startswith(b"\x89PNG")
    assert "none is better in both memory and time" in done.output
    records = (out / "records.jsonl").read_bytes()
    again = call(*command)
    assert again.exit_code == 0 and (out / "records.jsonl").read_bytes() == records
    assert json.loads((out / "sweep.json").read_text())["points"] == points


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "`--vary` must name at least one field, but got none"),
        (("--vary", "log_inp_bufer=3"), "did you mean 'log_inp_buffer'?"),
        (("--vary", "log_inp_buffer"), "`--vary` must be FIELD=VALUE,VALUE, but got 'log_inp_buffer'"),
        (("--vary", "log_inp_buffer=x"), "`--vary` must give numbers, but got 'log_inp_buffer=x'"),
        (("--vary", 'log_inp_buffer="../../up"'), "`--vary` must give numbers, but got"),
        (("--vary", "log_inp_buffer=1e30"), "`--vary` must give numbers, but got"),
        (("--set", "target=cpu", "--vary", "cores=1"), "must be an accelerator with a configuration"),
    ],
)
def test_the_impossible_is_refused_before_anything_runs(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    done = call("sweep", "small.yaml", *arguments)
    assert done.exit_code == 2 and message in done.output.replace("\n", " ")
    assert not (folder / "runs").exists()


def test_the_front_holds_what_nothing_beats() -> None:
    points = [
        SweepPoint({}, "", m, s) for m, s in ((4, 1.0), (1, 3.0), (2, 3.0), (2, 2.0), (3, float("nan")), (8, 1.0))
    ]
    assert [(p.memory_bytes, p.seconds) for p in front(points)] == [(1, 3.0), (2, 2.0), (4, 1.0)]
