"""Convolutions and pools: channels first outside, channels-last within."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune.graph.importer.call import Call
from autotune.graph.importer.registry import imports

Ints = tuple[int, ...]
Sides = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Slide:
    """How a window slides over the spatial axes of data (n, c, spatial...).

    Attributes:
        sides: padding as the node says, (before, after) for each axis.
        extra: padding at the end of each axis beyond that, which only ceil_mode asks for.
    """

    extent: Ints
    kernel: Ints
    stride: Ints
    dilation: Ints
    sides: Sides
    extra: Ints

    @staticmethod
    def of(call: Call, extent: Ints, kernel: Ints) -> Slide:
        """As the attributes of a call say."""
        rank = len(extent)
        call.require(len(kernel) == rank, f"must have a window of {rank} axes", f"kernel_shape={list(kernel)}")
        stride = call.attr("strides", (1,) * rank)
        dilation = call.attr("dilations", (1,) * rank)
        reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True))
        sides = _sides(call, extent, reach, stride)
        extra = [0] * rank
        if call.attr("ceil_mode", 0) and call.attr("auto_pad", "NOTSET") == "NOTSET":
            for axis, (n, r, s, (before, after)) in enumerate(zip(extent, reach, stride, sides, strict=True)):
                windows = math.ceil((n + before + after - r) / s) + 1
                if (windows - 1) * s >= n + before:  # it would begin in the padding at the end
                    windows -= 1
                extra[axis] = max(0, (windows - 1) * s + r - (n + before + after))
        return Slide(extent, kernel, stride, dilation, sides, tuple(extra))

    @property
    def padding(self) -> Sides:
        """All of it, (before, after) for each axis."""
        return tuple((before, after + more) for (before, after), more in zip(self.sides, self.extra, strict=True))

    @property
    def output(self) -> Ints:
        """Extents of the output."""
        fields = zip(self.extent, self.padding, self.kernel, self.dilation, self.stride, strict=True)
        return tuple((n + sum(p) - (k - 1) * d - 1) // s + 1 for n, p, k, d, s in fields)

    @property
    def plain(self) -> bool:
        """Whether the library's pools do it: two axes, no dilation, an element of the data in each window."""
        fields = zip(self.extent, self.kernel, self.stride, self.padding, self.output, strict=True)
        alike = all(
            before != after or 2 * before <= k for (before, after), k in zip(self.padding, self.kernel, strict=True)
        )
        full = all(p[0] < k and (m - 1) * s < p[0] + n for n, k, s, p, m in fields)
        return len(self.extent) == 2 and set(self.dilation) == {1} and alike and full


def _sides(call: Call, extent: Ints, reach: Ints, stride: Ints) -> Sides:
    rank, kind = len(extent), call.attr("auto_pad", "NOTSET")
    if kind in ("SAME_UPPER", "SAME_LOWER"):
        found = []
        for n, r, s in zip(extent, reach, stride, strict=True):
            total = max(0, (math.ceil(n / s) - 1) * s + r - n)
            less, more = total // 2, total - total // 2
            found.append((less, more) if kind == "SAME_UPPER" else (more, less))
        return tuple(found)
    pads = (0,) * 2 * rank if kind == "VALID" else call.attr("pads", (0,) * 2 * rank)
    call.require(len(pads) == 2 * rank and min(pads) >= 0, "must have padding of at least 0", f"pads={list(pads)}")
    return tuple(zip(pads[:rank], pads[rank:], strict=True))


