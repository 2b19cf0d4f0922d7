"""ONNX's convolutions and pools by their definitions in NumPy, one element of the window after another.

They compute in any float dtype, and share no code with the importer or with graphs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune.graph.ir import Array

Attributes = Mapping[str, Any]


@dataclass(frozen=True)
class _Axis:
    """A window that slides along one axis.

    Attributes:
        extent: extent of the input.
        kernel: number of elements of the window.
        stride, dilation: steps of the window, and within it.
        before, after: padding.
        output: number of positions of the window.
    """

    extent: int
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int
    output: int

    @property
    def padded_extent(self) -> int:
        """Extent with padding, including elements that the last window reaches beyond it."""
        last = (self.output - 1) * self.stride + (self.kernel - 1) * self.dilation + 1
        return max(self.before + self.extent + self.after, last)

    def tap(self, index: int) -> slice:
        """Returns the input elements that meet one element of the window, at all positions of the window."""
        start = index * self.dilation
        return slice(start, start + (self.output - 1) * self.stride + 1, self.stride)


def _numbers(attrs: Attributes, name: str, rank: int, default: int = 1) -> list[int]:
    return list(attrs.get(name) or [default] * rank)


def _axes(attrs: Attributes, extents: Sequence[int], kernel: Sequence[int]) -> list[_Axis]:
    """Returns the windows over an input along each axis."""
    rank, kind = len(extents), attrs.get("auto_pad", b"NOTSET")
    strides, dilations = _numbers(attrs, "strides", rank), _numbers(attrs, "dilations", rank)
    pads = _numbers(attrs, "pads", 2 * rank, 0) if kind == b"NOTSET" else [0] * 2 * rank
    rounded = math.ceil if attrs.get("ceil_mode", 0) else math.floor
    windows = []
    for axis, (n, k, s, d) in enumerate(zip(extents, kernel, strides, dilations, strict=True)):
        reach, before, after = (k - 1) * d + 1, pads[axis], pads[axis + rank]
        if kind in (b"SAME_UPPER", b"SAME_LOWER"):
            output = math.ceil(n / s)
            total = max(0, (output - 1) * s + reach - n)
            before = total // 2 if kind == b"SAME_UPPER" else total - total // 2
            after = total - before
        else:
            output = rounded((n + before + after - reach) / s) + 1
            output -= int((output - 1) * s >= n + before)  # no window begins beyond the input
        windows.append(_Axis(n, k, s, d, before, after, output))
    return windows


def _pad(x: Array, axes: Sequence[_Axis], fill: float) -> Array:
    sides = [(a.before, a.padded_extent - a.before - a.extent) for a in axes]
    return np.pad(x, [(0, 0), (0, 0), *sides], constant_values=fill)


Index = tuple[Any, ...]


def _taps(axes: Sequence[_Axis]) -> Iterator[tuple[Index, Index]]:
    """Yields the index of each element in the window, and of the padded input's elements that meet it."""
    for place in itertools.product(*(range(a.kernel) for a in axes)):
        yield (..., *place), (..., *(a.tap(p) for a, p in zip(axes, place, strict=True)))


