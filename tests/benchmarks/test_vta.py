"""The comparison on the simulated VTA: a small run of it, and its table."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import results, tables, vta

load = results.load


def test_a_layer_is_tuned_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save = results.save
    monkeypatch.setattr(vta.results, "save", lambda name, document: save(name, document, tmp_path))
    monkeypatch.setattr(vta.results, "load", lambda name: load(name, tmp_path))
    monkeypatch.setattr(vta, "PICTURE", tmp_path / "roofline.png")
    assert vta.main(["--rows", "C7", "--trials", "8"]) == 0
    saved = load("vta", tmp_path)
    assert (tmp_path / "roofline.png").exists()
    assert saved is not None
    row = saved["rows"]["C7"]
    assert row["cycles"]["measured"] == 102_877 and row["cycles"]["published"] == 102_850
    assert row["cycles"]["tuned"] < (row["cycles"]["one thread"] or float("inf"))
    assert 0 < row["gemm_utilisation"]["tuned"] < row["gemm_utilisation"]["bound"] < 1
    assert f"| C7 | 102,850 | {row['cycles']['tuned']:,} |" in capsys.readouterr().out


def test_results_are_of_all_layers_and_never_slower_than_published() -> None:
    saved = load("vta")
    assert saved is not None and set(saved["rows"]) == set(vta.ROWS)
    assert all(row["cycles"]["tuned"] <= row["cycles"]["published"] for row in saved["rows"].values())
    shares = [saved["rows"][name]["gemm_utilisation"] for name in ("C2", "C3", "C5", "C6", "C8")]
    assert sum(share["tuned"] / share["bound"] for share in shares) / len(shares) >= 0.95
    assert tables.vta(saved).splitlines()[2].startswith("| C2 | 563,617 |")


def test_a_name_that_is_no_layer(capsys: pytest.CaptureFixture[str]) -> None:
    assert vta.main(["--rows", "C1"]) == 2
    assert "`rows` must be of C2, " in capsys.readouterr().err
