"""Convolutions, products, pooling, normalisation. Windows slide over channels-last data, between transpositions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autotune.graph.calls import Call, Result
from autotune.graph.emitter import channels_first, channels_last
from autotune.graph.frontends.onnx.importer import windows as by_slices
from autotune.graph.frontends.onnx.importer.registry import imports
from autotune.graph.ir import Array
from search_space.operators.windows import normalise_padding


def _per_axis(call: Call, name: str, rank: int, default: int = 1) -> tuple[int, ...]:
    return call.ints(name, default=[default] * rank) or ()


def _pads(
    call: Call,
    extent: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    ceil: bool = True,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns padding before and after each spatial axis, including that of `ceil_mode` if `ceil`."""
    rank = len(extent)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    kind = call.attrs.get("auto_pad", b"NOTSET")
    if kind in (b"SAME_UPPER", b"SAME_LOWER"):
        fields = zip(extent, stride, reach, strict=True)
        total = [max(0, (math.ceil(n / s) - 1) * s + r - n) for n, s, r in fields]
        less, more = [t // 2 for t in total], [t - t // 2 for t in total]
        before, after = (less, more) if kind == b"SAME_UPPER" else (more, less)
    else:
        pads = [0] * 2 * rank if kind == b"VALID" else list(call.attrs.get("pads", [0] * 2 * rank))
        before, after = pads[:rank], pads[rank:]
    if ceil and call.attrs.get("ceil_mode", 0):
        for axis in range(rank):
            room = extent[axis] + before[axis] + after[axis] - reach[axis]
            steps = math.ceil(room / stride[axis])
            if steps * stride[axis] >= extent[axis] + before[axis]:  # no window begins beyond the input
                steps -= 1
            after[axis] += max(0, steps * stride[axis] - room)
    return tuple(before), tuple(after)


@dataclass(frozen=True)
class ConvWindow:
    """Window parameters of a convolution.

    Attributes:
        stride, dilation: numbers for each axis.
        pads: padding before and after each axis.
        groups: number of groups of channels.
    """

    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pads: tuple[tuple[int, ...], tuple[int, ...]]
    groups: int = 1

    def without_padding(self) -> ConvWindow:
        """Returns the same window without padding, for data that is padded already."""
        none = (0,) * len(self.stride)
        return replace(self, pads=(none, none))


def make_window(call: Call, weight: Array) -> ConvWindow:
    """Returns the window of filters (out, in, *kernel) over the call's first input (n, c, *spatial)."""
    shape = call.type(0).shape
    rank = len(shape) - 2
    call.require(rank in (1, 2, 3), "must slide over one to three axes", f"input shape={shape}")
    stride, dilation = _per_axis(call, "strides", rank), _per_axis(call, "dilations", rank)
    pads = _pads(call, shape[2:], weight.shape[2:], stride, dilation)
    return ConvWindow(stride, dilation, pads, int(call.attrs.get("group", 1)))


def convolution(call: Call, value: str, weight: Array, window: ConvWindow, bias: str | None = None) -> str:
    """Adds a convolution of data (n, c, *spatial) between transpositions: in groups, or depthwise."""
    rank, groups = weight.ndim - 2, window.groups
    data, spatial = channels_last(call, value), tuple(range(2, rank + 2))
    padding = normalise_padding(rank, tuple(zip(*window.pads, strict=True)))
    attrs = {"stride": window.stride, "padding": padding, "dilation": window.dilation}
    if rank == 2 and groups == call.shape(value)[1] == weight.shape[0] and groups > 1:
        filters = call.constant(weight[:, 0].transpose(1, 2, 0))
        out = call.add("depthwise_conv2d", [data, filters], **attrs)
    else:
        filters = call.constant(weight.transpose(*spatial, 1, 0))
        out = call.add(f"conv{rank}d", [data, filters], **attrs, groups=groups)
    if bias is not None:
        out = call.add("add", [out, bias])
    return channels_first(call, out)


@imports("Conv")
def conv(call: Call) -> str:
    """Imports a convolution over one to three axes, in groups, or depthwise."""
    rank = len(call.type(0).shape) - 2
    call.require(rank in (1, 2, 3), "must slide over one to three axes", f"input shape={call.type(0).shape}")
    weight = call.array(1)
    call.require(weight is not None, "must have a constant weight", call.inputs[1])
    assert weight is not None
    bias = call.value(2) if call.has(2) else None
    return convolution(call, call.value(0), weight, make_window(call, weight), bias)


@imports("BatchNormalization")
def batch_normalization(call: Call) -> str:
    """Normalises by constant statistics: x * scale + shift."""
    call.require(not call.attrs.get("training_mode", 0), "must not be in training mode", "training_mode=1")
    scale, shift, mean, variance = (
        call.require_array(i, "scale, bias, mean and variance").astype(float) for i in range(1, 5)
    )
    factor = scale / np.sqrt(variance + call.attrs.get("epsilon", 1e-5))
    constants = [call.constant(a.astype(np.float32)) for a in (factor, shift - mean * factor)]
    return channels_first(call, call.add("affine", [channels_last(call, call.value(0)), *constants]))


@imports("MaxPool", "AveragePool")
def pool_with_places(call: Call) -> str | Sequence[Result]:
    """Imports pooling; if indices of maxima are read, each element of a window becomes a slice."""
    if len([o for o in call.outputs if o]) > 1:
        columns_first = bool(call.attrs.get("storage_order", 0))
        return by_slices.maxima_with_places(call, call.value(0), pool_windows(call), columns_first)
    return pool(call)


def pool(call: Call) -> str:
    """Pools over any number of axes: the last two, then each axis before, which is exact for maxima and means.

    With dilation, each element of a window becomes a slice.
    """
    shape = call.type(0).shape
    rank = len(shape) - 2
    call.require(rank > 0, "must slide over at least one axis", f"input shape={shape}")
    windows = pool_windows(call)
    kernel, stride = windows.kernel, windows.stride
    if set(windows.dilation) != {1}:
        if call.op == "MaxPool":
            return by_slices.maxima(call, call.value(0), windows)
        return by_slices.means(call, call.value(0), windows, bool(call.attrs.get("count_include_pad", 0)))
    pads, explicit = (windows.before, windows.after), (windows.before, windows.explicit)
    out = channels_last(call, call.value(0))
    for first in (max(rank - 2, 0), *reversed(range(rank - 2))):
        mine = slice(first, first + 2 if first == rank - 2 else first + 1)
        sides = [(before[mine], after[mine]) for before, after in (pads, explicit)]
        if any(n != 1 for n in (*kernel[mine], *stride[mine])) or any(map(any, sides[0])):
            out = _pooled_axes(call, out, mine, kernel[mine], stride[mine], sides[0], sides[1])
    return channels_first(call, out)


def pool_windows(call: Call) -> by_slices.Windows:
    """Returns the windows of a pooling over its first input."""
    spatial = call.type(0).shape[2:]
    rank = len(spatial)
    kernel, stride = call.ints("kernel_shape") or (), _per_axis(call, "strides", rank)
    dilation = _per_axis(call, "dilations", rank)
    before, after = _pads(call, spatial, kernel, stride, dilation)
    _, explicit = _pads(call, spatial, kernel, stride, dilation, ceil=False)
    return by_slices.Windows(kernel, stride, dilation, before, after, explicit)


@imports("LpPool")
def power_pool(call: Call) -> str:
    """Computes the root of the sum of powers of each window."""
    return by_slices.powers(call, call.value(0), pool_windows(call), int(call.attrs.get("p", 2)))


Sides = tuple[tuple[int, ...], tuple[int, ...]]


def _pooled_axes(
    call: Call, data: str, axes: slice, kernel: Sequence[int], stride: Sequence[int], pads: Sides, explicit: Sides
) -> str:
    """Pools data (n, *spatial, c) over one or two spatial axes; other axes are merged into batch and width."""
    n, *spatial, c = call.shape(data)
    if len(spatial) == 2:
        return _pool(call, data, kernel, stride, pads, explicit)
    before, window, after = spatial[: axes.start], spatial[axes], spatial[axes.stop :]
    if len(window) == 1:
        window = [*window, math.prod(after)]
        kernel, stride = (*kernel, 1), (*stride, 1)
        pads, explicit = ((*pads[0], 0), (*pads[1], 0)), ((*explicit[0], 0), (*explicit[1], 0))
    out = call.add("reshape", [data], shape=(n * math.prod(before), *window, c))
    out = _pool(call, out, kernel, stride, pads, explicit)
    made = call.shape(out)[1:3][: axes.stop - axes.start]
    return call.add("reshape", [out], shape=(n, *before, *made, *after, c))


def _pool(call: Call, data: str, kernel: Sequence[int], stride: Sequence[int], pads: Sides, explicit: Sides) -> str:
    """Pools data (n, h, w, c); `pads` is padding before and after each axis, `explicit` omits that of `ceil_mode`."""
    before, after = pads
    attrs = {"kernel": tuple(kernel), "stride": tuple(stride)}
    small = all(2 * max(b, a) <= k for b, a, k in zip(before, after, kernel, strict=True))
    padding = normalise_padding(2, tuple(zip(before, after, strict=True)))
    if call.op == "MaxPool":
        if not small:
            shape = ((0, *before, 0), (0, *after, 0))
            data = call.add("pad", [data], before=shape[0], after=shape[1], value=float("-inf"))
        return call.add("max_pool2d", [data], **attrs, padding=padding if small else 0)
    counted = bool(call.attrs.get("count_include_pad", 0))
    if small and (not counted or explicit == pads):
        return call.add("avg_pool2d", [data], **attrs, padding=padding, count_padding=counted)
    extent = call.shape(data)[1:3]
    if any(map(any, pads)):
        data = call.add("pad", [data], before=(0, *before, 0), after=(0, *after, 0))
    out = call.add("avg_pool2d", [data], **attrs, padding=0, count_padding=False)
    # The mean over the window, rescaled to the elements that count: never the padding of `ceil_mode`.
    inner = [given if counted else (0, 0) for given in zip(*explicit, strict=True)]
    ones = np.ones([n + sum(sides) for n, sides in zip(extent, inner, strict=True)], np.float32)
    outer = [(b - i, a - j) for b, a, (i, j) in zip(before, after, inner, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(ones, outer), kernel)[:: stride[0], :: stride[1]]
    share = math.prod(kernel) / windows.sum((2, 3))
    if (share != 1).any():
        out = call.add("multiply", [out, call.constant(share.astype(np.float32)[None, :, :, None])])
    return out


@imports("GlobalAveragePool", "GlobalMaxPool")
def global_pool(call: Call) -> str:
    """Pools over all spatial axes, which stay with extent 1."""
    value = call.value(0)
    shape = call.shape(value)
    reducer = "mean" if call.op == "GlobalAveragePool" else "max"
    out = call.add("reduce", [channels_last(call, value)], axes=tuple(range(1, len(shape) - 1)), reducer=reducer)
    return call.add("reshape", [out], shape=(*shape[:2], *[1] * (len(shape) - 2)))


@imports("Gemm")
def gemm(call: Call) -> str:
    """Computes alpha * a b + beta * c; if beta is 0, c may be NaN."""
    left, right = call.value(0), call.value(1)
    if call.attrs.get("transA", 0):
        left = call.add("transpose", [left], axes=(1, 0))
    if call.attrs.get("transB", 0):
        array = call.array(1)
        right = call.constant(array.T) if array is not None else call.add("transpose", [right], axes=(1, 0))
    out = call.add("matmul", [left, right])
    for index, factor in ((None, "alpha"), (2, "beta")):
        scale = float(call.attrs.get(factor, 1.0))
        if index is None and scale != 1.0:
            out = call.add("multiply", [out, call.scalar(scale, out)])
        if index is not None and call.has(index) and scale:
            more = call.value(index)
            more = more if scale == 1.0 else call.add("multiply", [more, call.scalar(scale, more)])
            out = call.add("add", [out, more])
    return out


@imports("MatMul")
def matmul(call: Call) -> str:
    """Multiplies matrices in the last two axes; axes before them broadcast."""
    return product(call, call.value(0), call.value(1))


def product(call: Call, left: str, right: str) -> str:
    """Multiplies values of the graph like `MatMul`; the last axis of a vector is summed."""
    a, b = operand_shapes = call.shape(left), call.shape(right)
    if len(a) == 1:
        left, a = call.add("reshape", [left], shape=(1, *a)), (1, *a)
    if len(b) == 1:
        right, b = call.add("reshape", [right], shape=(*b, 1)), (*b, 1)
    final = (*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1])
    if math.prod(b[:-2]) == 1:
        rows = call.add("reshape", [left], shape=(math.prod(a[:-1]), a[-1])) if len(a) != 2 else left
        right = call.add("reshape", [right], shape=b[-2:]) if len(b) != 2 else right
        out = call.add("matmul", [rows, right])
    else:
        batch = final[:-2]
        sides = []
        for value, shape in ((left, a), (right, b)):
            full = (*batch, *shape[-2:])
            if math.prod(shape[:-2]) != math.prod(batch):
                value = call.add("broadcast_to", [value], shape=full)
            sides.append(call.add("reshape", [value], shape=(math.prod(batch), *shape[-2:])))
        out = call.add("batch_matmul", sides)
    shape = tuple(final)
    if len(operand_shapes[0]) == 1:
        shape = (*shape[:-2], shape[-1])
    if len(operand_shapes[1]) == 1:
        shape = shape[:-1]
    return call.reshape(out, shape)


@imports("Softmax", "LogSoftmax")
def softmax(call: Call) -> str:
    """Computes a softmax along an axis; before opset 13 along all axes from `axis` on, flattened."""
    value = call.value(0)
    shape = call.shape(value)
    old = call.context.opset < 13
    axis = int(call.attrs.get("axis", 1 if old else -1)) % len(shape)
    order = None
    if not old and axis != len(shape) - 1:
        order = [a for a in range(len(shape)) if a != axis] + [axis]
        value = call.add("transpose", [value], axes=tuple(order))
    moved = call.shape(value)
    columns = math.prod(moved[axis:]) if old else moved[-1]
    rows = call.add("reshape", [value], shape=(math.prod(moved) // columns, columns))
    out = call.add("softmax" if call.op == "Softmax" else "log_softmax", [rows])
    out = call.add("reshape", [out], shape=moved)
    return out if order is None else call.add("transpose", [out], axes=tuple(int(a) for a in np.argsort(order)))


@imports("LRN")
def local_response_normalization(call: Call) -> str:
    """Computes x / (bias + alpha / size * sum of squares over neighbouring channels) ** beta."""
    size = int(call.attrs["size"])
    attrs = {
        name: float(call.attrs.get(name, value)) for name, value in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))
    }
    out = call.add("lrn", [channels_last(call, call.value(0))], size=size, **attrs)
    return channels_first(call, out)
