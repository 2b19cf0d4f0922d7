"""Searches of measured spaces beside Kernel Tuner's: files, scores, the table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.lab.dataset.t4 import read_t4
from benchmarks import hub
from benchmarks.hub_table import DEFAULT
from benchmarks.kernel_tuner_peer import kernel_tuner_cache
from tests.autotune.lab.measured_files import files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    t4, t1 = files(tmp_path)
    t4.rename(tmp_path / "made_X1_T4.json.gz")
    assert t1.name == "made.T1.json"
    return tmp_path


def test_ours_play_every_space(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert hub.main([str(folder), "--seeds", "3", "--peers", "", "--results", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert f"| **{DEFAULT}** |" in shown and "made X1" in shown
    row = json.loads((folder / "hub.json").read_text())["rows"]["made_X1"]
    assert {name: len(scores) for name, scores in row["scores"].items()} == dict.fromkeys(hub.OURS, 3)
    assert row["trials"] >= 1 and row["seconds"] > 0


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (["--rows", "other"], "`rows` must be of made_X1, but got rows='other'"),
        (["--seeds", "0"], "`seeds` must be at least 1, but got seeds=0"),
    ],
)
def test_bad_options_get_one_sentence(
    folder: Path, words: list[str], rule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hub.main([str(folder), *words]) == 2
    assert rule in capsys.readouterr().err


def test_a_folder_without_results_or_spaces_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert hub.main([str(tmp_path)]) == 2
    assert "`folder` must have results" in capsys.readouterr().err
    files(tmp_path)[0].rename(tmp_path / "other_X1_T4.json.gz")
    assert hub.main([str(tmp_path)]) == 2
    assert "other.T1.json is missing" in capsys.readouterr().err


def test_kernel_tuner_is_given_what_was_measured(folder: Path) -> None:
    measured = read_t4(folder / "made_X1_T4.json.gz", folder / "made.T1.json")
    cache = kernel_tuner_cache(measured)["cache"]
    assert len(cache) == 20
    assert cache["64,3,shared"]["time"] == pytest.approx(1.25)
    assert cache["64,3,shared"]["compile_time"] == pytest.approx(100.0)
    assert cache["128,1,shared"]["time"] == "CompilationFailedConfig"
