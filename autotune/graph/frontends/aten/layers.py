"""Convolutions, products, pooling, softmax. Windows slide over channels-last data, between transpositions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autotune.graph.calls import Call
from autotune.graph.emitter import channels_first, channels_last
from autotune.graph.frontends.aten.registry import AtenCall, converts
from autotune.graph.frontends.aten.windows import each_axis, make_windows
from autotune.graph.frontends.onnx.importer import layers
from autotune.graph.frontends.onnx.importer.reductions import reduce_over
from autotune.graph.frontends.onnx.importer.spatial import conv_transpose
from autotune.graph.frontends.onnx.importer.windows import Windows as PoolWindows
from autotune.graph.frontends.onnx.importer.windows import maxima_of_planes
from autotune.graph.gradient.convolutions import convolve, spread
from autotune.graph.gradient.pooling import index_maxima
from autotune.graph.gradient.windows import Windows


@converts("convolution.default")
def convolution(call: AtenCall) -> str:
    """Converts convolutions over one to three axes, with groups, depthwise, transposed, or with a computed weight."""
    rank = len(call.type(0).shape) - 2
    call.require_same_type(0, 1, 2)
    call.require(rank > 0 and len(call.type(1).shape) == rank + 2, "must have a batch", call.type(0))
    if call.array(1) is None:
        data, weight = call.value(0), call.value(1)
        windows = make_windows(call, call.shape(data), weight, call.result.shape)
        out = (spread if call["transposed"] else convolve)(call, data, weight, windows)
        return (
            call.add("add", [out, call.reshape(call.value(2), (*call.type(2).shape, *[1] * rank))])
            if call.has(2)
            else out
        )
    padding = each_axis(call["padding"], rank)
    attrs: dict[str, Any] = {
        "strides": each_axis(call["stride"], rank),
        "dilations": each_axis(call["dilation"], rank),
        "pads": (*padding, *padding),
        "group": int(call["groups"]),
    }
    inputs = [name for name in call.inputs[:3] if name]
    if not call["transposed"]:
        return layers.conv(call.shared("Conv", inputs, **attrs))
    call.require_array(1, "weight")
    more = each_axis(call["output_padding"], rank)
    return conv_transpose(call.shared("ConvTranspose", inputs, **attrs, output_padding=more))


@converts("linear.default")
def linear(call: AtenCall) -> str:
    """Computes x weight^T + bias."""
    call.require_same_type(0, 1, 2)
    value, shape = call.value(0), call.type(0).shape
    rows = call.reshape(value, (math.prod(shape[:-1]), shape[-1]))
    weight = call.array(1)
    right = call.constant(weight.T) if weight is not None else call.add("transpose", [call.value(1)], axes=(1, 0))
    out = call.reshape(call.add("matmul", [rows, right]), call.result.shape)
    return call.add("add", [out, call.value(2)]) if call.has(2) else out


@converts("mm.default", "bmm.default", "matmul.default")
def product(call: AtenCall) -> str:
    """Multiplies matrices in the last two axes."""
    call.require_same_type(0, 1)
    return _product(call, call.value(0), call.value(1))


def _product(call: AtenCall, left: str, right: str) -> str:
    both = len(call.shape(left)) == len(call.shape(right)) == 2
    return call.add("matmul", [left, right]) if both else layers.product(call, left, right)


@converts("mv.default", "dot.default")
def product_with_vector(call: AtenCall) -> str:
    """Multiplies a matrix or a vector by a vector."""
    call.require_same_type(0, 1)
    return layers.matmul(call.shared("MatMul", call.inputs[:2]))


@converts("addmm.default", "baddbmm.default")
def product_and_sum(call: AtenCall) -> str:
    """Computes beta * x + alpha * a b."""
    call.require_same_type(0, 1, 2)
    out = _product(call, call.value(1), call.value(2))
    added = call.value(0)
    if call["alpha"] != 1:
        out = call.add("multiply", [out, call.scalar(float(call["alpha"]), out)])
    if call["beta"] == 0:
        return out
    if call["beta"] != 1:
        added = call.add("multiply", [added, call.scalar(float(call["beta"]), added)])
    return call.add("add", [out, added])


@converts("max_pool2d_with_indices.default", "max_pool3d_with_indices.default")
def max_pool(call: AtenCall) -> list[str | None]:
    """Computes maxima of windows, and their flat indices in the plane if these are read."""
    rank = 3 if "3d" in call.op else 2
    if call.reads(1):
        shared = _pool_call(call, "MaxPool", rank, dilations=each_axis(call["dilation"], rank))
        if rank == 2:
            best = layers.pool(shared)
            return [best, call.cast(_index_maxima(call, best, layers.pool_windows(shared)), "int64")]
        best, place = maxima_of_planes(shared, call.value(0), layers.pool_windows(shared))
        wanted = call.node.meta["val"][1].shape
        return [best, call.cast(call.add("broadcast_to", [place], shape=tuple(wanted)), "int64")]
    return [_pool(call, "MaxPool", rank, dilations=each_axis(call["dilation"], rank)), None]


def _index_maxima(call: AtenCall, best: str, windows: PoolWindows) -> str:
    """Computes the flat index (int32) of the maximum of each window in the plane of its channel."""
    (n, c, *extent), (_, _, *count) = call.type(0).shape, call.shape(best)
    sizes = windows.kernel, windows.stride, windows.before, windows.after, windows.dilation
    data = channels_last(call, call.cast(call.value(0), call.builder.type(best).dtype))
    over = Windows(n, c, c, tuple(extent), tuple(count), *sizes, groups=c)
    return channels_first(call, index_maxima(call, data, channels_last(call, best), over))


@converts("max_pool1d.default", "max_pool2d.default", "max_pool3d.default")
def max_pool_alone(call: AtenCall) -> str:
    """Computes maxima of windows."""
    rank = int(call.op[8])
    return _pool(call, "MaxPool", rank, dilations=each_axis(call["dilation"], rank))


@converts("avg_pool1d.default", "avg_pool2d.default", "avg_pool3d.default")
def avg_pool(call: AtenCall) -> str:
    """Computes means of windows."""
    given = call.arguments.get("divisor_override")
    call.require(given is None, "must divide by the number of elements", f"divisor_override={given}")
    return _pool(call, "AveragePool", int(call.op[8]), count_include_pad=int(call["count_include_pad"]))


def _pool(call: AtenCall, op: str, rank: int, **attrs: Any) -> str:
    return layers.pool(_pool_call(call, op, rank, **attrs))


def _pool_call(call: AtenCall, op: str, rank: int, **attrs: Any) -> Call:
    call.require(len(call.type(0).shape) == rank + 2, "must have a batch", call.type(0))
    kernel, padding = each_axis(call["kernel_size"], rank), each_axis(call["padding"], rank)
    attrs |= {"kernel_shape": kernel, "strides": each_axis(call["stride"] or kernel, rank)}
    attrs |= {"pads": (*padding, *padding), "ceil_mode": int(call["ceil_mode"])}
    return call.shared(op, call.inputs[:1], **attrs)


@converts("_adaptive_avg_pool2d.default", "_adaptive_avg_pool3d.default", "adaptive_avg_pool1d.default")
def adaptive_avg_pool(call: AtenCall) -> str:
    """Computes means of windows that cover the input evenly; unequal windows take a matrix product per axis."""
    shape, out = call.type(0).shape, call.result.shape
    rank = int(call.op.partition("pool")[2][0])
    value, first = call.value(0), len(shape) - rank
    if all(n % m == 0 for n, m in zip(shape[first:], out[first:], strict=True)):
        kernel = tuple(n // m for n, m in zip(shape[first:], out[first:], strict=True))
        if set(out[first:]) == {1}:
            return reduce_over(call, value, tuple(range(first, len(shape))), "mean", True)
        call.require(first == 2, "must have a batch", call.type(0))
        return layers.pool(call.shared("AveragePool", call.inputs[:1], kernel_shape=kernel, strides=kernel))
    for axis in range(first, len(shape)):
        value = _average_axis(call, value, axis, out[axis])
    return value


def _average_axis(call: AtenCall, value: str, axis: int, count: int) -> str:
    """Averages one axis by a product with the windows' shares of each element, (count, extent)."""
    shape = call.shape(value)
    extent, rank = shape[axis], len(shape)
    if extent == count:
        return value
    shares = np.zeros((extent, count), np.float32)
    for place in range(count):
        begin, end = place * extent // count, -(-(place + 1) * extent // count)
        shares[begin:end, place] = 1 / (end - begin)
    order = [a for a in range(rank) if a != axis] + [axis]
    moved = call.add("transpose", [value], axes=tuple(order)) if order != sorted(order) else value
    rows = call.reshape(moved, (math.prod(shape) // extent, extent))
    out = call.add("matmul", [call.cast(rows, "float32"), call.constant(shares)])
    out = call.reshape(out, (*(n for a, n in enumerate(shape) if a != axis), count))
    back = tuple(int(a) for a in np.argsort(order))
    return call.add("transpose", [out], axes=back) if order != sorted(order) else out


@converts("_softmax.default", "softmax.int", "_log_softmax.default", "log_softmax.int")
def softmax(call: AtenCall) -> str:
    """Computes the softmax, or its logarithm, along an axis."""
    op = "LogSoftmax" if "log" in call.op else "Softmax"
    return layers.softmax(call.shared(op, call.inputs[:1], axis=call.axis()))


@converts("_safe_softmax.default")
def safe_softmax(call: AtenCall) -> str:
    """Computes the softmax along an axis; rows of minus infinities become zeros."""
    value, axis = call.value(0), call.axis()
    out = layers.softmax(call.shared("Softmax", call.inputs[:1], axis=axis))
    largest = reduce_over(call, value, (axis,), "max", True)
    empty = call.add("equal", [largest, call.scalar(-math.inf, largest)])
    return call.add("where", [empty, call.scalar(0.0, out), out])
