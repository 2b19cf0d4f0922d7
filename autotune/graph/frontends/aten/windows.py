"""Convolutions whose operands are all computed at run time, and their gradients.

Weights change with each step of training, so no kernel has them packed. Convolutions, and gradients of their data, use
kernels for channels-last data with weights as they are. Gradients of weights, and convolutions with few channels or
with weights larger than the data, are matrix products. The elements of all windows are laid out side by side (im2col:
Chellapilla et al., "High performance convolutional neural networks for document processing", 2006).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from autotune.graph.calls import channels_first, channels_last
from autotune.graph.frontends.aten.registry import AtenCall, converts
from autotune.graph.frontends.onnx.importer.activations import with_number
from autotune.graph.frontends.onnx.importer.reductions import reduce_over
from search_space.operators.windows import normalise_padding

_WINDOWS_PER_CHANNEL = 16
"""Windows per channel below which the windows' elements are copied for one matrix product per filter tap."""
_PART_BYTES = 1 << 19
"""Bytes of data and output gradients whose products are summed at a time, so that a second-level cache holds them."""
_POOL = ("kernel", "stride", "padding", "dilation")
_FEW = 16
"""Minimum number of channels for them to be the innermost axis when elements are copied."""
MOST_TAPS = 64
"""Maximum number of elements of a window of one channel; each is a slice of the data if windows overlap."""


@dataclass(frozen=True)
class Windows:
    """A convolution from data (n, c, *extent) to (n, k, *count).

    Attributes:
        kernel, stride, padding, dilation: numbers for each axis.
        groups: number of groups of channels.
    """

    n: int
    c: int
    k: int
    extent: tuple[int, ...]
    count: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1

    @property
    def rank(self) -> int:
        """Number of axes that windows slide over."""
        return len(self.extent)

    @property
    def taps(self) -> int:
        """Number of elements of a window of one channel."""
        return math.prod(self.kernel)

    @property
    def total(self) -> int:
        """Number of windows of all samples."""
        return self.n * math.prod(self.count)

    @property
    def apart(self) -> bool:
        """Tells whether windows tile the data without overlap, such as the patches of an image."""
        whole = all(n == m * k for n, m, k in zip(self.extent, self.count, self.kernel, strict=True))
        return whole and self.stride == self.kernel and not any(self.padding) and set(self.dilation) == {1}

    @property
    def wide(self) -> bool:
        """Tells whether the weight keeps its order, (k, c, *kernel), so that channels need not come last."""
        return self.c < _FEW or self.heavy

    @property
    def heavy(self) -> bool:
        """Tells whether there are fewer pixels than filters, so that the weights of a product dominate its traffic."""
        return self.taps == 1 and self.k > self.total

    @property
    def crowded(self) -> bool:
        """Tells whether there are few windows of many channels, so that a product for each filter tap is faster."""
        return self.groups == 1 and self.total < _WINDOWS_PER_CHANNEL * max(self.c, self.k)

    @property
    def parts(self) -> tuple[int, int]:
        """Parts of the samples and of the rows of windows, so that the operands of a part stay in a cache."""
        row = 4 * (self.c * math.prod(self.stride) + self.k) * math.prod(self.count[1:])
        samples, rows = self.n, 1
        if row * self.count[0] > _PART_BYTES:
            rows = next((n for n in _divisors(self.count[0]) if row * self.count[0] <= n * _PART_BYTES), self.count[0])
        else:
            samples = next(n for n in _divisors(self.n) if row * self.count[0] * self.n <= n * _PART_BYTES)
        return samples, rows

    @property
    def back(self) -> Windows:
        """The convolution of the data's gradient over dense output gradients; its padding differs."""
        ones = (1,) * self.rank
        return replace(self, c=self.k, k=self.c, extent=self.count, count=self.extent, stride=ones)


