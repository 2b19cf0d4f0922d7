"""Messages of a run to its store: the complete path with a local and a replay pool, up to a store in memory."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

from autotune.config import ConfigError, check_config, in_file
from autotune.run import run as runner
from autotune.tracking import facts, spool
from autotune.tracking.launch import Uploads
from autotune.tracking.model import write_folder
from autotune.tracking.tracker import SpoolTracker, Tracker, make_tracker
from autotune.tracking.uploader import Upload
from autotune.tuner.callbacks import Callback, Progress
from autotune.tuner.scorer import ModelScorer
from costmodel.metrics import pairwise_accuracy
from costmodel.models import folder as folders
from costmodel.models import registry as models
from measure.database import Database
from measure.outcome import Outcome
from measure.pool import TrialResult
from measure.replay import ReplayPool
from tests.autotune.compiler.test_compiled import small
from tests.autotune.tracking.fake_store import World
from tests.costmodel.data import population


@pytest.fixture(scope="module", autouse=True)
def nothing_is_uploaded():
    """The spool is what these tests are about; no process is started."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Uploads, "prepare", lambda self: None)
        patch.delenv(facts.URI_VARIABLE, raising=False)
        yield


def config_for(folder, pool="local", **keys):
    workload = {"operator": "matmul", "m": 24, "n": 32, "k": 16}
    given = {"workload": workload, "trials": 18, "search": {"batch": 9, "finalists": 0}, "name": "small"}
    tracking = {"backend": "mlflow", **keys.pop("tracking", {})}
    given |= {"output": str(folder), "measure": {"pool": pool}, "tracking": tracking, **keys}
    return check_config(given, "small.yaml")


def make_world(folder):
    world = World()
    for place in spool.spools(folder):
        Upload(place, get_store=world.store).catch_up()
    return world


def by_step(run, name):
    return {point.step: point.value for point in run["points"] if point.name == name}


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """The folder of a run with the local pool, what came of it, and what its store holds."""
    folder = tmp_path_factory.mktemp("local") / "run"
    with pytest.MonkeyPatch.context() as patch:  # ONNX Runtime is timed elsewhere
        patch.setattr(runner, "_references", lambda *given: ([1e-6], None))
        outcome = runner.run(config_for(folder), "small.yaml")
    return folder, outcome, make_world(folder)


def test_a_local_run_is_told_whole(local):
    folder, outcome, world = local
    parent, child = world.runs.values()
    (result,) = outcome.results
    assert parent["experiment"] == "small" and re.fullmatch(r"evolution 18, \d\d-\d\d \d\d:\d\d", parent["name"])
    assert (parent["status"], child["status"], child["name"]) == ("FINISHED", "FINISHED", "small")
    assert parent["parameters"]["search.batch"] == "9" and parent["parameters"]["seed"] == "0"
    assert parent["parameters"]["workload.operator"] == "matmul" and "host.cpu" in parent["parameters"]
    assert parent["parameters"]["version.package"] and len(parent["parameters"]["version.commit"]) >= 40
    assert child["parameters"]["target"] == "cpu" and child["parameters"]["workload_key"] == result.workload.key
    assert child["tags"]["algorithm"] == parent["tags"]["algorithm"] == result.algorithm
    trials = by_step(child, "trial_seconds")
    assert trials == {r.provenance.order: r.seconds for r in result.records if r.ok} and len(trials) > 9
    best = by_step(child, "best_seconds")
    with Database(folder / "records.jsonl", readonly=True) as database:  # in the order of their measurement
        least = np.fmin.accumulate([record.seconds if record.ok else math.nan for record in database])
    assert best == {step: s for step, s in enumerate(least, 1) if s == s} == by_step(parent, "best_seconds")
    assert best[18] == result.best_seconds
    assert by_step(child, "gflops") == {18: pytest.approx(result.gflops)}
    assert by_step(parent, "gflops") == {18: pytest.approx(result.gflops, rel=1e-3)}
    assert by_step(parent, "spread") == {18: pytest.approx(result.spread, rel=1e-2)}
    assert by_step(parent, "trials") == {9: 9, 18: 18}
    assert by_step(child, "reference_seconds") == {18: 1e-6} and by_step(parent, "wall_seconds")[18] > 0
    assert by_step(child, "latency_ms")[18] == pytest.approx(result.best_seconds * 1e3, rel=1e-5)
    assert (
        by_step(parent, "ratio")[18]
        == by_step(child, "ratio")[18]
        == pytest.approx(1e-6 / result.best_seconds, rel=1e-3)
    )
    assert set(by_step(child, "rank_accuracy")) == {18}  # in the first round nothing was learned yet
    assert 0 <= by_step(child, "rank_accuracy")[18] <= 1
    assert set(parent["files"]) >= {"/records.jsonl", "/summary.json", "/curve.png", "/report.html"}
    assert b"small" in parent["files"]["/report.html"]
    assert set(child["files"]) >= {"best/schedule.txt", "best/program.txt", "best/kernel.s"}
    assert json.loads(parent["files"]["/summary.json"])["tasks"][0]["trials"] == 18
    assert all(math.isfinite(point.value) for run in world.runs.values() for point in run["points"])


