"""Winograd convolution: F(2x2, 3x3) and F(4x4, 3x3), with 2.25 and 4 times fewer products than the definition; and one
axis of it for windows such as 1x3, 5x1 or 1x7: F(2, 3), F(4, 3), F(2, 5), F(4, 5) and F(4, 7).

The output is cut into tiles of m x m, each computed from m + r - 1 rows and columns of the padded input, r being taps:

    output tile = A^T [sum over channels of (G g G^T) * (B^T d B)] A

Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016. Polynomials may be evaluated at any points,
but errors differ. The points here have the least error of all tried sets of small fractions in pairs of both signs,
which share half of their operations (Barabasz et al., "Error Analysis and Improving the Accuracy of Winograd
Convolution for Deep Neural Networks", 2020). The transforms are two one-dimensional passes, each a choice by the
position in the tile: if that loop is unrolled, a few additions and multiplications remain. G g G^T depends on weights
alone: it is computed before the first call.

In bfloat16 transformed tiles of 3x3 may be rounded once more, so that an instruction multiplies pairs of channels. The
error is then that of the two roundings, amplified by the transforms: 2.8 times the power for F(2x2), 23 times for
F(4x4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from math import prod

from search_space import te
from search_space.dtypes import BITS, FLOATS
from search_space.ir.expr import Expr
from search_space.operators.base import FLOOR, Args, Definition
from search_space.operators.convolution import placeholders
from search_space.operators.epilogue import with_epilogue
from search_space.operators.windows import Window
from search_space.tags import ROUNDING, Tag

TILES = {"winograd2": 2, "winograd4": 4, "winograd2_dot": 2, "winograd4_dot": 4}
"""Output rows and columns of a tile, by algorithm."""

BLOCKS = (64, 32)
"""Filters whose transformed weights are adjacent, where these are no constants: a register tile reads rows of them."""

LONGEST = {"winograd2": (3, 5), "winograd4": (3, 5, 7)}
"""Taps along the one axis of windows such as 1x7, by algorithm."""

DOT = ROUNDING
"""Algorithms whose transformed tiles are rounded to 16 bits, for an instruction that multiplies and adds pairs."""

RELATIVE_ERROR = {"winograd2": 1.5e-6, "winograd4": 1e-5, "winograd2_dot": 8e-3, "winograd4_dot": 4e-2}
"""Greatest error to expect, as a share of the greatest output; a sum in float32 as it is defined has up to 2.5e-6.