def make_windows(call: AtenCall, data: Sequence[int], weight: str, output: Sequence[int]) -> Windows:
    """Returns the windows of a call with the arguments of a convolution.

    A transposed convolution is the gradient of another one's data: windows slide over its output.

    Args:
        data, output: shapes (batch, channels, spatial...) of the convolution's data and output.

    Raises:
        UnsupportedModelError: the windows are large.
    """
    if call["transposed"]:
        data, output = output, data
    (n, c, *extent), count = data, output[2:]
    k, _, *kernel = call.shape(weight)
    stride, padding, dilation = (each_axis(call[name], len(extent)) for name in ("stride", "padding", "dilation"))
    sizes = tuple(extent), tuple(count), tuple(kernel), stride, padding, dilation
    found = Windows(n, c, k, *sizes, groups=int(call["groups"]))
    few = found.taps <= MOST_TAPS or (found.apart and found.wide)
    call.require(few, f"must have at most {MOST_TAPS} elements in a window where the weight is computed", found.taps)
    return found


def _divisors(extent: int) -> list[int]:
    return [n for n in range(1, extent + 1) if extent % n == 0]


def each_axis(numbers: Sequence[int], rank: int) -> tuple[int, ...]:
    """Expands one number for all axes to a number for each axis."""
    return tuple(numbers) * rank if len(numbers) == 1 else tuple(numbers)


def convolve(call: AtenCall, data: str, weight: str, windows: Windows) -> str:
    """Adds the convolution of data (n, c, *extent) by a weight (k, c, *kernel): (n, k, *count)."""
    n, k, count = windows.n, windows.k, windows.count
    if windows.groups == 1 and (windows.heavy or (windows.apart and windows.wide)):
        filters = call.reshape(weight, (k, windows.c * windows.taps))
        out = _product(call, filters, _columns(call, data, windows))
        return _swap_axes(call, call.reshape(out, (k, n, *count)))
    filters = call.add("transpose", [weight], axes=(*range(2, windows.rank + 2), 1, 0))
    return _slid(call, data, filters, windows)


@converts("convolution_backward.default")
def gradients(call: AtenCall) -> list[str | None]:
    """Computes the gradients of a convolution's data, weight and bias, as far as requested."""
    call.require_same_type(0, 1, 2)
    slope, data, weight = (call.value(index) for index in range(3))
    windows = make_windows(call, call.shape(data), weight, call.shape(slope))
    call.require(windows.rank in (1, 2), "must slide over one or two axes", f"{windows.rank} axes")
    gradients: list[str | None] = [None] * 3
    transposed = call["transposed"]
    parts: list[Callable[[], str]] = [
        lambda: convolve(call, slope, weight, windows) if transposed else spread(call, slope, weight, windows),
        lambda: _of_weight(call, data, slope, windows) if transposed else _of_weight(call, slope, data, windows),
        lambda: reduce_over(call, slope, (0, *range(2, windows.rank + 2)), "sum", False),
    ]
    for index, asked in enumerate(call["output_mask"]):
        if asked and call.reads(index):
            gradients[index] = parts[index]()
    return gradients


@converts("avg_pool2d_backward.default")
def gradient_of_means(call: AtenCall) -> str:
    """Spreads the gradient of each window over its elements; windows must lie within the data and its padding."""
    slope, shape = call.value(0), call.result.shape
    kernel, padding = each_axis(call["kernel_size"], 2), each_axis(call["padding"], 2)
    counted = call["count_include_pad"] or not any(padding)
    call.require(len(shape) == 4, "must have a batch", call.type(1))
    call.require(not call["ceil_mode"] and counted, "must have whole windows", "`ceil_mode`, or padding not counted")
    taps = math.prod(kernel)
    n, c, *count = call.shape(slope)
    share = 1 / (taps if call["divisor_override"] is None else call["divisor_override"])
    each = call.reshape(with_number(call, "multiply", slope, share), (n, c, 1, math.prod(count)))
    every = call.add("broadcast_to", [each], shape=(n, c, taps, math.prod(count)))
    stride = each_axis(call["stride"] or kernel, 2)
    every = call.reshape(every, (n, c * taps, math.prod(count)))
    return _add_windows(call, every, shape[2:], kernel, stride, padding, (1, 1))


