"""Operators and networks beside their peers, a row at a time: what a row holds, and that the same command goes on."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar

import pytest

from benchmarks import networks, operators, results, tuning, tvm, tvm_threads
from benchmarks.interleave import measure_turns
from benchmarks.peers.base import PeerError, Refusal
from benchmarks.rows import ROWS, Row
from benchmarks.subjects import Subject
from benchmarks.tuning import INFORMED_NOTE, TuningOutcome, tuned_after
from measure.outcome import Outcome
from measure.provenance import Kind
from search_space import workloads
from search_space.schedule.trace import Trace
from search_space.workloads import Workload
from targets import registry
from tests.benchmarks.waiting import waiting

SMALL = Row("small", "matmul", "matmul 8x8x8", lambda: workloads.matmul(8, 8, 8))
SECONDS = {
    "benchmarks.peers.ours": 1e-3,
    "benchmarks.peers.torch_peer": 2e-3,
    "benchmarks.peers.inductor_peer": 3e-3,
    "benchmarks.peers.ort_peer": 4e-3,
    "benchmarks.peers.tvm_peer": 5e-3,
}
"""Seconds of every peer that has the operator."""


class Process:
    """A peer that takes as long as its module says."""

    starts: ClassVar[list[tuple[str, Mapping[str, Any]]]] = []

    def __init__(self, module: str, python: str = "", environment: Mapping[str, str] | None = None) -> None:
        self.module, self.environment = module, environment or {}

    def prepare(self, workload: Workload, threads: int, **options: Any) -> dict[str, Any]:
        if self.module not in SECONDS or options.get("blocked"):
            raise Refusal("`workload` must be another, but got this")
        self.starts.append((self.module, {**options, "environment": self.environment}))
        return {"tuning_seconds": 64.0, "records": 32} if self.module.endswith("tvm_peer") else {}

    def warm(self, seconds: float) -> None:
        pass

    def time(self, samples: int) -> list[float]:
        return [SECONDS[self.module]] * samples

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a folder for results; removes the pauses between turns."""
    for module in (operators, tvm):
        monkeypatch.setattr(module, "measure_turns", lambda peers, repeat: measure_turns(peers, repeat, pause=0.0))
        monkeypatch.setattr(module, "PeerProcess", Process)
    monkeypatch.setattr(Process, "starts", [])
    return tmp_path


def test_operators_are_measured_until_the_table_is_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        operators, "tune_workload", lambda *given: TuningOutcome({"algorithm": "direct"}, None, {"trials": given[1]})
    )
    words = ["--trials", "3", "--results", str(folder)]
    assert operators.main([*words, "--minutes", "0"]) == 0
    assert operators.main([*words, "--rows", ROWS[1].name]) == 0
    assert results.load("operators", folder) is None and len(Process.starts) == 5
    assert operators.main(words) == 0
    saved = results.load("operators", folder)
    assert saved is not None and list(saved["rows"]) == [row.name for row in ROWS]
    assert len(Process.starts) == 5 * len(ROWS), "no row was measured twice"
    row = saved["rows"][ROWS[0].name]
    assert row["seconds"] == {"ours": 1e-3, "shipped": 1e-3, "torch": 2e-3, "inductor": 3e-3, "onnxruntime": 4e-3}
    assert "must be another" in row["peers"]["openvino"]["error"] and row["tuning"] == {"trials": 3}
    assert saved["state"]["settings"] == {"threads": 2, "trials": 3, "repeat": 20, "seed": 0}
    out = capsys.readouterr().out
    assert "| all | 2.00x |" in out and "| with shipped knowledge ms |" in out and INFORMED_NOTE not in out
    assert operators.main(["--rows", "conv9"]) == 2


