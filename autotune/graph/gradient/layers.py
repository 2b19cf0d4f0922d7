"""Gradients of convolutions and pooling as graph operations, whose kernels are those of convolutions and products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotune.graph.emitter import LabelledEmitter, channels_first, channels_last
from autotune.graph.gradient.convolutions import gradient_of_weight, spread
from autotune.graph.gradient.pooling import index_maxima, spread_maxima, spread_means
from autotune.graph.gradient.rules import Gradients, rule
from autotune.graph.gradient.windows import Windows
from autotune.graph.ir import GraphBuilder, Node
from search_space.operators.windows import window_over


def _make_windows(node: Node, data: tuple[int, ...], kernel: Any, groups: int) -> Windows:
    """Returns the windows of a node over data (n, *extent, c)."""
    window = window_over(data, {**node.attrs, "kernel": kernel})
    before, after = zip(*window.padding, strict=True)
    sizes = window.extent, window.output, window.kernel, window.stride, before, after, window.dilation
    return Windows(data[0], data[-1], node.type.shape[-1], *sizes, groups=groups)


def _have_one_dtype(builder: GraphBuilder, names: Sequence[str]) -> bool:
    """Tells whether all operands have the same dtype, in which the gradients are computed, too."""
    return len({builder.type(name).dtype for name in names}) == 1


@rule("conv1d", "conv2d", "conv3d", "depthwise_conv2d")
def _convolution(builder: GraphBuilder, node: Node, inputs: Sequence[str], slope: str) -> Gradients | None:
    """Computes both gradients with channels first, as weights of models are; transpositions cancel."""
    emitter = LabelledEmitter(builder, f"{node.name}_gradient")
    data, filters = inputs
    shape, rank = emitter.shape(filters), len(node.type.shape) - 2
    windows = _make_windows(node, emitter.shape(data), shape[:rank], node.attrs.get("groups", node.type.shape[-1]))
    if not windows.few or not _have_one_dtype(builder, inputs):
        return None
    slope = emitter.cast(slope, builder.type(data).dtype)
    weight = emitter.reshape(filters, (*shape[:rank], windows.c // windows.groups, windows.k))
    weight = emitter.add("transpose", [weight], axes=(rank + 1, rank, *range(rank)))
    slope, data = channels_first(emitter, slope), channels_first(emitter, data)
    by_data = channels_last(emitter, spread(emitter, slope, weight, windows))
    by_weight = gradient_of_weight(emitter, slope, data, windows)
    by_filters = emitter.add("transpose", [by_weight], axes=(*range(2, rank + 2), 1, 0))
    return [by_data, emitter.reshape(by_filters, shape)]


@rule("matmul")
def _matmul(builder: GraphBuilder, node: Node, inputs: Sequence[str], slope: str) -> Gradients | None:
    emitter = LabelledEmitter(builder, f"{node.name}_gradient")
    if not _have_one_dtype(builder, inputs):
        return None
    slope = emitter.cast(slope, builder.type(inputs[0]).dtype)
    left, right = (emitter.add("transpose", [name], axes=(1, 0)) for name in inputs)
    return [emitter.add("matmul", [slope, right]), emitter.add("matmul", [left, slope])]


@rule("batch_matmul")
def _batch_matmul(builder: GraphBuilder, node: Node, inputs: Sequence[str], slope: str) -> Gradients | None:
    emitter = LabelledEmitter(builder, f"{node.name}_gradient")
    if not _have_one_dtype(builder, inputs):
        return None
    slope = emitter.cast(slope, builder.type(inputs[0]).dtype)
    left, right = (emitter.add("transpose", [name], axes=(0, 2, 1)) for name in inputs)
    return [emitter.add("batch_matmul", [slope, right]), emitter.add("batch_matmul", [left, slope])]


@rule("max_pool2d")
def _max_pool(builder: GraphBuilder, node: Node, inputs: Sequence[str], slope: str) -> Gradients:
    """Assigns gradients to the first of equal elements, or to the last NaN, as PyTorch does."""
    emitter = LabelledEmitter(builder, f"{node.name}_gradient")
    (data,) = inputs
    shape = emitter.shape(data)
    windows = _make_windows(node, shape, node.attrs["kernel"], shape[-1])
    return [spread_maxima(emitter, slope, index_maxima(emitter, data, node.name, windows), windows)]


@rule("avg_pool2d")
def _average_pool(builder: GraphBuilder, node: Node, inputs: Sequence[str], slope: str) -> Gradients | None:
    """Spreads gradients over windows, if each has as many elements."""
    emitter = LabelledEmitter(builder, f"{node.name}_gradient")
    shape = emitter.shape(inputs[0])
    windows = _make_windows(node, shape, node.attrs["kernel"], shape[-1])
    if windows.is_padded and not node.attrs["count_padding"]:
        return None
    out = spread_means(emitter, channels_first(emitter, slope), windows, windows.taps)
    return [channels_last(emitter, out)]