@converts("max_pool2d_with_indices_backward.default")
def gradient_of_maxima(call: AtenCall) -> str:
    """Assigns the gradient of each window to its largest element."""
    slope, argmax = call.value(0), call.cast(call.value(7), "int32")
    call.require(len(call.result.shape) == 4, "must have a batch", call.type(1))
    attrs = {name: each_axis(call[f"{name}_size" if name == "kernel" else name], 2) for name in _POOL}
    attrs["stride"] = each_axis(call["stride"] or call["kernel_size"], 2)
    values = [channels_last(call, slope), channels_last(call, argmax)]
    extent = tuple(call.result.shape[2:])
    return channels_first(call, _join_phases(call, call.add("maxima_gradient", values, extent=extent, **attrs), extent))


def spread(call: AtenCall, slope: str, weight: str, windows: Windows) -> str:
    """Computes the data's gradient by convolution with the flipped weight, by phases, or by scattered products.

    It is also the transposed convolution of values (n, k, *count) by a weight (k, c / groups, *kernel).
    """
    reach = [(k - 1) * d for k, d in zip(windows.kernel, windows.dilation, strict=True)]
    padding = tuple(r - p for r, p in zip(reach, windows.padding, strict=True))
    strided = set(windows.stride) != {1} and not windows.wide
    if windows.groups == 1 and windows.apart and windows.taps > 1:
        return _spread_apart(call, slope, weight, windows)
    if windows.groups > 1:
        return _of_grouped_data(call, slope, weight, windows, padding)
    if strided and set(windows.dilation) == {1}:
        return _phase_by_phase(call, slope, weight, windows)
    after = tuple(n - m + p for n, m, p in zip(windows.extent, windows.count, windows.padding, strict=True))
    if set(windows.stride) == {1} and min(*padding, *after) >= 0 and not windows.wide:
        sides = list(zip(padding, after, strict=True))
        return _slid(call, slope, _reverse_taps(call, weight, windows), windows.back, sides)
    channels, places = windows.c * windows.taps, math.prod(windows.count)
    turned = call.add("transpose", [call.reshape(weight, (windows.k, channels))], axes=(1, 0))
    values = call.reshape(_swap_axes(call, slope), (windows.k, windows.total))
    out = call.reshape(_product(call, turned, values), (channels, windows.n, places))
    out = call.add("transpose", [out], axes=(1, 0, 2))
    if windows.taps == 1 and set(windows.stride) == {1} and not any(windows.padding):
        return call.reshape(out, (windows.n, windows.c, *windows.extent))
    return _add_windows(call, out, windows.extent, windows.kernel, windows.stride, windows.padding, windows.dilation)


def _spread_apart(call: AtenCall, slope: str, weight: str, windows: Windows) -> str:
    """Computes the data's gradient of windows that tile it: one product, whose rows are the elements of a window."""
    rank, taps = windows.rank, windows.kernel
    filters = call.add("transpose", [weight], axes=(0, *range(2, rank + 2), 1))
    rows = call.reshape(channels_last(call, slope), (windows.total, windows.k))
    out = _product(call, rows, call.reshape(filters, (windows.k, windows.taps * windows.c)))
    out = call.reshape(out, (windows.n, *windows.count, *taps, windows.c))
    pairs = [axis for place in range(rank) for axis in (1 + place, 1 + rank + place)]
    out = call.add("transpose", [out], axes=(0, *pairs, 2 * rank + 1))
    return channels_first(call, call.reshape(out, (windows.n, *windows.extent, windows.c)))


