"""Networks on a GPU, which a fake stands for: what they compute, where arrays lie, timing, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from autotune.compile import Chosen, Compiler, Schedule
from autotune.cuda_executable import CudaExecutable
from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Builder, Graph, TensorType
from search_space.space import generate
from search_space.workloads import Workload
from targets.cuda.nvrtc import Compiled, Resources
from tests.gpu.candidates import legal
from tests.graph.nets import conv, feeds, weight
from tests.targets.cuda.fake_device import FakeDevice, RecordingTarget


def branches(batch: int = 1) -> Graph:
    """Convolutions, a residual sum, pools, concatenations with parts at multiples of 16 bytes and not, a slice."""
    rng = np.random.default_rng(batch)
    b = Builder("branches", {"x": TensorType((batch, 6, 6, 3))})
    start = b.add("relu", [conv(b, rng, "x", 3, 8, padding=1)])
    deep = b.add("depthwise_conv2d", [start, weight(b, rng, 3, 3, 8)], padding=1)
    deep = b.add("clip", [b.add("add", [deep, weight(b, rng, 8)])], low=0.0, high=6.0)
    joined = b.add("relu", [b.add("add", [conv(b, rng, deep, 1, 8), start])])
    odd = b.add("relu", [conv(b, rng, joined, 1, 3)])
    whole = b.add("concat", [joined, b.add("relu", [conv(b, rng, joined, 1, 4)])], axis=3)
    uneven = b.add("concat", [odd, b.add("relu", [conv(b, rng, joined, 1, 5)])], axis=3)
    pooled = b.add("max_pool2d", [b.add("concat", [whole, uneven], axis=3)], kernel=2, stride=2)
    part = b.add("slice", [pooled], begin=(0, 0, 0, 4), size=(batch, 3, 3, 16))
    mean = b.add("reduce", [b.add("relu", [part])], axes=(1, 2), reducer="mean")
    logits = b.add("add", [b.add("matmul", [mean, weight(b, rng, 16, 10)]), weight(b, rng, 10)])
    return b.finish([b.add("softmax", [logits]), deep])


KERNEL = re.compile(r"__launch_bounds__\(\d+\) (\w+)\(")


def some(seed: int) -> Chosen:
    """A random candidate of each workload."""
    hardware = RecordingTarget().hardware

    def chosen(workload: Workload) -> Schedule:
        names = [name for name in workload.algorithms if name in ("direct", "im2col")]
        space = generate(workload, hardware, names)
        sketch = space.sketches[seed % len(space.sketches)]
        return Schedule(sketch.algorithm, sketch.trace(legal(sketch, 1, seed)[0]))

    return chosen


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> RecordingTarget:
    """Stands for the CUDA target; what it builds runs on fake devices."""
    made = RecordingTarget()
    monkeypatch.setattr("targets.cuda.target.get_target", lambda spec="cuda": made)
    return made


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """No NVRTC: the machine code is the text."""

    def compiled(text: str, arch: str) -> Compiled:
        used = Resources(32, 0, 0, 0)
        return Compiled(b"\x7fELF" + text.encode(), dict.fromkeys(KERNEL.findall(text), used))

    monkeypatch.setattr("targets.cuda.target.compile_cubin", compiled)


def written(graph: Graph, chosen: Chosen, folder: Path, target: RecordingTarget) -> CudaExecutable:
    Compiler(graph, chosen, target.name).write(folder / "network")
    return CudaExecutable(folder / "network", FakeDevice(target.built))


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize(("batch", "seed"), [(1, 0), (2, 1), (1, 2)])
def test_outputs_are_the_graphs(target: RecordingTarget, tmp_path: Path, batch: int, seed: int) -> None:
    graph = branches(batch)
    network = written(graph, some(seed), tmp_path, target)
    for again in range(2):
        given = feeds(graph, again)
        values = evaluate(graph, given)
        for found, name in zip(network(given["x"]), graph.outputs, strict=True):
            np.testing.assert_allclose(found, values[name], rtol=1e-4, atol=1e-5)
