"""The benchmark on GPUs as far as it goes without one: its rows, PyTorch's side of them, what it says and writes."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.gpu import __main__ as module
from benchmarks.gpu import network, peer
from benchmarks.gpu.__main__ import Beside, main, means
from benchmarks.gpu.peer import torch_calls
from benchmarks.gpu.rows import ROWS, TARGETS, Row, product
from benchmarks.gpu.table import beside_torch, network_beside_torch
from benchmarks.gpu.wary import WaryPool
from measure.errors import ErrorClass
from measure.outcome import Outcome
from measure.pool import MeasurePool, Trial, TrialResult
from search_space import workloads
from search_space.space import generate, make_program
from search_space.workloads import Workload
from targets.cuda.driver import Device
from targets.cuda.hardware import GPUS
from targets.cuda.kernels import device_program
from tests.gpu.candidates import legal
from tests.targets.cuda.emulator import emulate


def test_rows_have_names_of_their_own_and_sketches() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS) and {row.kind for row in ROWS} == {"fp32", "fp16", "rows"}
    assert sum(row.kind == "fp16" for row in ROWS) == 12
    for row in ROWS[:4]:
        assert generate(row.make(), GPUS["sm_90"]).sketches


SMALL = (
    workloads.matmul(8, 12, 5, constant_b=False),
    workloads.conv2d(height=6, width=7, in_channels=3, out_channels=5, kernel=3, stride=2, padding=1),
    workloads.softmax(rows=3, columns=9),
    workloads.layer_norm(rows=3, columns=9),
    workloads.reduce((4, 9), 1),
)


@pytest.mark.parametrize("workload", SMALL, ids=str)
def test_pytorch_computes_the_same(workload: Workload) -> None:
    pytest.importorskip("torch", reason="needs torch")
    given = workload.make_inputs(0)
    for call in torch_calls(workload, given, "cpu").values():
        np.testing.assert_allclose(call().numpy(), workload.reference(*given), rtol=1e-4, atol=1e-5)


def test_what_is_not_measured_is_refused() -> None:
    pytest.importorskip("torch", reason="needs torch")
    workload = workloads.max_pool2d(1, 5, 5, 4, kernel=2)
    with pytest.raises(ValueError, match="must be a product, a convolution or row-wise, but got max_pool2d"):
        torch_calls(workload, workload.make_inputs(0), "cpu")


def test_means_are_geometric_and_of_each_kind() -> None:
    rows = {
        "a": {"kind": "fp32", "ratio_warm": 0.5, "ratio_cold": 1.0},
        "b": {"kind": "fp32", "ratio_warm": 2.0, "ratio_cold": 4.0},
        "c": {"kind": "rows", "problem": "no schedule"},
    }
    assert means(rows) == pytest.approx({"fp32_warm": 1.0, "fp32_cold": 2.0})


def test_the_table_tells_ratios_and_what_was_not_measured() -> None:
    seconds = {"ours": 2e-5, "torch_plain": 3e-5, "torch_channels_last": 2.5e-5}
    measured = {
        "kind": "fp32",
        **dict.fromkeys(("warm", "cold"), seconds),
        **{f"ratio_{state}": 1.25 for state in ("warm", "cold")},
        "metrics": {"registers": 96.0, "spill_bytes": 0.0},
    }
    rows = {"one": measured, "two": {"kind": "fp32", "problem": "no schedule"}}
    document = {"device": "NVIDIA H200", "arch": "sm_90", "date": "2026-01-01", "means": means(rows), "rows": rows}
    text = beside_torch(document)
    assert "| one | 20.0 | 25.0 | 1.25x | 20.0 | 25.0 | 1.25x | 96 | 0 |" in text
    assert "| two | no schedule |" in text and "| fp32 | 1 | 1.25x | 1.25x | 1.0x |" in text
    assert "On NVIDIA H200 (sm_90), 2026-01-01" in text
    assert set(TARGETS) == {row.kind for row in ROWS}
    del measured["cold"], measured["ratio_cold"]
    document |= {"means": means(rows), "note": "Cold ones are not known."}
    text = beside_torch(document)
    assert "| one | 20.0 | 25.0 | 1.25x |  |  |  | 96 | 0 |" in text and "| fp32 | 1 | 1.25x |  | 1.0x |" in text
    assert "microseconds. Cold ones are not known." in text


def test_a_network_stands_beside_each_way_of_pytorch() -> None:
    ours = {"seconds": 5e-4, "turns": [4.9e-4, 5e-4, 5.1e-4]}
    ways = {
        "eager_channels_last": {"ours": ours, "torch": {"seconds": 1e-3, "turns": [1e-3]}},
        "inductor": {"problem": "no"},
    }
    row = {
        "made": {"date": "2026-01-01"},
        "trials": 8,
        "run_seconds": 60.4,
        "max_error": 1e-6,
        "torch": "2",
        "beside": ways,
    }
    text = network_beside_torch({"device": "NVIDIA H200", "arch": "sm_90a", "rows": {"resnet50": row}})
    assert "On NVIDIA H200 (sm_90a), 2026-01-01; " in text and "took 60 s" in text
    assert "| eager, channels last | 0.500 | 4.0 % | 1.000 | 0.0 % | 2.00x |" in text
    assert "| inductor | no |  |  |  |  |" in text


def test_each_graph_is_of_a_thread_that_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuDNN's choices are kept by thread."""
    threads: list[threading.Thread] = []

    def record(call: peer.Call) -> peer.Call:
        threads.append(threading.current_thread())
        return call

    monkeypatch.setattr(peer, "_record_graph", record)
    assert [replay() for replay in peer.record_graphs(lambda: 7, 3)] == [7, 7, 7]
    assert len({*threads, threading.current_thread()}) == 4 and all(thread.is_alive() for thread in threads)


