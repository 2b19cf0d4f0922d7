"""The throughput of search: what it counts, and that it keeps to one core."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from autotune.tuner.search.population import Population, SeenCandidates
from benchmarks import results, throughput
from benchmarks.throughput import TARGETS, Bench, measure_row, one_core, summarise_runs
from search_space import workloads
from search_space.space import generate
from tests.golden.cases import HARDWARE

WORKLOAD = workloads.conv2d(height=9, width=9, in_channels=8, out_channels=40, padding=1, bias=True)


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench(generate(WORKLOAD, HARDWARE, ["direct"]))


def test_every_thread_is_on_one_core_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    before = os.sched_getaffinity(0)
    with one_core() as core:
        assert {frozenset(os.sched_getaffinity(int(t.name))) for t in Path("/proc/self/task").iterdir()} == {
            frozenset({core})
        }
        assert os.environ["OMP_NUM_THREADS"] == os.environ["MKL_NUM_THREADS"] == "1"
    assert os.sched_getaffinity(0) == before
    assert os.environ["OMP_NUM_THREADS"] == "7" and "MKL_NUM_THREADS" not in os.environ


def test_only_new_and_legal_children_count(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    parents = bench.draw(600, SeenCandidates())
    scored: list[Population] = []
    score = bench.frame.score

    def remember(population: Population, scorer: object) -> np.ndarray:
        scored.append(population)
        return score(population, bench.scorer)

    monkeypatch.setattr(bench.frame, "score", remember)
    found = bench.time_mutations(parents)
    (children,) = scored
    keys = bench.frame.keys(children)
    assert found["candidates"] == len(children) > 0
    assert len(np.unique(keys)) == len(keys) and not np.isin(keys, bench.frame.keys(parents)).any()
    assert bench.frame.legal(children).all()
    assert set(found) == {"candidates", "made", "told apart", "checked", "scored"}


def test_rates_are_medians_over_runs() -> None:
    runs = [{"candidates": 10.0, "made": 1.0, "scored": seconds} for seconds in (1.0, 4.0, 9.0)]
    assert summarise_runs(runs) == {
        "candidates": 10,
        "per_second": 2.0,
        "microseconds": {"made": pytest.approx(1e5), "scored": pytest.approx(4e5)},
    }


def test_rows_are_of_both_scorers_on_both_kinds_of_candidates(bench: Bench) -> None:
    rows = [measure_row(bench, scorer, kind, 512, 1) for scorer in TARGETS for kind in ("sampled", "mutated")]
    assert bench.scorer.is_fitted and all(row["per_second"] > 0 for row in rows)
    plain, _, learned, _ = rows
    assert learned["trees"] == 100 and learned["feature_rows"] >= 2
    assert "trees" not in plain and plain["candidates"] > 400


def test_the_command_saves_and_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(throughput, "workload", lambda: WORKLOAD)
    assert throughput.main(["--batches", "128,256", "--repeat", "1", "--results", str(tmp_path)]) == 0
    saved = results.load("throughput", tmp_path)
    assert saved is not None and saved["state"]["settings"]["workload"] == WORKLOAD.key and len(saved["rows"]) == 8
    assert capsys.readouterr().out.count("\n") == 10
