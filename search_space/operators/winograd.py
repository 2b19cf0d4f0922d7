"""Winograd convolution: F(2x2, 3x3) and F(4x4, 3x3), which multiply 2.25 and 4 times less than the definition.

The output is cut into tiles of m x m, each made from m + 2 rows and columns of the padded input:

    output tile = A^T [sum over channels of (G g G^T) * (B^T d B)] A

Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016. The polynomials of F(4x4) are evaluated at
0, 1, -1, 1/2, -2 and infinity, whose rounding errors are a third of those at 0, 1, -1, 2, -2 and infinity (measured;
Barabasz et al., "Error Analysis and Improving the Accuracy of Winograd Convolution for Deep Neural Networks", 2020,
recommend them). It takes 16 operations instead of 12 for one pass over six inputs. The transforms are written as two
one-dimensional passes, each a choice by its position in the tile: where that loop is unrolled, what remains is a few
additions and multiplications. G g G^T depends on weights alone: it is computed before the first call.

In bfloat16 both may be rounded once more, so that an instruction multiplies pairs of channels. There the error is that
of the two roundings, amplified by the transforms: 2.8 times the power for F(2x2); for F(4x4) 48 times at the points
above and 23 times at 0, 3/2, -3/2, 2/3, -2/3 and infinity, the least of all sets of small fractions that were tried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod

from search_space import te
from search_space.dtypes import BITS, FLOATS
from search_space.ir.expr import Expr
from search_space.operators.base import FLOOR, Args, Definition
from search_space.operators.convolution import placeholders
from search_space.operators.epilogue import with_epilogue
from search_space.operators.windows import Window
from search_space.tags import CONSTANT, ROUNDING, TRANSFORM

TILES = {"winograd2": 2, "winograd4": 4, "winograd2_dot": 2, "winograd4_dot": 4}
"""Output rows and columns of a tile, by algorithm."""

DOT = ROUNDING
"""Algorithms whose transformed tiles are rounded to 16 bits, two of which one instruction multiplies and adds."""

RELATIVE_ERROR = {"winograd2": 1e-6, "winograd4": 6e-6, "winograd2_dot": 8e-3, "winograd4_dot": 4e-2}
"""Greatest error to expect, as a share of the greatest output; a sum in float32 as it is defined has up to 2.5e-6.