@imports("Conv")
def conv(call: Call) -> str:
    """Weights (k, c / groups, window...) become (window..., c / groups, k), or (window..., c) where depthwise."""
    _, channels, *extent = call.shape()
    outputs, _, *kernel = call.shape(1)
    rank, groups = len(extent), call.attr("group", 1)
    call.require(1 <= rank <= 3, "must have 1, 2 or 3 spatial axes", f"input shape={list(call.shape())}")
    slide = Slide.of(call, tuple(extent), tuple(kernel))
    common: dict[str, Any] = {"stride": slide.stride, "padding": slide.padding, "dilation": slide.dilation}
    data = call.channels_last(call.value(0))
    window = tuple(range(2, rank + 2))
    if rank == 2 and groups == channels == outputs and groups > 1:
        weight = call.known(1)
        if weight is not None:
            filters = call.constant(weight[:, 0].transpose(1, 2, 0), f"{call.output}/weight")
        else:
            filters = call.reshape(call.transpose(call.value(1), (*window, 1, 0)), (*kernel, channels))
        out = call.product("depthwise_conv2d", data, filters, **common)
    else:
        filters = call.transpose(call.value(1), (*window, 1, 0))
        out = call.product(f"conv{rank}d", data, filters, groups=groups, **common)
    if call.has(2):
        out = call.add("add", out, call.value(2))
    return call.channels_first(out)


@imports("MaxPool")
def max_pool(call: Call) -> list[str | None]:
    """The indices of the largest elements, a second output, are not available."""
    data = call.channels_last(call.value(0))
    return [call.channels_first(_pool(call, data, "max")), *[None] * (call.outputs - 1)]


@imports("AveragePool")
def average_pool(call: Call) -> str:
    """Padding that only ceil_mode asks for never counts as elements."""
    return call.channels_first(_pool(call, call.channels_last(call.value(0)), "mean"))


@imports("LpPool")
def lp_pool(call: Call) -> str:
    """The root of a sum of powers."""
    order = float(call.attr("p", 2))
    powers = call.add("power", call.add("abs", call.channels_last(call.value(0))), exponent=order)
    return call.channels_first(call.add("power", _pool(call, powers, "sum"), exponent=1 / order))


def _pool(call: Call, data: str, reducer: str) -> str:
    """Of channels-last data."""
    extent = call.type_of(data).shape[1:-1]
    slide = Slide.of(call, extent, call.attr("kernel_shape"))
    counted = bool(call.attr("count_include_pad", 0))
    if reducer != "sum" and slide.plain and call.type_of(data).dtype == "float32":
        common: dict[str, Any] = {"kernel": slide.kernel, "stride": slide.stride}
        if reducer == "max":
            return call.add("max_pool2d", data, padding=slide.padding, **common)
        if counted and any(slide.extra):
            before, after = zip((0, 0), *slide.sides, (0, 0), strict=True)
            data = call.add("pad", data, before=before, after=after)
            rest = tuple((0, more) for more in slide.extra)
            return call.add("avg_pool2d", data, padding=rest, count_padding=False, **common)
        return call.add("avg_pool2d", data, padding=slide.padding, count_padding=counted, **common)
    out = call.add(
        "window",
        data,
        kernel=slide.kernel,
        stride=slide.stride,
        padding=slide.padding,
        dilation=slide.dilation,
        reducer="max" if reducer == "max" else "sum",
    )
    return call.add("multiply", out, call.constant(_shares(slide, counted))) if reducer == "mean" else out


def _shares(slide: Slide, counted: bool) -> Any:
    """One over the number of elements in each window: (1, output..., 1)."""
    share = np.ones((1,) * len(slide.extent))
    for axis, (n, (before, after)) in enumerate(zip(slide.extent, slide.sides, strict=True)):
        first, last = (0, before + n + after) if counted else (before, before + n)
        start = np.arange(slide.output[axis])[:, None] * slide.stride[axis]
        places = start + np.arange(slide.kernel[axis]) * slide.dilation[axis]
        count = ((places >= first) & (places < last)).sum(1)
        share = share / count.reshape([-1 if a == axis else 1 for a in range(len(slide.extent))])
    return share[None, ..., None].astype(np.float32)


@imports("GlobalAveragePool", "GlobalMaxPool")
def global_pool(call: Call) -> str:
    """A reduction of channels-last data over the spatial axes."""
    batch, channels, *extent = call.shape()
    data = call.channels_last(call.value(0))
    reducer = "mean" if call.op == "GlobalAveragePool" else "max"
    out = call.add("reduce", data, axes=tuple(range(1, len(extent) + 1)), reducer=reducer)
    return call.reshape(out, (batch, channels, *[1] * len(extent)))


