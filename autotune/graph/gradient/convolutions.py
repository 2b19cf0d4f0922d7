"""Convolutions whose operands are all computed at run time, and their gradients.

Weights change with each step of training, so no kernel has them packed. Convolutions, and gradients of their data, use
kernels for channels-last data with weights as they are. Gradients of weights, and convolutions with few channels or
with weights larger than the data, are matrix products. The elements of all windows are laid out side by side (im2col:
Chellapilla et al., "High performance convolutional neural networks for document processing", 2006).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.graph.emitter import NodeEmitter, channels_first, channels_last
from autotune.graph.gradient.windows import FEW, Windows
from search_space.operators.windows import normalise_padding


def convolve(emitter: NodeEmitter, data: str, weight: str, windows: Windows) -> str:
    """Adds the convolution of data (n, c, *extent) by a weight (k, c, *kernel): (n, k, *count)."""
    n, k, count = windows.n, windows.k, windows.count
    if windows.groups == 1 and (windows.heavy or (windows.apart and windows.wide)):
        filters = emitter.reshape(weight, (k, windows.c * windows.taps))
        out = _product(emitter, filters, _columns(emitter, data, windows))
        return _swap_axes(emitter, emitter.reshape(out, (k, n, *count)))
    filters = emitter.add("transpose", [weight], axes=(*range(2, windows.rank + 2), 1, 0))
    return _slid(emitter, data, filters, windows)


def spread(emitter: NodeEmitter, slope: str, weight: str, windows: Windows) -> str:
    """Computes the data's gradient by convolution with the flipped weight, by phases, or by scattered products.

    It is also the transposed convolution of values (n, k, *count) by a weight (k, c / groups, *kernel).
    """
    reach = [(k - 1) * d for k, d in zip(windows.kernel, windows.dilation, strict=True)]
    padding = tuple(r - p for r, p in zip(reach, windows.padding, strict=True))
    strided = set(windows.stride) != {1} and not windows.wide
    if windows.groups == 1 and windows.apart and windows.taps > 1:
        return _spread_apart(emitter, slope, weight, windows)
    if windows.groups > 1:
        return _of_grouped_data(emitter, slope, weight, windows, padding)
    if strided and set(windows.dilation) == {1}:
        return _phase_by_phase(emitter, slope, weight, windows)
    after = tuple(n - m + p for n, m, p in zip(windows.extent, windows.count, windows.padding, strict=True))
    if set(windows.stride) == {1} and min(*padding, *after) >= 0 and not windows.wide:
        sides = list(zip(padding, after, strict=True))
        return _slid(emitter, slope, _reverse_taps(emitter, weight, windows), windows.back, sides)
    channels, places = windows.c * windows.taps, math.prod(windows.count)
    turned = emitter.add("transpose", [emitter.reshape(weight, (windows.k, channels))], axes=(1, 0))
    values = emitter.reshape(_swap_axes(emitter, slope), (windows.k, windows.total))
    out = emitter.reshape(_product(emitter, turned, values), (channels, windows.n, places))
    out = emitter.add("transpose", [out], axes=(1, 0, 2))
    if windows.taps == 1 and set(windows.stride) == {1} and not windows.is_padded:
        return emitter.reshape(out, (windows.n, windows.c, *windows.extent))
    fields = zip(windows.count, windows.stride, reach, windows.extent, windows.padding, strict=True)
    ends = tuple(max(0, (m - 1) * s + r + 1 - n - p) for m, s, r, n, p in fields)
    image = {"image": windows.extent, "block": windows.kernel, "stride": windows.stride, "dilation": windows.dilation}
    return emitter.add("col2im", [out], before=windows.padding, after=ends, **image)


def _spread_apart(emitter: NodeEmitter, slope: str, weight: str, windows: Windows) -> str:
    """Computes the data's gradient of windows that tile it: one product, whose rows are the elements of a window."""
    rank, taps = windows.rank, windows.kernel
    filters = emitter.add("transpose", [weight], axes=(0, *range(2, rank + 2), 1))
    rows = emitter.reshape(channels_last(emitter, slope), (windows.total, windows.k))
    out = _product(emitter, rows, emitter.reshape(filters, (windows.k, windows.taps * windows.c)))
    out = emitter.reshape(out, (windows.n, *windows.count, *taps, windows.c))
    pairs = [axis for place in range(rank) for axis in (1 + place, 1 + rank + place)]
    out = emitter.add("transpose", [out], axes=(0, *pairs, 2 * rank + 1))
    return channels_first(emitter, emitter.reshape(out, (windows.n, *windows.extent, windows.c)))


