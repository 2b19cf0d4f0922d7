"""Models that are tuned while they run: what is swapped in, when nothing is, and that no process is left behind."""

from __future__ import annotations

import gc
import logging
import re
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from autotune.compiler.checking.process import RuntimeFailure
from autotune.compiler.plan import Stop, TuningStop
from autotune.graph.ir import Graph, GraphBuilder, TensorType
from autotune.pytorch import backend as backends
from autotune.pytorch import retuning
from autotune.pytorch.backend import autotune_backend
from autotune.pytorch.background import Background
from autotune.pytorch.building import LoadedGraph, Plan
from autotune.pytorch.kernels import compile_graph
from autotune.pytorch.options import Options, read_options
from autotune.schedule import Schedule
from autotune.schedule_store import MemoryStore, ScheduledWorkload
from autotune.tuner.task import Task
from measure.errors import PoolError
from search_space.space import generate

LATER = Options(trials=2, threads=1, background=True)
ROOT = Path(__file__).parents[3]


def layer(weights: np.ndarray) -> Graph:
    """A product with weights, which stay in the memory of the array."""
    b = GraphBuilder("layer", {"x": TensorType((4, 16))})
    return b.finish([b.add("relu", [b.add("matmul", ["x", b.constant(weights)])])])


def weights() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)


def right(executable: LoadedGraph, factors: np.ndarray) -> bool:
    x = np.random.default_rng(1).standard_normal((4, 16)).astype(np.float32)
    return np.allclose(executable([x])[0], np.maximum(x @ factors, 0), rtol=1e-4, atol=1e-4)


def until(done: Callable[[], bool]) -> None:
    """Waits for the thread; the time-out of the test ends a wait for what never comes."""
    while not done():
        time.sleep(0.01)


def wait_for(executable: LoadedGraph) -> None:
    until(lambda: executable.source is None)


def another(plan: Plan, tasks: Sequence[Task], stop: Stop) -> MemoryStore:
    """Returns a legal schedule of each task that is not the roofline's, in place of a search."""
    found = MemoryStore()
    for task in tasks:
        workload, rng = task.workload, np.random.default_rng(0)
        sketch = generate(workload, plan.settings.target.hardware, plan.limits.list_algorithms(workload)).sketches[-1]
        rows = np.stack([rng.integers(len(group.table), size=500) for group in sketch.groups], axis=1).astype(np.int32)
        row = rows[sketch.legal(rows)][-1]
        found.add(ScheduledWorkload(workload, plan.settings.target, Schedule(sketch.algorithm, sketch.trace(row)), 1.0))
    return found


class Gate:
    """A search that others hold up: it has begun, goes on when it is let, and stops when it is to."""

    def __init__(self) -> None:
        self.begin_event, self.open, self.stop_event = threading.Event(), threading.Event(), threading.Event()

    def __call__(self, plan: Plan, tasks: Sequence[Task], stop: Stop) -> MemoryStore:
        self.begin_event.set()
        while not self.open.wait(0.01):
            if stop():
                self.stop_event.set()
                raise TuningStop
        return another(plan, tasks, stop)


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retuning, "_STORES", {})


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    found = Gate()
    monkeypatch.setattr(Plan, "tune", lambda plan, tasks, stop: found(plan, tasks, stop))
    monkeypatch.setattr(retuning, "in_turns", lambda *_: (2.0, 1.0))
    yield found
    found.open.set()


def test_the_option_is_checked() -> None:
    assert not read_options(None, None).background
    assert read_options("max-autotune", {"background": True}).background
    with pytest.raises(ValueError, match=r"`background` must be True or False, but got background=1"):
        read_options(None, {"background": 1, "trials": 3})
    with pytest.raises(ValueError, match="`trials` must be at least 1 where `background` is True, but got trials=0"):
        read_options(None, {"background": True})