def test_the_list_of_runs_has_the_network_or_the_sum_of_its_tasks():
    tasks = [
        {"best_seconds": 1e-3, "reference_seconds": 3e-3, "weight": 2, "gflops": 8.0, "spread": 0.1},
        {"best_seconds": 2e-3, "reference_seconds": 2e-3, "weight": 1, "gflops": 4.0, "spread": 0.2},
    ]
    told = {"latency_ms": 4.0, "ratio": 2.0, "gflops": 6.0, "spread": None}
    assert facts.run_metrics({"tasks": tasks}) == told
    assert facts.run_metrics({"tasks": tasks[1:]}) == {"latency_ms": 2.0, "ratio": 1.0, "gflops": 4.0, "spread": 0.2}
    tasks[0]["reference_seconds"] = None
    assert facts.run_metrics({"tasks": tasks}) == {**told, "ratio": None}
    network = {"seconds": 5e-3, "reference_seconds": 1e-2, "spread": 0.3}
    assert facts.run_metrics({"tasks": tasks, "network": network}) == {**told, "latency_ms": 5.0, "spread": 0.3}
    tasks[0] |= {"best_seconds": None, "gflops": None}
    assert facts.run_metrics({"tasks": tasks}) == dict.fromkeys(told)


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        ({}, "evolution 18"),
        ({"trials": 7, "seed": 0}, "evolution 7 seed 0"),
        ({"search": {"strategy": "random", "algorithms": ["direct", "im2col"]}}, "random 18 direct+im2col"),
        ({"cost_model": {"name": "ridge"}, "tracking": {"experiment": "all"}}, "small evolution 18 ridge"),
        (
            {"workload": None, "model": "resnet18", "trials": 0, "network": {"precision": "bfloat16"}},
            "no trials bfloat16",
        ),
    ],
)
def test_runs_are_named_by_what_differs(tmp_path, keys, name):
    now = time.strptime("2026-03-04 05:06", "%Y-%m-%d %H:%M")
    assert facts.run_name(config_for(tmp_path / "run", **keys), now) == f"{name}, 03-04 05:06"


def test_a_network_is_tagged_by_its_most_frequent_algorithms():
    tasks = [{"algorithm": name, "weight": weight} for name, weight in (("direct", 1), ("im2col", 3), (None, 9))]
    document = {"tasks": tasks, "network": {"precision": "bfloat16"}}
    assert facts.result_tags(document) == {"algorithm": "im2col, direct", "precision": "bfloat16"}
    assert facts.result_tags({"tasks": tasks[2:]}) == {}


def test_failures_are_counts_and_a_replay_names_its_records(local, tmp_path):
    folder, _, _ = local
    records = tmp_path / "failing.jsonl"
    lines = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    for place, line in enumerate(lines):
        failed = place % 3 == 0 or place < 9  # nothing of the first round works
        failure = {"error": "crash" if place % 2 else "compile", "seconds": None, "latencies": []}
        line["outcome"] |= failure if failed else {}
    records.write_text("".join(json.dumps(line) + "\n" for line in lines))
    out = tmp_path / "run"
    with Database(records, readonly=True) as database:
        errors = [str(record.error) for record in database if not record.ok]
    runner.run(config_for(out, f"replay:{records}", trials=9), "small.yaml")
    parent, child = make_world(out).runs.values()
    assert by_step(child, "errors.crash") == {9: errors[:9].count("crash")}
    assert by_step(parent, "errors.compile") == {9: errors[:9].count("compile")}
    assert by_step(child, "best_seconds") == {} == by_step(parent, "gflops")  # NaN is not told
    (given,) = parent["inputs"]
    assert (given.name, given.context, given.source) == ("failing.jsonl", "replay", str(records))
    assert "best/schedule.txt" not in child["files"]


