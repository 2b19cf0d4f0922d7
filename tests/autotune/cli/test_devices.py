"""`autotune devices`: what it prints, as text and as JSON, and figures that are measured anew or taken from a file."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autotune.cli.app import app
from autotune.run import devices
from targets.cpu import figures
from targets.cuda.driver import Device, missing_device
from tests.targets.test_probe import FIGURES

RUN = CliRunner()


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """A cache folder of its own, and probes that find what is known; what was probed."""
    probed: list[object] = []

    def again(lanes: int, registers: int, cores: Sequence[int]) -> figures.ProbeFigures:
        probed.append((lanes, registers, cores))
        figures.save(FIGURES, figures.figures_path(lanes, registers, cores))
        return FIGURES

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(figures, "probe_again", again)
    return probed


def test_json_has_the_processor_with_its_figures_gpus_and_simulators(quick: list[object]) -> None:
    result = RUN.invoke(app, ["devices", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    processor = found["processor"]
    assert processor["target"] == "cpu" and processor["name"] and processor["llvm"]
    assert figures.from_json(processor["figures"]) == FIGURES
    assert [cache["level"] for cache in processor["caches"]] == [1, 2, 3]
    assert Path(processor["file"]).is_file() and processor["cores"] >= 1
    assert bool(found["gpus"]) != bool(found["no_gpu"]) and found["no_gpu"] == missing_device()
    c = found["c"]
    assert (c["target"], c["missing"]) == ("c", "") and c["compiler"] and c["machine"] and "-std=c99" in c["flags"]
    (vta,) = found["simulators"]
    assert vta["target"] == "vta" and set(vta["memories"]) == {"input", "weight", "accumulator"}


def test_figures_are_measured_once_and_anew_where_that_is_asked_for(quick: list[object]) -> None:
    for command, count in ((["devices"], 1), (["devices"], 1), (["devices", "--probe-again"], 2)):
        assert RUN.invoke(app, command).exit_code == 0
        assert len(quick) == count


def test_text_says_it_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "missing_device", lambda: "")
    monkeypatch.setattr(devices, "gpu_devices", lambda: [Device("cuda:sm_90", "a GPU", 80 << 30)])
    shown = RUN.invoke(app, ["devices"]).stdout
    assert "236 GFLOP/s in float32, at 3.7 GHz" in shown
    assert "1 multiply-adds, 1 loads, 0.5 stores" in shown and "4 cycles of a multiply-add" in shown
    assert "cuda:sm_90: a GPU, 80 GiB" in shown and "vta: simulated at 100 MHz, input 32 KiB" in shown
    (line,) = (line for line in shown.splitlines() if line.startswith("c: "))
    assert re.fullmatch(r"c: .*cc.*, for .+, vectors of (4|8|16) float32, one thread", line)
    assert "disturbed" not in shown
    disturbed = devices.facts()
    disturbed["processor"]["figures"]["disturbed"] = True
    assert "`autotune devices --probe-again` on an idle machine" in devices.text(disturbed)


def test_a_missing_c_compiler_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = devices.facts()
    assert found["c"] == {
        "target": "c",
        "missing": "the compiler `cc` must be installed, but there is none of that name",
    }
    assert f"target c must have a C compiler for this machine: {found['c']['missing']}" in devices.text(found)


def test_figures_of_a_run_are_taken_over(tmp_path: Path, quick: list[object]) -> None:
    theirs = dataclasses.replace(FIGURES, issue=5.5)
    file = tmp_path / "processor.json"
    figures.save(theirs, file)
    result = RUN.invoke(app, ["devices", "--figures", str(file), "--json"])
    assert figures.from_json(json.loads(result.stdout)["processor"]["figures"]) == theirs
    result = RUN.invoke(app, ["devices", "--json"])
    assert figures.from_json(json.loads(result.stdout)["processor"]["figures"]) == theirs and not quick


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"processor": {"model name": "another"}}, "must be of this processor"),
        ({"version": 0}, "must be of this processor and of version"),
        ({"figures": {}}, "figures must be clock_hz"),
    ],
)
def test_figures_of_another_processor_are_refused(tmp_path: Path, change: dict[str, object], rule: str) -> None:
    file = tmp_path / "processor.json"
    file.write_text(json.dumps({**figures.to_json(FIGURES), **change}))
    result = RUN.invoke(app, ["devices", "--figures", str(file)])
    assert result.exit_code == 2 and rule in result.output and "Traceback" not in result.output
    assert not list((tmp_path / "cache").rglob("*.json"))


def test_probe_again_and_figures_exclude_each_other(tmp_path: Path) -> None:
    result = RUN.invoke(app, ["devices", "--probe-again", "--figures", "x.json"])
    assert result.exit_code == 2 and "must stand without `--figures`" in result.output
    missing = RUN.invoke(app, ["devices", "--figures", str(tmp_path / "none.json")])
    assert missing.exit_code == 2 and "must be a JSON file" in missing.output
