"""Small graphs that several tests use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from autotune.compiler.executable.compile import ChooseSchedule, Compiler
from autotune.compiler.executable.loading import load
from autotune.graph.ir import Graph, GraphBuilder, TensorType
from targets.executable import Executable


def weight(builder: GraphBuilder, rng: np.random.Generator, *shape: int) -> str:
    """A constant whose products keep the size of what they are multiplied with."""
    fan_in = max(1, int(np.prod(shape[:-1])))
    return builder.constant((rng.standard_normal(shape) / np.sqrt(fan_in)).astype(np.float32), "weight")


def conv(builder: GraphBuilder, rng: np.random.Generator, x: str, kernel: int, channels: int, **attrs: Any) -> str:
    """A convolution with its bias."""
    out = builder.add("conv2d", [x, weight(builder, rng, kernel, kernel, builder.type(x).shape[-1], channels)], **attrs)
    return builder.add("add", [out, weight(builder, rng, channels)])


def residual(seed: int = 0) -> Graph:
    """A block of ResNet with a projection, a pool, and a classifier."""
    rng = np.random.default_rng(seed)
    b = GraphBuilder("residual", {"x": TensorType((1, 8, 8, 16))})
    start = b.add("relu", [conv(b, rng, "x", 3, 32, padding=1)])
    branch = conv(b, rng, start, 1, 64)
    main = conv(b, rng, b.add("relu", [conv(b, rng, start, 3, 32, padding=1)]), 1, 64)
    joined = b.add("relu", [b.add("add", [main, branch])])
    pooled = b.add("max_pool2d", [joined], kernel=3, stride=2, padding=1)
    mean = b.add("reduce", [pooled], axes=(1, 2), reducer="mean")
    logits = b.add("add", [b.add("matmul", [mean, weight(b, rng, 64, 10)]), weight(b, rng, 10)])
    return b.finish([b.add("softmax", [logits])])


def branches(batch: int = 1) -> Graph:
    """Convolutions, a residual sum, pools, concatenations with parts at multiples of 16 bytes and not, a slice."""
    rng = np.random.default_rng(batch)
    b = GraphBuilder("branches", {"x": TensorType((batch, 6, 6, 3))})
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


def feeds(graph: Graph, seed: int = 0) -> dict[str, Any]:
    """Random inputs."""
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(t.shape).astype(t.dtype) for name, t in graph.inputs.items()}


def compile_graph(
    graph: Graph, choose: ChooseSchedule, folder: Path, target: str = "cpu", threads: int = 1
) -> Executable:
    """The graph's executable, in `folder`."""
    Compiler(graph, choose, target, threads).write(folder)
    return load(folder, threads)
