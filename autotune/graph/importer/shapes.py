"""Operators that move elements or name them anew."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autotune.graph.importer.call import Call
from autotune.graph.importer.registry import imports
from autotune.graph.ir import Array
from search_space.ir.interp import numpy_dtype


@imports("Identity")
def identity(call: Call) -> str:
    """The input itself."""
    return call.value(0)


@imports("Dropout")
def dropout(call: Call) -> list[str | None]:
    """In inference the input itself, and a mask that is true everywhere."""
    if call.has(2):
        call.require(not call.array(2, "training_mode"), "must be in inference mode", "training_mode=1")
    return [call.value(0), call.constant(np.ones(call.shape(), bool)) if call.outputs > 1 else None]


@imports("Reshape")
def reshape(call: Call) -> str:
    """0 keeps an extent, -1 is what is left."""
    source = call.shape()
    wanted = list(call.integers(1, "shape"))
    if not call.attr("allowzero", 0):
        call.require(
            all(n != 0 or i < len(source) for i, n in enumerate(wanted)), "must keep known extents", f"shape={wanted}"
        )
        wanted = [source[i] if n == 0 else n for i, n in enumerate(wanted)]
    if -1 in wanted:
        rest = -math.prod(wanted)
        wanted[wanted.index(-1)] = math.prod(source) // rest if rest else 0
    return call.reshape(call.value(0), wanted)


@imports("Flatten")
def flatten(call: Call) -> str:
    """Two dimensions, cut at `axis`."""
    shape, axis = call.shape(), call.attr("axis", 1)
    cut = axis + len(shape) if axis < 0 else axis
    return call.reshape(call.value(0), (math.prod(shape[:cut]), math.prod(shape[cut:])))


@imports("Unsqueeze")
def unsqueeze(call: Call) -> str:
    """Dimensions of 1 at `axes` of the output."""
    axes = call.attr("axes") if call.opset < 13 else call.integers(1, "axes")
    rank = len(call.shape()) + len(axes)
    places, rest = {call.axis(a, rank) for a in axes}, iter(call.shape())
    return call.reshape(call.value(0), [1 if place in places else next(rest) for place in range(rank)])


@imports("Squeeze")
def squeeze(call: Call) -> str:
    """Without the dimensions at `axes`, or without every dimension of 1."""
    shape = call.shape()
    axes = call.attr("axes") if call.opset < 13 else call.integers(1, "axes") if call.has(1) else None
    if axes is None:
        axes = [place for place, extent in enumerate(shape) if extent == 1]
    gone = {call.axis(a, len(shape)) for a in axes}
    call.require(all(shape[a] == 1 for a in gone), "must remove dimensions of 1", f"axes={list(axes)}")
    return call.reshape(call.value(0), [extent for place, extent in enumerate(shape) if place not in gone])


@imports("Transpose")
def transpose(call: Call) -> str:
    """Reversed by default."""
    return call.transpose(call.value(0), call.attr("perm", tuple(reversed(range(len(call.shape()))))))


@imports("Concat")
def concat(call: Call) -> str:
    """Along `axis`, empty tensors left out."""
    parts = [call.value(place) for place in range(call.count) if 0 not in call.shape(place)]
    axis = call.axis(call.attr("axis", 1), len(call.shape()))
    return call.add("concat", *parts, axis=axis) if len(parts) > 1 else parts[0]


@imports("Expand")
def expand(call: Call) -> str:
    """To the shape that broadcasting with `shape` gives."""
    return call.expand(call.value(0), np.broadcast_shapes(call.shape(), call.integers(1, "shape")))


@imports("Tile")
def tile(call: Call) -> str:
    """Each axis repeated: (n) → (times, n) → (times * n)."""
    shape, times = call.shape(), call.integers(1, "repeats")
    return _repeated(call, [(t, n) for t, n in zip(times, shape, strict=True)], shape, outer=True)


def _repeated(call: Call, pairs: Sequence[tuple[int, int]], shape: Sequence[int], outer: bool) -> str:
    """Every axis as (times, extent), or (extent, times), then brought together."""
    split = [n for t, e in pairs for n in ((1, e) if outer else (e, 1))]
    wide = [n for t, e in pairs for n in ((t, e) if outer else (e, t))]
    value = call.expand(call.reshape(call.value(0), split), wide)
    return call.reshape(value, [t * e for t, e in pairs])


@imports("Slice")
def slice_(call: Call) -> str | Array:
    """Bounds are attributes before opset 10, inputs since then."""
    shape = call.shape()
    if call.opset < 10:
        starts, ends, axes = call.attr("starts"), call.attr("ends"), call.attr("axes")
        steps = None
    else:
        starts, ends = call.integers(1, "starts"), call.integers(2, "ends")
        axes = call.integers(3, "axes") if call.has(3) else None
        steps = call.integers(4, "steps") if call.has(4) else None
    axes = range(len(starts)) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    cuts = [range(extent) for extent in shape]
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        place = call.axis(axis, len(shape))
        cuts[place] = cuts[place][slice(start, end, step)]
    return cut_or_empty(call, call.value(0), cuts)


def cut_or_empty(call: Call, value: str, cuts: Sequence[range]) -> str | Array:
    """The same; an array where there are none."""
    if all(len(c) for c in cuts):
        return cut(call, value, cuts)
    return np.zeros([len(c) for c in cuts], numpy_dtype(call.type_of(value).dtype))


def cut(call: Call, value: str, cuts: Sequence[range]) -> str:
    """The elements of each axis that a range names; the value itself where that is all of them."""
    shape = call.type_of(value).shape
    if all(c == range(n) for c, n in zip(cuts, shape, strict=True)):
        return value
    step = [c.step if len(c) > 1 else 1 for c in cuts]
    return call.add("slice", value, begin=[c.start for c in cuts], size=[len(c) for c in cuts], step=step)


@imports("Split")
def split(call: Call) -> list[str | Array]:
    """Sizes are given, or equal; the last part may be smaller."""
    shape = call.shape()
    axis = call.axis(call.attr("axis", 0), len(shape))
    sizes = call.attr("split")
    if sizes is None and call.has(1):
        sizes = call.integers(1, "split")
    if sizes is None:
        count = call.attr("num_outputs", call.outputs)
        part = math.ceil(shape[axis] / count)
        sizes = [min(part, shape[axis] - place * part) for place in range(count)]
    call.require(sum(sizes) == shape[axis] and min(sizes) >= 0, f"must split {shape[axis]}", f"split={list(sizes)}")
    ends = np.cumsum(sizes)
    whole = [range(extent) for extent in shape]
    return [
        cut_or_empty(call, call.value(0), [*whole[:axis], range(int(end) - size, int(end)), *whole[axis + 1 :]])
        for size, end in zip(sizes, ends, strict=True)
    ]


@imports("Gather")
def gather(call: Call) -> str:
    """Constant indices in equal steps are a slice; a single one loses the axis."""
    shape = call.shape()
    axis = call.axis(call.attr("axis", 0), len(shape))
    indices = call.known(1)
    if indices is None:
        return _gathered(call, call.value(0), call.value(1), axis)
    places = np.where(indices < 0, indices + shape[axis], indices).reshape(-1)
    call.require(bool(places.size), "must give a tensor that is not empty", f"indices of shape {list(indices.shape)}")
    inside = (places >= 0) & (places < shape[axis])
    call.require(bool(inside.all()), f"must have indices within {shape[axis]}", f"indices={indices.tolist()}")
    rows = taken(call, call.value(0), axis, places)
    return call.reshape(rows, (*shape[:axis], *indices.shape, *shape[axis + 1 :]))


def taken(call: Call, value: str, axis: int, places: Array) -> str:
    """Elements of an axis at constant places: a slice where they stand in equal steps."""
    steps = np.unique(np.diff(places)) if places.size > 1 else np.array([1])
    if len(steps) > 1 or steps[0] == 0:
        return call.add("gather", value, call.constant(places.astype(np.int64)), axis=axis)
    whole = [range(extent) for extent in call.type_of(value).shape]
    first, step = int(places[0]), int(steps[0])
    return cut(call, value, [*whole[:axis], range(first, first + step * places.size, step), *whole[axis + 1 :]])


def _gathered(call: Call, data: str, indices: str, axis: int) -> str:
    """Of any number of indices: one axis of them within."""
    shape, inner = call.type_of(data).shape, call.type_of(indices).shape
    flat = call.reshape(indices, (math.prod(inner),))
    return call.reshape(call.add("gather", data, flat, axis=axis), (*shape[:axis], *inner, *shape[axis + 1 :]))


@imports("Pad")
def pad(call: Call) -> str:
    """A constant around; reflected, repeated or wrapped elements; negative padding cuts."""
    shape, mode = call.shape(), call.attr("mode", "constant")
    pads = call.attr("pads") if call.opset < 11 else call.integers(1, "pads")
    axes = call.integers(3, "axes") if call.has(3) else range(len(shape))
    before, after = [0] * len(shape), [0] * len(shape)
    for place, axis in enumerate(axes):
        at = call.axis(axis, len(shape))
        before[at], after[at] = pads[place], pads[place + len(axes)]
    data = call.value(0)
    if mode != "constant":
        call.require(mode in ("reflect", "edge", "wrap"), "must have a known mode", f"mode={mode!r}")
        for axis, (first, last) in enumerate(zip(before, after, strict=True)):
            if first or last:
                call.require(min(first, last) >= 0, "must have padding of at least 0", f"pads={list(pads)}")
                order = np.pad(np.arange(shape[axis]), (first, last), mode=mode)
                data = taken(call, data, axis, order)
        return data
    call.require(
        all(n + min(0, b) + min(0, a) > 0 for n, b, a in zip(shape, before, after, strict=True)),
        "must leave elements",
        f"pads={list(pads)}",
    )
    cuts = [range(max(0, -b), n - max(0, -a)) for n, b, a in zip(shape, before, after, strict=True)]
    data = cut(call, data, cuts)
    grown = {"before": [max(0, b) for b in before], "after": [max(0, a) for a in after]}
    if not any(map(any, grown.values())):
        return data
    value = call.attr("value", 0.0)
    if call.has(2):
        value = float(call.array(2, "constant_value").reshape(-1)[0])
    return call.add("pad", data, value=value, **grown)


@imports("DepthToSpace")
def depth_to_space(call: Call) -> str:
    """Blocks of channels become blocks of pixels."""
    batch, channels, height, width = call.shape()
    block = call.attr("blocksize")
    depth = channels // block**2
    if call.attr("mode", "DCR") == "DCR":
        value = call.reshape(call.value(0), (batch, block, block, depth, height, width))
        value = call.transpose(value, (0, 3, 4, 1, 5, 2))
    else:
        value = call.reshape(call.value(0), (batch, depth, block, block, height, width))
        value = call.transpose(value, (0, 1, 4, 2, 5, 3))
    return call.reshape(value, (batch, depth, height * block, width * block))


@imports("SpaceToDepth")
def space_to_depth(call: Call) -> str:
    """The reverse."""
    batch, channels, height, width = call.shape()
    block = call.attr("blocksize")
    order = (0, 3, 5, 1, 2, 4) if call.attr("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    value = call.reshape(call.value(0), (batch, channels, height // block, block, width // block, block))
    value = call.transpose(value, order)
    return call.reshape(value, (batch, channels * block**2, height // block, width // block))


@imports("Trilu")
def trilu(call: Call) -> str:
    """The upper or the lower triangle, zeros elsewhere."""
    rows, columns = call.shape()[-2:]
    offset = int(call.array(1, "k").reshape(-1)[0]) if call.has(1) else 0
    upper = np.triu(np.ones((rows, columns), bool), offset)
    mask = upper if call.attr("upper", 1) else np.tril(np.ones((rows, columns), bool), offset)
    zero = call.constant(np.zeros(1, call.type().dtype))
    return call.add("where", call.constant(mask), call.value(0), zero)
