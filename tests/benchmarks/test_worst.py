"""The ten lowest ratios of all comparisons: from every result file, each with its reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.worst import COUNT, list_cases, list_lowest, load_compared, load_reasons, worst
from tests.benchmarks.test_headline import ROWS, store


def store_gpu(folder: Path, **ratios: float) -> None:
    rows = {name: {"ratio_warm": ratio, "trials": 48} for name, ratio in ratios.items()}
    (folder / "gpu.json").write_text(json.dumps({"device": "a GPU", "rows": {**rows, "lost": {"trials": 48}}}))


def test_cases_of_all_files_are_sorted_and_count_once(tmp_path: Path) -> None:
    store(tmp_path, "networks_0_2", {"threads": 2, "trials": 0}, ROWS, cpu="AMD EPYC (znver5)")
    second = tmp_path / "second"
    second.mkdir()
    store(second, "networks_0_2", {"threads": 1, "trials": 0}, ROWS, cpu="B")
    store_gpu(tmp_path, slow=0.5, fast=1.5)
    lowest = list_lowest(load_compared(tmp_path))
    assert [case.ratio for case in lowest] == sorted(case.ratio for case in lowest)
    assert len({(case.comparison, case.case) for case in lowest}) == len(lowest) <= COUNT
    assert (lowest[0].case, lowest[0].ratio, lowest[0].machine) == ("slow", 0.5, "a GPU")
    every = list(list_cases(load_compared(tmp_path)))
    assert {case.machine for case in every} == {"a GPU", "AMD EPYC (Zen 5), 2 threads", "B, 1 thread"}
    assert len([case for case in every if case.machine.startswith("AMD")]) == 2 * len(ROWS)


def test_rows_of_the_sealed_list_count_as_they_are_now(tmp_path: Path) -> None:
    def row(name: str, ours: float, **more: Any) -> dict[str, Any]:
        seconds = {"autotune": ours, "onnxruntime": 1.0, "torch": 2.0}
        return {"name": name, "cpu": "A", "threads": 2, "status": "right", "seconds": seconds, **more}

    rows = {"x": row("x", 4.0, again=row("x", 0.5)), "y": row("y", 2.0), "z": {**row("z", 1.0), "status": "refused"}}
    (tmp_path / "sealed.json").write_text(json.dumps({"rows": rows}))
    assert [(case.case, case.ratio) for case in list_lowest(load_compared(tmp_path))] == [("y", 0.5), ("x", 2.0)]


def test_the_table_shows_reasons_and_what_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store_gpu(tmp_path, a=0.5, b=0.75)
    monkeypatch.setattr("benchmarks.worst.load_reasons", lambda: {"GPU kernels": {"a": "it copies twice"}})
    text = worst(tmp_path)
    assert "| GPU kernels | a | a GPU | 0.50x | it copies twice |" in text
    assert "| GPU kernels | b | a GPU | 0.75x | not explained yet |" in text


def test_reasons_are_of_cases_that_exist() -> None:
    cases = {(case.comparison, case.case) for case in list_cases(load_compared())}
    reasons = load_reasons()
    assert reasons and {(what, case) for what, of in reasons.items() for case in of} <= cases
