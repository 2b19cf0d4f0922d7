"""Strassen's product of matrices: seven products of quarters in place of eight.

    [[c11, c12], [c21, c22]] = [[a11, a12], [a21, a22]] [[b11, b12], [b21, b22]]

Strassen, "Gaussian elimination is not optimal", 1969: one level of it saves an eighth of the products. Sums of a
constant b are computed before the first call, and sums of a once. A block's products are summed while they are in cache
(Huang et al., "Strassen's algorithm reloaded", 2016). So the sums cost little compared with the saved products.

A convolution is such a product for every position in its window: of the upper and the lower half of its rows, the
halves of its channels, and the halves of its filters. The left factor's sums are those of the padded input, pixel by
pixel.

Columns belong to the two halves in turns of `WIDTH`, so that vectors of the output are stored as they are.

Sums of quarters add unrelated rows, and so mix their rounding errors. A large element of one row costs digits of the
row half the matrix away, and a NaN or infinity of one reaches the other. Therefore no default chooses the algorithm; it
is selected by name, and `error_bound` holds on any data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from search_space import te
from search_space.ir.expr import Expr
from search_space.operators.base import Args
from search_space.operators.convolution import placeholders
from search_space.operators.epilogue import with_epilogue
from search_space.operators.naming import over
from search_space.operators.windows import Window, pad
from search_space.operators.winograd import has_algorithm as has_winograd
from search_space.operators.winograd import select_value
from search_space.tags import Tag

STRASSEN = "strassen"
"""The algorithm's name."""

PRODUCTS = 7
"""Products of quarters, in place of eight."""

WIDTH = 16
"""Neighbouring columns of the output that lie in the same half."""

RELATIVE_ERROR = 4e-6
"""Greatest error to expect of rows and channels of one scale, as a share of the greatest output; a sum in float32 as it
is defined has up to 2.5e-6."""

ROUNDING = 2.0**-24
"""Relative error of one operation in float32."""

LEAST_ROWS = 32
"""Rows below which a product does not have the algorithm."""
LEAST_DEPTH = 128
"""Channels, and filters, below which sums cost as much as they save: measurements showed no gain with 64 of either."""


def _left(a: Sequence[Expr]) -> list[Expr]:
    a11, a12, a21, a22 = a
    return [a11 + a22, a21 + a22, a11, a22, a11 + a12, a21 - a11, a12 - a22]


def _right(b: Sequence[Expr]) -> list[Expr]:
    b11, b12, b21, b22 = b
    return [b11 + b22, b11, b12 - b22, b21 - b11, b22, b11 + b12, b21 + b22]


def _output(m: Sequence[Expr]) -> list[Expr]:
    m1, m2, m3, m4, m5, m6, m7 = m
    return [m1 + m4 - m5 + m7, m3 + m5, m2 + m4, m1 - m2 + m3 + m6]


@dataclass(frozen=True)
class _Sum:
    """A sum of products over windows and channels; a product of matrices is one without a window.

    Attributes:
        source: (batch..., rows, spatial..., channels), padded.
        weight: (kernel..., channels, filters).
        output: extents of rows and spatial axes of the output.
        spatial: names of these axes.
        window: window of a convolution; None for a product.
    """

    source: te.Tensor
    weight: te.Tensor
    output: tuple[int, ...]
    spatial: tuple[str, ...]
    window: Window | None = None


def product(a: te.Tensor, b: te.Tensor, name: str) -> te.Tensor:
    """Defines a (m, k) times the constant b (k, n), both float32; k is even."""
    return _combine_products(_Sum(a, b, (int(a.shape[0]),), ("i",)), name)


def convolution(args: Args) -> list[te.Tensor]:
    """Returns the inputs and the output of a dense convolution."""
    window = Window.of(args)
    data, weight = placeholders(args)
    layer = _combine_products(_Sum(pad(data, window, 0.0), weight, window.output, window.spatial, window), "conv")
    return with_epilogue(args, [data, weight], layer)


def error_bound(k: int, left: float, right: float) -> float:
    """Bounds the error of one output of a product in float32, whatever the data are, but for overflows.

    Higham, "Accuracy and Stability of Numerical Algorithms", 2002, section 23.2.2, for one level: an output adds up at
    most four products of quarters, each a sum of k/2 terms. A term is a product of sums of at most two elements, so
    that an output has at most twelve products of elements for each of the k/2.

    Args:
        k: products that the definition adds up, channels and places of a window together.
        left: largest magnitude in the output's row of the left factor and in the row that is its other half.
        right: largest magnitude in the output's column of the right factor and in the column `WIDTH` beside it.
    """
    depth = k / 2
    return 12 * depth * (depth + 5) * ROUNDING * left * right * (1 + k * ROUNDING)