def test_the_model_is_loaded_again_bit_for_bit(local, tmp_path):
    folder, _, world = local
    saved = folder / "tracking/0001/cost_model/small.txt"
    _, child = world.runs.values()
    assert child["files"]["model lightgbm/small.txt"] == saved.read_bytes()
    features, throughput = population(60)
    for kind in models.MODELS:
        model = models.get(kind)()
        model.fit(list(features), throughput)
        model.save(tmp_path / f"{kind}.txt")
        _, again = folders.load(write_folder(tmp_path / kind, tmp_path / f"{kind}.txt", kind))
        np.testing.assert_array_equal(again.predict(features), model.predict(features))


def test_loading_a_model_runs_no_code_that_was_not_asked_for(tmp_path):
    ran, kind = tmp_path / "ran", f"{tmp_path / 'mine.py'}:Mine"
    code = f"open({str(ran)!r}, 'w')\nfrom costmodel.models.random_model import RandomModel as Mine\n"
    (tmp_path / "mine.py").write_text(code)
    models.get("random")(seed=3).save(tmp_path / "learned.txt")
    folder = write_folder(tmp_path / "model", tmp_path / "learned.txt", kind)
    with pytest.raises(ValueError, match="must be asked for by its name before its file is read"):
        folders.load(folder)
    assert not ran.exists()
    models.get(kind)
    assert ran.exists() and folders.load(folder)[1].seed == 3


class AnyPool(ReplayPool):
    """A pool with a result for every trial."""

    def _answer(self, trial, index):
        seconds = 1e-6 + int(trial.trace_key[:4], 16) * 1e-9
        return TrialResult(trial, index, Outcome((seconds,), seconds, spread=0.0, max_error=0.0))


def test_resume_goes_on_with_the_same_run_and_a_new_run_makes_its_own(local, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "make_pool", lambda *given: AnyPool({}))
    out, pool = tmp_path / "run", f"replay:{local[0] / 'records.jsonl'}"
    runner.run(config_for(out, pool, trials=9), "small.yaml")
    runner.run(config_for(out, pool), "small.yaml", resume=True)
    world = make_world(out)
    parent, child = world.runs.values()
    assert parent["tags"]["resumed.trials"] == "18" and parent["parameters"]["trials"] == "9"
    assert set(by_step(child, "best_seconds")) == set(range(1, 19)) == set(by_step(parent, "best_seconds"))
    assert parent["status"] == "FINISHED"
    assert len(by_step(child, "trial_seconds")) == sum(point.name == "trial_seconds" for point in child["points"])
    runner.run(config_for(out, pool, trials=9), "small.yaml")
    again = make_world(out)
    assert len(again.runs) == 2 and not set(again.runs) & set(world.runs)


class Impatient(Callback):
    """A callback that presses Ctrl-C after the first round."""

    def on_round(self, progress):
        os.kill(os.getpid(), signal.SIGINT)


def test_a_run_that_is_stopped_and_resumed(local, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "make_pool", lambda *given: AnyPool({}))
    config = config_for(tmp_path / "run", f"replay:{local[0] / 'records.jsonl'}")
    assert runner.run(config, "small.yaml", callbacks=[Impatient()]).interrupted
    world = make_world(tmp_path / "run")
    assert {run["status"] for run in world.runs.values()} == {"KILLED"}
    assert not runner.run(config, "small.yaml", resume=True).interrupted
    (place,) = spool.spools(tmp_path / "run")
    Upload(place, get_store=world.store).catch_up()
    assert {run["status"] for run in world.runs.values()} == {"FINISHED"} and len(world.runs) == 2
    moved = config.model_copy(update={"tracking": config.tracking.model_copy(update={"uri": "http://other"})})
    runner.run(moved, "small.yaml", resume=True)  # another store knows nothing of the run
    assert [spool.read_store(place)[1] for place in spool.spools(tmp_path / "run")][1:] == ["http://other"]


