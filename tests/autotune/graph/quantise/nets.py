"""Networks that use everything that is quantised."""

from __future__ import annotations

import numpy as np

from autotune.graph.ir import Array, Graph, GraphBuilder, TensorType
from tests.autotune.graph.nets import conv, weight


def make_mixed_layers(seed: int = 0) -> Graph:
    """Signed values that are padded, groups, a depthwise layer, concatenation, additions without a layer, means."""
    rng = np.random.default_rng(seed)
    b = GraphBuilder("mixed", {"image": TensorType((1, 3, 10, 10))})
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


def transformer(seed: int = 0, rows: int = 24, width: int = 32, heads: int = 4, outliers: float = 1.0) -> Graph:
    """A block of a transformer: attention and two layers behind GELU, each behind a normalisation.

    Args:
        seed: seed of the weights.
        rows: length of the sequence.
        width: width of a row.
        heads: heads of the attention.
        outliers: factor by which two channels that the layers read are larger; their weights are smaller by it.
    """
    rng = np.random.default_rng(seed)
    b = GraphBuilder("transformer", {"x": TensorType((rows, width))})
    gain = np.ones(width)
    gain[[3, width // 2]] = outliers

    def normalise(x: str) -> str:
        shift = rng.standard_normal(width) / 4
        ends = [b.constant(array.astype(np.float32)) for array in (gain, shift)]
        return b.add("layer_norm", [x, *ends])

    def layer(x: str, outputs: int, scale: Array | None = None) -> str:
        inputs = b.type(x).shape[-1]
        drawn = rng.standard_normal((inputs, outputs)) / np.sqrt(inputs)
        drawn = drawn if scale is None else drawn / scale[:, None]
        y = b.add("matmul", [x, b.constant(drawn.astype(np.float32))])
        return b.add("add", [y, weight(b, rng, outputs)])

    def by_head(y: str, axes: tuple[int, ...]) -> str:
        return b.add("transpose", [b.add("reshape", [y], shape=(rows, heads, width // heads))], axes=axes)

    read = normalise("x")
    query, key, value = (layer(read, width, gain) for _ in range(3))
    products = b.add("batch_matmul", [by_head(query, (1, 0, 2)), by_head(key, (1, 2, 0))])
    flat = b.add("softmax", [b.add("reshape", [products], shape=(heads * rows, rows))])
    attention = b.add("reshape", [flat], shape=(heads, rows, rows))
    mixed = b.add("transpose", [b.add("batch_matmul", [attention, by_head(value, (1, 0, 2))])], axes=(1, 0, 2))
    middle = b.add("add", [layer(b.add("reshape", [mixed], shape=(rows, width)), width), "x"])
    hidden = b.add("gelu", [layer(normalise(middle), 4 * width, gain)])
    return b.finish([b.add("add", [layer(hidden, width), middle])])
