"""Operators that move elements: views, transpositions, concatenations, slices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from autotune.graph.calls import Call
from autotune.graph.frontends.aten.registry import AtenCall, converts
from autotune.graph.frontends.onnx.importer.selection import repeat_axis, take_places
from autotune.graph.frontends.onnx.importer.shapes import concatenate_parts
from autotune.graph.frontends.onnx.importer.spatial import pad


@converts(
    *("view.default", "_unsafe_view.default", "reshape.default", "unsqueeze.default", "flatten.using_ints"),
    *("squeeze.default", "squeeze.dim", "squeeze.dims", "_reshape_alias.default", "unflatten.int"),
)
def reshape(call: AtenCall) -> str:
    """Reshapes to PyTorch's output shape."""
    return call.reshape(call.value(0), call.result.shape)


@converts("permute.default", "transpose.int", "t.default", "numpy_T.default", "movedim.int")
def permute(call: AtenCall) -> str:
    """Permutes axes."""
    value = call.value(0)
    rank = len(call.shape(value))
    order = list(range(rank))
    if call.op == "permute.default":
        order = [axis % rank for axis in call["dims"]]
    elif call.op == "transpose.int" and rank:
        first, second = call["dim0"] % rank, call["dim1"] % rank
        order[first], order[second] = order[second], order[first]
    elif call.op == "movedim.int":
        order.insert(call["destination"] % rank, order.pop(call["source"] % rank))
    else:
        order = order[::-1]
    return value if order == sorted(order) else call.add("transpose", [value], axes=tuple(order))


@converts("expand.default", "expand_as.default", "broadcast_to.default")
def expand(call: AtenCall) -> str:
    """Broadcasts to a larger shape."""
    value, shape = call.value(0), call.result.shape
    return value if call.shape(value) == shape else call.add("broadcast_to", [value], shape=shape)


@converts("repeat.default", "tile.default")
def tile(call: AtenCall) -> str:
    """Repeats along every axis; further axes may be added in front."""
    value, counts = call.value(0), list(call["repeats" if call.op == "repeat.default" else "dims"])
    shape = call.shape(value)
    counts = [1] * (len(shape) - len(counts)) + counts
    value = call.reshape(value, (1,) * (len(counts) - len(shape)) + shape)
    for axis, count in enumerate(counts):
        value = repeat_axis(call, value, axis, count)
    return value


@converts("repeat_interleave.self_int")
def repeated_each(call: AtenCall) -> str:
    """Repeats each element of an axis."""
    call.require(call["dim"] is not None, "must name an axis", "dim=None")
    return repeat_axis(call, call.value(0), call.axis(), int(call["repeats"]), each=True)


@converts("cat.default", "concat.default", "concatenate.default")
def concatenate(call: AtenCall) -> str:
    """Concatenates along an axis; empty one-dimensional tensors are ignored."""
    values = [call.context.value(node.name) for node in call["tensors"] if node.meta["val"].numel()]
    if any(call.context.builder.type(value).dtype != call.result.dtype for value in values):
        values = [call.cast(value, call.result.dtype) for value in values]
    return concatenate_parts(call, values, int(call["dim"]) % len(call.result.shape))


@converts("stack.default")
def stack(call: AtenCall) -> str:
    """Stacks along a new axis."""
    axis = int(call["dim"]) % len(call.result.shape)
    values = [call.context.value(node.name) for node in call["tensors"]]
    shape = tuple(1 if a == axis else n for a, n in enumerate(call.result.shape))
    return concatenate_parts(call, [call.reshape(value, shape) for value in values], axis)


def slice_axis(call: Call, value: str, axis: int, start: int, size: int, step: int = 1) -> str:
    """Slices evenly spaced indices of an axis."""
    shape = call.shape(value)
    if (start, size, step) == (0, shape[axis], 1):
        return value

    def at(index: int, else_: Sequence[int]) -> tuple[int, ...]:
        return tuple(index if a == axis else n for a, n in enumerate(else_))

    rank = len(shape)
    return call.add("slice", [value], begin=at(start, [0] * rank), size=at(size, shape), step=at(step, [1] * rank))


@converts("slice.Tensor")
def slice_between(call: AtenCall) -> str:
    """Slices between two indices of an axis."""
    value, axis = call.value(0), call.axis()
    places = range(call.shape(value)[axis])[slice(call["start"], call["end"], call["step"])]
    return slice_axis(call, value, axis, places.start, len(places), places.step)


@converts("select.int")
def select(call: AtenCall) -> str:
    """Selects one index of an axis and removes the axis."""
    value, axis = call.value(0), call.axis()
    part = slice_axis(call, value, axis, call["index"] % call.shape(value)[axis], 1)
    return call.reshape(part, call.result.shape)


@converts("narrow.default")
def narrow(call: AtenCall) -> str:
    """Slices adjacent indices of an axis."""
    value, axis = call.value(0), call.axis()
    return slice_axis(call, value, axis, call["start"] % call.shape(value)[axis], call["length"])


@converts(
    "split_with_sizes.default", "split.Tensor", "split.sizes", "chunk.default", "unbind.int", "unsafe_split.Tensor"
)
def split(call: AtenCall) -> list[str | None]:
    """Splits along an axis; `unbind` removes it. Parts that are not read are left out."""
    value, axis = call.value(0), call.axis()
    unbound = call.op == "unbind.int"
    parts: list[str | None] = []
    start = 0
    for place, part in enumerate(call.node.meta["val"]):
        size = 1 if unbound else int(part.shape[axis])
        made = (
            call.reshape(slice_axis(call, value, axis, start, size), tuple(part.shape)) if call.reads(place) else None
        )
        parts.append(made)
        start += size
    return parts


