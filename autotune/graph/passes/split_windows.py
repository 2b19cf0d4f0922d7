"""Convolutions whose products are mostly with padding, split into parts without these products.

An example is a 3x3 window dilated and padded by 12 over 14x14 pixels. Its middle tap meets the image everywhere, a side
tap in two rows or columns, a corner tap in four pixels: 324 of 1764 products. Along each axis the window is split in
one of two ways:

- by taps: each part has some taps and the outputs that they reach. Each weight is read once, as before, and outputs
  that several parts reach are summed.
- by outputs: each part has some outputs and the taps that reach them. No sums are needed, but taps that reach several
  parts are read once for each.

Parts read slices of the image and lie side by side in the output (`autotune.graph.views`), so nothing is copied. Sums
have the dtype of the convolution: the pass should run after quantisation, which would round each of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

from autotune.graph.ir import Graph, Node
from autotune.graph.ops import find
from autotune.graph.passes.chains import add_ending, chain_to
from autotune.graph.passes.site import Site, pair, sweep
from search_space.operators.windows import both_sides, normalise_padding

MOST_PARTS = 4
"""Maximum number of parts along an axis."""

BALANCE = 16
"""Products that a machine computes while it loads one value from memory. Multi-core processors and GPUs compute
from 10 to 30 in float32; the choice of the best split changes little over that range."""

START = 1 << 18
"""Products that a machine computes while a kernel starts and ends, which takes a few microseconds."""

WINOGRAD = 2.25
"""Factor by which Winograd's algorithm reduces the products of dense 3x3 windows."""

MOST_WEIGHTS = 4
"""Maximum ratio of the weights of all parts to the original ones, as for Winograd's F(4x4, 3x3)."""

LEAST = 0.75
"""Maximum ratio of a split's cost to the original: the count ignores how inefficient small kernels are."""


@dataclass(frozen=True)
class TapRange:
    """Some taps of a window along an axis, and the outputs for which they are computed."""

    taps: range
    outputs: range


Split = tuple[TapRange, ...]