Measured against float64 on uniform inputs of both signs: F(4x4) 1.3e-6 with 1 channel, 2.3e-6 with 64, 3.4e-6 with 256
and 6.0e-6 with 512; F(2x2) 1.7e-7, 3.1e-7, 6.9e-7 and 9.2e-7. Tiles rounded to bfloat16, of bfloat16 inputs, which
`direct` multiplies exactly: F(2x2) 6.6e-3 with 1 channel, 4.1e-3 with 64, 3.7e-3 with 256 and 3.8e-3 with 512;
F(4x4) 3.2e-2, 1.6e-2, 1.4e-2 and 1.5e-2. Over all outputs, signal to noise is 48 and 39 decibels with any number.
"""

ROUNDED = {"winograd2_dot": 0.025, "winograd4_dot": 0.1}
"""Error admitted where tiles are rounded to 16 bits, by the root of the channels."""

Transform = Callable[[Sequence[Expr]], list[Expr]]


def _data2(d: Sequence[Expr]) -> list[Expr]:
    return [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]


def _weight2(g: Sequence[Expr]) -> list[Expr]:
    ends, middle = (g[0] + g[2]) * 0.5, g[1] * 0.5
    return [g[0], ends + middle, ends - middle, g[2]]


def _output2(m: Sequence[Expr]) -> list[Expr]:
    return [m[0] + m[1] + m[2], m[1] - m[2] - m[3]]


def _data4(d: Sequence[Expr]) -> list[Expr]:
    even, odd = d[4] - d[2], d[3] - d[1]
    first, last = d[0] - d[2] + even + odd * 1.5, d[5] - d[3] - odd + even * 1.5
    one, other = even + odd + (d[3] + d[2]) * 1.5, even - odd + (d[3] - d[2]) * 1.5
    return [first, one, other, even + odd * 2.0, even + odd * -0.5, last]


def _weight4(g: Sequence[Expr]) -> list[Expr]:
    ends, middle = (g[0] + g[2]) * (1 / 3), g[1] * (1 / 3)
    half = (g[0] * 4.0 + g[1] * 2.0 + g[2]) * (-4 / 15)
    two = (g[0] - g[1] * 2.0 + g[2] * 4.0) * (1 / 15)
    return [g[0], ends + middle, middle - ends, half, two, g[2]]


def _output4(m: Sequence[Expr]) -> list[Expr]:
    even, odd = m[1] + m[2], m[1] - m[2]
    return [
        m[0] + even + (m[3] + m[4]),
        odd + m[3] * 0.5 + m[4] * -2.0,
        even + m[3] * 0.25 + m[4] * 4.0,
        odd + m[5] + m[3] * 0.125 + m[4] * -8.0,
    ]


_NEAR, _FAR = 2 / 3, 3 / 2
_SQUARES = _NEAR**2 + _FAR**2


def _data4_dot(d: Sequence[Expr]) -> list[Expr]:
    far, far_odd = d[4] - d[2] * _NEAR**2, d[3] * _FAR - d[1] * _NEAR
    near, near_odd = d[4] - d[2] * _FAR**2, d[3] * _NEAR - d[1] * _FAR
    first, last = d[0] + d[4] - d[2] * _SQUARES, d[1] + d[5] - d[3] * _SQUARES
    return [first, far + far_odd, far - far_odd, near + near_odd, near - near_odd, last]


def _weight4_dot(g: Sequence[Expr]) -> list[Expr]:
    out = [g[0]]
    for point, other in ((_FAR, _NEAR), (_NEAR, _FAR)):
        share = 1 / (2 * point**2 * (point**2 - other**2))
        even, odd = g[0] * share + g[2] * (share * point**2), g[1] * (share * point)
        out += [even + odd, even - odd]
    return [*out, g[2]]


def _output4_dot(m: Sequence[Expr]) -> list[Expr]:
    far, far_odd, near, near_odd = m[1] + m[2], m[1] - m[2], m[3] + m[4], m[3] - m[4]
    return [
        m[0] + far + near,
        far_odd * _FAR + near_odd * _NEAR,
        far * _FAR**2 + near * _NEAR**2,
        m[5] + far_odd * _FAR**3 + near_odd * _NEAR**3,
    ]


_TWO, _FOUR = (_data2, _weight2, _output2), (_data4, _weight4, _output4)
_TRANSFORMS: dict[str, tuple[Transform, Transform, Transform]] = {
    "winograd2": _TWO,
    "winograd4": _FOUR,
    "winograd2_dot": _TWO,
    "winograd4_dot": (_data4_dot, _weight4_dot, _output4_dot),
}


def defined(args: Args) -> bool:
    """Whether the algorithm exists for a convolution over two axes."""
    one = (1, 1)
    return bool(
        args["kernel"] == (3, 3)
        and args["stride"] == args["dilation"] == one
        and args["groups"] == 1
        and args["dtype"] in FLOATS
    )


def available(args: Args, algorithm: str) -> bool:
    """Whether one of `TILES` exists for a convolution: pairs of channels where an instruction takes two."""
    pairs = args["dtype"] == "bfloat16" and args["in_channels"] % 2 == 0
    return defined(args) and (pairs or algorithm not in DOT)


def scale(args: Args) -> float:
    """What multiplies the tolerance, so that it admits F(4x4)."""
    return 1.5 if defined(args) else 1.0


def floor(args: Args) -> float:
    """Steps of the tolerance for a sum of no terms: transforms round however few terms there are.

    With `scale`, 1.7 times the greatest error measured over 2e5 outputs for 1 to 512 channels.
    """
    return 75.0 if defined(args) else FLOOR


def rounding(args: Args, algorithm: str) -> float:
    """Error that rounded tiles may add for inputs of size one: at least 1.6 times the greatest measured, see `floor`.

    It grows with the root of the channels, as outputs do, of whose standard deviation it is a fortieth or a tenth.
    """
    return ROUNDED.get(algorithm, 0.0) * float(1 + args["in_channels"] ** 0.5)


def constant_bytes(args: Args, algorithm: str) -> int:
    """Bytes of the transformed weights beyond those of the weights, which a kernel no longer reads; 0 for others."""
    if algorithm not in TILES:
        return 0
    kept = BITS[args["dtype"]] // 8
    of_tiles, of_weights = (kept if algorithm in DOT else 4) * (TILES[algorithm] + 2) ** 2, kept * prod(args["kernel"])
    return (of_tiles - of_weights) * int(args["in_channels"] * args["out_channels"])


def winograd(args: Args, algorithm: str) -> list[te.Tensor]:
    """Inputs..., output, by one of `TILES`. Intermediate axes: i, j in a tile, n, y, x tiles, c, k channels.

    Data and weights of 16 bits are widened where they are read: all arithmetic is in float32, but for the products of
    tiles that an algorithm of `DOT` has rounded.
    """
    m, kept = TILES[algorithm], args["dtype"] if algorithm in DOT else "float32"
    data_pass, weight_pass, output_pass = _TRANSFORMS[algorithm]
    data, weight = placeholders(args)
    window, size = Window.of(args), m + 2
    batch, depth, outputs = args["batch"], args["in_channels"], args["out_channels"]
    rows, columns = (-(-extent // m) for extent in window.output)
    source = _surrounded(data, window, (rows * m + 2, columns * m + 2))

    weight_rows = te.compute(
        (size, 3, depth, outputs),
        lambda i, s, c, k: chosen(i, weight_pass([_wide(weight, r, s, c, k) for r in range(3)])),
        name="weight_rows",
        tag=CONSTANT,
    )
    weight_tiles = te.compute(
        (size, size, depth, outputs),
        lambda i, j, c, k: chosen(j, weight_pass([weight_rows[i, s, c, k] for s in range(3)])).astype(kept),
        name="weight_tiles",
        tag=CONSTANT,
    )
    data_rows = te.compute(
        (size, size, batch, rows, columns, depth),
        lambda i, s, n, y, x, c: chosen(i, data_pass([_wide(source, n, y * m + r, x * m + s, c) for r in range(size)])),
        name="data_rows",
        tag=TRANSFORM,
    )
    data_tiles = te.compute(
        (size, size, batch, rows, columns, depth),
        lambda i, j, n, y, x, c: chosen(j, data_pass([data_rows[i, s, n, y, x, c] for s in range(size)])).astype(kept),
        name="data_tiles",
        tag=TRANSFORM,
    )
    rc = te.reduce_axis((0, depth), "rc")
    products = te.compute(
        (size, size, batch, rows, columns, outputs),
        lambda i, j, n, y, x, k: te.sum(
            _wide(data_tiles, i, j, n, y, x, rc) * _wide(weight_tiles, i, j, rc, k), axis=rc
        ),
        name="products",
        tag=TRANSFORM,
    )
    output_rows = te.compute(
        (m, size, batch, rows, columns, outputs),
        lambda i, j, n, y, x, k: chosen(i, output_pass([products[r, j, n, y, x, k] for r in range(size)])),
        name="output_rows",
        tag=TRANSFORM,
    )
    layer = te.compute(
        (batch, *window.output, outputs),
        lambda n, h, w, k: chosen(
            w % m, output_pass([output_rows[h % m, s, n, h // m, w // m, k] for s in range(size)])
        ),
        name="conv",
    )
    return with_epilogue(args, [data, weight], layer)


DEFINITIONS: Mapping[str, Definition] = {name: partial(winograd, algorithm=name) for name in TILES}


def _wide(tensor: te.Tensor, *index: Expr | te.IterVar | int) -> Expr:
    return tensor[index].astype("float32")


def chosen(index: Expr | te.IterVar, values: Sequence[Expr]) -> Expr:
    """`values[index]`."""
    *others, chosen = values
    for place, value in reversed(list(enumerate(others))):
        chosen = te.if_then_else(te.eq(index, place), value, chosen)
    return chosen


def _surrounded(data: te.Tensor, window: Window, extents: tuple[int, int]) -> te.Tensor:
    """`data` between its padding, with zeros after it up to `extents`; or `data` itself."""
    if data.shape[1:3] == extents:
        return data
    (top, left), (height, width) = window.before, window.extent

    def body(n: te.IterVar, h: te.IterVar, w: te.IterVar, c: te.IterVar) -> Expr:
        sides = zip((h, w), (top, left), (height, width), strict=True)
        inside = [condition for i, before, extent in sides for condition in (i >= before, i < extent + before)]
        return te.if_then_else(te.all(*inside), data[n, h - top, w - left, c], 0.0)

    return te.compute((data.shape[0], *extents, data.shape[-1]), body, name="pad", tag="pad")