def gradient_of_weight(emitter: NodeEmitter, slope: str, data: str, windows: Windows) -> str:
    """Multiplies the gradients of all windows by their elements, in one product or in one per filter tap."""
    shape = (windows.k, windows.c // windows.groups, *windows.kernel)
    if not windows.crowded and not (windows.apart and windows.wide):
        return _of_filters(emitter, slope, data, windows)
    if windows.c < FEW:
        rows = emitter.reshape(channels_last(emitter, slope), (windows.total, windows.k))
        out = _product(emitter, _columns(emitter, data, windows), rows)
        return emitter.reshape(emitter.add("transpose", [out], axes=(1, 0)), shape)
    values = emitter.reshape(_swap_axes(emitter, slope), (windows.k, windows.total))
    if windows.wide:
        rows = emitter.add("transpose", [_columns(emitter, data, windows)], axes=(1, 0))
        return emitter.reshape(_product(emitter, values, rows), shape)
    parts = []
    for part in _taps(emitter, channels_last(emitter, data), windows, 1):
        out = _product(emitter, values, emitter.reshape(part, (windows.total, windows.c)))
        parts.append(emitter.reshape(out, (1, windows.k, windows.c)))
    out = emitter.add("transpose", [_concatenate(emitter, parts, 0)], axes=(1, 2, 0))
    return emitter.reshape(out, shape)


def _of_grouped_data(emitter: NodeEmitter, slope: str, weight: str, windows: Windows, padding: Sequence[int]) -> str:
    """Computes the data's gradient of grouped convolutions: by phases, or with zeros between gradients if dilated."""
    if set(windows.stride) != {1} and set(windows.dilation) == {1}:
        return _in_phases(emitter, slope, weight, windows)
    n, k, *count = emitter.shape(slope)
    sides = []
    for extent, m, s, p, before in zip(windows.extent, count, windows.stride, windows.padding, padding, strict=True):
        sides.append((before, extent - (m - 1) * s - 1 + p))
    if set(windows.stride) != {1}:
        apart = [size for m in count for size in (m, 1)]
        zeros = [size for s in windows.stride for size in (0, s - 1)]
        spaced = emitter.reshape(slope, (n, k, *apart))
        spaced = emitter.add("pad", [spaced], before=(0,) * len(emitter.shape(spaced)), after=(0, 0, *zeros), value=0.0)
        slope = emitter.reshape(spaced, (n, k, *(m * s for m, s in zip(count, windows.stride, strict=True))))
    begin = tuple(max(0, -before) for before, _ in sides)  # windows in the padding meet no element
    ends = [(m - 1) * s + 1 + min(0, e) for m, s, (_, e) in zip(count, windows.stride, sides, strict=True)]
    size = (n, k, *(end - start for start, end in zip(begin, ends, strict=True)))
    if size != emitter.shape(slope):
        slope = emitter.add("slice", [slope], begin=(0, 0, *begin), size=size)
    sides = [(max(0, before), max(0, after)) for before, after in sides]
    return _slid(emitter, slope, _reverse_taps(emitter, weight, windows), windows.back, sides)


def _in_phases(emitter: NodeEmitter, slope: str, weight: str, windows: Windows) -> str:
    """Computes the data's gradient of strided windows: a separate convolution for each phase of filter taps."""
    rank, groups, strides = windows.rank, windows.groups, windows.stride
    width, depth = windows.k // groups, windows.c // groups
    filters = emitter.reshape(weight, (groups, width, depth, *windows.kernel))
    filters = emitter.add("transpose", [filters], axes=(*range(3, rank + 3), 1, 0, 2))
    filters = emitter.reshape(filters, (*windows.kernel, width, windows.c))
    more = tuple(-k % s for k, s in zip(windows.kernel, strides, strict=True))
    if any(more):  # taps that the filters lack are zero
        filters = emitter.add("pad", [filters], before=(0,) * (rank + 2), after=(*more, 0, 0), value=0.0)
    parts = [-(-k // s) for k, s in zip(windows.kernel, strides, strict=True)]
    pairs = [n for pair in zip(parts, strides, strict=True) for n in pair]
    filters = emitter.reshape(filters, (*pairs, width, windows.c))
    attrs = {name: getattr(windows, name) for name in ("extent", "kernel", "stride", "padding", "groups")}
    out = emitter.add("conv_phases", [channels_last(emitter, slope), filters], **attrs)
    return channels_first(emitter, join_phases(emitter, out, windows.extent))


def _phase_by_phase(emitter: NodeEmitter, slope: str, weight: str, windows: Windows) -> str:
    """Computes the data's gradient of strided windows by one dense convolution for each phase of the data."""
    filters = _reverse_taps(emitter, weight, windows)
    sides = zip(windows.extent, windows.count, windows.kernel, windows.stride, windows.padding, strict=True)
    axes = [[_make_phase(a, *side) for a in range(side[3])] for side in sides]
    counts = tuple(axis[0].count for axis in axes)
    data = channels_last(emitter, slope)

    def join(phases: tuple[_Phase, ...]) -> str:
        """Computes the phases along the axes that are left, (n, (count, phase) of each axis, c)."""
        if len(phases) < windows.rank:
            return _concatenate(emitter, [join((*phases, phase)) for phase in axes[len(phases)]], 2 * len(phases) + 2)
        shape = (windows.n, *(n for count in counts for n in (count, 1)), windows.c)
        if not all(phase.taps for phase in phases):
            return emitter.add("broadcast_to", [emitter.scalar(0.0, slope)], shape=shape)
        return emitter.reshape(_convolve_phase(emitter, data, filters, windows, phases), shape)

    return channels_first(emitter, join_phases(emitter, join(()), windows.extent))


@dataclass(frozen=True)
class _Phase:
    """Elements of the data along an axis that are a stride apart, and meet the same taps of the filter.

    Attributes:
        count: number of elements.
        first, taps: first of the taps in the reversed filter, and their number.
        before, after: padding of the gradients; negative if some meet no element.
    """

    count: int
    first: int
    taps: int
    before: int
    after: int


def _make_phase(number: int, extent: int, windows: int, kernel: int, stride: int, padding: int) -> _Phase:
    shift, tap = divmod(number + padding, stride)
    count, taps = -(-extent // stride), max(0, -(-(kernel - tap) // stride))
    before = taps - 1 - shift
    if windows <= -before:  # all windows are in front of the phase
        taps = 0
    return _Phase(count, kernel - 1 - tap - stride * (taps - 1), taps, before, count + shift - windows)


def _convolve_phase(emitter: NodeEmitter, data: str, filters: str, windows: Windows, phases: Sequence[_Phase]) -> str:
    """Computes the convolution (n, *counts of phases, c) of gradients (n, *count, k) with the taps of phases."""
    begin = (0, *(max(0, -phase.before) for phase in phases), 0)
    ends = [m - max(0, -phase.after) for m, phase in zip(windows.count, phases, strict=True)]
    size = (windows.n, *(end - start for end, start in zip(ends, begin[1:], strict=False)), windows.k)
    if size != emitter.shape(data):
        data = emitter.add("slice", [data], begin=begin, size=size)
    first = (*(phase.first for phase in phases), 0, 0)
    taps, step = tuple(phase.taps for phase in phases), (*windows.stride, 1, 1)
    part = emitter.add("slice", [filters], begin=first, size=(*taps, windows.k, windows.c), step=step)
    sides = [(max(0, phase.before), max(0, phase.after)) for phase in phases]
    attrs = {"padding": normalise_padding(windows.rank, tuple(sides)), "stride": (1,) * windows.rank}
    return emitter.add(f"conv{windows.rank}d", [data, part], dilation=(1,) * windows.rank, groups=1, **attrs)


def join_phases(emitter: NodeEmitter, phases: str, extent: tuple[int, ...]) -> str:
    """Joins the (count, phase) pairs of the axes between batch and channels, cut to an extent each."""
    n, *pairs, c = emitter.shape(phases)
    whole = tuple(map(math.prod, zip(pairs[::2], pairs[1::2], strict=True)))
    out = emitter.reshape(phases, (n, *whole, c))
    if whole != extent:
        out = emitter.add("slice", [out], begin=(0,) * (len(extent) + 2), size=(n, *extent, c))
    return out


def _of_filters(emitter: NodeEmitter, slope: str, data: str, windows: Windows) -> str:
    """Computes the filters' gradient (k, c / groups, *kernel) from channels of the same group."""
    attrs = {name: getattr(windows, name) for name in ("kernel", "stride", "dilation", "groups")}
    attrs["padding"] = normalise_padding(windows.rank, windows.sides)
    parts = windows.parts if math.prod(windows.parts) > 1 else ()
    out = emitter.add(
        "conv_filters", [channels_last(emitter, data), channels_last(emitter, slope)], **attrs, parts=parts
    )
    if parts:
        out = emitter.add("reduce", [out], axes=(0, 1), reducer="sum")
    rank = windows.rank
    return emitter.add("transpose", [out], axes=(rank + 1, rank, *range(rank)))


def _slid(
    emitter: NodeEmitter, data: str, filters: str, windows: Windows, sides: Sequence[tuple[int, int]] = ()
) -> str:
    """Adds the channels-last convolution of data (n, c, *extent) by filters (*kernel, c / groups, k): (n, k, *count).

    Args:
        sides: padding before and after each axis, if it differs from that of the windows.
    """
    padding = normalise_padding(windows.rank, tuple(sides) or windows.sides)
    attrs = {"stride": windows.stride, "padding": padding, "dilation": windows.dilation}
    values = [channels_last(emitter, data), filters]
    if windows.rank == 2 and windows.groups == windows.c == windows.k > 1:
        values[1] = emitter.reshape(filters, (*windows.kernel, windows.k))
        return channels_first(emitter, emitter.add("depthwise_conv2d", values, **attrs))
    return channels_first(emitter, emitter.add(f"conv{windows.rank}d", values, **attrs, groups=windows.groups))


def _product(emitter: NodeEmitter, left: str, right: str) -> str:
    return emitter.add("matmul", [left, right])


def _columns(emitter: NodeEmitter, data: str, windows: Windows) -> str:
    """Lays out the elements of each window as (c * taps, places), with taps of a channel adjacent as in the weight."""
    if windows.apart:
        split = [n for pair in zip(windows.count, windows.kernel, strict=True) for n in pair]
        patches = emitter.reshape(data, (windows.n, windows.c, *split))
        counts, taps = range(2, 2 + len(split), 2), range(3, 2 + len(split), 2)
        out = emitter.add("transpose", [patches], axes=(1, *taps, 0, *counts))
        return emitter.reshape(out, (windows.c * windows.taps, windows.total))
    parts = _taps(emitter, _swap_axes(emitter, data), windows, 2)
    out = _concatenate(emitter, [emitter.reshape(part, (windows.c, 1, windows.total)) for part in parts], 1)
    return emitter.reshape(out, (windows.c * windows.taps, windows.total))


def _taps(emitter: NodeEmitter, data: str, windows: Windows, first: int) -> list[str]:
    """Slices the data for each filter tap, over the axes from `first` on."""
    rank = windows.rank
    axes = range(first, first + rank)
    if windows.is_padded:
        before, after = ([0] * len(emitter.shape(data)) for _ in range(2))
        before[first : first + rank], after[first : first + rank] = windows.padding, windows.after
        data = emitter.add("pad", [data], before=tuple(before), after=tuple(after), value=0.0)
    size, step, begin = list(emitter.shape(data)), [1] * (rank + 2), [0] * (rank + 2)
    size[first : first + rank], step[first : first + rank] = windows.count, windows.stride
    slices = []
    for tap in itertools.product(*map(range, windows.kernel)):
        for axis, place, dilation in zip(axes, tap, windows.dilation, strict=True):
            begin[axis] = place * dilation
        slices.append(emitter.add("slice", [data], begin=tuple(begin), size=tuple(size), step=tuple(step)))
    return slices


def _reverse_taps(emitter: NodeEmitter, weight: str, windows: Windows) -> str:
    """Reverses the taps of the weight and swaps its channels: (*kernel, k / groups, c)."""
    groups, taps = windows.groups, windows.taps
    width, depth = windows.k // groups, windows.c // groups
    flat = emitter.add("transpose", [emitter.reshape(weight, (groups, width, depth, taps))], axes=(3, 1, 0, 2))
    flat, size = emitter.reshape(flat, (taps, width, windows.c)), (1, width, windows.c)
    parts = [emitter.add("slice", [flat], begin=(tap, 0, 0), size=size) for tap in reversed(range(taps))]
    return emitter.reshape(_concatenate(emitter, parts, 0), (*windows.kernel, width, windows.c))


def _concatenate(emitter: NodeEmitter, parts: Sequence[str], axis: int) -> str:
    return parts[0] if len(parts) == 1 else emitter.add("concat", list(parts), axis=axis)


def _swap_axes(emitter: NodeEmitter, value: str) -> str:
    """Exchanges the first two axes."""
    return emitter.add("transpose", [value], axes=(1, 0, *range(2, len(emitter.shape(value)))))
