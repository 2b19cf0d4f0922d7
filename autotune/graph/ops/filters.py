"""Gradients of a convolution's filters: products of the elements under each filter tap with the output gradients."""

from __future__ import annotations

from math import prod
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
    if attrs["groups"] < 1 or data.shape[-1] % attrs["groups"] or slope.shape[-1] % attrs["groups"]:
        raise ValueError(f"`groups` must divide channels, but got groups={attrs['groups']}, {data} and {slope}")
    return attrs


def _conv_filters(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    """Computes gradients (kernel..., depth, outputs) of the filters: sums over all windows of all samples."""
    data, slope = tensors
    window, groups = window_over(data.shape, attrs), attrs["groups"]
    source, dtype = pad(data, window, 0.0), slope.op.dtype
    depth, width = data.shape[-1] // groups, slope.shape[-1] // groups
    sample = te.reduce_axis((0, data.shape[0]), "rn")
    at = [te.reduce_axis((0, n), f"r{name}") for n, name in zip(window.output, window.spatial, strict=True)]

    def body(*index: Any) -> te.Reduction:
        *within, c, k = index
        channel = c if groups == 1 else k if depth == width == 1 else k // width * depth + c
        return te.sum(
            source[(sample, *window.index(at, within), channel)] * slope[(sample, *at, k)], axis=[sample, *at]
        )

    shape = (*window.kernel, depth, slope.shape[-1])
    names = (*(f"k{name}" for name in window.spatial), "c", "k")
    out = te.compute(shape, over(names, body), name="conv_filters")
    return out if dtype not in NARROW else te.compute(shape, lambda *i: out[i].astype(dtype), name="narrow")


def _compute(attrs: Attributes, data: Array, slope: Array) -> Array:
    window, groups = window_over(data.shape, attrs), attrs["groups"]
    slopes = slope.astype(np.float64).reshape(-1, groups, slope.shape[-1] // groups)
    products = []
    for _, tap in taps(pad_array(data.astype(np.float64), window), window):
        met = tap.reshape(prod(tap.shape[:-1]), groups, -1)
        products.append(np.einsum("pgc,pgk->cgk", met, slopes))
    return np.stack(products).reshape(*window.kernel, -1, slope.shape[-1])


register(GraphOp("conv_filters", Kind.compute, _attributes, _conv_filters, compute=_compute))
