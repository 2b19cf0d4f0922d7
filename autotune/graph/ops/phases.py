"""Gradients of the data of a strided convolution, separately for each phase of the data.

Elements of the data at distances of a stride meet the same filter taps. They form a phase, whose gradient is a
convolution of the output gradients with these taps alone. Nothing is multiplied by zeros between gradients, and no
gradient is moved. This is sub-pixel convolution (Shi et al., "Is the deconvolution layer the same as a convolutional
layer?", 2016).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from autotune.graph.ops.base import GraphOp, Kind, Tensors, Types, freeze, register
from autotune.graph.types import Array, Attributes
from search_space import te
from search_space.dtypes import NARROW
from search_space.ir.expr import FLOATS
from search_space.operators.naming import over
from search_space.operators.windows import Window, pad, pad_array

_PER_AXIS = ("extent", "kernel", "stride", "padding")


def count_phases(attrs: Attributes) -> list[int]:
    """Counts the elements of a phase along each axis; if the stride does not divide the extent, the last is padding."""
    return [-(-n // s) for n, s in zip(attrs["extent"], attrs["stride"], strict=True)]


def phase_window(attrs: Attributes, slope: Sequence[int], parts: Sequence[int]) -> Window:
    """Returns the window over the output gradients for one phase, with as many elements as its taps, `parts`."""
    rank, sides = len(slope) - 2, []
    for m, q, j, s, p in zip(slope[1:-1], count_phases(attrs), parts, attrs["stride"], attrs["padding"], strict=True):
        sides.append((max(0, j - 1 - p // s), max(0, q + (s - 1 + p) // s - m)))
    return Window(tuple(slope[1:-1]), tuple(parts), (1,) * rank, tuple(sides), (1,) * rank)


def _attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
    slope, filters = types
    rank = len(slope.shape) - 2
    if not 1 <= rank <= 3 or slope.dtype not in FLOATS or filters.dtype != slope.dtype:
        raise ValueError(f"slopes and filters must be floats, slopes (batch, spatial..., channels), but got {slope}")
    attrs = {**{name: freeze(attributes[name]) for name in _PER_AXIS}, "groups": int(attributes["groups"])}
    if any(len(attrs[name]) != rank for name in _PER_AXIS) or len(filters.shape) != 2 * rank + 2:
        raise ValueError(f"filters must be (parts, stride of each axis, width, channels), but got {filters}")
    groups, (width, channels) = attrs["groups"], filters.shape[-2:]
    if groups < 1 or channels % groups or slope.shape[-1] != width * groups:
        raise ValueError(f"`groups` must divide channels, but got groups={groups}, {slope} and {filters}")
    if filters.shape[1 : 2 * rank : 2] != attrs["stride"]:
        raise ValueError(f"filters must have a part for each phase of stride={attrs['stride']}, but got {filters}")
    if any(k > j * s for k, j, s in zip(attrs["kernel"], filters.shape[: 2 * rank : 2], attrs["stride"], strict=True)):
        raise ValueError(f"filters must have all taps of kernel={attrs['kernel']}, but got {filters}")
    return attrs


def _conv_phases(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    """Computes (batch, (count, phase) of each axis, channels): joined pairs are the gradient and its padding."""
    slope, filters = tensors
    rank = len(slope.shape) - 2
    window, dtype = phase_window(attrs, slope.shape, filters.shape[: 2 * rank : 2]), slope.op.dtype
    width, channels = filters.shape[-2:]
    depth = channels // attrs["groups"]
    source = pad(slope, window, 0.0)
    parts = [te.reduce_axis((0, n), f"r{name}") for n, name in zip(window.kernel, window.spatial, strict=True)]
    inner = [te.reduce_axis((0, width), "ro")] if width > 1 else []

    def body(n: Any, *rest: Any) -> te.Reduction:
        *at, c = rest
        indices, taps, exist = [], [], []
        sides = zip(at[::2], at[1::2], parts, attrs["stride"], attrs["padding"], window.before, strict=True)
        for (q, a, j, s, p, before), k in zip(sides, attrs["kernel"], strict=True):
            indices.append(q + (a + p) // s - j + before)
            taps += [j, (a + p) % s]
            if k % s:  # zeros in place of other taps would turn infinite gradients to NaN
                exist.append(j * s + (a + p) % s < k)
        o = inner[0] if inner else 0
        channel = c if depth == width == 1 else c // depth * width + o
        product = source[(n, *indices, channel)] * filters[(*taps, o, c)]
        return te.sum(te.if_then_else(te.all(*exist), product, 0.0) if exist else product, axis=[*parts, *inner])

    pairs = [n for pair in zip(count_phases(attrs), attrs["stride"], strict=True) for n in pair]
    names = ("n", *(name for axis in window.spatial for name in (axis, f"p{axis}")), "c")
    out = te.compute((slope.shape[0], *pairs, channels), over(names, body), name="conv_phases")
    return out if dtype not in NARROW else te.compute(out.shape, lambda *i: out[i].astype(dtype), name="narrow")


def _compute(attrs: Attributes, slope: Array, filters: Array) -> Array:
    rank = slope.ndim - 2
    window, groups = phase_window(attrs, slope.shape, filters.shape[: 2 * rank : 2]), attrs["groups"]
    width, channels = filters.shape[-2:]
    counts, strides = count_phases(attrs), attrs["stride"]
    source = pad_array(slope.astype(np.float64), window)
    source = source.reshape(*source.shape[:-1], groups, width)
    weight = filters.astype(np.float64).reshape(*filters.shape[:-1], groups, channels // groups)
    pairs = [n for pair in zip(counts, strides, strict=True) for n in pair]
    gradients = np.zeros((slope.shape[0], *pairs, channels))
    for phase in product(*map(range, strides)):
        out = gradients[(slice(None), *(each for a in phase for each in (slice(None), a)))]
        for part in product(*map(range, window.kernel)):
            taps, cut = [], []
            exist = True
            for a, j, s, p, before, q, k in zip(
                phase, part, strides, attrs["padding"], window.before, counts, attrs["kernel"], strict=True
            ):
                exist = exist and j * s + (a + p) % s < k
                begin = (a + p) // s - j + before
                cut.append(slice(begin, begin + q))
                taps += [j, (a + p) % s]
            if not exist:
                continue
            met = np.einsum("...gk,kgc->...gc", source[(slice(None), *cut)], weight[tuple(taps)])
            out += met.reshape(out.shape)
    return gradients


register(GraphOp("conv_phases", Kind.compute, _attributes, _conv_phases, compute=_compute))
