"""Training steps on a GPU, which a fake stands for: kernels compute what the graph says, and steps are the CPU's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import autotune
from autotune.compiler.executable.compile import Compiler
from autotune.compiler.options import CompileOptions
from autotune.compiler.pipeline import make_pipeline
from autotune.graph.errors import UnsupportedModelError
from autotune.graph.evaluate import evaluate
from autotune.training import api
from autotune.training.optimisers import LEARNING_RATE, SGD, STEP
from autotune.training.precision import training_mode
from autotune.training.step import PARAMETERS, make_training_graph
from targets.cuda.executable import CudaExecutable
from targets.cuda.target import CudaTarget
from targets.manifest import ExecutableError
from tests.autotune.training.test_bfloat16 import convolutions
from tests.autotune.training.test_training import Case, tokens
from tests.gpu.candidates import make_chooser
from tests.targets.cuda.fake_device import FakeDevice, RecordingTarget

ABSENT = "this machine has no NVIDIA GPU"


@pytest.mark.usefixtures("text_as_machine_code")
@pytest.mark.parametrize(("make", "precision"), [(convolutions, "float32"), (tokens, "bfloat16")])
def test_kernels_of_a_step_compute_what_the_graph_says(
    target: RecordingTarget, tmp_path: Path, make: Callable[[], Case], precision: str
) -> None:
    module, x, y = make()
    forward = api._read(module, x, y, "cross_entropy", 0)
    names, optimiser = list(forward.parameters), SGD(0.125, 0.9)
    step = make_training_graph(forward.graph, names, forward.loss, optimiser, forward.new_buffers)
    graph = make_pipeline(CompileOptions(target, precision=training_mode(precision))).run(step.graph).graph
    Compiler(graph, make_chooser(target.hardware, 0), target.name).write(tmp_path / "network")
    network = CudaExecutable(tmp_path / "network", device=FakeDevice(target.kernels_by_digest))
    assert max(file.stat().st_size for file in network.folder.glob("*.cubin")) < 30_000  # the texts of kernels
    flat = np.zeros(step.length, np.float32)
    for name, slot in step.slots.items():
        slot.of(flat)[...] = forward.parameters[name]
    feeds: dict[str, Any] = {LEARNING_RATE: np.float32([0.125]), STEP: np.float32([1])}
    feeds |= {name: np.zeros(kind.shape, kind.dtype) for name, kind in step.states.items()}
    feeds |= {"targets": y.numpy(), "inputs_0": x.numpy(), PARAMETERS: flat, **forward.buffers}
    values, results = evaluate(graph, feeds), network(feeds)
    bound = 1e-5 if precision == "float32" else 4e-3
    for parameter, name in zip(network.outputs, graph.outputs, strict=True):
        error = np.linalg.norm(results[parameter.name] - values[name])
        assert error < bound * np.linalg.norm(values[name]), parameter.name


@pytest.mark.usefixtures("text_as_machine_code")
def test_a_step_on_a_gpu_is_that_on_the_cpu(
    target: RecordingTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RecordingTarget, "unavailable", lambda self: "")
    monkeypatch.setattr("targets.cuda.executable.first_device", lambda: FakeDevice(target.kernels_by_digest))
    monkeypatch.setattr("autotune.compiler.schedules.allowed_cores", lambda: {0})  # kernels are built in this process
    torch.manual_seed(0)
    module, x, y = nn.Linear(6, 3), torch.randn(4, 6), torch.randn(4, 3)
    options: dict[str, Any] = {"loss": "mse", "optimiser": SGD(0.1, momentum=0.9), "batches": 2}
    steps = [autotune.compile_training(module, x, y, target=name, **options) for name in ("cuda", "cpu")]
    ours, theirs = ([step.step(y, x) for _ in range(3)] for step in steps)
    assert ours == pytest.approx(theirs, rel=1e-5) and isinstance(steps[0].executable, CudaExecutable)
    assert [file.name for file in steps[0].save(tmp_path).iterdir() if file.suffix == ".h"] == []
    again = autotune.load_training(tmp_path)
    assert again.step(y, x) == steps[0].step(y, x) and again.steps == 4
    for name, array in steps[0].states.items():
        np.testing.assert_array_equal(again.states[name], array)
    with pytest.raises(UnsupportedModelError, match="^`target` must be cpu for a model with dropout, but got .*'cuda'"):
        autotune.compile_training(nn.Sequential(module, nn.Dropout(0.5)), x, y, "mse", target="cuda")


def test_without_a_gpu_a_step_is_refused_before_the_model_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CudaTarget, "unavailable", lambda self: ABSENT)
    with pytest.raises(ExecutableError, match=f"^a training step must be compiled on .* runs it, but {ABSENT}$"):
        autotune.compile_training("net.onnx", target="cuda:sm_80")
    with pytest.raises(ValueError, match="^`target` must be one of cpu, cuda, but got target='vta'"):
        autotune.compile_training("net.onnx", target="vta:alu")