def conv(attrs: Attributes, opset: int, x: Array, weight: Array, bias: Array | None = None) -> Array:
    """Computes the convolution of x (n, c, spatial...) by weight (m, c / groups, window...)."""
    groups, axes = int(attrs.get("group", 1)), _axes(attrs, x.shape[2:], weight.shape[2:])
    n, c = x.shape[:2]
    extents = [a.output for a in axes]
    source, out = _pad(x, axes, 0), np.zeros((n, groups, weight.shape[0] // groups, math.prod(extents)), x.dtype)
    filters = weight.reshape(groups, -1, *weight.shape[1:])
    for place, seen in _taps(axes):
        out += filters[place] @ source[seen].reshape(n, groups, c // groups, -1)
    return _add_bias(out.reshape(n, -1, *extents), bias)


def _add_bias(out: Array, bias: Array | None) -> Array:
    return out if bias is None else out + bias.reshape(-1, *[1] * (out.ndim - 2))


def conv_transpose(attrs: Attributes, opset: int, x: Array, weight: Array, bias: Array | None = None) -> Array:
    """Adds multiples of weight (c, m / groups, window...) for every element of x (n, c, spatial...)."""
    rank, groups = x.ndim - 2, int(attrs.get("group", 1))
    n, c = x.shape[:2]
    strides, dilations = _numbers(attrs, "strides", rank), _numbers(attrs, "dilations", rank)
    more, wanted = _numbers(attrs, "output_padding", rank, 0), attrs.get("output_shape")
    pads, kind = _numbers(attrs, "pads", 2 * rank, 0), attrs.get("auto_pad", b"NOTSET")
    axes, crop = [], []
    for axis, (extent, k, s, d) in enumerate(zip(x.shape[2:], weight.shape[2:], strides, dilations, strict=True)):
        reached = (extent - 1) * s + (k - 1) * d + 1
        before, output = pads[axis], reached + more[axis] - pads[axis] - pads[axis + rank]
        if wanted is not None or kind != b"NOTSET":
            output = reached + more[axis]
            if wanted is not None:
                output = wanted[-rank:][axis]
            elif kind != b"VALID":
                output = min(output, extent * s)
            total = max(0, reached + more[axis] - output)
            before = total // 2 if kind == b"SAME_UPPER" else total - total // 2
        axes.append(_Axis(max(reached, before + output), k, s, d, 0, 0, extent))
        crop.append(slice(before, before + output))
    out = np.zeros((n, groups, weight.shape[1], *(a.extent for a in axes)), x.dtype)
    filters = weight.reshape(groups, c // groups, *weight.shape[1:]).swapaxes(1, 2)
    source = x.reshape(n, groups, c // groups, -1)
    for place, seen in _taps(axes):
        out[seen] += (filters[place] @ source).reshape(*out.shape[:3], *x.shape[2:])
    cut: Index = (..., *crop)
    return _add_bias(out.reshape(n, -1, *out.shape[3:])[cut], bias)


def max_pool(attrs: Attributes, opset: int, x: Array) -> Array:
    """Computes the maximum of each window."""
    axes = _axes(attrs, x.shape[2:], attrs["kernel_shape"])
    low = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    source, out = _pad(x, axes, low), np.full((*x.shape[:2], *(a.output for a in axes)), low, x.dtype)
    for _, seen in _taps(axes):
        np.maximum(out, source[seen], out=out)
    return out


def average_pool(attrs: Attributes, opset: int, x: Array) -> Array:
    """Averages the elements of each window that count: those of the input, and of its padding if stated."""
    axes = _axes(attrs, x.shape[2:], attrs["kernel_shape"])
    counted = bool(attrs.get("count_include_pad", 0))
    around = [(0, 0), (0, 0), *((a.before, a.after) for a in axes)]
    beyond = [(0, 0), (0, 0), *((0, a.padded_extent - a.before - a.extent - a.after) for a in axes)]
    counts = np.pad(np.pad(np.ones((1, 1, *x.shape[2:])), around, constant_values=float(counted)), beyond)
    extents = [a.output for a in axes]
    source, total, count = _pad(x, axes, 0), np.zeros((*x.shape[:2], *extents), x.dtype), np.zeros((1, 1, *extents))
    for _, seen in _taps(axes):
        total += source[seen]
        count += counts[seen]
    return np.asarray(total / count, x.dtype)


def global_max_pool(attrs: Attributes, opset: int, x: Array) -> Array:
    """Computes the maximum of each channel."""
    found: Array = x.max(tuple(range(2, x.ndim)), keepdims=True)
    return found


def local_response_normalization(attrs: Attributes, opset: int, x: Array) -> Array:
    """Divides x by a power of the sum of squares of neighbouring channels."""
    size, channels = int(attrs["size"]), x.shape[1]
    squares = np.zeros_like(x)
    for c in range(channels):
        first, last = max(0, c - (size - 1) // 2), min(channels - 1, c + math.ceil((size - 1) / 2))
        squares[:, c] = (x[:, first : last + 1] ** 2).sum(1)
    scale = attrs.get("bias", 1.0) + attrs.get("alpha", 1e-4) / size * squares
    return np.asarray(x / scale ** attrs.get("beta", 0.75), x.dtype)
