"""Noise of a network's outputs when some of its numbers are rounded: one place at a time.

The network is evaluated once in float32, and once more from each place on. Noise of different places is almost
independent, so powers are added; callers that add them check the sum by a measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Array, Graph
from autotune.graph.mixed.rounding_sites import RoundingSite
from autotune.graph.ops import find
from search_space.dtypes import numpy_dtype

Feeds = Mapping[str, Array]

Rounding = Callable[[str, Array], Array]
"""Name of a value or constant, and its numbers in float32 → the rounded numbers."""

LOUD = 1e30
"""Noise over signal of results that are no longer finite, or of signals that are zero."""


def sensitivities(
    graph: Graph,
    sites: Sequence[RoundingSite],
    feeds: Sequence[Feeds],
    rounding: Rounding,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> NDArray[np.float64]:  # (places, outputs in floats)
    """Computes noise over signal of each output, in power, with one place rounded at a time.

    Args:
        graph: graph in float32, after the passes.
        sites: places of the graph.
        feeds: sets of inputs.
        rounding: rounding of a value or an operand.
        tell: callback before each evaluation with the number of finished ones and the total.
    """
    names = float_outputs(graph)
    noise = np.zeros((len(sites), len(names)))
    signal = np.zeros(len(names))
    total = len(feeds) * len(sites)
    for number, feed in enumerate(feeds):
        values = evaluate(graph, feed)
        signal += [power(finite(values[name])) for name in names]
        for row, place in enumerate(sites):
            tell(number * len(sites) + row, total)
            changed = rounded_at(graph, values, place, rounding)
            noise[row] += [power(difference(changed.get(n, values[n]), values[n])) for n in names]
    tell(total, total)
    return over(noise, signal)


def noise_between(outputs: Sequence[Mapping[str, Array]], exact: Sequence[Mapping[str, Array]]) -> dict[str, float]:
    """Computes noise over signal, in power, of each output in floats over all sets of inputs."""
    names = [name for name, array in exact[0].items() if array.dtype.kind == "f"]
    pairs = list(zip(outputs, exact, strict=True))
    noise = np.array([sum(power(difference(a[name], b[name])) for a, b in pairs) for name in names])
    signal = np.array([sum(power(finite(b[name])) for b in exact) for name in names])
    return dict(zip(names, map(float, over(noise, signal)), strict=True))


def float_outputs(graph: Graph) -> list[str]:
    """Lists the outputs that rounding may change slightly: floats, not integers and truth values."""
    return [name for name in dict.fromkeys(graph.outputs) if graph.type(name).dtype == "float32"]


def rounded_at(graph: Graph, values: Mapping[str, Array], site: RoundingSite, rounding: Rounding) -> dict[str, Array]:
    """Computes the values that change when one place is rounded.

    Args:
        graph: graph in float32.
        values: all values, in float32.
        site: place whose values or operand are rounded.
        rounding: rounding of these.
    """
    changed: dict[str, Array] = {}
    layers = set(site.kernels) if site.operand else set()
    stored = set(site.values)
    operand = rounding(site.operand, values[site.operand]) if site.operand else None
    for node in graph.nodes:
        reads = not changed.keys().isdisjoint(node.inputs)
        multiplies = node.name in layers
        if reads or multiplies:
            arrays = [changed.get(name, values[name]) for name in node.inputs]
            if multiplies and operand is not None:
                arrays = [operand if n == site.operand else a for n, a in zip(node.inputs, arrays, strict=True)]
            changed[node.name] = find(node.op).evaluate(node.attrs, arrays)
        if node.name in stored:
            changed[node.name] = rounding(node.name, changed.get(node.name, values[node.name]))
    return changed


def to(dtype: str) -> Rounding:
    """Returns the rounding to a 16-bit float."""
    return lambda name, array: round_to(array, dtype)


def round_to(array: Array, dtype: str) -> Array:
    """Rounds float32 numbers to the precision of `dtype`."""
    with np.errstate(over="ignore"):
        return array.astype(numpy_dtype(dtype)).astype(np.float32)


def difference(array: Array, exact: Array) -> Array:
    """Subtracts in float64; equal numbers, infinities and NaN included, differ by 0."""
    with np.errstate(invalid="ignore"):
        same = (array == exact) | (np.isnan(array) & np.isnan(exact))
        return np.where(same, 0.0, array.astype(np.float64) - exact)


def finite(array: Array) -> Array:
    """Replaces infinities and NaN by zeros."""
    return np.where(np.isfinite(array), array, 0)


def power(array: Array) -> float:
    """Computes the sum of squares."""
    with np.errstate(over="ignore"):
        return float(np.square(array, dtype=np.float64).sum())


def over(noise: NDArray[np.float64], signal: NDArray[np.float64]) -> NDArray[np.float64]:
    """Computes noise over signal, at most `LOUD`; 0 without noise."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(noise == 0, 0.0, noise / signal)
    return np.where(np.isfinite(found), np.minimum(found, LOUD), LOUD)
