"""Indices of the maxima of windows, and the gradients that return along them. Data are channels-last.

An index is flat in the plane of a channel: row times width plus column.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from autotune.graph.ops.base import GraphOp, Kind, Tensors, Types, freeze, register
from autotune.graph.ops.phases import count_phases, phase_window
from autotune.graph.types import Array, Attributes
from search_space import te
from search_space.dtypes import NARROW
from search_space.ir.expr import FLOATS, Expr, const
from search_space.operators.naming import over
from search_space.operators.windows import Window, pad, pad_array, taps, window_over

_PER_AXIS = ("kernel", "stride", "padding", "dilation")
_NONE = -(1 << 31) + 1
"""Key of an element that is no maximum."""


# ------------------------------------------------------------------ indices of maxima
def _index_attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
    data, best = types
    attrs = {name: freeze(attributes[name]) for name in _PER_AXIS}
    if len(data.shape) != 4 or data.dtype not in FLOATS or best.dtype not in FLOATS:
        raise ValueError(f"data and maxima must be floats, (batch, height, width, channels), but got {data} and {best}")
    wanted = (data.shape[0], *window_over(data.shape, attrs).output, data.shape[-1])
    if best.shape != wanted:
        raise ValueError(f"maxima must be of shape {list(wanted)}, but got {best}")
    return attrs


def _window_argmax(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    """Computes the index of the first maximum of each window, or of its last NaN, as PyTorch does.

    The key of a maximum falls with its index, that of a NaN grows: the largest key is that of the wanted element.
    Padding has the index of the nearest element. If it equals the maximum, so does all of the window.
    """
    data, best = tensors
    window = window_over(data.shape, attrs)
    source = pad(data, window, float("-inf"))
    height, width = data.shape[1:3]
    (top, left), axes = window.before, window.reduce_axes()

    def body(n: Any, y: Any, x: Any, c: Any) -> te.Reduction:
        row, column = window.index((y, x), axes)
        value = source[n, row, column, c]
        at = (_within(row - top, height) * width + _within(column - left, width)).astype("int32")
        equal = te.if_then_else(te.eq(value, best[n, y, x, c]), -1 - at, const(_NONE, "int32"))
        return te.max(te.if_then_else(te.eq(value, value), equal, at), axis=axes)

    keys = te.compute(best.shape, body, name="window_keys")

    def index(*at: Any) -> Expr:
        key = keys[at]
        return te.if_then_else(key < 0, -1 - key, key)

    return te.compute(best.shape, over(("n", *window.spatial, "c"), index), name="window_argmax")


def _within(position: Expr, extent: int) -> Expr:
    return te.minimum(te.maximum(position, 0), extent - 1)


def _compute_index(attrs: Attributes, data: Array, best: Array) -> Array:
    window = window_over(data.shape, attrs)
    (top, left), (height, width) = window.before, data.shape[1:3]
    rows = np.clip(np.arange(window.padded_extents[0]) - top, 0, height - 1)[:, None]
    columns = np.clip(np.arange(window.padded_extents[1]) - left, 0, width - 1)[None]
    places = np.broadcast_to((rows * width + columns)[None, :, :, None], (1, *window.padded_extents, 1))
    keys = np.full(best.shape, _NONE, np.int64)
    pairs = zip(taps(pad_array(data, window, -np.inf), window), taps(places, window), strict=True)
    for (_, value), (_, at) in pairs:
        equal = np.where(value == best, -1 - at, _NONE)
        keys = np.maximum(keys, np.where(np.isnan(value), at, equal))
    return np.where(keys < 0, -1 - keys, keys).astype(np.int32)


# ------------------------------------------------------------------ gradients
def _gradient_attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
    slope, argmax = types
    attrs = {name: freeze(attributes[name]) for name in ("extent", *_PER_AXIS)}
    if len(slope.shape) != 4 or slope.dtype not in FLOATS or argmax.shape != slope.shape or argmax.dtype != "int32":
        raise ValueError(f"slopes must be floats with an int32 index each, but got {slope} and {argmax}")
    if any(len(each) != 2 for each in attrs.values()) or prod(attrs["extent"]) >= -_NONE:
        raise ValueError(f"attributes must be numbers for two axes, but got {attrs}")
    return attrs


def _slope_window(attrs: Attributes, slope: tuple[int, ...]) -> Window:
    """Returns the window over the slopes of windows that may meet an element."""
    sides = zip(attrs["kernel"], attrs["dilation"], attrs["stride"], strict=True)
    return phase_window(attrs, slope, [-(-((k - 1) * d + 1) // s) for k, d, s in sides])


def _maxima_gradient(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    """Computes (batch, (count, phase) of each axis, channels): an element gets the slopes of windows that name it."""
    slope, argmax = tensors
    window, dtype = _slope_window(attrs, slope.shape), slope.op.dtype
    slopes, indices = pad(slope, window, 0.0), pad(argmax, window, -1)
    axes = window.reduce_axes()
    wide = "float32" if dtype in NARROW else dtype

    def body(n: Any, *rest: Any) -> te.Reduction:
        *at, c = rest
        where = []
        for q, a, j, s, p, b in zip(
            at[::2], at[1::2], axes, attrs["stride"], attrs["padding"], window.before, strict=True
        ):
            where.append(q + (a + p) // s - j + b)
        y, x = (q * s + a for q, a, s in zip(at[::2], at[1::2], attrs["stride"], strict=True))
        named = te.eq(indices[(n, *where, c)], (y * attrs["extent"][1] + x).astype("int32"))
        return te.sum(te.if_then_else(named, slopes[(n, *where, c)].astype(wide), 0.0), axis=axes)

    pairs = [n for pair in zip(count_phases(attrs), attrs["stride"], strict=True) for n in pair]
    names = ("n", *(name for axis in window.spatial for name in (axis, f"p{axis}")), "c")
    out = te.compute((slope.shape[0], *pairs, slope.shape[-1]), over(names, body), name="maxima_gradient")
    return out if wide == dtype else te.compute(out.shape, lambda *i: out[i].astype(dtype), name="narrow")


def _compute_gradient(attrs: Attributes, slope: Array, argmax: Array) -> Array:
    (_, width), (n, _, _, channels) = attrs["extent"], slope.shape
    sides = [q * s for q, s in zip(count_phases(attrs), attrs["stride"], strict=True)]
    out = np.zeros((n, *sides, channels))
    sample, _, _, channel = np.indices(slope.shape)
    np.add.at(out, (sample, argmax // width, argmax % width, channel), slope.astype(np.float64))
    pairs = [each for pair in zip(count_phases(attrs), attrs["stride"], strict=True) for each in pair]
    return out.reshape(n, *pairs, channels)


register(
    GraphOp("window_argmax", Kind.compute, _index_attributes, _window_argmax, compute=_compute_index),
    GraphOp("maxima_gradient", Kind.compute, _gradient_attributes, _maxima_gradient, compute=_compute_gradient),
)