def test_an_exception_is_told(local, tmp_path, monkeypatch):
    def fail(*arguments):
        raise RuntimeError("no ink")

    monkeypatch.setattr("autotune.run.folder.draw_curves", fail)
    with pytest.raises(RuntimeError, match="no ink"):
        runner.run(config_for(tmp_path / "run", f"replay:{local[0] / 'records.jsonl'}", trials=9), "small.yaml")
    parent, child = make_world(tmp_path / "run").runs.values()
    assert parent["status"] == child["status"] == "FAILED" and parent["tags"]["exception"] == "RuntimeError: no ink"


class Uploading(Uploads):
    """Stands for the process: uploads when it is asked for the second time whether it is at work, or never."""

    world: World | None = None
    ask_count = 0

    def prepare(self):
        pass

    def at_work(self, run_folder):
        Uploading.ask_count += 1
        if self.world is not None and self.ask_count == 2:
            for place in spool.spools(run_folder):
                Upload(place, get_store=self.world.store).catch_up()
        return self.world is not None


@pytest.mark.parametrize(
    ("world", "keys", "beginnings", "note"),
    [
        (World(), {"wait_s": 60.0}, ["tracked in sqlite:///"], ""),
        (World(), {"wait_s": 0.0}, ["being uploaded to"], ""),
        (None, {"wait_s": 60.0}, [], "not tracked yet: the process that uploads has ended; `autotune track "),
    ],
)
def test_a_run_returns_when_the_store_has_everything(local, tmp_path, monkeypatch, world, keys, beginnings, note):
    monkeypatch.setattr("autotune.tracking.tracker.Uploads", Uploading)
    monkeypatch.setattr(Uploading, "world", world)
    monkeypatch.setattr(Uploading, "ask_count", 0)
    told, events = [], []
    config = config_for(tmp_path / "run", f"replay:{local[0] / 'records.jsonl'}", trials=9, tracking=keys)
    outcome = runner.run(config, "small.yaml", say=told.append, show=lambda given: events.append(len(told)))
    told = [text for text in told if "in turns" not in text and not text.startswith("uploading to ")]  # if it is slow
    assert [text.startswith(begin) for text, begin in zip(told, beginnings, strict=True)] == [True] * len(beginnings)
    assert outcome.tracking_note.startswith(note) and bool(outcome.tracking_note) == bool(note)
    assert events == [0], "results are shown before the store is waited for"
    (place,) = spool.spools(tmp_path / "run")
    assert bool(spool.pending(place)) == (beginnings[-1:] != ["tracked in sqlite:///"])


def test_ctrl_c_ends_the_waiting_and_not_the_upload(local, tmp_path, monkeypatch):
    def impatient(self, run_folder):
        if not (run_folder / "pressed").exists():
            (run_folder / "pressed").touch()
            raise KeyboardInterrupt
        return True

    monkeypatch.setattr(Uploads, "at_work", impatient)
    told = []
    config = config_for(tmp_path / "run", f"replay:{local[0] / 'records.jsonl'}", trials=9)
    assert not runner.run(config, "small.yaml", say=told.append).tracking_note
    assert told[-1].startswith("being uploaded to") and told[-1].endswith("waits for it")


def test_a_full_disk_ends_the_tracking_and_not_the_run(local, tmp_path, monkeypatch):
    written = spool.Writer.write

    def full(self, event):
        if event["event"] == "series":
            raise OSError(errno.ENOSPC, "No space left on device")
        written(self, event)

    monkeypatch.setattr(spool.Writer, "write", full)
    pool = f"replay:{local[0] / 'records.jsonl'}"
    outcome = runner.run(config_for(tmp_path / "run", pool, trials=9), "small.yaml")
    assert outcome.results[0].best is not None
    assert "not tracked from" in outcome.notes[-1] and "No space left on device" in outcome.notes[-1]


def test_nothing_is_tracked_where_nothing_is_wanted(local, tmp_path):
    pool = f"replay:{local[0] / 'records.jsonl'}"
    runner.run(config_for(tmp_path / "run", pool, trials=9, tracking={"backend": "none"}), "small.yaml")
    assert not (tmp_path / "run/tracking").exists()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"backend": "mlfow"}, "small.yaml:tracking: `backend` must be one of none, mlflow, but got backend='mlfow'"),
        ({"uri": "runs"}, "small.yaml:tracking: `uri` must be sqlite:///FILE or http.*, but got uri='runs'"),
        ({"uri": "sqlite:///"}, "`uri` must be sqlite:///FILE"),
        ({"uri": "file:///tmp/runs"}, "`uri` must be sqlite:///FILE"),
        ({"uri": "http://"}, "`uri` must be sqlite:///FILE"),
        ({"uri": "https://me:secret@host"}, "`uri` must hold no password"),
    ],
)
def test_what_cannot_be_tracked_is_told_before_anything_runs(tmp_path, keys, message):
    with pytest.raises(ConfigError, match=message) as caught, in_file("small.yaml"):
        runner.run(config_for(tmp_path / "run", tracking=keys), "small.yaml")
    assert "secret" not in str(caught.value) and not (tmp_path / "run").exists()


