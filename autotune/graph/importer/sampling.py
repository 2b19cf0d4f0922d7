"""Images read at computed places between their pixels: grids and regions of interest."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import reduce

import numpy as np

from autotune.graph.importer.activations import with_number
from autotune.graph.importer.reductions import reduced
from autotune.graph.importer.registry import Call, imports
from autotune.graph.importer.selection import rounded_half_even, taken

_CUBIC = -0.75
"""Coefficient of the cubic convolution, as PyTorch has it."""
MOST_NEIGHBOURS = 64
"""Pixels that one place is made of."""


def _bounded(call: Call, places: str, low: float, high: float) -> str:
    return call.add("clip", [places], low=low, high=high)


def _reflected(call: Call, x: str, low: float, high: float) -> str:
    """Places mirrored at both ends until they lie between them."""
    span = high - low
    if span <= 0:
        return with_number(call, "multiply", x, 0.0)
    away = call.add("abs", [with_number(call, "subtract", x, low)])
    turns = call.add("floor", [with_number(call, "multiply", away, 1 / (2 * span))])
    rest = call.add("subtract", [away, with_number(call, "multiply", turns, 2 * span)])
    back = call.add("abs", [with_number(call, "subtract", rest, span)])
    return call.add("subtract", [call.scalar(high, back), back])


def _number(call: Call, place: str, extent: int, padding: str, aligned: bool) -> tuple[str, str | None]:
    """The pixel (float32) of a whole place along an axis, and whether it counts; None: all do."""
    if padding == "reflection":
        ends = (0.0, extent - 1.0) if aligned else (-0.5, extent - 0.5)
        place = call.add("floor", [with_number(call, "add", _reflected(call, place, *ends), 0.25)])
    inside = None
    if padding == "zeros":
        sides = [
            call.add("less_equal", [call.scalar(0.0, place), place]),
            call.add("less_equal", [place, call.scalar(extent - 1.0, place)]),
        ]
        inside = call.add("logical_and", sides)
    return _bounded(call, place, 0.0, extent - 1.0), inside


def _weights(call: Call, mode: str, share: str) -> list[tuple[int, str]]:
    """Neighbours of a place by their distance from the pixel before it, and what each weighs."""
    if mode == "linear":
        return [(0, call.add("subtract", [call.scalar(1.0, share), share])), (1, share)]

    def polynomial(x: str, *coefficients: float) -> str:
        out = with_number(call, "multiply", x, coefficients[0])
        for c in coefficients[1:-1]:
            out = call.add("multiply", [with_number(call, "add", out, c) if c else out, x])
        return with_number(call, "add", out, coefficients[-1])

    a, rest = _CUBIC, call.add("subtract", [call.scalar(1.0, share), share])
    near, far = (a + 2, -(a + 3), 0.0, 1.0), (a, -5 * a, 8 * a, -4 * a)
    distances = [with_number(call, "add", share, 1.0), share, rest, with_number(call, "add", rest, 1.0)]
    return [(i - 1, polynomial(x, *(near if i in (1, 2) else far))) for i, x in enumerate(distances)]


def _pixels(call: Call, flat: str, rows: str, count: int) -> str:
    """Channels of pixels: flat (samples * pixels, c) at rows (samples, count), as (samples, c, count)."""
    out = call.add("gather", [flat, rows], axis=0)
    return call.add("transpose", [out], axes=(0, 2, 1))


def _flat(call: Call, value: str) -> str:
    """An image (n, c, *spatial) as (n * pixels, c)."""
    n, c, *spatial = call.shape(value)
    out = call.add("reshape", [value], shape=(n, c, math.prod(spatial)))
    out = call.add("transpose", [out], axes=(0, 2, 1))
    return call.add("reshape", [out], shape=(n * math.prod(spatial), c))


def _rows(call: Call, places: Sequence[str], spatial: Sequence[int], first: str) -> str:
    """Numbers (int32) of pixels in the flat image: of whole places along each axis, and the sample's first pixel."""
    out = call.cast(places[0], "int32")
    for place, extent in zip(places[1:], spatial[1:], strict=True):
        out = call.add("add", [with_number(call, "multiply", out, extent), call.cast(place, "int32")])
    return call.add("add", [out, first])


