"""The benchmark of compiling and scoring GPU candidates: what it counts, and the table it makes."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.gpu.offline import (
    SCORED_WORKLOADS,
    WITHIN,
    WORKLOADS,
    Compilation,
    compile_candidates,
    score_populations,
)
from benchmarks.gpu.offline_table import offline
from search_space import workloads
from search_space.space import generate
from targets.cuda.target import get_target

TARGET = get_target("cuda:sm_90")


def test_every_kernel_of_every_candidate_is_compiled() -> None:
    found = compile_candidates(workloads.matmul(16, 8, 64, constant_b=False), TARGET, 3, 0)
    row = found.row()
    assert row["candidates"] == 3 and 3 <= row["kernels"] <= 6 and 1 <= row["texts"] <= 3
    spent = row["milliseconds"]
    assert set(spent) == {"lowered", "kernels", "text", "nvrtc", "ptx", "together"} and min(spent.values()) > 0
    whole = sum(value for stage, value in spent.items() if stage not in WITHIN) / 1e3
    assert row["candidates_per_second"] == pytest.approx(1 / whole)
    assert row["per_second"] == pytest.approx(row["kernels"] / 3 / whole)


def test_kinds_add_up() -> None:
    a = Compilation(2, 3, {"x", "y"}, {"nvrtc": 0.2, "ptx": 0.1, "text": 0.1})
    a += Compilation(1, 1, {"y"}, {"nvrtc": 0.1, "ptx": 0.1})
    row = a.row()
    assert (row["candidates"], row["kernels"], row["texts"]) == (3, 4, 2)
    assert row["per_second"] == pytest.approx(4 / 0.4) and row["milliseconds"]["nvrtc"] == pytest.approx(100)


def test_scores_and_checks_are_counted() -> None:
    found = score_populations(generate(workloads.softmax(rows=64, columns=96), TARGET.hardware), 2, 0)
    assert found["candidates"] > 0 and found["trees"] > 0 and found["per_second"] > 0
    assert found["checked_per_second"] > found["per_second"]


def test_workloads_have_sketches() -> None:
    assert {make for makers in WORKLOADS.values() for make in makers} >= set(SCORED_WORKLOADS.values())
    assert sum(map(len, WORKLOADS.values())) == 14


def test_table_says_what_is_reached() -> None:
    row: dict[str, Any] = {
        "candidates": 6,
        "kernels": 9,
        "per_second": 12.34,
        "candidates_per_second": 8.2,
        "milliseconds": {"lowered": 10, "kernels": 2, "text": 5.04, "nvrtc": 100, "ptx": 70, "together": 80},
    }
    scores = {"candidates": 2048, "sketches": 8, "trees": 100, "feature_rows": 7, "checked_per_second": 3e6}
    document = {
        "date": "2026-11-22",
        "arch": "sm_90",
        "nvrtc": "13.5",
        "population": 2048,
        "rows": {
            "a": {"work": "compiled", "what": "pools", **row},
            "b": {"work": "compiled", "what": "all", **row},
            "c": {"work": "scored", "what": "conv", "target": 15_000, "per_second": 30_000, **scores},
        },
    }
    lines = offline(document).splitlines()
    shown = "lowering 10.0, kernels 2.0, text 5.0, NVRTC 100.0 (to PTX 70.0; all of a workload in one program 80.0)"
    assert lines[0] == "One core, processor time, NVRTC 13.5, sm_90, 2026-11-22."
    assert lines[4] == f"| pools | 6 | 9 | 12.3 | 8.2 | {shown} |"
    assert lines[5] == f"| all | 6 | 9 | 12.3 | 8.2 | {shown} |"
    assert lines[-1] == "| conv | 8 | 2,048 | 30,000 | 15,000 | 2.0x | 3,000,000 | 100 | 7.0 |"