def test_addresses_of_stores(tmp_path, monkeypatch):
    config = config_for(tmp_path / "runs/run")
    assert facts.store_uri(config) == f"sqlite:///{tmp_path}/runs/mlflow.db"
    monkeypatch.setenv(facts.URI_VARIABLE, "http://host:5000")
    assert facts.store_uri(config) == "http://host:5000"
    monkeypatch.chdir(tmp_path)
    given = config_for(tmp_path / "run", tracking={"uri": "sqlite:///a.db"})
    assert facts.store_uri(given) == f"sqlite:///{tmp_path}/a.db"


def test_rank_accuracy_is_that_of_the_scores_before_the_fit():
    class Model:
        def predict(self, features):
            return features[:, 0, 0].astype(np.float64)

    class Sketch:
        groups, program, columns = (None,), None, None

        def expand(self, choices):
            return choices

    class Space:
        sketches, hardware = (Sketch(), Sketch()), None

    class Candidate:
        def __init__(self, sketch, score):
            self.sketch, self.choices = sketch, (score,)

    scorer = ModelScorer(
        Space(), Model(), np.random.default_rng(0), extractor=lambda *given: lambda rows: rows[:, :, None]
    )
    scores, seconds = [3, 1, 4, 2], [1.0, math.nan, 2.0, 4.0]
    candidates = [Candidate(place % 2, score) for place, score in enumerate(scores)]
    scorer.observe(candidates, seconds)
    assert math.isnan(scorer.rank_accuracy)  # nothing was learned yet
    scorer.is_fitted = True
    scorer.observe(candidates, seconds)
    assert scorer.rank_accuracy == pairwise_accuracy(np.array(scores), np.array([1.0, 0.0, 0.5, 0.25])) == 5 / 6
    scorer.observe(candidates[:1], seconds[:1])
    assert math.isnan(scorer.rank_accuracy)


def test_a_round_writes_a_few_lines_however_many_trials_it_has(tmp_path):
    tracker = make_tracker(config_for(tmp_path / "run"), "small.yaml", lambda text: None)
    assert isinstance(tracker, SpoolTracker) and isinstance(tracker, Tracker)
    tracker.begin(tmp_path, resume=False)
    (events,) = tmp_path.rglob(spool.EVENTS)

    class Record:
        ok, seconds, provenance = True, 1e-3, SimpleNamespace(order=3)

    progress = Progress("conv", 32, None, 32, 2000, 1e-3, 10.0, 0.5, 1.0, 0.8)
    tracker._errors["conv"] = Counter({"crash": 2})
    tracker.on_round(progress)
    counts = []
    for trials in (1, 32, 256):
        before = events.read_text().count("\n")
        for _ in range(trials):
            tracker.on_trial(progress, Record())
        assert events.read_text().count("\n") == before
        tracker.on_round(progress)
        counts.append(events.read_text().count("\n") - before)
    assert counts[0] == counts[1] == counts[2] <= 5


def test_neither_the_driver_nor_a_worker_imports_mlflow():
    code = "import autotune.run.run, autotune.tracking.tracker, autotune.tracking.uploader, measure.worker, sys"
    found = f"{code}; print('mlflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", found], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_run_without_trials_has_no_records_to_tell(tmp_path):
    onnx.save(small(), tmp_path / "small.onnx")
    given = {"model": str(tmp_path / "small.onnx"), "trials": 0, "output": str(tmp_path / "run"), "name": "small"}
    given |= {"measure": {"threads": 1}, "tracking": {"backend": "mlflow"}}
    runner.run(check_config(given, "small.yaml"), "small.yaml")
    (parent,) = make_world(tmp_path / "run").runs.values()
    assert parent["status"] == "FINISHED"
    assert "/summary.json" in parent["files"] and "/records.jsonl" not in parent["files"]
