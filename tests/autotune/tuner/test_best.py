"""One definition of what is best: whoever tells of a run tells of the same candidate and the same figure."""

from __future__ import annotations

import io
import json
import os
import re
import signal

import numpy as np
import pytest
from rich.console import Console

from autotune.config import check_config
from autotune.report.html.data import load
from autotune.report.terminal import print_results, unsteady_sentence
from autotune.run import run as runner
from autotune.tracking import spool
from autotune.tracking.launch import Uploads
from autotune.tracking.uploader import Upload
from autotune.tuner.callbacks import Callback
from autotune.units import latency
from measure.outcome import Outcome
from measure.pool import TrialResult
from tests.autotune import fakes
from tests.autotune.tracking.fake_store import World


class Lucky(fakes.HashPool):
    """The first timing of a candidate is up to half too short; those after it take longer and longer."""

    def results(self, timeout=None):
        return [
            TrialResult(r.trial, r.index, Outcome((r.seconds,) * 4, r.seconds, spread=0.0, max_error=0.0))
            for r in super().results(timeout)
        ]

    def answer(self, trial):
        times = sum(before.trace_key == trial.trace_key for before in self.trials)
        luck = np.random.default_rng(int(trial.trace_key[:8], 16)).uniform(0.5, 1.0) if times == 1 else 1 + 0.2 * times
        return super().answer(trial) * float(luck)


class Last(Callback):
    """A callback that keeps the last progress."""

    def on_round(self, progress):
        self.progress = progress

    on_finals = on_round


def run(folder, monkeypatch, pool=Lucky, resume=False, **keys):
    monkeypatch.setattr(runner, "make_pool", lambda *given: pool())
    monkeypatch.setattr(runner, "_references", lambda *given: ([2e-3], None))
    monkeypatch.setattr(Uploads, "prepare", lambda self: None)
    workload = {"operator": "matmul", "m": 24, "n": 32, "k": 16}
    given = {"workload": workload, "trials": 18, "search": {"batch": 9, "finalists": 3}, "name": "small"}
    given |= {"output": str(folder), "tracking": {"backend": "mlflow"}, **keys}
    last = Last()
    return runner.run(check_config(given, "small.yaml"), "small.yaml", resume, [last]), last.progress


def said_by_all(folder, outcome, progress):
    """Returns the best latency in seconds by each reporter of the run."""
    (result,), world = outcome.results, World()
    for place in spool.spools(folder):
        Upload(place, get_store=world.store).catch_up()
    parent, child = world.runs.values()
    (task,) = load(folder)[0].tasks
    (alone,) = load(folder / "records.jsonl")
    last = {name: max(_latencies(r), key=_step_and_time) for name, r in (("parent", parent), ("child", child))}
    return {
        "result": result.best_seconds,
        "progress": progress.best_seconds,
        "summary": json.loads((folder / "summary.json").read_text())["tasks"][0]["best_seconds"],
        "report": task.seconds,
        "mark of the report": task.gains[-1].seconds if task.final_timing is None else task.final_timing.seconds,
        "report of records": alone.tasks[0].seconds,
    } | {
        # Six digits are kept of what the list of runs shows.
        name: result.best_seconds if point.value == pytest.approx(result.best_seconds * 1e3, rel=1e-5) else point.value
        for name, point in last.items()
    }


def _latencies(run):
    return [point for point in run["points"] if point.name == "latency_ms"]


def _step_and_time(point):
    return (point.step, point.time_ms)


def test_everybody_says_the_same(tmp_path, monkeypatch):
    outcome, progress = run(tmp_path / "run", monkeypatch)
    said = said_by_all(tmp_path / "run", outcome, progress)
    assert set(said.values()) == {said["result"]}, said
    (result,) = outcome.results
    assert said["result"] > 1.2 * min(record.seconds for record in result.records), "luck must not decide here"
    console = Console(width=120, record=True, file=io.StringIO())
    print_results(console, outcome.results, outcome.references, 1.0)
    assert latency(said["result"]) in console.export_text()
    assert (tmp_path / "run/best/small/schedule.txt").read_text().splitlines()[1].endswith(latency(said["result"]))


def test_they_do_as_well_after_a_run_that_goes_on_and_is_stopped(tmp_path, monkeypatch):
    """The second session finds something faster than any trial before, and ends before that is timed again."""
    run(tmp_path / "run", monkeypatch)

    class Faster(Lucky):
        def results(self, timeout=None):
            if len(self.trials) == 8:
                os.kill(os.getpid(), signal.SIGINT)
            return super().results(timeout)

        def answer(self, trial):
            return super().answer(trial) * 0.1

    outcome, progress = run(tmp_path / "run", monkeypatch, Faster, resume=True, trials=36)
    assert outcome.interrupted
    said = said_by_all(tmp_path / "run", outcome, progress)
    fastest = min(record.seconds for record in outcome.results[0].records)
    assert set(said.values()) == {fastest}, said


def halves(outcome):
    return {result.name: result.standing.halves for result in outcome.results}


def test_a_machine_that_was_busy_is_told(tmp_path, monkeypatch):
    """The last of three timings take longer, so that two halves disagree."""
    outcome, _ = run(tmp_path / "run", monkeypatch)
    sentence = unsteady_sentence(halves(outcome))
    assert sentence is not None and re.match(r"small: two halves of its timings disagree, .* ms and .* ms: ", sentence)
    steady, _ = run(tmp_path / "steady", monkeypatch, fakes.HashPool)
    assert unsteady_sentence(halves(steady)) is None


def test_the_spread_is_in_the_table_and_in_the_summary(tmp_path, monkeypatch):
    outcome, _ = run(tmp_path / "run", monkeypatch)
    (result,) = outcome.results
    timings = [s for r in result.finals if r.trace_key == result.best.trace_key for s in r.latencies]
    low, middle, high = np.quantile(timings, (0.25, 0.5, 0.75))
    assert result.spread == pytest.approx((high - low) / middle) and result.spread > 0.05
    assert outcome.document["tasks"][0]["spread"] == result.spread
