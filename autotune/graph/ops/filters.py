"""Gradients of a convolution's filters: products of the elements under each filter tap with the output gradients.

They are few sums over many windows. Sums of parts of the windows, each small enough for a cache, are outputs of one
kernel, and a reduction adds them up.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autotune.graph.ops.base import GraphOp, Kind, Tensors, Types, freeze, register
from autotune.graph.types import Array, Attributes
from search_space import te
from search_space.dtypes import NARROW
from search_space.ir.expr import FLOATS
from search_space.operators.naming import over
from search_space.operators.windows import pad, pad_array, taps, window_over

_PER_AXIS = ("kernel", "stride", "padding", "dilation")


def _attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
    data, slope = types
    attrs = {**{name: freeze(attributes[name]) for name in _PER_AXIS}, "groups": int(attributes["groups"])}
    if not 3 <= len(data.shape) <= 5 or data.dtype not in FLOATS or slope.dtype != data.dtype:
        raise ValueError(f"data and slopes must be floats, (batch, spatial..., channels), but got {data} and {slope}")
    wanted = (data.shape[0], *window_over(data.shape, attrs).output)
    if slope.shape[:-1] != wanted:
        raise ValueError(f"slopes must be of {list(wanted)} windows, but got {slope}")
    attrs["parts"] = freeze(attributes.get("parts", ()))
    counts = slope.shape[:2]
    if attrs["parts"] and (
        len(attrs["parts"]) != 2 or any(n % part for n, part in zip(counts, attrs["parts"], strict=True))
    ):
        raise ValueError(f"`parts` must divide {list(counts)}, samples and windows, but got parts={attrs['parts']}")
    if attrs["groups"] < 1 or data.shape[-1] % attrs["groups"] or slope.shape[-1] % attrs["groups"]:
        raise ValueError(f"`groups` must divide channels, but got groups={attrs['groups']}, {data} and {slope}")
    return attrs


def _conv_filters(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    """Computes gradients (kernel..., depth, outputs) of the filters: sums over all windows of all samples.

    With `parts` of the samples and of the windows along the first axis, the sums of each part come first:
    (*parts, kernel..., depth, outputs).
    """
    data, slope = tensors
    window, groups = window_over(data.shape, attrs), attrs["groups"]
    source, dtype = pad(data, window, 0.0), slope.op.dtype
    depth, width = data.shape[-1] // groups, slope.shape[-1] // groups
    parts = attrs["parts"]
    extents = [n // part for n, part in zip(slope.shape, parts or (1, 1), strict=False)]
    sums = [
        te.reduce_axis((0, n), f"r{name}")
        for n, name in zip((*extents, *window.output[1:]), ("n", *window.spatial), strict=True)
    ]

    def body(*index: Any) -> te.Reduction:
        *within, c, k = index[len(parts) :]
        sample, *at = sums
        if parts:
            sample, at[0] = (part * n + inner for part, n, inner in zip(index, extents, sums, strict=False))
        channel = c if groups == 1 else k if depth == width == 1 else k // width * depth + c
        return te.sum(source[(sample, *window.index(at, within), channel)] * slope[(sample, *at, k)], axis=sums)

    shape = (*parts, *window.kernel, depth, slope.shape[-1])
    names = (*("pn", f"p{window.spatial[0]}")[: len(parts)], *(f"k{name}" for name in window.spatial), "c", "k")
    out = te.compute(shape, over(names, body), name="conv_filters")
    return out if dtype not in NARROW else te.compute(shape, lambda *i: out[i].astype(dtype), name="narrow")


def _compute(attrs: Attributes, data: Array, slope: Array) -> Array:
    window, groups = window_over(data.shape, attrs), attrs["groups"]
    first, rows = attrs["parts"] or (1, 1)
    n, count = slope.shape[:2]

    def split(array: Array) -> Array:
        return array.reshape(first, n // first, rows, count // rows, -1, groups, array.shape[-1] // groups)

    slopes = split(slope.astype(np.float64))
    products = [
        np.einsum("xnyrpgc,xnyrpgk->xycgk", split(tap), slopes)
        for _, tap in taps(pad_array(data.astype(np.float64), window), window)
    ]
    sums = np.stack(products, 2)
    return sums.reshape(*attrs["parts"], *window.kernel, -1, slope.shape[-1])


register(GraphOp("conv_filters", Kind.compute, _attributes, _conv_filters, compute=_compute))