@imports("ConvTranspose")
def conv_transpose(call: Call) -> str:
    """Weights (c, k / groups, window...). All that the library's operator lacks is made around it.

    Groups are computed one by one, dilated filters get zeros between, and padding cuts the whole output.
    """
    _, channels, *extent = call.shape()
    rank, groups = len(extent), call.attr("group", 1)
    call.require(rank in (1, 2), "must have 1 or 2 spatial axes", f"input shape={list(call.shape())}")
    weight = _dilated(call.array(1, "W"), call.attr("dilations", (1,) * rank))
    stride = call.attr("strides", (1,) * rank)
    begin, size, more = _cut(call, tuple(extent), weight.shape[2:], stride)
    data = call.channels_last(call.value(0))
    if rank == 1:
        batch, width, _ = call.type_of(data).shape
        data = call.reshape(data, (batch, 1, width, channels))
        weight, stride, begin, size, more = weight[:, :, None], (1, *stride), (0, *begin), (1, *size), (0, *more)
    parts = []
    for group, part in enumerate(np.split(weight, groups)):
        depth = channels // groups
        taken = _slice_last(call, data, group * depth, depth) if groups > 1 else data
        filters = call.constant(part.transpose(2, 3, 0, 1), f"{call.output}/weight")
        parts.append(call.product("conv2d_transpose", taken, filters, stride=stride, output_padding=(0, 0)))
    out = parts[0] if groups == 1 else call.add("concat", *parts, axis=3)
    if any(more):
        out = call.add("pad", out, before=(0, 0, 0, 0), after=(0, *more, 0))
    batch, *whole, outputs = call.type_of(out).shape
    if list(size) != whole:
        out = call.add("slice", out, begin=(0, *begin, 0), size=(batch, *size, outputs))
    if rank == 1:
        out = call.reshape(out, (batch, size[1], outputs))
    if call.has(2):
        out = call.add("add", out, call.value(2))
    return call.channels_first(out)


def _slice_last(call: Call, value: str, begin: int, size: int) -> str:
    *rest, _ = call.type_of(value).shape
    return call.add("slice", value, begin=(*[0] * len(rest), begin), size=(*rest, size))


def _dilated(weight: Any, dilation: Ints) -> Any:
    """Filters with zeros between their elements."""
    if set(dilation) == {1}:
        return weight
    reach = [(k - 1) * d + 1 for k, d in zip(weight.shape[2:], dilation, strict=True)]
    wide = np.zeros((*weight.shape[:2], *reach), weight.dtype)
    wide[(slice(None), slice(None), *(slice(None, None, d) for d in dilation))] = weight
    return wide


def _cut(call: Call, extent: Ints, kernel: Ints, stride: Ints) -> tuple[Ints, Ints, Ints]:
    """Begin and size of the output in the whole one, and what is added at its end."""
    rank = len(extent)
    whole = [(n - 1) * s + k for n, k, s in zip(extent, kernel, stride, strict=True)]
    added = call.attr("output_padding", (0,) * rank)
    kind, wanted = call.attr("auto_pad", "NOTSET"), call.attr("output_shape")
    pads = (0,) * 2 * rank if kind == "VALID" else call.attr("pads", (0,) * 2 * rank)
    begin, size = list(pads[:rank]), []
    for axis in range(rank):
        if wanted is not None or kind.startswith("SAME"):
            target = wanted[-rank + axis] if wanted is not None else extent[axis] * stride[axis]
            total = max(0, whole[axis] + added[axis] - target)
            begin[axis] = total // 2 if kind == "SAME_UPPER" else total - total // 2
            size.append(target)
        else:
            size.append(whole[axis] + added[axis] - pads[axis] - pads[axis + rank])
    more = tuple(max(0, b + n - w) for b, n, w in zip(begin, size, whole, strict=True))
    call.require(min(size) > 0 and min(begin) >= 0, "must leave an output", f"pads={list(pads)}")
    return tuple(begin), tuple(size), more
