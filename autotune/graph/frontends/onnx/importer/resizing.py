"""Image resizing by copies of elements, or by weighted sums of a few neighbours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from autotune.graph.calls import Call
from autotune.graph.emitter import channels_first, channels_last
from autotune.graph.frontends.onnx.importer.interpolation import ROUNDINGS, TRANSFORMATIONS, Axis, InterpolationKernel
from autotune.graph.frontends.onnx.importer.registry import imports
from autotune.graph.frontends.onnx.importer.selection import repeat_axis, take_places
from autotune.graph.ir import Array
from autotune.graph.limits import check_value
from autotune.graph.types import TensorType
from search_space.ir.expr import FLOATS

MOST_AT_ONCE = 8
"""Maximum number of neighbours over all axes for one operation; with more, each axis has its own."""
MANY_CHANNELS = 16
"""Minimum number of channels for which vectors along channels are better than along rows of pixels."""


@imports("Resize", "Upsample")
def resize(call: Call) -> str:
    """Resizes by constant scales or sizes: nearest, linear or cubic."""
    mode = _text(call, "mode", "nearest")
    call.require(mode in ("nearest", "linear", "cubic"), "must have a known mode", f"mode={mode!r}")
    axes = {axis: how for axis, how in _axes(call).items() if not how.same}
    value = call.value(0)
    if mode == "nearest":
        out = _nearest(call, value, axes)
    else:
        dtype = call.type(0).dtype
        call.require(dtype in FLOATS, "must interpolate floating-point values", f"{call.type(0)}")
        kernel = InterpolationKernel(
            cubic=mode == "cubic",
            coefficient=float(call.attrs.get("cubic_coeff_a", -0.75)),
            antialias=bool(call.attrs.get("antialias", 0)),
            exclude_outside=bool(call.attrs.get("exclude_outside", 0)),
        )
        out = _interpolate(call, value, axes, kernel)
    return _fill_outside(call, out, axes)


def _text(call: Call, name: str, default: str) -> str:
    return bytes(call.attrs.get(name, default.encode())).decode()


def _axes(call: Call) -> dict[int, Axis]:
    """Returns the resize of each named axis; before opset 11 positions are quotients with the scale."""
    shape = call.type(0).shape
    rank = len(shape)
    old = call.op == "Upsample" or call.context.opset < 11
    kind = "asymmetric" if old else _text(call, "coordinate_transformation_mode", "half_pixel")
    known = kind in TRANSFORMATIONS
    call.require(known, "must have a known transformation", f"coordinate_transformation_mode={kind!r}")
    axes = [a % rank for a in call.ints("axes", default=range(rank)) or ()]
    regions = [(0.0, 1.0)] * len(axes)
    if kind == "tf_crop_and_resize":
        roi = call.require_array(1, "region").reshape(-1).astype(float)
        regions = list(zip(roi[: len(axes)], roi[len(axes) :], strict=True))
    if not old and call.has(3):
        sizes = [int(n) for n in call.require_array(3, "sizes")]
        ratios = [size / shape[axis] for axis, size in zip(axes, sizes, strict=True)]
        policy = _text(call, "keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            ratio = min(ratios) if policy == "not_larger" else max(ratios)
            sizes = [math.floor(ratio * shape[axis] + 0.5) for axis in axes]
            ratios = [size / shape[axis] for axis, size in zip(axes, sizes, strict=True)]
    else:
        given = call.attrs.get("scales")
        ratios = [float(s) for s in (given if given is not None else call.require_array(1 if old else 2, "scales"))]
        # Exact products, as in ONNX's shape inference. ONNX Runtime rounds them to float32: from 10 elements and the
        # scale 3.3, whose float32 is less than 3.3, it makes 33 and warns that the model has 32.
        sizes = [int(shape[axis] * ratio) for axis, ratio in zip(axes, ratios, strict=True)]
    call.require(min(sizes, default=1) > 0, "must leave elements", f"sizes={sizes}")
    final = [dict(zip(axes, sizes, strict=True)).get(axis, extent) for axis, extent in enumerate(shape)]
    check_value(f"{call.op} node {call.title!r}", TensorType(tuple(final), call.type(0).dtype))
    call.take(TensorType((sum(sizes),), "int64"))  # places in the input
    fields = zip(axes, sizes, ratios, regions, strict=True)
    return {axis: Axis(shape[axis], size, ratio, kind, region) for axis, size, ratio, region in fields}


def _nearest(call: Call, value: str, axes: Mapping[int, Axis]) -> str:
    old = call.op == "Upsample" or call.context.opset < 11
    asked = _text(call, "nearest_mode", "round_prefer_floor")
    call.require(asked in ROUNDINGS, "must have a known rounding", f"nearest_mode={asked!r}")
    for axis, how in axes.items():
        simple = "floor" if how.scale >= 1 else "ceil"
        value = copy_elements(call, value, axis, how.nearest(simple if old else asked))
    return value


def copy_elements(call: Call, value: str, axis: int, indices: Array) -> str:
    """Copies elements at constant indices of an axis, (size,); repeats all elements equally if possible."""
    extent = call.shape(value)[axis]
    count = indices.size // extent
    if indices.size % extent == 0 and (indices == np.repeat(np.arange(extent), count)).all():
        return repeat_axis(call, value, axis, count, each=True)
    return take_places(call, value, indices, axis)


def _interpolate(call: Call, value: str, axes: Mapping[int, Axis], kernel: InterpolationKernel) -> str:
    """Interpolates. Many channels come last if other axes are resized: neighbours are then whole vectors.

    With few channels, rows are vectors: one axis at a time, the last one when there are fewest elements.
    """
    if not axes:
        return value
    shape = call.shape(value)
    turned = len(shape) > 2 and min(axes) > 1 and shape[1] >= MANY_CHANNELS
    if turned:
        value, axes = channels_last(call, value), {axis - 1: how for axis, how in axes.items()}
    tables = {axis: kernel.taps(how) for axis, how in axes.items()}
    once = (
        math.prod(weights.shape[1] for _, weights in tables.values()) <= MOST_AT_ONCE and len(shape) - 1 not in tables
    )
    inner = sorted(tables, key=lambda axis: (axes[axis].scale, axis if axes[axis].scale < 1 else -axis))
    for group in [sorted(tables)] if once else [[axis] for axis in inner]:
        value = _sums(call, value, group, [table for axis in group for table in tables[axis]])
    return channels_first(call, value) if turned else value


def _sums(call: Call, value: str, axes: Sequence[int], tables: Sequence[Array]) -> str:
    return call.add("resample", [value, *map(call.constant, tables)], axes=tuple(axes))


def _fill_outside(call: Call, value: str, axes: Mapping[int, Axis]) -> str:
    """Writes the extrapolation value to elements outside of the input."""
    outside = {axis: how.outside() for axis, how in axes.items()}
    shape = call.shape(value)
    mask = np.zeros([1] * len(shape), bool)
    for axis, found in outside.items():
        if found.any():
            mask = mask | found.reshape([-1 if a == axis else 1 for a in range(len(shape))])
    if not mask.any():
        return value
    fill = call.scalar(float(call.attrs.get("extrapolation_value", 0.0)), value)
    return call.add("where", [call.constant(mask), fill, value])
