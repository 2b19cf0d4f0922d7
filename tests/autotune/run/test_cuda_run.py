"""Commands on networks for a GPU: a whole run on one that a fake stands for, and what there is without any."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

from autotune.cli.app import app
from autotune.compiler import finalize
from autotune.compiler.checking.process import NetworkProcess
from autotune.compiler.checking.runtimes import Server
from autotune.config import load_config
from measure.child_main import Message
from targets.cuda.target import CudaTarget
from tests.autotune.compiler.test_network import two_layers
from tests.autotune.fakes import HashPool
from tests.autotune.graph.onnx_models import make_model
from tests.targets.cuda.fake_device import FakeDevice, RecordingTarget

ABSENT = "target cuda must run on a machine with a GPU"
CONFIGS = Path(__file__).parents[3] / "configs"


class InProcess(NetworkProcess):
    """A `NetworkProcess` that answers in this process."""

    def __init__(self, runtime: str, threads: int, **facts: str) -> None:
        self.runtime, self._server = runtime, Server({"runtime": runtime, "threads": threads, **facts})

    def _ask(self, request: Mapping[str, Any], blob: bytes = b"") -> Message:
        return self._server.answer(dict(request), blob)

    def close(self) -> None:
        """Has nothing to end."""


@pytest.fixture
def config(
    target: RecordingTarget, text_as_machine_code: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Writes the configuration of a small network, whose trials are answered in no time."""
    monkeypatch.setattr("autotune.run.run.make_pool", lambda *spec: HashPool())
    monkeypatch.setattr("autotune.compiler.checking.timing.NetworkProcess", InProcess)
    monkeypatch.setattr(finalize, "TURNS", 1)
    two_layers(tmp_path / "two.onnx", shape=(1, 16, 4, 4))
    path = tmp_path / "two.yaml"
    path.write_text(
        f"model: {tmp_path / 'two.onnx'}\ntarget: cuda\ntrials: 16\noutput: {tmp_path / 'out'}\n"
        "search: {strategy: random, finalists: 0}\ncost_model: {name: roofline}\ntracking: {backend: none}\n"
    )
    return path


def test_a_run_ends_with_an_executable_that_is_checked_and_timed(
    config: Path, target: RecordingTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = FakeDevice(target.kernels_by_digest)
    device.kernel_seconds = 0.02
    monkeypatch.setattr(RecordingTarget, "unavailable", lambda self: "")
    monkeypatch.setattr("targets.cuda.executable.first_device", lambda: device)
    result = CliRunner().invoke(app, ["run", str(config)])
    assert result.exit_code == 0, result.output
    out = load_config(config).folder
    network = json.loads((out / "summary.json").read_text())["network"]
    manifest = json.loads((out / "network" / "manifest.json").read_text())
    assert manifest["kind"] == "cuda" and network["trials"] == 16
    launches = sum(map(len, manifest["launches"]))
    assert network["seconds"] == pytest.approx(0.02 * launches) and network["reference"] is None
    assert network["max_error"] < 1e-5 and network["bound_seconds"] > 0
    assert network["memory"]["arena_bytes"] == manifest["memory"]["arena_bytes"]
    assert "onnxruntime" not in network["memory"]["resident_bytes"]


def test_where_other_machines_measure_the_network_is_written(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The network has one kernel."""
    given = {"x": np.zeros((4, 12), np.float32)}, {"w": np.ones((12, 16), np.float32)}
    onnx.save(make_model("MatMul", *given), config.parent / "two.onnx")
    monkeypatch.setattr(RecordingTarget, "unavailable", lambda self: ABSENT)
    result = CliRunner().invoke(app, ["run", str(config), "--pool", "rpc://board:9000?key=gpu"])
    assert result.exit_code == 0, result.output
    assert f"the network was neither checked nor timed: {ABSENT}" in result.output
    out = load_config(config).folder
    assert list((out / "network").glob("*.cubin"))
    assert json.loads((out / "summary.json").read_text())["network"]["seconds"] is None
    again = CliRunner().invoke(app, ["compile", str(config), "--output", str(out / "again")])
    assert again.exit_code == 0, again.output
    assert (out / "again" / "manifest.json").read_bytes() == (out / "network" / "manifest.json").read_bytes()


def test_without_a_gpu_a_run_ends_before_the_model_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def read(*arguments: object) -> None:
        raise AssertionError

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(CudaTarget, "unavailable", lambda self: ABSENT)
    monkeypatch.setattr("autotune.compiler.job.NetworkJob.load", read)
    result = CliRunner().invoke(app, ["run", str(CONFIGS / "resnet50_cuda.yaml")])
    assert result.exit_code == 2 and f"resnet50_cuda.yaml:target: {ABSENT}" in result.output
    assert not list(tmp_path.iterdir())


def test_other_runtimes_are_not_timed_beside_a_gpu(config: Path) -> None:
    result = CliRunner().invoke(app, ["bench", str(config)])
    assert result.exit_code == 2
    assert "`target` must be one whose networks other runtimes are timed beside, but got cuda" in result.output


def test_a_task_is_lowered(config: Path) -> None:
    result = CliRunner().invoke(app, ["lower", str(config), "--stage", "cuda", "--task", "matmul_1x16_10_add"])
    assert result.exit_code == 0, result.output
    assert "__global__ void __launch_bounds__" in result.output