@dataclass(frozen=True)
class Axis:
    """A window that slides along one axis.

    Attributes:
        extent: extent of the image.
        taps: number of the window's taps.
        outputs: number of positions of the window.
        before, stride, dilation: leading padding, step and tap distance in pixels.
    """

    extent: int
    taps: int
    outputs: int
    before: int
    stride: int
    dilation: int

    def position(self, tap: int, output: int) -> int:
        """Computes the pixel that a tap meets; a pixel outside the image is padding."""
        return output * self.stride + tap * self.dilation - self.before

    def output_range(self, taps: range) -> range:
        """Returns the range of outputs for which any of the taps meets the image."""
        ranges = [r for r in map(self._tap_outputs, taps) if r]
        return range(min(r.start for r in ranges), max(r.stop for r in ranges)) if ranges else range(0)

    def reaching(self, outputs: range) -> range:
        """Returns the range of taps that meet the image for any of the outputs."""
        taps = [t for t in range(self.taps) if _shared(self._tap_outputs(t), outputs)]
        return range(taps[0], taps[-1] + 1) if taps else range(0)

    def _tap_outputs(self, tap: int) -> range:
        start = max(0, -(self.position(tap, 0) // self.stride))
        return range(start, max(start, min(self.outputs, (self.extent - 1 - self.position(tap, 0)) // self.stride + 1)))

    @property
    def alive(self) -> int:
        """Number of pairs of a tap and an output that meet the image."""
        return sum(len(self._tap_outputs(tap)) for tap in range(self.taps))

    def splits(self) -> Iterator[Split]:
        """Yields the unsplit axis, then the best split of each kind and number of parts that covers all outputs."""
        # Only cuts of outputs at points where a tap begins or ends to meet the image leave out more products.
        edges = {edge for tap in range(self.taps) for r in [self._tap_outputs(tap)] for edge in (r.start, r.stop)}
        ways: tuple[tuple[Sequence[int], Callable[[range], TapRange]], ...] = (
            (range(self.taps + 1), lambda taps: TapRange(taps, self.output_range(taps))),
            (sorted({0, self.outputs, *edges}), lambda outputs: TapRange(self.reaching(outputs), outputs)),
        )
        yield (TapRange(range(self.taps), range(self.outputs)),)
        for points, part in ways:
            for parts in _partitions(points, part):
                split = tuple(p for p in parts if p.taps and p.outputs)
                if len(parts) > 1 and {o for p in split for o in p.outputs} == set(range(self.outputs)):
                    yield split


def split_windows(graph: Graph) -> Graph:
    """Splits two-dimensional convolutions if that costs less."""
    return sweep(graph, _split)


def _split(site: Site, node: Node) -> str | None:
    """Splits the chain from a convolution to its last node."""
    chain = chain_to(site, node, "conv2d", "depthwise_conv2d")
    if chain is None or site.array(chain[0].inputs[1]) is None:
        return None
    conv = chain[0]
    axes = _axes(site, conv)
    # The pairs that meet the image are a lower bound; most layers are rejected here, before splits are listed.
    alive, most = prod(axis.alive for axis in axes), MOST_WEIGHTS * prod(axis.taps for axis in axes)
    if not 0 < alive <= LEAST * prod(axis.taps * axis.outputs for axis in axes):
        return None
    ways = [way for way in itertools.product(*(axis.splits() for axis in axes)) if _weights(way) <= most]
    costs = [_cost(site, conv, way) for way in ways]  # the first is the unsplit convolution
    best = min(range(len(ways)), key=costs.__getitem__)
    return _apply(site, chain, axes, ways[best]) if costs[best] <= LEAST * costs[0] else None


def _axes(site: Site, conv: Node) -> list[Axis]:
    extents, taps = site.type(conv.inputs[0]).shape[1:3], site.type(conv.inputs[1]).shape[:2]
    before = [sides[0] for sides in both_sides(normalise_padding(2, conv.attrs["padding"]))]
    stride, dilation = pair(conv.attrs["stride"]), pair(conv.attrs["dilation"])
    return list(map(Axis, extents, taps, conv.type.shape[1:3], before, stride, dilation))


# ---------------------------------------------------------------------- the count
def _cost(site: Site, conv: Node, splits: Sequence[Split]) -> float:
    """Estimates a split's cost in products: its kernels' own, the loads of their weights, and their starts."""
    batch, *_, channels = conv.type.shape
    filters = site.type(conv.inputs[1]).size // prod(site.type(conv.inputs[1]).shape[:2])
    workload = find(conv.op).workload
    assert workload is not None
    algorithms = workload(conv.attrs, [site.type(name) for name in conv.inputs], (False, True)).algorithms
    total = 0.0
    for parts in itertools.product(*splits):
        taps, places = [len(p.taps) for p in parts], prod(len(p.outputs) for p in parts)
        # A part that is no longer 3x3 loses Winograd's algorithm, which the original may use.
        fewer = WINOGRAD if taps == [3, 3] and "winograd2" in algorithms else 1.0
        total += prod(taps) * filters * (batch * places / fewer + BALANCE) + START
    for cell, covering in _cells(splits):
        if [[p.outputs for p in parts] for parts in covering] != [list(cell)]:
            # Summed parts go through memory once more each; a sum that ends with a part is fused into its kernel.
            moved = batch * channels * prod(map(len, cell)) * (1 + len(covering))
            last = any([p.outputs for p in parts] == list(cell) for parts in covering)
            total += BALANCE * moved + (0 if last else START)
    return total


def _weights(splits: Sequence[Split]) -> int:
    """Counts the taps of all parts."""
    return prod(sum(len(part.taps) for part in split) for split in splits)


def _partitions(points: Sequence[int], part: Callable[[range], TapRange]) -> Iterator[Split]:
    """Yields the cheapest cuts of `points` into 1, 2... stretches, by the sum of taps times outputs of their parts."""
    # Shortest paths: `best` holds the cheapest cut up to each point, with one more part in each round.
    stretches = {(a, b): part(range(a, b)) for a, b in itertools.combinations(points, 2)}
    best: dict[int, tuple[int, Split]] = {points[0]: (0, ())}
    for _ in range(min(MOST_PARTS, len(points) - 1)):
        longer: dict[int, tuple[int, Split]] = {}
        for (start, stop), new in stretches.items():
            if start in best:
                cost, parts = best[start]
                cost += len(new.taps) * len(new.outputs)
                if stop not in longer or cost < longer[stop][0]:
                    longer[stop] = cost, (*parts, new)
        best = longer
        if points[-1] in best:
            yield best[points[-1]][1]


def _cells(splits: Sequence[Split]) -> Iterator[tuple[tuple[range, ...], list[tuple[TapRange, ...]]]]:
    """Yields the cells between the edges of parts in the output, row by row, each with the parts that cover it."""
    for cell in itertools.product(*map(_stretches, splits)):
        having = [[p for p in parts if _shared(p.outputs, c)] for parts, c in zip(splits, cell, strict=True)]
        yield cell, list(itertools.product(*having))


def _stretches(parts: Split) -> list[range]:
    edges = sorted({edge for p in parts for edge in (p.outputs.start, p.outputs.stop)})
    return [range(a, b) for a, b in itertools.pairwise(edges)]


def _shared(first: range, second: range) -> range:
    return range(max(first.start, second.start), min(first.stop, second.stop))


# ---------------------------------------------------------------------- the graph
def _apply(site: Site, chain: Sequence[Node], axes: Sequence[Axis], splits: Sequence[Split]) -> str:
    conv = chain[0]
    convolutions = {parts: _add_convolution(site, conv, axes, parts) for parts in itertools.product(*splits)}
    rows: dict[range, list[str]] = {}
    for cell, covering in _cells(splits):
        # The part that ends with the cell comes first: the sum is fused into its kernel.
        ordered = sorted(covering, key=lambda parts: sum(len(p.outputs) for p in parts))
        values = [_slice(site, convolutions[parts], _within(cell, parts)) for parts in ordered]
        value = values[0]
        for other in values[1:]:
            value = site.add("add", [value, other])
        region = (slice(None), *(slice(c.start, c.stop) for c in cell), slice(None))
        rows.setdefault(cell[0], []).append(add_ending(site, chain, value, region))
    joined = [_concatenate(site, row, 2) for row in rows.values()]
    return _concatenate(site, joined, 1)


def _concatenate(site: Site, values: list[str], axis: int) -> str:
    return site.add("concat", values, axis=axis) if len(values) > 1 else values[0]


def _within(cell: Sequence[range], parts: Sequence[TapRange]) -> list[range]:
    """Returns the cell's ranges within the output of the parts."""
    shifts = [p.outputs.start for p in parts]
    return [range(c.start - shift, c.stop - shift) for c, shift in zip(cell, shifts, strict=True)]


def _slice(site: Site, value: str, region: Sequence[range]) -> str:
    """Slices rows and columns of a new value, if they are not all."""
    batch, *extents, channels = site.builder.type(value).shape
    if [len(r) for r in region] == extents:
        return value
    begin, size = (0, *(r.start for r in region), 0), (batch, *map(len, region), channels)
    return site.add("slice", [value], begin=begin, size=size)


def _add_convolution(site: Site, conv: Node, axes: Sequence[Axis], parts: Sequence[TapRange]) -> str:
    """Adds the convolution with some taps for some outputs."""
    weight = site.array(conv.inputs[1])
    assert weight is not None
    region, margins = [], []
    for axis, part in zip(axes, parts, strict=True):
        first = axis.position(part.taps[0], part.outputs[0])
        last = axis.position(part.taps[-1], part.outputs[-1])
        region.append(range(max(first, 0), min(last + 1, axis.extent)))
        margins.append((region[-1].start - first, last + 1 - region[-1].stop))
    data = _slice(site, site.new[conv.inputs[0]], region)
    rows, columns = (slice(p.taps.start, p.taps.stop) for p in parts)
    filters = site.builder.constant(weight[rows, columns], conv.inputs[1])
    # A single tap or output does not step: with 1 it is the plain layer, which more algorithms and schedules support.
    dilation = tuple(1 if len(p.taps) == 1 else axis.dilation for axis, p in zip(axes, parts, strict=True))
    stride = tuple(1 if len(p.outputs) == 1 else axis.stride for axis, p in zip(axes, parts, strict=True))
    attrs = {**conv.attrs, "padding": normalise_padding(2, margins), "dilation": dilation, "stride": stride}
    return site.add(conv.op, [data, filters], **attrs)
