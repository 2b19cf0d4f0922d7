"""Callers of one network: what is counted, what is refused, and what the table says of it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks.peers.base import PeerError, PeerProcess
from benchmarks.serving.__main__ import PROCESS, figures, main
from benchmarks.serving.callers import Window, WrongAnswer, run_callers
from benchmarks.serving.process import Server
from benchmarks.serving.table import serving
from benchmarks.table import regenerate
from tests.autotune.compiler.test_compile import compile_into
from tests.autotune.graph.nets import feeds, residual

ANSWER = (np.ones(3, np.float32),)


def test_callers_run_side_by_side_and_every_request_is_counted() -> None:
    made, meeting = [0, 0], threading.Barrier(2, timeout=30)

    def call(caller: int) -> tuple[np.ndarray, ...]:
        if not made[caller]:
            meeting.wait()  # both are in a call at once, or this breaks
        made[caller] += 1
        time.sleep(0.001)
        return ANSWER

    window = run_callers([lambda: call(0), lambda: call(1)], ANSWER, 0.02)
    assert len(window.latencies) == sum(made) and min(made) >= 1
    assert window.seconds >= 0.02 and min(window.latencies) >= 0.001
    assert sum(window.latencies) <= 2 * window.seconds


@pytest.mark.parametrize("wrong", [np.full(3, 1.01, np.float32), np.full(3, np.nan, np.float32)])
def test_a_wrong_answer_of_one_caller_ends_the_comparison(wrong: np.ndarray) -> None:
    with pytest.raises(WrongAnswer, match="caller 1 is"):
        run_callers([lambda: ANSWER, lambda: (wrong,)], ANSWER, 0.0)


def test_what_a_call_raises_is_raised() -> None:
    def call() -> tuple[np.ndarray, ...]:
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError, match="a bug"):
        run_callers([call], ANSWER, 0.0)


def test_figures_are_of_the_faster_half_of_the_windows() -> None:
    slow, fast = Window(1.0, (0.5, 0.5)), Window(1.0, tuple([0.01] * 98 + [0.2, 0.3]))
    found = figures([slow, fast])
    assert found["requests_per_second"] == 100 and found["requests"] == 100
    assert found["p50_seconds"] == pytest.approx(0.01)
    assert found["p99_seconds"] == pytest.approx(np.quantile(fast.latencies, 0.99))


def row(**runtimes: tuple[float, float]) -> dict[str, object]:
    each = {
        name: {"2": {"requests_per_second": rate, "p99_seconds": p99, "p50_seconds": p99, "requests": 9}}
        for name, (rate, p99) in runtimes.items()
    }
    return {"name": "net", "way": "shared", "trials": 0, "runtimes": each, "missing": {}}


def test_the_table_compares_with_the_better_peer() -> None:
    document = {"rows": {"a": row(autotune=(120.0, 0.02), onnxruntime=(100.0, 0.03)), "b": row(autotune=(9.0, 0.1))}}
    _, _, first, second = serving(document).splitlines()
    assert first == "| net | all cores, shared | 2 | 120.0 | 100.0 |  | 1.20x | 20.00 | 30.00 |  |"
    assert second == "| net | all cores, shared | 2 | 9.0 |  |  |  | 100.00 |  |  |"


def test_a_marked_table_is_filled(tmp_path: Path) -> None:
    text = "<!-- table:serving -->\n<!-- /table -->"
    assert "python -m benchmarks.serving" in regenerate(text, tmp_path)


def test_unknown_ways_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rows", "resnet50 alone"]) == 2
    assert "`rows` must be of mobilenet_v2 shared, " in capsys.readouterr().err


def test_requests_out_of_order_are_refused() -> None:
    with pytest.raises(PeerError, match="must be open, and then serve, but got op='serve'"):
        Server().answer({"op": "serve", "callers": 1, "seconds": 0.1})


def test_an_executable_is_served_by_a_process_of_its_own(tmp_path: Path) -> None:
    graph = residual()
    compile_into(graph, tmp_path)
    np.savez(tmp_path / "inputs.npz", **feeds(graph))
    facts = {"runtime": "autotune", "source": str(tmp_path / "network"), "inputs": str(tmp_path / "inputs.npz")}
    with PeerProcess(PROCESS) as server:
        said = server.ask({"op": "open", "threads": 1, "cores": 1, **facts})
        assert said["largest"][0] > 0
        reply = server.ask({"op": "serve", "callers": 3, "seconds": 0.01})
        assert len(reply["latencies"]) >= 3 and reply["seconds"] >= 0.01
        with pytest.raises(PeerError, match="must have"):
            server.ask({"op": "open", "threads": 1, "cores": 1, **facts, "source": str(tmp_path)})
