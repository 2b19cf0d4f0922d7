"""Gradients of operators on windows: convolutions, means and maxima."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autotune.graph.emitter import channels_first, channels_last
from autotune.graph.frontends.aten.registry import AtenCall, converts
from autotune.graph.frontends.onnx.importer.reductions import reduce_over
from autotune.graph.gradient.convolutions import convolve, gradient_of_weight, spread
from autotune.graph.gradient.pooling import spread_maxima, spread_means
from autotune.graph.gradient.windows import MOST_TAPS, Windows


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
    sizes = tuple(extent), tuple(count), tuple(kernel), stride, padding, padding, dilation
    windows = Windows(n, c, k, *sizes, groups=int(call["groups"]))
    rule = f"must have at most {MOST_TAPS} elements in a window where the weight is computed"
    call.require(windows.few, rule, windows.taps)
    return windows


def each_axis(numbers: Sequence[int], rank: int) -> tuple[int, ...]:
    """Expands one number for all axes to a number for each axis."""
    return tuple(numbers) * rank if len(numbers) == 1 else tuple(numbers)


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
        lambda: (
            gradient_of_weight(call, data, slope, windows)
            if transposed
            else gradient_of_weight(call, slope, data, windows)
        ),
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
    counted = call["count_include_pad"] or not any(call["padding"])
    call.require(len(shape) == 4, "must have a batch", call.type(1))
    call.require(not call["ceil_mode"] and counted, "must have whole windows", "`ceil_mode`, or padding not counted")
    windows = _pool_windows(call, call.shape(slope), shape)
    override = call["divisor_override"]
    return spread_means(call, slope, windows, windows.taps if override is None else override)


@converts("max_pool2d_with_indices_backward.default")
def gradient_of_maxima(call: AtenCall) -> str:
    """Assigns the gradient of each window to its largest element."""
    slope, argmax = call.value(0), call.cast(call.value(7), "int32")
    call.require(len(call.result.shape) == 4, "must have a batch", call.type(1))
    windows = _pool_windows(call, call.shape(slope), call.result.shape)
    return channels_first(call, spread_maxima(call, channels_last(call, slope), channels_last(call, argmax), windows))


def _pool_windows(call: AtenCall, output: Sequence[int], data: Sequence[int]) -> Windows:
    """Returns the windows of a pooling from its output's and its data's shape (batch, channels, height, width)."""
    n, c, *count = output
    kernel, padding = each_axis(call["kernel_size"], 2), each_axis(call["padding"], 2)
    stride, dilation = each_axis(call["stride"] or kernel, 2), each_axis(call.arguments.get("dilation", [1]), 2)
    return Windows(n, c, c, tuple(data[2:]), tuple(count), kernel, stride, padding, padding, dilation, groups=c)
