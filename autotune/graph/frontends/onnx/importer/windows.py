"""Pooling by slices, one for each element of a window: with dilation, indices of maxima, or powers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.graph.calls import Call, Result
from autotune.graph.frontends.onnx.importer.activations import with_number
from autotune.graph.frontends.onnx.importer.selection import nan_in
from autotune.graph.ir import Array
from search_space.dtypes import FLOATS

MOST_ELEMENTS = 1024
"""Maximum number of elements of a window, each of which is a slice of the data."""


@dataclass(frozen=True)
class Windows:
    """Windows over data (n, c, *spatial).

    Attributes:
        kernel, stride, dilation: numbers for each axis.
        before, after: padding of each axis, including that of `ceil_mode`.
        explicit: padding after each axis that the model states.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    explicit: tuple[int, ...]

    def counts(self, extent: Sequence[int]) -> tuple[int, ...]:
        """Counts the windows along each axis."""
        fields = zip(extent, self.before, self.after, self.kernel, self.stride, self.dilation, strict=True)
        return tuple((n + b + a - (k - 1) * d - 1) // s + 1 for n, b, a, k, s, d in fields)

    def list_indices(self, extent: Sequence[int], axis: int, step: int) -> Array:
        """Returns the indices, along an axis of the unpadded data, of one element of all windows."""
        count = self.counts(extent)[axis]
        return np.arange(count) * self.stride[axis] + step * self.dilation[axis] - self.before[axis]

    def elements(self) -> Iterator[tuple[int, ...]]:
        """Yields the elements of a window by their steps along each axis."""
        return itertools.product(*map(range, self.kernel))


def slices(call: Call, value: str, windows: Windows, fill: float) -> list[str]:
    """Slices each element of all windows: (n, c, *counts)."""
    extent = call.shape(value)[2:]
    most = math.prod(windows.kernel)
    call.require(most <= MOST_ELEMENTS, f"must have at most {MOST_ELEMENTS} elements in a window", f"{most}")
    if any(windows.before) or any(windows.after):
        before, after = (0, 0, *windows.before), (0, 0, *windows.after)
        value = call.add("pad", [value], before=before, after=after, value=fill)
    size, step = (*call.shape(value)[:2], *windows.counts(extent)), (1, 1, *windows.stride)
    parts = []
    for element in windows.elements():
        begin = (0, 0, *(e * d for e, d in zip(element, windows.dilation, strict=True)))
        parts.append(call.add("slice", [value], begin=begin, size=size, step=step))
    return parts


def combine_pairs(call: Call, op: str, parts: Sequence[str]) -> str:
    """Combines values pair by pair, which keeps chains of dependencies short."""
    while len(parts) > 1:
        pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
        parts = [call.add(op, list(pair)) if len(pair) == 2 else pair[0] for pair in pairs]
    return parts[0]


def sums(call: Call, value: str, windows: Windows) -> str:
    """Sums the elements of each window; padding is 0."""
    return combine_pairs(call, "add", slices(call, value, windows, 0.0))


def means(call: Call, value: str, windows: Windows, counted: bool) -> str:
    """Averages the elements of each window that lie in the data, and in explicit padding if `counted`."""
    extent, share = call.shape(value)[2:], np.ones((), np.float32)
    for axis, n in enumerate(extent):
        least, most = (-windows.before[axis], n + windows.explicit[axis]) if counted else (0, n)
        columns = np.stack([windows.list_indices(extent, axis, step) for step in range(windows.kernel[axis])])
        share = share[..., None] * ((least <= columns) & (columns < most)).sum(0).astype(np.float32)
    return call.add("multiply", [sums(call, value, windows), call.constant((1 / share).astype(np.float32))])


def lowest(dtype: str) -> float:
    """Returns the lower bound of a dtype."""
    return -math.inf if "float" in dtype else float(np.iinfo(dtype).min)


def maxima(call: Call, value: str, windows: Windows) -> str:
    """Computes the maximum of each window."""
    return combine_pairs(call, "maximum", slices(call, value, windows, lowest(call.context.builder.type(value).dtype)))


def maxima_with_places(call: Call, value: str, windows: Windows, columns_first: bool) -> list[Result]:
    """Computes maxima, and the index (int64) of the first one in the flat data, in column-major order if requested."""
    shape = call.shape(value)
    best, place = maxima_of_planes(call, value, windows, columns_first)
    planes = np.arange(shape[0] * shape[1], dtype=np.int32) * math.prod(shape[2:])
    first = call.constant(planes.reshape(*shape[:2], *[1] * len(shape[2:])))
    return [best, call.cast(call.add("add", [place, first]), "int64")]


def maxima_of_planes(call: Call, value: str, windows: Windows, columns_first: bool = False) -> tuple[str, str]:
    """Computes the maximum of each window, and the index (int32) of the first one in the plane of its channel."""
    extent, dtype = call.shape(value)[2:], call.context.builder.type(value).dtype
    parts = slices(call, value, windows, lowest(dtype))
    numbers = np.arange(math.prod(extent), dtype=np.int32).reshape(extent, order="F" if columns_first else "C")
    best, index = parts[0], ""
    for element, part in zip(windows.elements(), parts, strict=True):
        grid = [windows.list_indices(extent, axis, step).clip(0, extent[axis] - 1) for axis, step in enumerate(element)]
        here = call.constant(numbers[np.ix_(*grid)])
        if not index:
            index = here
            continue
        larger = call.add("less", [best, part])
        if dtype in FLOATS:  # the last NaN, as in PyTorch
            larger = call.add("logical_or", [larger, nan_in(call, part)])
        best, index = call.add("maximum", [best, part]), call.add("where", [larger, here, index])
    return best, index


def powers(call: Call, value: str, windows: Windows, p: int) -> str:
    """Computes the root of the sum of powers of each window."""
    size = call.add("abs", [value])
    raised = size
    if p > 1:
        raised = call.add("multiply", [size, size]) if p == 2 else with_number(call, "power", size, float(p))
    total = sums(call, raised, windows)
    if p == 1:
        return total
    return call.add("sqrt", [total]) if p == 2 else with_number(call, "power", total, 1 / p)