Measured against float64 on uniform inputs of both signs: F(4x4) 1.4e-6 with 64 channels and 3.6e-6 with 512; F(2x2)
4.5e-7 and 1.0e-6. Along one axis, with 512: F(2, 3) and F(2, 5) 1.2e-6, F(4, 3) 1.2e-6, F(4, 5) 4.9e-6, F(4, 7) 8.0e-6.
Tiles rounded to bfloat16, of bfloat16 inputs, which `direct` multiplies exactly: F(2x2) 6.6e-3 with 1 channel, 4.1e-3
with 64, 3.7e-3 with 256 and 3.8e-3 with 512; F(4x4) 3.2e-2, 1.6e-2, 1.4e-2 and 1.5e-2. Over all outputs, signal to
noise is 48 and 39 decibels with any number.
"""

ROUNDING_ERRORS = {"winograd2_dot": 0.025, "winograd4_dot": 0.1}
"""Error admitted where tiles are rounded to 16 bits, by the root of the channels."""

Transform = Callable[[Sequence[Expr]], list[Expr]]

POINTS: Mapping[int, tuple[Fraction, ...]] = {
    4: (Fraction(1),),
    6: (Fraction(3, 2), Fraction(2, 3)),
    8: (Fraction(1), Fraction(3, 5), Fraction(5, 3)),
    10: (Fraction(1, 2), Fraction(2), Fraction(3, 4), Fraction(4, 3)),
}
"""Points at which polynomials are evaluated besides 0 and infinity, each with its negative, by the number of positions
along a side of a transformed tile."""


def transforms(m: int, taps: int) -> tuple[Transform, Transform, Transform]:
    """Returns the transforms of data, weights and output along one axis: F(m, taps) with m + taps - 1 positions.

    Toom and Cook's algorithm; for one position the transforms change nothing. Values at a point and at its negative
    share their even and their odd terms.
    """
    size = m + taps - 1
    if size == 1:
        return list, list, list
    points = POINTS[size]
    whole = _with_roots(points)

    def data(d: Sequence[Expr]) -> list[Expr]:
        pairs: list[Expr] = []
        for point in points:
            others = _with_roots([other for other in points if other != point])
            even, odd = _sum(others, d[2::2]), _sum([point * factor for factor in others], d[1::2])
            pairs += [even + odd, even - odd]
        return [_sum(whole, d[0::2]), *pairs, _sum(whole, d[1::2])]

    def weight(g: Sequence[Expr]) -> list[Expr]:
        pairs: list[Expr] = []
        for point in points:
            share = 2 * point**2 * prod(point**2 - other**2 for other in points if other != point)
            powers = [point**place / share for place in range(taps)]
            even, odd = _sum(powers[0::2], g[0::2]), _sum(powers[1::2], g[1::2])
            pairs += [even + odd, even - odd]
        return [_sum([1 / whole[0]], g), *pairs, g[-1]]

    def output(values: Sequence[Expr]) -> list[Expr]:
        first, *pairs, last = values
        parts = [(a + b, a - b) for a, b in zip(pairs[0::2], pairs[1::2], strict=True)]
        ends = [[first], *([] for _ in range(m - 2)), [last]]
        powers = [[Fraction(1)] * len(ends[place]) + [point**place for point in points] for place in range(m)]
        return [_sum(powers[place], [*ends[place], *(part[place % 2] for part in parts)]) for place in range(m)]

    return data, weight, output


def _with_roots(points: Sequence[Fraction]) -> list[Fraction]:
    """Returns coefficients of 1, x ** 2, x ** 4, ... of the polynomial with roots at points and their negatives."""
    coefficients = [Fraction(1)]
    for point in points:
        lower, same = [Fraction(0), *coefficients], [*coefficients, Fraction(0)]
        coefficients = [low - point**2 * high for low, high in zip(lower, same, strict=True)]
    return coefficients


def _sum(factors: Sequence[Fraction], values: Sequence[Expr]) -> Expr:
    """Adds up values times factors; terms without a multiplication come first, so that the others are multiply-adds."""
    terms = sorted(zip(factors, values, strict=False), key=lambda term: (abs(term[0]) != 1, term[0] < 0))
    (factor, value), *others = terms
    total = value if factor == 1 else value * float(factor)
    for factor, value in others:
        total = total + value if factor == 1 else total - value if factor == -1 else total + value * float(factor)
    return total


def has_algorithm(args: Args) -> bool:
    """Tells whether some algorithm exists for a convolution over two axes."""
    return any(available(args, algorithm) for algorithm in TILES if algorithm not in DOT)


def tile(args: Args, algorithm: str) -> tuple[int, ...]:
    """Returns the output rows and columns of a tile; 1 along an axis of one tap, which saves nothing."""
    return tuple(TILES[algorithm] if taps > 1 else 1 for taps in args["kernel"])


def positions(args: Args, algorithm: str) -> tuple[int, ...]:
    """Returns the rows and columns of a transformed tile."""
    return tuple(m + taps - 1 for m, taps in zip(tile(args, algorithm), args["kernel"], strict=True))


def product_share(args: Args, algorithm: str) -> float:
    """Returns the products as a share of those of the definition; 1 for other algorithms."""
    if algorithm not in TILES:
        return 1.0
    return prod(positions(args, algorithm)) / prod((*args["kernel"], *tile(args, algorithm)))


def available(args: Args, algorithm: str) -> bool:
    """Tells whether one of `TILES` exists for a convolution; `DOT` needs pairs of channels for the instruction."""
    kernel, one = args["kernel"], (1, 1)
    if args["stride"] != one or args["dilation"] != one or args["groups"] != 1 or args["dtype"] not in FLOATS:
        return False
    if algorithm in DOT:
        pairs = args["dtype"] == "bfloat16" and args["in_channels"] % 2 == 0
        return bool(kernel == (3, 3) and pairs and args["constant_weight"])
    return bool(kernel == (3, 3) or (1 in kernel and max(kernel) in LONGEST.get(algorithm, ())))


def scale(args: Args) -> float:
    """Returns the factor of the tolerance with which it admits F(4x4), and F(4, 7)."""
    return 1.0 if not has_algorithm(args) else 1.5 if max(args["kernel"]) < 7 else 3.0


def floor(args: Args) -> float:
    """Returns the steps of the tolerance for a sum of no terms: transforms round however few terms there are.

    With `scale`, 1.7 times the greatest error measured over 2e5 outputs for 1 to 512 channels.
    """
    return 75.0 if has_algorithm(args) else FLOOR


def rounding(args: Args, algorithm: str) -> float:
    """Returns the error that rounded tiles may add for inputs of size one: over 1.6 times the greatest measured one.

    It grows with the root of the channels, as outputs do: it is a fortieth or a tenth of their standard deviation. See
    `floor` for the measurement.
    """
    return ROUNDING_ERRORS.get(algorithm, 0.0) * float(1 + args["in_channels"] ** 0.5)


def constant_bytes(args: Args, algorithm: str) -> int:
    """Returns the bytes of the transformed weights less those of the weights they replace; 0 for other algorithms."""
    if algorithm not in TILES or not args.get("constant_weight", True):
        return 0
    kept = BITS[args["dtype"]] // 8
    of_tiles = (kept if algorithm in DOT else 4) * prod(positions(args, algorithm))
    of_weights = kept * prod(args["kernel"])
    return (of_tiles - of_weights) * int(args["in_channels"] * args["out_channels"])


def winograd(args: Args, algorithm: str) -> list[te.Tensor]:
    """Defines the convolution by one of `TILES`; returns the inputs and the output."""
    data, weight = placeholders(args)
    return with_epilogue(args, [data, weight], layer(args, algorithm, data, weight))


def layer(args: Args, algorithm: str, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """Defines the convolution of data and a weight by one of `TILES`.

    Axes of intermediate stages: i, j in a tile; n, y, x tiles; c, k channels. Data and weights of 16 bits are widened
    when they are read: all arithmetic is in float32, except the products of tiles that an algorithm of `DOT` rounded.
    """
    stored = args["dtype"] if algorithm in DOT else "float32"
    (m, across), (taps, taps_across) = tile(args, algorithm), args["kernel"]
    size, size_across = positions(args, algorithm)
    down, along = transforms(m, taps), transforms(across, taps_across)
    window = Window.of(args)
    batch, depth, outputs = args["batch"], args["in_channels"], args["out_channels"]
    rows, columns = -(-window.output[0] // m), -(-window.output[1] // across)
    source = _pad_to(data, window, (rows * m + taps - 1, columns * across + taps_across - 1))

    tag = Tag.CONSTANT if args["constant_weight"] else Tag.FILTERS
    weight_rows = te.compute(
        (size, taps_across, depth, outputs),
        lambda i, s, c, k: select_value(i, down[1]([_wide(weight, r, s, c, k) for r in range(taps)])),
        name="weight_rows",
        tag=tag,
    )
    # A constant is packed in the order in which it is read. Other weights have one fixed order, near to it.
    block = 0 if args["constant_weight"] else next((n for n in BLOCKS if outputs % n == 0 and outputs > n), 0)

    def weight_value(i: Expr, j: Expr, c: Expr, k: Expr) -> Expr:
        return select_value(j, along[1]([weight_rows[i, s, c, k] for s in range(taps_across)])).astype(stored)

    def blocked_value(i: Expr, j: Expr, b: Expr, c: Expr, k: Expr) -> Expr:
        return weight_value(i, j, c, b * block + k)

    weight_tiles = te.compute(
        (size, size_across, outputs // block, depth, block) if block else (size, size_across, depth, outputs),
        blocked_value if block else weight_value,
        name="weight_tiles",
        tag=tag,
    )

    def weight_at(i: Expr, j: Expr, c: te.IterVar, k: Expr) -> Expr:
        return _wide(weight_tiles, *((i, j, k // block, c, k % block) if block else (i, j, c, k)))

    data_rows = te.compute(
        (size, size_across, batch, rows, columns, depth),
        lambda i, s, n, y, x, c: select_value(
            i, down[0]([_wide(source, n, y * m + r, x * across + s, c) for r in range(size)])
        ),
        name="data_rows",
        tag=Tag.TRANSFORM,
    )
    data_tiles = te.compute(
        (size, size_across, batch, rows, columns, depth),
        lambda i, j, n, y, x, c: select_value(
            j, along[0]([data_rows[i, s, n, y, x, c] for s in range(size_across)])
        ).astype(stored),
        name="data_tiles",
        tag=Tag.TRANSFORM,
    )
    rc = te.reduce_axis((0, depth), "rc")
    products = te.compute(
        (size, size_across, batch, rows, columns, outputs),
        lambda i, j, n, y, x, k: te.sum(_wide(data_tiles, i, j, n, y, x, rc) * weight_at(i, j, rc, k), axis=rc),
        name="products",
        tag=Tag.TRANSFORM,
    )
    output_rows = te.compute(
        (m, size_across, batch, rows, columns, outputs),
        lambda i, j, n, y, x, k: select_value(i, down[2]([products[r, j, n, y, x, k] for r in range(size)])),
        name="output_rows",
        tag=Tag.TRANSFORM,
    )
    return te.compute(
        (batch, *window.output, outputs),
        lambda n, h, w, k: select_value(
            w % across,
            along[2]([output_rows[h % m, s, n, h // m, w // across, k] for s in range(size_across)]),
        ),
        name="conv",
    )


DEFINITIONS: Mapping[str, Definition] = {name: partial(winograd, algorithm=name) for name in TILES}


def _wide(tensor: te.Tensor, *index: Expr | te.IterVar | int) -> Expr:
    return tensor[index].astype("float32")


def select_value(index: Expr | te.IterVar, values: Sequence[Expr]) -> Expr:
    """Selects `values[index]`."""
    *others, chosen = values
    for place, value in reversed(list(enumerate(others))):
        chosen = te.if_then_else(te.eq(index, place), value, chosen)
    return chosen


def _pad_to(data: te.Tensor, window: Window, extents: tuple[int, int]) -> te.Tensor:
    """Pads `data` with its padding and then with zeros up to `extents`; returns `data` itself if that adds nothing."""
    if data.shape[1:3] == extents:
        return data
    (top, left), (height, width) = window.before, window.extent

    def body(n: te.IterVar, h: te.IterVar, w: te.IterVar, c: te.IterVar) -> Expr:
        sides = zip((h, w), (top, left), (height, width), strict=True)
        inside = [condition for i, before, extent in sides for condition in (i >= before, i < extent + before)]
        return te.if_then_else(te.all(*inside), data[n, h - top, w - left, c], 0.0)

    return te.compute((data.shape[0], *extents, data.shape[-1]), body, name="pad", tag=Tag.PAD)
