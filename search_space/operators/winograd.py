"""Winograd convolution: F(2x2, 3x3) and F(4x4, 3x3), which multiply 2.25 and 4 times less than the definition.

The output is cut into tiles of m x m, each made from m + 2 rows and columns of the padded input:

    output tile = A^T [sum over channels of (G g G^T) * (B^T d B)] A

Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016. The transforms are written as two
one-dimensional passes, each a choice by its position in the tile: where that loop is unrolled, what remains is a few
additions and multiplications. G g G^T depends on weights alone: it is computed before the first call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from search_space import te
from search_space.ir.expr import Expr
from search_space.operators.base import Args
from search_space.operators.convolution import placeholders
from search_space.operators.epilogue import with_epilogue
from search_space.operators.windows import Window
from search_space.tags import CONSTANT, TRANSFORM

TILES = {"winograd2": 2, "winograd4": 4}
"""Output rows and columns of a tile, by algorithm."""

RELATIVE_ERROR = {"winograd2": 1e-6, "winograd4": 1e-5}
"""Greatest error to expect, as a share of the greatest output.

Measured against float64 on uniform inputs of both signs, 4 to 512 channels.
"""

Transform = Callable[[Sequence[Expr]], list[Expr]]


def _data2(d: Sequence[Expr]) -> list[Expr]:
    return [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]


def _weight2(g: Sequence[Expr]) -> list[Expr]:
    ends, middle = (g[0] + g[2]) * 0.5, g[1] * 0.5
    return [g[0], ends + middle, ends - middle, g[2]]


def _output2(m: Sequence[Expr]) -> list[Expr]:
    return [m[0] + m[1] + m[2], m[1] - m[2] - m[3]]


def _data4(d: Sequence[Expr]) -> list[Expr]:
    a, b, c, e = d[4] + d[2] * -4.0, d[3] + d[1] * -4.0, d[4] - d[2], d[3] - d[1]
    first, last = d[4] + d[2] * -5.0 + d[0] * 4.0, d[5] + d[3] * -5.0 + d[1] * 4.0
    return [first, a + b, a - b, c + e * 2.0, c + e * -2.0, last]


def _weight4(g: Sequence[Expr]) -> list[Expr]:
    ends, outer = (g[0] + g[2]) * (-1 / 6), g[0] * (1 / 24) + g[2] * (1 / 6)
    middle, inner = g[1] * (1 / 6), g[1] * (1 / 12)
    return [g[0] * 0.25, ends - middle, ends + middle, outer + inner, outer - inner, g[2]]


def _output4(m: Sequence[Expr]) -> list[Expr]:
    a, b, c, d = m[1] + m[2], m[1] - m[2], m[3] + m[4], m[3] - m[4]
    return [m[0] + a + c, b + d * 2.0, a + c * 4.0, b + d * 8.0 + m[5]]


_TRANSFORMS: dict[int, tuple[Transform, Transform, Transform]] = {
    2: (_data2, _weight2, _output2),
    4: (_data4, _weight4, _output4),
}


def defined(args: Args) -> bool:
    """Whether the algorithm exists for a convolution over two axes."""
    one = (1, 1)
    return bool(
        args["kernel"] == (3, 3)
        and args["stride"] == args["dilation"] == one
        and args["groups"] == 1
        and args["dtype"] == "float32"
    )


def constant_bytes(args: Args, algorithm: str) -> int:
    """Bytes of the transformed weights beyond those of the weights, which a kernel no longer reads; 0 for others."""
    if algorithm not in TILES:
        return 0
    return 4 * ((TILES[algorithm] + 2) ** 2 - prod(args["kernel"])) * int(args["in_channels"] * args["out_channels"])


def winograd2(args: Args) -> list[te.Tensor]:
    """F(2x2, 3x3): 16 products for 4 outputs."""
    return winograd(args, 2)


def winograd4(args: Args) -> list[te.Tensor]:
    """F(4x4, 3x3): 36 products for 16 outputs."""
    return winograd(args, 4)


def winograd(args: Args, m: int) -> list[te.Tensor]:
    """Inputs..., output with tiles of m x m. Intermediate axes: i, j in a tile, n, y, x tiles, c, k channels."""
    data_pass, weight_pass, output_pass = _TRANSFORMS[m]
    data, weight = placeholders(args)
    window, size = Window.of(args), m + 2
    batch, depth, outputs = args["batch"], args["in_channels"], args["out_channels"]
    rows, columns = (-(-extent // m) for extent in window.output)
    source = _surrounded(data, window, (rows * m + 2, columns * m + 2))
    kept = {"tag": TRANSFORM}

    weight_rows = te.compute(
        (size, 3, depth, outputs),
        lambda i, s, c, k: _chosen(i, weight_pass([weight[r, s, c, k] for r in range(3)])),
        name="weight_rows",
        tag=CONSTANT,
    )
    weight_tiles = te.compute(
        (size, size, depth, outputs),
        lambda i, j, c, k: _chosen(j, weight_pass([weight_rows[i, s, c, k] for s in range(3)])),
        name="weight_tiles",
        tag=CONSTANT,
    )
    data_rows = te.compute(
        (size, size, batch, rows, columns, depth),
        lambda i, s, n, y, x, c: _chosen(i, data_pass([source[n, y * m + r, x * m + s, c] for r in range(size)])),
        name="data_rows",
        **kept,
    )
    data_tiles = te.compute(
        (size, size, batch, rows, columns, depth),
        lambda i, j, n, y, x, c: _chosen(j, data_pass([data_rows[i, s, n, y, x, c] for s in range(size)])),
        name="data_tiles",
        **kept,
    )
    rc = te.reduce_axis((0, depth), "rc")
    products = te.compute(
        (size, size, batch, rows, columns, outputs),
        lambda i, j, n, y, x, k: te.sum(data_tiles[i, j, n, y, x, rc] * weight_tiles[i, j, rc, k], axis=rc),
        name="products",
        **kept,
    )
    output_rows = te.compute(
        (m, size, batch, rows, columns, outputs),
        lambda i, j, n, y, x, k: _chosen(i, output_pass([products[r, j, n, y, x, k] for r in range(size)])),
        name="output_rows",
        **kept,
    )
    layer = te.compute(
        (batch, *window.output, outputs),
        lambda n, h, w, k: _chosen(
            w % m, output_pass([output_rows[h % m, s, n, h // m, w // m, k] for s in range(size)])
        ),
        name="conv",
    )
    return with_epilogue(args, [data, weight], layer)


def _chosen(index: Expr | te.IterVar, values: Sequence[Expr]) -> Expr:
    """`values[index]`."""
    *others, chosen = values
    for place, value in reversed(list(enumerate(others))):
        chosen = te.if_then_else(te.eq(index, place), value, chosen)
    return chosen


def _surrounded(data: te.Tensor, window: Window, extents: tuple[int, int]) -> te.Tensor:
    """`data` between its padding, with zeros after it up to `extents`; or `data` itself."""
    if data.shape[1:3] == extents:
        return data
    (top, left), (height, width) = window.padding, window.extent

    def body(n: te.IterVar, h: te.IterVar, w: te.IterVar, c: te.IterVar) -> Expr:
        sides = zip((h, w), (top, left), (height, width), strict=True)
        inside = [condition for i, before, extent in sides for condition in (i >= before, i < extent + before)]
        return te.if_then_else(te.all(*inside), data[n, h - top, w - left, c], 0.0)

    return te.compute((data.shape[0], *extents, data.shape[-1]), body, name="pad", tag="pad")
