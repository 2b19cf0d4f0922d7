"""Gradients of means and maxima of windows."""

from __future__ import annotations

import math

from autotune.graph.emitter import NodeEmitter
from autotune.graph.gradient.convolutions import join_phases
from autotune.graph.gradient.windows import Windows
from search_space.operators.windows import normalise_padding


def spread_means(emitter: NodeEmitter, slope: str, windows: Windows, divisor: int) -> str:
    """Spreads the gradients (n, c, *count) of means over the elements of each window: (n, c, *extent).

    Args:
        emitter: adder of the nodes.
        slope: gradients of the means.
        windows: windows, whose padding counts.
        divisor: number that the sum of a window was divided by.
    """
    n, c, total = windows.n, windows.c, math.prod(windows.count)
    each = emitter.reshape(emitter.add("multiply", [slope, emitter.scalar(1 / divisor, slope)]), (n, c, 1, total))
    every = emitter.add("broadcast_to", [each], shape=(n, c, windows.taps, total))
    every = emitter.reshape(every, (n, c * windows.taps, total))
    image = {"image": windows.extent, "block": windows.kernel, "stride": windows.stride, "dilation": windows.dilation}
    return emitter.add("col2im", [every], before=windows.padding, after=windows.after, **image)


def index_maxima(emitter: NodeEmitter, data: str, best: str, windows: Windows) -> str:
    """Computes the flat index (int32) of each window's maximum in the plane of its channel.

    Args:
        emitter: adder of the nodes.
        data: data (n, *extent, c).
        best: maxima (n, *count, c), of the same dtype.
        windows: windows over two axes.
    """
    attrs = {name: getattr(windows, name) for name in ("kernel", "stride", "dilation")}
    padding = normalise_padding(windows.rank, windows.sides)
    return emitter.add("window_argmax", [data, best], padding=padding, **attrs)


def spread_maxima(emitter: NodeEmitter, slope: str, argmax: str, windows: Windows) -> str:
    """Assigns the gradients (n, *count, c) of windows' maxima to the elements (n, *extent, c) that indices name.

    Args:
        emitter: adder of the nodes.
        slope: gradients of the maxima.
        argmax: indices of `index_maxima`.
        windows: windows over two axes.
    """
    attrs = {name: getattr(windows, name) for name in ("extent", "kernel", "stride", "padding", "dilation")}
    return join_phases(emitter, emitter.add("maxima_gradient", [slope, argmax], **attrs), windows.extent)
