"""Image operators besides convolutions: padding, blocks, transposed convolution."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from autotune.graph.calls import Call
from autotune.graph.emitter import channels_first, channels_last
from autotune.graph.frontends.onnx.importer.registry import imports
from autotune.graph.frontends.onnx.importer.selection import take_places
from autotune.graph.ir import Array, TensorType
from search_space.dtypes import is_float_exact, numpy_dtype


@imports("Pad")
def pad(call: Call) -> str:
    """Pads by a constant, or by elements of the input at constant indices; negative padding crops."""
    value = call.value(0)
    shape = call.shape(value)
    pads = call.ints("pads", 1) or ()
    axes = [a % len(shape) for a in call.ints("axes", 3, default=range(len(shape))) or ()]
    before, after = [0] * len(shape), [0] * len(shape)
    for place, axis in enumerate(axes):
        before[axis], after[axis] = pads[place], pads[place + len(axes)]
    mode = bytes(call.attrs.get("mode", b"constant")).decode()
    call.require(mode in ("constant", "edge", "reflect", "wrap"), "must have a known mode", f"mode={mode!r}")
    cut = [(max(0, -b), n - max(0, -a)) for b, a, n in zip(before, after, shape, strict=True)]
    if mode == "constant" and any(begin >= end for begin, end in cut):  # only padding remains
        final = [sum(parts) for parts in zip(before, shape, after, strict=True)]
        call.take(TensorType(tuple(final), call.type(0).dtype))
        return call.constant(np.full(final, _fill(call), call.type(0).dtype))
    if any(c != (0, n) for c, n in zip(cut, shape, strict=True)):
        begin, size = tuple(c[0] for c in cut), tuple(c[1] - c[0] for c in cut)
        value = call.add("slice", [value], begin=begin, size=size)
    sides = [(max(0, b), max(0, a)) for b, a in zip(before, after, strict=True)]
    if mode == "constant":
        if not any(map(any, sides)):
            return value
        low, high = (tuple(s[i] for s in sides) for i in (0, 1))
        if call.has(2) and call.array(2) is None:
            number = call.reshape(call.value(2), (1,))
            return call.add("pad_with", [value, number], before=low, after=high)
        return pad_with_number(call, value, low, high, _fill(call))
    for axis, side in enumerate(sides):
        if any(side):
            indices = np.arange(call.shape(value)[axis])
            call.take(TensorType((len(indices) + sum(side),), "int64"))
            value = take_places(
                call,
                value,
                np.pad(indices, side, mode="edge") if mode == "edge" else _pad_indices(indices, side, mode),
                axis,
            )
    return value


def pad_with_number(
    call: Call, value: str, before: tuple[int, ...], after: tuple[int, ...], number: int | float = 0.0
) -> str:
    """Pads a value by a number of its dtype."""
    if is_float_exact(number):
        return call.add("pad", [value], before=before, after=after, value=float(number))
    given = np.full(1, number, numpy_dtype(call.context.builder.type(value).dtype))
    return call.add("pad_with", [value, call.constant(given)], before=before, after=after)


def _fill(call: Call) -> int | float:
    """Returns the number of a constant padding."""
    found: int | float = (
        call.require_array(2, "value").reshape(-1)[0].item() if call.has(2) else call.attrs.get("value", 0.0)
    )
    return found


def _pad_indices(indices: Array, side: tuple[int, int], mode: str) -> Array:
    return np.pad(indices, side, mode="reflect") if mode == "reflect" else np.pad(indices, side, mode="wrap")


@imports("DepthToSpace")
def depth_to_space(call: Call) -> str:
    """Moves channels to blocks of b x b pixels."""
    value = call.value(0)
    n, c, h, w = call.shape(value)
    b = int(call.attrs["blocksize"])
    crd = call.attrs.get("mode", b"DCR") == b"CRD"
    split = (n, c // b**2, b, b, h, w) if crd else (n, b, b, c // b**2, h, w)
    axes = (0, 1, 4, 2, 5, 3) if crd else (0, 3, 4, 1, 5, 2)
    out = call.add("transpose", [call.add("reshape", [value], shape=split)], axes=axes)
    return call.add("reshape", [out], shape=(n, c // b**2, h * b, w * b))


@imports("SpaceToDepth")
def space_to_depth(call: Call) -> str:
    """Moves blocks of b x b pixels to channels."""
    value = call.value(0)
    n, c, h, w = call.shape(value)
    b = int(call.attrs["blocksize"])
    out = call.add("reshape", [value], shape=(n, c, h // b, b, w // b, b))
    crd = call.attrs.get("mode", b"DCR") == b"CRD"
    out = call.add("transpose", [out], axes=(0, 1, 3, 5, 2, 4) if crd else (0, 3, 5, 1, 2, 4))
    return call.add("reshape", [out], shape=(n, c * b**2, h // b, w // b))


@imports("Col2Im")
def blocks_to_image(call: Call) -> str:
    """Adds blocks where they overlap; blocks that tile the image are only transposed."""
    image, block = (
        [int(n) for n in call.require_array(i, what)] for i, what in ((1, "image shape"), (2, "block shape"))
    )
    rank, value = len(image), call.value(0)
    stride, dilation = (call.ints(name, default=[1] * rank) or () for name in ("strides", "dilations"))
    pads = call.ints("pads", default=[0] * 2 * rank) or ()
    attrs: dict[str, Any] = {"image": image, "block": block, "stride": stride, "dilation": dilation}
    attrs |= {"before": pads[:rank], "after": pads[rank:]}
    fitting = all(n % k == 0 for n, k in zip(image, block, strict=True))
    if not fitting or list(stride) != block or set(dilation) != {1} or any(pads):
        return call.add("col2im", [value], **attrs)
    samples, elements, _ = call.shape(value)
    counts = [n // k for n, k in zip(image, block, strict=True)]
    channels = elements // math.prod(block)
    out = call.add("reshape", [value], shape=(samples, channels, *block, *counts))
    order = [axis for place in range(rank) for axis in (2 + rank + place, 2 + place)]
    out = call.add("transpose", [out], axes=(0, 1, *order))
    return call.add("reshape", [out], shape=(samples, channels, *image))


@imports("ConvTranspose")
def conv_transpose(call: Call) -> str:
    """Imports a transposed convolution over one or two axes; groups are separate, dilation inserts zeros in weights."""
    shape = call.type(0).shape
    rank = len(shape) - 2
    call.require(rank in (1, 2), "must slide over one or two axes", f"input shape={shape}")
    weight = _dilate(call.require_array(1, "weight"), call.ints("dilations", default=[1] * rank) or ())
    kernel, stride = weight.shape[2:], call.ints("strides", default=[1] * rank) or ()
    more = call.ints("output_padding", default=[0] * rank) or ()
    full = [(n - 1) * s + k for n, s, k in zip(shape[2:], stride, kernel, strict=True)]
    before, after, more = _cut(call, shape[2:], full, stride, more)
    data = channels_last(call, call.value(0))
    if rank == 1:
        data = call.add("reshape", [data], shape=(shape[0], 1, shape[2], shape[1]))
        weight, kernel, stride = weight[:, :, None], (1, *kernel), (1, *stride)
        full, before, after, more = [1, *full], [0, *before], [0, *after], (0, *more)
    groups = int(call.attrs.get("group", 1))
    simple = before == after and all(p < k for p, k in zip(before, kernel, strict=True))
    simple = simple and all(m < s for m, s in zip(more, stride, strict=True))
    attrs = {"stride": stride, "padding": tuple(before) if simple else 0, "output_padding": more if simple else 0}
    width, parts = shape[1] // groups, []
    for group in range(groups):
        mine = data
        if groups > 1:
            mine = take_places(call, data, np.arange(group * width, (group + 1) * width), 3)
        filters = weight[group * width : (group + 1) * width].transpose(2, 3, 0, 1)
        parts.append(call.add("conv2d_transpose", [mine, call.constant(filters)], **attrs))
    out = parts[0] if groups == 1 else call.add("concat", parts, axis=3)
    if not simple:
        n, _, _, c = call.shape(out)
        wanted = [f - b - a + m for f, b, a, m in zip(full, before, after, more, strict=True)]
        size = [min(w, f - b) for w, f, b in zip(wanted, full, before, strict=True)]
        out = call.add("slice", [out], begin=(0, *before, 0), size=(n, *size, c))
        rest = [w - s for w, s in zip(wanted, size, strict=True)]
        if any(rest):
            out = call.add("pad", [out], before=(0, 0, 0, 0), after=(0, *rest, 0))
    if call.has(2):
        out = call.add("add", [out, call.value(2)])
    if rank == 1:
        n, _, w, c = call.shape(out)
        out = call.add("reshape", [out], shape=(n, w, c))
    return channels_first(call, out)


def _cut(
    call: Call, extent: tuple[int, ...], full: list[int], stride: tuple[int, ...], more: tuple[int, ...]
) -> tuple[list[int], list[int], tuple[int, ...]]:
    """Returns the crop before and after each axis of the output, and the padding at its end."""
    rank = len(extent)
    kind = call.attrs.get("auto_pad", b"NOTSET")
    wanted = call.ints("output_shape")
    if wanted is None and kind in (b"SAME_UPPER", b"SAME_LOWER"):  # crops, and never pads
        fields = zip(extent, stride, full, more, strict=True)
        wanted = tuple(min(n * s, f + m) for n, s, f, m in fields)
    if wanted is None:
        pads = [0] * 2 * rank if kind == b"VALID" else list(call.attrs.get("pads", [0] * 2 * rank))
        return pads[:rank], pads[rank:], more
    more = tuple(max(m, w - f) for m, w, f in zip(more, wanted[-rank:], full, strict=True))
    total = [max(0, f + m - w) for f, m, w in zip(full, more, wanted[-rank:], strict=True)]
    less = [t // 2 for t in total]
    rest = [t - h for t, h in zip(total, less, strict=True)]
    return (less, rest, more) if kind == b"SAME_UPPER" else (rest, less, more)


def _dilate(weight: Array, dilation: tuple[int, ...]) -> Array:
    if set(dilation) == {1}:
        return weight
    spatial = [(k - 1) * d + 1 for k, d in zip(weight.shape[2:], dilation, strict=True)]
    out = np.zeros((*weight.shape[:2], *spatial), weight.dtype)
    for place in itertools.product(*(range(k) for k in weight.shape[2:])):
        here: tuple[Any, ...] = (..., *place)
        apart: tuple[Any, ...] = (..., *(p * d for p, d in zip(place, dilation, strict=True)))
        out[apart] = weight[here]
    return out