def test_our_own_kernel_must_run(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(operators, "tune_workload", lambda *given: TuningOutcome({"blocked": True}, None, {}))
    with pytest.raises(PeerError, match="must be another"):
        operators.compare(SMALL, argparse.Namespace(trials=1, seed=0, threads=1, repeat=20))


def test_networks_are_measured_until_the_table_is_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = []

    def compare(subject: Subject, folder: Path, plan: Any) -> dict[str, Any]:
        assert folder.is_dir()
        measured.append((subject.name, plan.trials, plan.each_task, plan.inductor))
        row: dict[str, Any] = {"name": subject.name, "title": subject.name, "tasks": 1, "missing": {}, "built": {}}
        seconds = {"autotune float32": 1e-3, "openvino": 2e-3}
        return {**row, "seconds": seconds, "decibels": {}, "resident_bytes": {}}

    monkeypatch.setattr(networks, "compare", compare)
    words = ["--budget", "10", "--results", str(folder)]
    assert networks.main([*words, "--minutes", "0"]) == 0 and not measured
    assert networks.main([*words, "--rows", "levit_128s"]) == 0
    assert networks.main(words) == 0
    names = networks.ROWS["10", 2]
    assert len(names) == 10 and sorted(name for name, *_ in measured) == sorted(names)
    assert {rest for _, *rest_ in measured for rest in [tuple(rest_)]} == {(10, True, False)}
    saved = results.load("networks_10_2", folder)
    assert saved is not None and list(saved["rows"]) == list(names)
    assert [row["held_out"] for row in saved["rows"].values()] == [False] * 5 + [True] * 5
    assert "| float32 | held out | 2.00x | 2.00x | 2.00x | 5 |" in capsys.readouterr().out
    assert networks.main(["--rows", "no_such_network"]) == 2
    assert networks.make_plan("0", 1).inductor and networks.make_plan("1000", 2).precisions == ("float32",)


@pytest.mark.parametrize("name, narrow", [("znver4", True), ("haswell", False)])
def test_16_bits_are_compared_where_the_processor_has_them(name: str, narrow: bool, monkeypatch: Any) -> None:
    target = registry.get(f"cpu:{name}")
    monkeypatch.setattr(networks.registry, "get", lambda name: target)
    plan = networks.make_plan("0", 2)
    assert ("bfloat16" in plan.precisions) == narrow
    assert ("openvino-as-installed" in plan.peers) == ("torch-inductor-autocast" in plan.torch) == narrow
    assert {"onnxruntime", "openvino"} <= set(plan.peers) and {"torch", "torch-inductor"} <= set(plan.torch)


def test_both_stand_after_as_many_trials(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tvm, "interpreter", lambda folder: "python")
    schedules = {64: {"at": 64}, 256: {"at": 256}}
    took = {"seconds": 4.0, "trials_per_second": 64.0}
    monkeypatch.setattr(tvm, "tuned_after", lambda *given: (schedules, took))
    pauses: list[float] = []

    def turns(peers: Mapping[str, Any], repeat: int, pause: float = 0.12) -> dict[str, list[float]]:
        pauses.append(pause)
        return measure_turns(peers, repeat, pause=0.0)

    monkeypatch.setattr(tvm, "measure_turns", turns)
    assert tvm.main(["--rows", ROWS[0].name, "--mcpu", "x", "--results", str(folder)]) == 0
    assert pauses and min(pauses) >= 0.3  # its idle threads were seen to spin for a fifth of a second
    theirs = [given for module, given in Process.starts if module.endswith("tvm_peer")]
    assert [given["upto"] for given in theirs] == [256, 64] and {given["trials"] for given in theirs} == {256}
    (row,) = waiting("tvm", folder).values()
    assert set(row["seconds"]) == {f"{who} {trials}" for who in ("ours", "shipped", "tvm") for trials in (64, 256)}
    assert row["tuning"]["tvm"]["trials_per_second"] == 0.5
    assert tvm.main(["--rows", "conv9"]) == 2
    monkeypatch.delitem(SECONDS, "benchmarks.peers.tvm_peer")
    options = argparse.Namespace(mcpu="x", seed=0, threads=1, repeat=20)
    assert "must be another" in tvm.compare(SMALL, (64,), "python", options)["refused"]


def test_tvm_searches_and_runs_with_its_threads_bound_and_free(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tvm, "interpreter", lambda folder: "python")
    took = {"seconds": 4.0, "trials_per_second": 64.0}
    monkeypatch.setattr(tvm, "tuned_after", lambda *given: ({64: {}, 256: {}}, took))
    monkeypatch.setattr(
        tvm_threads, "measure_turns", lambda peers, repeat, pause: measure_turns(peers, repeat, pause=0.0)
    )
    name = tvm.LONG[0].name
    assert tvm_threads.main(["--rows", name, "--mcpu", "x", "--results", str(folder)]) == 0
    theirs = [given for module, given in Process.starts if module.endswith("tvm_peer")]
    assert [(given["upto"], given["environment"].get("TVM_BIND_THREADS")) for given in theirs] == [
        (256, None),
        (64, None),
        (256, "0"),
        (64, "0"),
    ]
    assert len({given["folder"] for given in theirs}) == 2  # no search reads what the other found
    (row,) = waiting("tvm_threads", folder).values()
    assert set(row["seconds"]) == {f"{who} {trials}" for who in ("bound", "free", "ours") for trials in (64, 256)}
    assert row["tuning"]["free"]["seconds"] == 64.0


@pytest.mark.parametrize("knowledge", ["none", "shipped"])
def test_a_search_begins_with_what_its_table_says(knowledge: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    real = tuning.tune

    def tune(*arguments: Any, **options: Any) -> Any:
        asked.append(options)
        return real(*arguments, **options)

    monkeypatch.setattr(tuning, "tune", tune)
    more = () if knowledge == tuning.NOTHING else (knowledge,)  # nothing is what a table begins with unless it says so
    tuning.tune_workload(SMALL.make(), 2, 0, 1, *more)
    tuned_after(SMALL.make(), (2,), 0, 1, *more)
    assert [named["search"].database for named in asked] == [knowledge] * 2
    assert [named["cost_model"].pretrained for named in asked] == [knowledge] * 2


def test_tables_have_the_schedule_that_a_user_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The candidate with the fastest trial lost when it was timed again at the end of the search."""
    real = tuning.tune

    def tune(*arguments: Any, **options: Any) -> Any:
        result = real(*arguments, **options)
        fast, slow = sorted(
            (r for r in result.records if r.ok and r.algorithm != tuning.LIBRARY), key=attrgetter("seconds")
        )[:2]
        timed = [
            replace(each, outcome=Outcome.of_samples((seconds,)), provenance=each.provenance.again(Kind.final, 0.0))
            for each, seconds in ((fast, 0.2), (slow, 0.1))
        ]
        expected.append(slow.trace_key)
        return replace(result, finals=tuple(timed))

    expected: list[str] = []
    monkeypatch.setattr(tuning, "tune", tune)
    tuned = tuning.tune_workload(SMALL.make(), 8, 0, 1)
    after, _ = tuned_after(SMALL.make(), (8,), 0, 1)
    keys = [Trace.from_json(options["trace"]).key for options in (tuned.generated_options, after[8])]
    assert keys == expected and tuned.took["best_seconds"] == 0.1


def test_fewer_trials_are_the_first_of_more() -> None:
    found, took = tuned_after(SMALL.make(), (4, 12), 0, 1)
    assert set(found) == {4, 12} and took["trials"] == 12 and took["seconds"] > 0
    assert all({"algorithm", "trace", "target"} <= schedule.keys() for schedule in found.values())