def _of_weight(call: AtenCall, slope: str, data: str, windows: Windows) -> str:
    """Multiplies the gradients of all windows by their elements, in one product or in one per filter tap."""
    shape = (windows.k, windows.c // windows.groups, *windows.kernel)
    if not windows.crowded and not (windows.apart and windows.wide):
        return _of_filters(call, slope, data, windows)
    if windows.c < _FEW:
        rows = call.reshape(channels_last(call, slope), (windows.total, windows.k))
        out = _product(call, _columns(call, data, windows), rows)
        return call.reshape(call.add("transpose", [out], axes=(1, 0)), shape)
    values = call.reshape(_swap_axes(call, slope), (windows.k, windows.total))
    if windows.wide:
        rows = call.add("transpose", [_columns(call, data, windows)], axes=(1, 0))
        return call.reshape(_product(call, values, rows), shape)
    parts = []
    for part in _taps(call, channels_last(call, data), windows, 1):
        out = _product(call, values, call.reshape(part, (windows.total, windows.c)))
        parts.append(call.reshape(out, (1, windows.k, windows.c)))
    out = call.add("transpose", [_concatenate(call, parts, 0)], axes=(1, 2, 0))
    return call.reshape(out, shape)


def _add_windows(
    call: AtenCall,
    value: str,
    image: Sequence[int],
    block: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    after: Sequence[int] = (),
) -> str:
    """Adds the elements of windows (n, c * taps, windows) at their positions in the image."""
    attrs = {"image": image, "block": block, "stride": stride, "dilation": dilation}
    attrs |= {"before": padding, "after": after or padding}
    return call.add("col2im", [value], **{name: tuple(each) for name, each in attrs.items()})


def _of_grouped_data(call: AtenCall, slope: str, weight: str, windows: Windows, padding: Sequence[int]) -> str:
    """Computes the data's gradient of grouped convolutions: by phases, or with zeros between gradients if dilated."""
    if set(windows.stride) != {1} and set(windows.dilation) == {1}:
        return _in_phases(call, slope, weight, windows)
    n, k, *count = call.shape(slope)
    sides = []
    for extent, m, s, p, before in zip(windows.extent, count, windows.stride, windows.padding, padding, strict=True):
        sides.append((before, extent - (m - 1) * s - 1 + p))
    call.require(min(min(pair) for pair in sides) >= 0, "must not be padded by more than a window", windows.padding)
    if set(windows.stride) != {1}:
        apart = [size for m in count for size in (m, 1)]
        zeros = [size for s in windows.stride for size in (0, s - 1)]
        spaced = call.reshape(slope, (n, k, *apart))
        spaced = call.add("pad", [spaced], before=(0,) * len(call.shape(spaced)), after=(0, 0, *zeros), value=0.0)
        slope = call.reshape(spaced, (n, k, *(m * s for m, s in zip(count, windows.stride, strict=True))))
        last = tuple((m - 1) * s + 1 for m, s in zip(count, windows.stride, strict=True))
        slope = call.add("slice", [slope], begin=(0,) * (windows.rank + 2), size=(n, k, *last))
    return _slid(call, slope, _reverse_taps(call, weight, windows), windows.back, sides)


def _in_phases(call: AtenCall, slope: str, weight: str, windows: Windows) -> str:
    """Computes the data's gradient of strided windows: a separate convolution for each phase of filter taps."""
    rank, groups, strides = windows.rank, windows.groups, windows.stride
    width, depth = windows.k // groups, windows.c // groups
    filters = call.reshape(weight, (groups, width, depth, *windows.kernel))
    filters = call.add("transpose", [filters], axes=(*range(3, rank + 3), 1, 0, 2))
    filters = call.reshape(filters, (*windows.kernel, width, windows.c))
    more = tuple(-k % s for k, s in zip(windows.kernel, strides, strict=True))
    if any(more):  # taps that the filters lack are zero
        filters = call.add("pad", [filters], before=(0,) * (rank + 2), after=(*more, 0, 0), value=0.0)
    parts = [-(-k // s) for k, s in zip(windows.kernel, strides, strict=True)]
    pairs = [n for pair in zip(parts, strides, strict=True) for n in pair]
    filters = call.reshape(filters, (*pairs, width, windows.c))
    attrs = {name: getattr(windows, name) for name in ("extent", "kernel", "stride", "padding", "groups")}
    out = call.add("conv_phases", [channels_last(call, slope), filters], **attrs)
    return channels_first(call, _join_phases(call, out, windows.extent))


def _phase_by_phase(call: AtenCall, slope: str, weight: str, windows: Windows) -> str:
    """Computes the data's gradient of strided windows by one dense convolution for each phase of the data."""
    filters = _reverse_taps(call, weight, windows)
    sides = zip(windows.extent, windows.count, windows.kernel, windows.stride, windows.padding, strict=True)
    axes = [[_make_phase(a, *side) for a in range(side[3])] for side in sides]
    counts = tuple(axis[0].count for axis in axes)
    data = channels_last(call, slope)

    def join(phases: tuple[_Phase, ...]) -> str:
        """Computes the phases along the axes that are left, (n, (count, phase) of each axis, c)."""
        if len(phases) < windows.rank:
            return _concatenate(call, [join((*phases, phase)) for phase in axes[len(phases)]], 2 * len(phases) + 2)
        shape = (windows.n, *(n for count in counts for n in (count, 1)), windows.c)
        if not all(phase.taps for phase in phases):
            return call.add("broadcast_to", [call.scalar(0.0, slope)], shape=shape)
        return call.reshape(_convolve_phase(call, data, filters, windows, phases), shape)

    return channels_first(call, _join_phases(call, join(()), windows.extent))


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


def _convolve_phase(call: AtenCall, data: str, filters: str, windows: Windows, phases: Sequence[_Phase]) -> str:
    """Computes the convolution (n, *counts of phases, c) of gradients (n, *count, k) with the taps of phases."""
    begin = (0, *(max(0, -phase.before) for phase in phases), 0)
    ends = [m - max(0, -phase.after) for m, phase in zip(windows.count, phases, strict=True)]
    size = (windows.n, *(end - start for end, start in zip(ends, begin[1:], strict=False)), windows.k)
    if size != call.shape(data):
        data = call.add("slice", [data], begin=begin, size=size)
    first = (*(phase.first for phase in phases), 0, 0)
    taps, step = tuple(phase.taps for phase in phases), (*windows.stride, 1, 1)
    part = call.add("slice", [filters], begin=first, size=(*taps, windows.k, windows.c), step=step)
    sides = [(max(0, phase.before), max(0, phase.after)) for phase in phases]
    attrs = {"padding": normalise_padding(windows.rank, tuple(sides)), "stride": (1,) * windows.rank}
    return call.add(f"conv{windows.rank}d", [data, part], dilation=(1,) * windows.rank, groups=1, **attrs)


def _join_phases(call: AtenCall, phases: str, extent: tuple[int, ...]) -> str:
    """Joins the (count, phase) pairs of the axes between batch and channels, cut to an extent each."""
    n, *pairs, c = call.shape(phases)
    whole = tuple(map(math.prod, zip(pairs[::2], pairs[1::2], strict=True)))
    out = call.reshape(phases, (n, *whole, c))
    if whole != extent:
        out = call.add("slice", [out], begin=(0,) * (len(extent) + 2), size=(n, *extent, c))
    return out


def _of_filters(call: AtenCall, slope: str, data: str, windows: Windows) -> str:
    """Computes the filters' gradient (k, c / groups, *kernel) from channels of the same group."""
    attrs = {name: getattr(windows, name) for name in ("kernel", "stride", "padding", "dilation", "groups")}
    parts = windows.parts if math.prod(windows.parts) > 1 else ()
    out = call.add("conv_filters", [channels_last(call, data), channels_last(call, slope)], **attrs, parts=parts)
    if parts:
        out = reduce_over(call, out, (0, 1), "sum", False)
    rank = windows.rank
    return call.add("transpose", [out], axes=(rank + 1, rank, *range(rank)))


def _slid(call: AtenCall, data: str, filters: str, windows: Windows, sides: Sequence[tuple[int, int]] = ()) -> str:
    """Adds the channels-last convolution of data (n, c, *extent) by filters (*kernel, c / groups, k): (n, k, *count).

    Args:
        sides: padding before and after each axis, if it differs from that of the windows.
    """
    padding = normalise_padding(windows.rank, tuple(sides) or windows.padding)
    attrs = {"stride": windows.stride, "padding": padding, "dilation": windows.dilation}
    values = [channels_last(call, data), filters]
    if windows.rank == 2 and windows.groups == windows.c == windows.k > 1:
        values[1] = call.reshape(filters, (*windows.kernel, windows.k))
        return channels_first(call, call.add("depthwise_conv2d", values, **attrs))
    return channels_first(call, call.add(f"conv{windows.rank}d", values, **attrs, groups=windows.groups))


def _product(call: AtenCall, left: str, right: str) -> str:
    return call.add("matmul", [left, right])


def _columns(call: AtenCall, data: str, windows: Windows) -> str:
    """Lays out the elements of each window as (c * taps, places), with taps of a channel adjacent as in the weight."""
    if windows.apart:
        split = [n for pair in zip(windows.count, windows.kernel, strict=True) for n in pair]
        patches = call.reshape(data, (windows.n, windows.c, *split))
        counts, taps = range(2, 2 + len(split), 2), range(3, 2 + len(split), 2)
        out = call.add("transpose", [patches], axes=(1, *taps, 0, *counts))
        return call.reshape(out, (windows.c * windows.taps, windows.total))
    parts = _taps(call, _swap_axes(call, data), windows, 2)
    out = _concatenate(call, [call.reshape(part, (windows.c, 1, windows.total)) for part in parts], 1)
    return call.reshape(out, (windows.c * windows.taps, windows.total))


def _taps(call: AtenCall, data: str, windows: Windows, first: int) -> list[str]:
    """Slices the data for each filter tap, over the axes from `first` on."""
    rank = windows.rank
    axes = range(first, first + rank)
    if any(windows.padding):
        sides = [0] * len(call.shape(data))
        sides[first : first + rank] = windows.padding
        data = call.add("pad", [data], before=tuple(sides), after=tuple(sides), value=0.0)
    size, step, begin = list(call.shape(data)), [1] * (rank + 2), [0] * (rank + 2)
    size[first : first + rank], step[first : first + rank] = windows.count, windows.stride
    slices = []
    for tap in itertools.product(*map(range, windows.kernel)):
        for axis, place, dilation in zip(axes, tap, windows.dilation, strict=True):
            begin[axis] = place * dilation
        slices.append(call.add("slice", [data], begin=tuple(begin), size=tuple(size), step=tuple(step)))
    return slices


def _reverse_taps(call: AtenCall, weight: str, windows: Windows) -> str:
    """Reverses the taps of the weight and swaps its channels: (*kernel, k / groups, c)."""
    groups, taps = windows.groups, windows.taps
    width, depth = windows.k // groups, windows.c // groups
    flat = call.add("transpose", [call.reshape(weight, (groups, width, depth, taps))], axes=(3, 1, 0, 2))
    flat, size = call.reshape(flat, (taps, width, windows.c)), (1, width, windows.c)
    parts = [call.add("slice", [flat], begin=(tap, 0, 0), size=size) for tap in reversed(range(taps))]
    return call.reshape(_concatenate(call, parts, 0), (*windows.kernel, width, windows.c))


def _concatenate(call: AtenCall, parts: Sequence[str], axis: int) -> str:
    return parts[0] if len(parts) == 1 else call.add("concat", list(parts), axis=axis)


def _swap_axes(call: AtenCall, value: str) -> str:
    """Exchanges the first two axes."""
    return call.add("transpose", [value], axes=(1, 0, *range(2, len(call.shape(value)))))