def multiplies(m: int, n: int, k: int) -> bool:
    """Tells whether a product of these sizes has the algorithm."""
    return k % 2 == 0 and m >= LEAST_ROWS and min(n, k) >= LEAST_DEPTH


def convolves(args: Args) -> bool:
    """Tells whether a convolution has the algorithm: dense, with an even number of rows, and not fit for Winograd's."""
    rows, *others = Window.of(args).output
    dense = args["groups"] == 1 and args["dtype"] == "float32" and args["constant_weight"] and not has_winograd(args)
    return bool(dense and rows % 2 == 0 and multiplies(rows * prod(others), args["out_channels"], args["in_channels"]))


def constant_bytes(weight: Sequence[int]) -> int:
    """Returns the bytes of the sums of a weight (kernel..., channels, filters) less those of the weight itself."""
    *inputs, outputs = weight
    return 4 * prod(inputs) * (PRODUCTS * _columns(outputs) // 2 - outputs)


def _columns(n: int) -> int:
    return -(-n // (2 * WIDTH)) * WIDTH


def _combine_products(s: _Sum, name: str) -> te.Tensor:
    """Defines the output (batch..., rows, spatial..., filters)."""
    *batch, _, _ = s.source.shape[: len(s.source.shape) - len(s.output) + 1]
    *kernel, channels, filters = s.weight.shape
    half, depth, columns = -(-s.output[0] // 2), channels // 2, _columns(filters)
    step, reach = (s.window.stride[0], s.window.reach[0]) if s.window is not None else (1, 1)
    first = len(batch)  # axis of the rows

    def below(index: tuple[Expr | te.IterVar, ...]) -> Expr:
        """Reads the source for the lower half, with zeros in its last row if the number of rows is odd."""
        row = index[first] + half * step
        value = s.source[(*index[:first], row, *index[first + 1 :])]
        return value if s.output[0] % 2 == 0 else te.if_then_else(row < s.source.shape[first], value, 0.0)

    def left_factor(p: te.IterVar, *index: te.IterVar) -> Expr:
        *place, c = index
        upper = [s.source[(*place, c)], s.source[(*place, c + depth)]]
        return select_value(p, _left([*upper, below((*place, c)), below((*place, c + depth))]))

    def right_factor(p: te.IterVar, *index: te.IterVar) -> Expr:
        *within, c, k = index
        column = k // WIDTH * (2 * WIDTH) + k % WIDTH

        def at(c: Expr | te.IterVar, k: Expr) -> Expr:
            value = s.weight[(*within, c, k)]
            return value if filters % (2 * WIDTH) == 0 else te.if_then_else(k < filters, value, 0.0)

        return select_value(p, _right([at(r, j) for r in (c, c + depth) for j in (column, column + WIDTH)]))

    names = [*("n" for _ in batch), *s.spatial]
    rows = (half - 1) * step + reach
    extents = (*batch, rows, *s.source.shape[first + 1 : -1])
    left = te.compute(
        (PRODUCTS, *extents, depth), over(("p", *names, "c"), left_factor), name="left", tag=Tag.TRANSFORM
    )
    right = te.compute(
        (PRODUCTS, *kernel, depth, columns),
        over(("p", *(f"r{x}" for x in s.spatial[: len(kernel)]), "c", "k"), right_factor),
        name="right",
        tag=Tag.CONSTANT,
    )
    within, rc = [] if s.window is None else s.window.reduce_axes(), te.reduce_axis((0, depth), "rc")

    def sums(p: te.IterVar, *index: te.IterVar) -> te.Reduction:
        *place, k = index
        at = place[first:] if s.window is None else s.window.index(place[first:], within)
        return te.sum(left[(p, *place[:first], *at, rc)] * right[(p, *within, rc, k)], axis=[*within, rc])

    shape = (*batch, half, *s.output[1:])
    places = over(("p", *names, "k"), sums)
    products = te.compute((PRODUCTS, *shape, columns), places, name="products", tag=Tag.TRANSFORM)

    def output_element(*index: te.IterVar) -> Expr:
        *place, k = index
        column = k // (2 * WIDTH) * WIDTH + k % WIDTH
        at = (*place[:first], place[first] % half, *place[first + 1 :], column)
        quarter = place[first] // half * 2 + k // WIDTH % 2
        return select_value(quarter, _output([products[(p, *at)] for p in range(PRODUCTS)]))

    return te.compute((*batch, *s.output, filters), over((*names, "k"), output_element), name=name)