@imports("GridSample")
def grid_sample(call: Call) -> str:
    """An image, or a volume, at the places of a grid, whose ends are -1 and 1."""
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(_text(call, "mode", "linear"), _text(call, "mode", "linear"))
    padding, aligned = _text(call, "padding_mode", "zeros"), bool(call.attrs.get("align_corners", 0))
    n, c, *spatial = call.type(0).shape
    rank, out_shape = len(spatial), call.type(1).shape[1:-1]
    count = math.prod(out_shape)
    neighbours = {"nearest": 1, "linear": 2, "cubic": 4}.get(mode, MOST_NEIGHBOURS + 1) ** rank
    call.require(neighbours <= MOST_NEIGHBOURS, f"must weigh at most {MOST_NEIGHBOURS} pixels", f"mode={mode!r}")
    grid = call.cast(call.add("reshape", [call.value(1)], shape=(n, count, rank)), "float32")
    flat = _flat(call, call.value(0))
    first = call.constant((np.arange(n, dtype=np.int32) * math.prod(spatial))[:, None])
    axes: list[list[tuple[str, str | None, str | None]]] = []
    for axis, extent in enumerate(spatial):
        at = call.reshaped(taken(call, grid, np.array([rank - 1 - axis]), 2), (n, count))
        reach, shift = (extent - 1, 0.0) if aligned else (extent, -0.5)
        at = with_number(call, "multiply", with_number(call, "add", at, 1.0), reach / 2)
        at = with_number(call, "add", at, shift) if shift else at
        if mode == "nearest":
            axes.append([(*_number(call, rounded_half_even(call, at), extent, padding, aligned), None)])
            continue
        below = call.add("floor", [at])
        weights = _weights(call, mode, call.add("subtract", [at, below]))
        axes.append(
            [
                (*_number(call, with_number(call, "add", below, step) if step else below, extent, padding, aligned), w)
                for step, w in weights
            ]
        )
    total = ""
    for corner in itertools.product(*axes):
        pixels = _pixels(call, flat, _rows(call, [place for place, _, _ in corner], spatial, first), count)
        factors = [w for _, _, w in corner if w is not None]
        factors += [call.cast(inside, "float32") for _, inside, _ in corner if inside is not None]
        if factors:
            weight = reduce(lambda a, b: call.add("multiply", [a, b]), factors)
            pixels = call.add("multiply", [pixels, call.add("reshape", [weight], shape=(n, 1, count))])
        total = call.add("add", [total, pixels]) if total else pixels
    return call.add("reshape", [total], shape=(n, c, *out_shape))


def _text(call: Call, name: str, default: str) -> str:
    return bytes(call.attrs.get(name, default.encode())).decode()


@imports("RoiAlign")
def region_align(call: Call) -> str:
    """Means, or maxima, of samples between the pixels of each cell of regions (x1, y1, x2, y2) of images."""
    mode, samples = _text(call, "mode", "avg"), int(call.attrs.get("sampling_ratio", 0))
    call.require(samples > 0, "must state how many samples a cell has", f"sampling_ratio={samples}")
    newer = call.context.opset >= 16
    offset = 0.5 if _text(call, "coordinate_transformation_mode", "half_pixel") == "half_pixel" and newer else 0.0
    (_, c, *spatial), regions = call.type(0).shape, call.type(1).shape[0]
    counts = [int(call.attrs.get(name, 1)) for name in ("output_height", "output_width")]
    corners = with_number(call, "multiply", call.value(1), float(call.attrs.get("spatial_scale", 1.0)))
    corners = with_number(call, "subtract", corners, offset) if offset else corners
    sizes = tuple(count * samples for count in counts)
    sides = []
    for axis, (extent, size, column) in enumerate(zip(spatial, sizes, (1, 0), strict=True)):
        low, high = (taken(call, corners, np.array([place]), 1) for place in (column, column + 2))
        reach = call.add("subtract", [high, low])
        reach = reach if offset else with_number(call, "maximum", reach, 1.0)
        parts = call.constant(((np.arange(size) + 0.5) / size).astype(np.float32)[None])
        at = call.add("add", [low, call.add("multiply", [reach, parts])])
        within = [
            call.add("less_equal", [call.scalar(-1.0, at), at]),
            call.add("less_equal", [at, call.scalar(float(extent), at)]),
        ]
        at = _bounded(call, at, 0.0, extent - 1.0)
        below = call.add("floor", [at])
        share = call.add("subtract", [at, below])
        above = _bounded(call, with_number(call, "add", below, 1.0), 0.0, extent - 1.0)
        wide = (regions, size, 1) if axis == 0 else (regions, 1, size)
        inside = call.cast(call.add("logical_and", within), "float32")
        low_weight = call.add("multiply", [call.add("subtract", [call.scalar(1.0, share), share]), inside])
        high_weight = call.add("multiply", [share, inside])
        pairs = ((below, low_weight), (above, high_weight))
        sides.append([tuple(call.add("reshape", [v], shape=wide) for v in pair) for pair in pairs])
    image = call.add("reshape", [call.cast(call.value(2), "int32")], shape=(regions, 1, 1))
    first = with_number(call, "multiply", image, math.prod(spatial))
    flat, found = _flat(call, call.value(0)), []
    for (row, row_weight), (column_place, column_weight) in itertools.product(*sides):
        rows = _rows(call, [row, column_place], spatial, first)
        rows = call.add("reshape", [rows], shape=(regions, math.prod(sizes)))
        weight = call.add("multiply", [row_weight, column_weight])
        weight = call.add("reshape", [weight], shape=(regions, 1, math.prod(sizes)))
        found.append(call.add("multiply", [_pixels(call, flat, rows, math.prod(sizes)), weight]))
    combine = "add" if mode == "avg" else "maximum"
    cells = reduce(lambda a, b: call.add(combine, [a, b]), found)
    split = (regions, c, counts[0], samples, counts[1], samples)
    cells = call.add("reshape", [cells], shape=split)
    return reduced(call, cells, (3, 5), "mean" if mode == "avg" else "max", False)
