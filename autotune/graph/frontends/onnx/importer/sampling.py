"""Images sampled at computed positions between their pixels: grids and regions of interest."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import reduce

import numpy as np

from autotune.graph.calls import Call
from autotune.graph.frontends.onnx.importer.activations import with_number
from autotune.graph.frontends.onnx.importer.reductions import reduce_over
from autotune.graph.frontends.onnx.importer.registry import imports
from autotune.graph.frontends.onnx.importer.selection import take_places

_CUBIC = -0.75
"""Coefficient of the cubic convolution, as in PyTorch."""
MOST_NEIGHBOURS = 64
"""Maximum number of pixels that are combined for one position."""


def _clamp(call: Call, positions: str, low: float, high: float) -> str:
    return call.add("clip", [positions], low=low, high=high)


def _reflect(call: Call, x: str, low: float, high: float) -> str:
    """Mirrors positions at both ends until they lie between them."""
    span = high - low
    if span <= 0:
        return with_number(call, "multiply", x, 0.0)
    away = call.add("abs", [with_number(call, "subtract", x, low)])
    turns = call.add("floor", [with_number(call, "multiply", away, 1 / (2 * span))])
    rest = call.add("subtract", [away, with_number(call, "multiply", turns, 2 * span)])
    back = call.add("abs", [with_number(call, "subtract", rest, span)])
    return call.add("subtract", [call.scalar(high, back), back])


def _number(call: Call, position: str, extent: int, padding: str, aligned: bool) -> tuple[str, str | None]:
    """Returns the pixel (float32) of a whole position along an axis, and whether it counts; None: all count."""
    if padding == "reflection":
        ends = (0.0, extent - 1.0) if aligned else (-0.5, extent - 0.5)
        # Reflections of whole numbers are whole up to rounding, which must not lead to the pixel below.
        position = call.add("floor", [with_number(call, "add", _reflect(call, position, *ends), 0.25)])
    inside = None
    if padding == "zeros":
        sides = [
            call.add("less_equal", [call.scalar(0.0, position), position]),
            call.add("less_equal", [position, call.scalar(extent - 1.0, position)]),
        ]
        inside = call.add("logical_and", sides)
    return _clamp(call, position, 0.0, extent - 1.0), inside


def _weights(call: Call, mode: str, share: str) -> list[tuple[int, str]]:
    """Lists the neighbours of a position by their distance from the pixel before it, with their weights."""
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


def _pixels(call: Call, flat: str, rows: str) -> str:
    """Gathers channels of pixels: flat (samples * pixels, c) at rows (samples, count), as (samples, c, count)."""
    out = call.add("gather", [flat, rows], axis=0)
    return call.add("transpose", [out], axes=(0, 2, 1))


def _flat(call: Call, value: str) -> str:
    """Reshapes an image (n, c, *spatial) to (n * pixels, c)."""
    n, c, *spatial = call.shape(value)
    out = call.add("reshape", [value], shape=(n, c, math.prod(spatial)))
    out = call.add("transpose", [out], axes=(0, 2, 1))
    return call.add("reshape", [out], shape=(n * math.prod(spatial), c))


def _rows(call: Call, positions: Sequence[str], spatial: Sequence[int], first: str) -> str:
    """Computes pixel numbers (int32) in the flat image from whole positions along each axis and the first pixel."""
    out = call.cast(positions[0], "int32")
    for place, extent in zip(positions[1:], spatial[1:], strict=True):
        out = call.add("add", [with_number(call, "multiply", out, extent), call.cast(place, "int32")])
    return call.add("add", [out, first])


Neighbour = tuple[str, str | None, str | None]
"""A pixel along an axis, whether it counts, and its weight; None: it counts, and its weight is 1."""


def _neighbours(call: Call, at: str, extent: int, mode: str, padding: str) -> list[Neighbour]:
    """Lists the neighbours of positions from -1 to 1 along an axis."""
    aligned = bool(call.attrs.get("align_corners", 0))
    at = with_number(call, "multiply", with_number(call, "add", at, 1.0), (extent - 1 if aligned else extent) / 2)
    at = at if aligned else with_number(call, "subtract", at, 0.5)
    if mode == "nearest":
        return [(*_number(call, call.add("rint", [at]), extent, padding, aligned), None)]
    below, neighbours = call.add("floor", [at]), list[Neighbour]()
    for step, weight in _weights(call, mode, call.add("subtract", [at, below])):
        place = with_number(call, "add", below, step) if step else below
        neighbours.append((*_number(call, place, extent, padding, aligned), weight))
    return neighbours


@imports("GridSample")
def grid_sample(call: Call) -> str:
    """Samples an image, or a volume, at the positions of a grid, whose ends are -1 and 1."""
    given = _text(call, "mode", "linear")
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(given, given)
    n, c, *spatial = call.type(0).shape
    rank, out_shape = len(spatial), call.type(1).shape[1:-1]
    count = math.prod(out_shape)
    most = {"nearest": 1, "linear": 2, "cubic": 4}.get(mode, MOST_NEIGHBOURS + 1) ** rank
    call.require(most <= MOST_NEIGHBOURS, f"must weigh at most {MOST_NEIGHBOURS} pixels", f"mode={mode!r}")
    grid = call.cast(call.add("reshape", [call.value(1)], shape=(n, count, rank)), "float32")
    columns = [call.reshape(take_places(call, grid, np.array([rank - 1 - a]), 2), (n, count)) for a in range(rank)]
    padding = _text(call, "padding_mode", "zeros")
    axes = [_neighbours(call, at, extent, mode, padding) for at, extent in zip(columns, spatial, strict=True)]
    flat = _flat(call, call.value(0))
    first = call.constant((np.arange(n, dtype=np.int32) * math.prod(spatial))[:, None])
    parts = []
    for corner in itertools.product(*axes):
        pixels = _pixels(call, flat, _rows(call, [place for place, _, _ in corner], spatial, first))
        # Chosen, not multiplied by 0: the pixel in place of one outside may be infinite.
        insides = [inside for _, inside, _ in corner if inside is not None]
        if insides:
            inside = reduce(lambda a, b: call.add("logical_and", [a, b]), insides)
            inside = call.add("reshape", [inside], shape=(n, 1, count))
            pixels = call.add("where", [inside, pixels, call.scalar(0.0, pixels)])
        weights = [weight for _, _, weight in corner if weight is not None]
        if weights:
            weight = reduce(lambda a, b: call.add("multiply", [a, b]), weights)
            pixels = call.add("multiply", [pixels, call.add("reshape", [weight], shape=(n, 1, count))])
        parts.append(pixels)
    total = reduce(lambda a, b: call.add("add", [a, b]), parts)
    return call.add("reshape", [total], shape=(n, c, *out_shape))


def _text(call: Call, name: str, default: str) -> str:
    return bytes(call.attrs.get(name, default.encode())).decode()


def _samples(
    call: Call, ends: tuple[str, str], extent: int, size: int, least: float
) -> tuple[str, list[tuple[str, str]]]:
    """Computes `size` samples between two ends: which lie in the image, then the pixels before and after each.

    Each pixel has a weight. All values are (regions, size).
    """
    reach = call.add("subtract", [ends[1], ends[0]])
    reach = with_number(call, "maximum", reach, least) if least else reach
    parts = call.constant(((np.arange(size) + 0.5) / size).astype(np.float32)[None])
    at = call.add("add", [ends[0], call.add("multiply", [reach, parts])])
    sides = ([call.scalar(-1.0, at), at], [at, call.scalar(float(extent), at)])
    inside = call.add("logical_and", [call.add("less_equal", side) for side in sides])
    at = _clamp(call, at, 0.0, extent - 1.0)
    below = call.add("floor", [at])
    above = _clamp(call, with_number(call, "add", below, 1.0), 0.0, extent - 1.0)
    share = call.add("subtract", [at, below])
    rest = call.add("subtract", [call.scalar(1.0, share), share])
    return inside, [(below, rest), (above, share)]


@imports("RoiAlign")
def region_align(call: Call) -> str:
    """Computes means, or maxima, of samples between the pixels of each cell of regions (x1, y1, x2, y2) of images."""
    mode, samples = _text(call, "mode", "avg"), int(call.attrs.get("sampling_ratio", 0))
    call.require(samples > 0, "must state how many samples a cell has", f"sampling_ratio={samples}")
    centred = _text(call, "coordinate_transformation_mode", "half_pixel") == "half_pixel" and call.context.opset >= 16
    (_, c, *spatial), regions = call.type(0).shape, call.type(1).shape[0]
    counts = [int(call.attrs.get(name, 1)) for name in ("output_height", "output_width")]
    corners = with_number(call, "multiply", call.value(1), float(call.attrs.get("spatial_scale", 1.0)))
    corners = with_number(call, "subtract", corners, 0.5) if centred else corners
    x1, y1, x2, y2 = (take_places(call, corners, np.array([place]), 1) for place in range(4))
    height, width = (count * samples for count in counts)
    least = 0.0 if centred else 1.0
    insides, sides = [], []
    for ends, extent, size, shape in (
        ((y1, y2), spatial[0], height, (regions, height, 1)),
        ((x1, x2), spatial[1], width, (regions, 1, width)),
    ):
        inside, pairs = _samples(call, ends, extent, size, least)
        insides.append(call.add("reshape", [inside], shape=shape))
        sides.append([tuple(call.add("reshape", [v], shape=shape) for v in pair) for pair in pairs])
    image = call.add("reshape", [call.cast(call.value(2), "int32")], shape=(regions, 1, 1))
    first, flat, terms = with_number(call, "multiply", image, math.prod(spatial)), _flat(call, call.value(0)), []
    for (row, row_weight), (column, column_weight) in itertools.product(*sides):
        pixels = _rows(call, [row, column], spatial, first)
        pixels = call.add("reshape", [pixels], shape=(regions, height * width))
        weight = call.add("multiply", [row_weight, column_weight])
        weight = call.add("reshape", [weight], shape=(regions, 1, height * width))
        terms.append(call.add("multiply", [_pixels(call, flat, pixels), weight]))
    cells = reduce(lambda a, b: call.add("add" if mode == "avg" else "maximum", [a, b]), terms)
    inside = call.add("reshape", [call.add("logical_and", insides)], shape=(regions, 1, height * width))
    cells = call.add("where", [inside, cells, call.scalar(0.0, cells)])
    cells = call.add("reshape", [cells], shape=(regions, c, counts[0], samples, counts[1], samples))
    return reduce_over(call, cells, (3, 5), "mean" if mode == "avg" else "max", False)
