"""Every kernel of known networks has a schedule for GPUs, of which kernels can be written."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import pytest

from autotune.compiler.options import CompileOptions
from autotune.compiler.prepare import load_network
from autotune.graph.frontends.onnx.model import load_model
from autotune.graph.zoo import bert_base
from search_space.space import generate, make_program
from targets.cuda.nvrtc import compile_cubin
from targets.cuda.program_text import emit_program
from targets.cuda.target import CudaTarget
from tests.gpu.candidates import legal

TARGET = CudaTarget()
MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "resnet50": lambda: load_model("resnet50"),
    "bert": lambda: bert_base.build(layers=1, hidden=64, heads=2, sequence=16, vocabulary=100),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_task_has_kernels(name: str) -> None:
    network = load_network(MODELS[name](), name, CompileOptions(target=TARGET))
    texts: dict[tuple[str, ...], str] = {}
    for number, task in enumerate(network.tasks):
        space = generate(task.workload, TARGET.hardware)
        assert space.sketches, task.name
        names = tuple(sketch.name for sketch in space.sketches)
        kind = (task.name.partition("_")[0], *names)
        if kind in texts:
            continue
        sketch = space.sketches[number % len(names)]
        (row,) = legal(sketch, 1, number)
        program = make_program(task.workload, sketch.algorithm, sketch.trace(row))
        texts[kind] = emit_program(TARGET.device_program(program, "kernel"))
    assert len(texts) > 2 and all("__global__" in text for text in texts.values())
    shortest = min(texts.values(), key=len)
    assert compile_cubin(shortest, TARGET.arch).resources