@converts("flip.default")
def flip(call: AtenCall) -> str:
    """Reverses axes."""
    value = call.value(0)
    for axis in call.axes("dims"):
        value = take_places(call, value, np.arange(call.shape(value)[axis])[::-1], axis)
    return value


@converts("roll.default")
def roll(call: AtenCall) -> str:
    """Rotates axes: elements that leave at the end enter at the start."""
    value, shifts, axes = call.value(0), call["shifts"], call["dims"]
    shape = call.shape(value)
    if not axes:
        value, axes = call.reshape(value, (math.prod(shape),)), [0]
    for shift, axis in zip(shifts, axes, strict=True):
        extent = call.shape(value)[axis]
        axis, shift = axis % len(call.shape(value)), shift % extent
        if shift:
            ends = [
                slice_axis(call, value, axis, extent - shift, shift),
                slice_axis(call, value, axis, 0, extent - shift),
            ]
            value = call.add("concat", ends, axis=axis)
    return call.reshape(value, shape)


_MODES = {"constant_pad_nd": "constant", "reflection_pad": "reflect", "replication_pad": "edge"}


@converts(
    "constant_pad_nd.default",
    *(f"{name}_pad{rank}d.default" for name in ("reflection", "replication") for rank in (1, 2, 3)),
)
def pad_tensor(call: AtenCall) -> str:
    """Pads by a number or by elements of the input; pairs of widths begin with the last axis."""
    given, rank = list(call[_padding(call)]), len(call.type(0).shape)
    before, after = given[::2][::-1], given[1::2][::-1]
    axes = range(rank - len(before), rank)
    pads = [0] * rank * 2
    for axis, low, high in zip(axes, before, after, strict=True):
        pads[axis], pads[rank + axis] = low, high
    mode = next(mode for name, mode in _MODES.items() if call.op.startswith(name))
    attrs: dict[str, Any] = {"pads": pads, "mode": mode.encode()}
    if mode == "constant":
        attrs["value"] = call["value"]
    return pad(call.shared("Pad", call.inputs[:1], **attrs))


def _padding(call: AtenCall) -> str:
    return "pad" if "pad" in call.arguments else "padding"


@converts("as_strided.default")
def view_as_strided(call: AtenCall) -> str:
    """Reshapes all elements in memory order; other strides are refused."""
    source = call["self"].meta["val"]
    size, stride = list(call["size"]), list(call["stride"])
    span = 1 + sum((n - 1) * s for n, s in zip(source.shape, source.stride(), strict=True))
    offset = call["storage_offset"]
    same = offset is None or offset == source.storage_offset()
    whole = math.prod(size) == math.prod(source.shape) == span and same
    call.require(whole, "must keep all elements", f"size={size}")
    memory = np.empty(span, np.int64)  # offset in memory → number of the element there
    view = np.lib.stride_tricks.as_strided(memory, source.shape, [8 * s for s in source.stride()])
    view[...] = np.arange(span).reshape(source.shape)
    inside = sum((n - 1) * s for n, s in zip(size, stride, strict=True)) < span
    same_order = (
        inside
        and (
            np.lib.stride_tricks.as_strided(memory, size, [8 * s for s in stride]).reshape(-1) == np.arange(span)
        ).all()
    )
    call.require(bool(same_order), "must keep the order of elements", f"stride={stride}")
    return call.reshape(call.value(0), call.result.shape)


@converts("pixel_shuffle.default")
def pixel_shuffle(call: AtenCall) -> str:
    """Moves channels to blocks of r x r pixels."""
    value, r = call.value(0), int(call["upscale_factor"])
    *lead, c, h, w = call.shape(value)
    count = len(lead)
    out = call.add("reshape", [value], shape=(*lead, c // r**2, r, r, h, w))
    order = [*range(count), *(count + place for place in (0, 3, 1, 4, 2))]
    return call.add("reshape", [call.add("transpose", [out], axes=tuple(order))], shape=call.result.shape)


@converts("pixel_unshuffle.default")
def pixel_unshuffle(call: AtenCall) -> str:
    """Moves blocks of r x r pixels to channels."""
    value, r = call.value(0), int(call["downscale_factor"])
    *lead, c, h, w = call.shape(value)
    count = len(lead)
    out = call.add("reshape", [value], shape=(*lead, c, h // r, r, w // r, r))
    order = [*range(count), *(count + place for place in (0, 2, 4, 1, 3))]
    return call.add("reshape", [call.add("transpose", [out], axes=tuple(order))], shape=call.result.shape)


@converts("channel_shuffle.default")
def channel_shuffle(call: AtenCall) -> str:
    """Transposes the channels of groups: channel c of group g becomes channel g of group c."""
    value, groups = call.value(0), int(call["groups"])
    n, c, *rest = call.shape(value)
    out = call.add("reshape", [value], shape=(n, groups, c // groups, *rest))
    out = call.add("transpose", [out], axes=(0, 2, 1, *range(3, 3 + len(rest))))
    return call.add("reshape", [out], shape=(n, c, *rest))