def test_a_search_by_trials_is_compared_in_turns(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(retuning, "TURNS", 1)
    monkeypatch.setattr(retuning, "TURN_SECONDS", 0.001)
    with caplog.at_level(logging.INFO, logger="autotune.pytorch"):
        loaded = compile_graph(layer(weights()), Options(trials=3, threads=1, background=True))
        assert right(loaded, weights())
        wait_for(loaded)
    assert right(loaded, weights())
    assert re.search("a search in the background has found|what a search in the background has found", caplog.text)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_faster_executable_takes_the_place_of_the_first(gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    loaded, factors = compile_graph(layer(weights()), LATER), weights()
    first = weakref.ref(loaded.executable)
    assert gate.begin_event.wait(60) and right(loaded, factors)
    with caplog.at_level(logging.INFO, logger="autotune.pytorch"):
        gate.open.set()
        while loaded.source is not None:  # calls go on as it is swapped
            assert right(loaded, factors)
    assert "has found a faster executable, which runs from here on: 1.000 s, 2.000 s before" in caplog.text
    assert right(loaded, factors)
    gc.collect()
    assert first() is None


def test_what_is_not_faster_stays_out(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(retuning, "in_turns", lambda *_: (1.0, 1.0))
    loaded = compile_graph(layer(weights()), LATER)
    first = loaded.executable
    with caplog.at_level(logging.INFO, logger="autotune.pytorch"):
        gate.open.set()
        wait_for(loaded)
    assert loaded.executable is first and "is not faster, and stays out: 1.000 s, 1.000 s before" in caplog.text


def test_a_failure_is_told_of_once_and_the_next_job_is_done(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> MemoryStore:
        raise PoolError("workers must start, but did not\nat all")

    monkeypatch.setattr(Plan, "tune", fails)
    loaded = compile_graph(layer(weights()), LATER)
    first = loaded.executable
    wait_for(loaded)
    assert loaded.executable is first and right(loaded, weights())
    monkeypatch.setattr(Plan, "tune", another)
    again = compile_graph(layer(weights()), LATER)
    first = again.executable
    wait_for(again)
    assert again.executable is not first
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert said == [
        "tuning a graph in the background failed, and what runs stays as it is: "
        "PoolError: workers must start, but did not"
    ]


def test_a_runtime_that_cannot_be_timed_is_a_failure(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def ends(*_: object, **__: object) -> None:
        raise RuntimeFailure("the process of autotune must stay alive, but ended: killed")

    monkeypatch.undo()
    monkeypatch.setattr(Plan, "tune", another)
    monkeypatch.setattr(retuning, "NetworkProcess", ends)
    loaded = compile_graph(layer(weights()), LATER)
    first = loaded.executable
    wait_for(loaded)
    until(lambda: "must stay alive, but ended: killed" in caplog.text)
    assert loaded.executable is first


def test_parameters_that_change_meanwhile_keep_it_out(gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    factors = weights()
    loaded = compile_graph(layer(factors), LATER)
    first = loaded.executable
    assert gate.begin_event.wait(60)
    factors *= 2
    with caplog.at_level(logging.INFO, logger="autotune.pytorch"):
        gate.open.set()
        wait_for(loaded)
    assert loaded.executable is first and right(loaded, weights())
    assert "parameters have changed during a search in the background" in caplog.text


def test_a_graph_is_searched_once_whatever_its_parameters(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    gate.open.set()
    factors = weights()
    wait_for(compile_graph(layer(factors), LATER))
    monkeypatch.setattr(Plan, "tune", None)
    loaded = compile_graph(layer(2 * factors), LATER)
    first = loaded.executable
    wait_for(loaded)
    assert loaded.executable is not first and right(loaded, 2 * factors)


def test_a_model_whose_parameters_change_is_right_throughout(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[LoadedGraph]] = []

    def note_loaded(graph: Graph, *arguments: Any) -> LoadedGraph:
        loaded = compile_graph(graph, *arguments)
        made.append(weakref.ref(loaded))
        return loaded

    monkeypatch.setattr(backends, "compile_graph", note_loaded)
    torch._dynamo.reset()
    model, x = nn.Linear(16, 8).eval(), torch.randn(4, 16)
    options = {"threads": 1, "trials": 2, "background": True}
    run = torch.compile(model, backend=autotune_backend, dynamic=False, options=options)
    with torch.no_grad():
        torch.testing.assert_close(run(x), model(x))
        assert gate.begin_event.wait(60)
        model.weight.mul_(3)
        torch.testing.assert_close(run(x), model(x))
        assert gate.stop_event.wait(60), "the job of what was compiled before is given up"
        now = made[1]()
        assert made[0]() is None and now is not None
        first = now.executable
        gate.open.set()
        wait_for(now)
        assert now.executable is not first
        torch.testing.assert_close(run(x), model(x))


DROPPING = """
import gc
import torch
from torch import nn
from autotune.compiler.plan import TuningStop
from autotune.pytorch.backend import autotune_backend
from autotune.pytorch.building import Plan
from threading import Event

begin, end = Event(), Event()

def search(plan, tasks, stop):
    begin.set()
    while not stop():
        end.wait(0.01)
    end.set()
    raise TuningStop

Plan.tune = search
model = nn.Linear(16, 8).eval()
run = torch.compile(model, backend=autotune_backend, options={"threads": 1, "trials": 2, "background": True})
with torch.no_grad():
    run(torch.randn(4, 16))
begin.wait()
del model, run
while not end.wait(0.01):  # the thread may hold the graph, which is part of a circle, during a collection
    gc.collect()
"""


def test_a_compiled_module_that_is_dropped_is_let_go() -> None:
    # In a process of its own: Dynamo, loggers and reports of other tests may hold what they have seen of a module.
    subprocess.run([sys.executable, "-c", DROPPING], cwd=ROOT, check=True, timeout=100)


def test_a_model_that_is_dropped_is_let_go(gate: Gate) -> None:
    factors = weights()
    memory, loaded = weakref.ref(factors), compile_graph(layer(factors), LATER)
    assert gate.begin_event.wait(60)
    del factors, loaded
    gc.collect()
    assert gate.stop_event.wait(60)
    until(lambda: memory() is None)


EXITING = """
import os, sys, time
from contextlib import suppress
from glob import glob
from pathlib import Path
from autotune.graph.ir import GraphBuilder, TensorType
from autotune.pytorch.kernels import compile_graph
from autotune.pytorch.options import Options

def below(pid):
    found = []
    for children in glob(f"/proc/{pid}/task/*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a task may have ended since it was listed
            found += map(int, Path(children).read_text().split())
    return [p for c in found for p in (c, *below(c))]

b = GraphBuilder("layer", {"x": TensorType((4, 16))})
graph = b.finish([b.add("exp", [b.add("relu", ["x"])])])
loaded = compile_graph(graph, Options(trials=100000, threads=1, background=True))
while not (children := below(os.getpid())):
    time.sleep(0.05)
time.sleep(float(sys.argv[1]))
print(*children, *below(os.getpid()))
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux, which tells of processes")
@pytest.mark.parametrize("after", ["0", "1.5"])
def test_a_process_ends_during_a_search_and_leaves_none_behind(after: str) -> None:
    command = [sys.executable, "-c", EXITING, after]
    out = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=90)
    assert out.stdout.split() and not out.stderr
    for pid in out.stdout.split():
        state = Path(f"/proc/{pid}/stat")
        assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z", pid


def test_a_thread_that_is_stopped_takes_up_nothing_more() -> None:
    class Waits:
        name = "waiting"
        begin_event = threading.Event()

        def run(self, stop: Stop) -> None:
            self.begin_event.set()
            until(stop)
            raise OSError("what goes wrong at the end is nobody's business")

    background = Background()
    assert background.stop()
    background = Background()
    background.add(job := Waits())
    assert job.begin_event.wait(10) and background.stop()
    job.begin_event.clear()
    background.add(job)
    assert not job.begin_event.is_set()
