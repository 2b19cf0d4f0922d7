"""Networks that use everything that is quantised."""

from __future__ import annotations

import numpy as np

from autotune.graph.ir import Builder, Graph, TensorType
from tests.graph.nets import conv, weight


def mixed(seed: int = 0) -> Graph:
    """Signed values that are padded, groups, a depthwise layer, concatenation, additions without a layer, means."""
    rng = np.random.default_rng(seed)
    b = Builder("mixed", {"image": TensorType((1, 3, 10, 10))})
    x = b.add("transpose", ["image"], axes=(0, 2, 3, 1))
    x = b.add("relu", [conv(b, rng, x, 3, 16, padding=1)])
    signed = conv(b, rng, x, 3, 32, padding=1)  # read by two: no limits in its kernel
    deep = b.add("depthwise_conv2d", [signed, weight(b, rng, 3, 3, 32)], padding=1)
    deep = b.add("clip", [b.add("add", [deep, weight(b, rng, 32)])], low=0.0, high=0.5)
    grouped = b.add("conv2d", [deep, weight(b, rng, 1, 1, 16, 32)], groups=2)
    joined = b.add("add", [grouped, signed])
    pooled = b.add("avg_pool2d", [joined], kernel=2, stride=2)
    other = b.add("max_pool2d", [b.add("relu", [joined])], kernel=3, stride=2, padding=1)
    both = b.add("concat", [pooled, other], axis=3)
    gate = b.add("sigmoid", [conv(b, rng, both, 1, 32, padding=1)])  # stays in floats
    last = b.add("relu", [conv(b, rng, gate, 3, 24, stride=2)])
    mean = b.add("reduce", [last], axes=(1, 2), reducer="mean")
    logits = b.add("add", [b.add("matmul", [mean, weight(b, rng, 24, 10)]), weight(b, rng, 10)])
    return b.finish([b.add("softmax", [logits]), joined])