def test_multiply_adds_are_those_of_layers() -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    layers = [torch.nn.Conv2d(3, 8, 3, padding=1, groups=1), torch.nn.ReLU(), torch.nn.Flatten()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(8 * 4 * 4, 10))
    assert network.multiply_adds(model, torch.zeros(2, 3, 4, 4)) == 2 * (8 * 16 * 27 + 10 * 128)


def test_a_network_is_timed_on_a_gpu_alone(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(network, "missing_device", lambda: "there is no GPU here")
    assert network.main([]) == 2
    assert capfd.readouterr().err == "there is no GPU here\n"
    monkeypatch.setattr(network.sys, "executable", "/bin/false")
    with pytest.raises(RuntimeError, match="`autotune run` must write a network, but ended with 1"):
        network.run_tuning(tmp_path, "sm_90a", 8)
    assert "target: cuda:sm_90a\n" in (tmp_path / "resnet50.yaml").read_text()


def test_products_of_float16_are_written_as_such(tmp_path: Path) -> None:
    """PyTorch writes them like this; warpgroups and the TMA unit still compute them, and the text rounds."""
    workload = product(64, 72, 136, "float16")
    assert workload.output.dtype == "float16" and product(64, 72, 136).output.dtype == "float32"
    sketches = [
        s for s in generate(workload, GPUS["sm_90a"], ["direct"]).sketches if s.name.startswith("direct:wgmma64")
    ]
    assert {s.name.partition("/")[2] for s in sketches} >= {"2", "3", "bulk2", "bulk3"}
    given = workload.make_inputs(0)
    named = dict(zip((spec.name for spec in workload.inputs), given, strict=True))
    for sketch in sketches[:1]:
        program = make_program(workload, "direct", sketch.trace(legal(sketch, 1)[0]))
        limits = GPUS["sm_90a"].gpu
        assert limits is not None
        out = emulate(device_program(program, limits), named)[workload.output.name]
        rtol, atol = workload.tolerance
        np.testing.assert_allclose(out.astype(np.float64), workload.reference(*given).astype(np.float64), rtol, atol)
    pytest.importorskip("torch", reason="needs torch")
    (call,) = torch_calls(workload, given, "cpu").values()
    assert call().numpy().dtype == np.float16


def test_rows_that_are_not_there_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rows", "matmul_7"]) == 2
    assert "`--rows` must be among matmul_1024x1024x1024_fp32, " in capsys.readouterr().err


def test_without_a_gpu_there_is_a_sentence(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "missing_device", lambda: "there is no GPU here")
    assert main([]) == 2
    assert capsys.readouterr().err == "there is no GPU here\n"


# ---------------------------------------------------------------------- what hangs or fails
class Measuring(MeasurePool):
    """A pool that answers each trial at once, those of `hanging` with a time-out, and lists its trials."""

    def __init__(self, hanging: frozenset[str]) -> None:
        self.hanging, self.trials = hanging, []
        self._results: list[TrialResult] = []
        self.is_closed = False

    def submit(self, trials: Sequence[Trial]) -> None:
        for trial in trials:
            hangs = trial.algorithm in self.hanging
            error = {"error": ErrorClass.run_timeout, "message": "too long"} if hangs else {"error": ErrorClass.crash}
            self._results.append(TrialResult(trial, len(self.trials), Outcome(**{"message": "gone", **error})))
            self.trials.append(trial)

    def results(self, timeout: float | None = None) -> list[TrialResult]:
        found, self._results = self._results, []
        return found

    def cancel(self) -> None:
        self._results = []

    def close(self) -> None:
        self.is_closed = True

    @property
    def outstanding(self) -> int:
        return len(self._results)


def _trial(algorithm: str, number: int, name: str = "split") -> Trial:
    return Trial({}, algorithm, ({"kind": name, "factors": [number, 2]},), "cuda", workload_key="w", trace_key="t")


def test_a_sketch_that_hangs_twice_gets_no_more_of_the_device() -> None:
    inner = Measuring(frozenset({"slow"}))
    with WaryPool(inner, 1.5) as pool:
        for number in range(3):
            found = pool.run([_trial("slow", number), _trial("fine", number), _trial("slow", number, "fuse")])
            assert [r.index % 3 for r in found] == [0, 1, 2] and [r.trial.algorithm for r in found][1] == "fine"
        assert [r.error for r in found] == [ErrorClass.run_timeout, ErrorClass.crash, ErrorClass.run_timeout]
        assert found[0].message == "its sketch ran out of time 2 times, and is given up"
        assert {t.run_timeout for t in inner.trials} == {1.5} and pool.outstanding == 0
    assert [t.algorithm for t in inner.trials].count("slow") == 4 and inner.is_closed


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import time; time.sleep(60)", "TimeoutError: the winner must be timed within 2 s"),
        ("import os; os.kill(os.getpid(), 9)", "RuntimeError: the winner's process ended with -9"),
        (
            "import sys; sys.exit('DeviceLost: a fault')",
            "RuntimeError: the winner's process ended with 1 and said DeviceL",
        ),
        ("print('{\"ratio_warm\": 2.0}')", ""),
    ],
    ids=["hangs", "dies", "fails", "answers"],
)
def test_a_winner_is_timed_in_a_process_that_may_end_any_way(
    code: str, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "stand_in.py").write_text(f"{code}\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(module, "BESIDE", "stand_in")
    beside = Beside()
    winner = SimpleNamespace(workload=SMALL[0], module=SimpleNamespace(to_bytes=lambda: b"module"))
    try:
        assert beside.compare(winner, 0, 2.0) == {"ratio_warm": 2.0} and not message  # type: ignore[arg-type]
    except (TimeoutError, RuntimeError) as error:
        assert message and f"{type(error).__name__}: {error}".startswith(message)
    beside.close()
    assert beside.process.wait(5) is not None


def test_a_row_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def measure(row: Row, *rest: object) -> dict[str, Any]:
        if row is ROWS[0]:
            raise TimeoutError("the winner must be timed within 60 s, but was not")
        return {"kind": row.kind, "ratio_warm": 2.0, "ratio_cold": 2.0}

    monkeypatch.setattr(module, "missing_device", lambda: "")
    monkeypatch.setattr(module, "devices", lambda: [Device("cuda:sm_90", "a GPU", 1 << 30)])
    monkeypatch.setattr(module, "measure", measure)
    monkeypatch.setenv("OUT", str(tmp_path))
    assert main(["--rows", f"{ROWS[0].name},{ROWS[1].name}"]) == 1
    saved = json.loads((tmp_path / "gpu.json").read_text())
    assert saved["rows"][ROWS[0].name]["problem"].startswith("TimeoutError: the winner") and saved["arch"] == "sm_90a"
    assert saved["rows"][ROWS[1].name]["ratio_warm"] == 2.0 and saved["means"][f"{ROWS[1].kind}_warm"] == 2.0
