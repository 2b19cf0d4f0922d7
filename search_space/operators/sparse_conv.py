"""Convolutions with a constant whose blocks of zeros are left out: `sparse_conv2d`.

The weight is that of a product (window * channels, out_channels), packed as `sparse_matmul` packs it. No matrix of
windows is made. The pixels of an image follow each other in one row, padding included. Then a window position is a
distance along the row, which is the same for all pixels:

    out[pixel, j] = sum over blocks b of data[pixel + distance(b), channel(b)] * values[j, b]

Pixels at the right border, whose windows would reach the next row of the image, are computed and not used. With strides
the pixels of each phase follow each other, so that neighbours along a row remain neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from search_space import te
from search_space.ir.expr import Expr, cast
from search_space.operators import convolution, winograd
from search_space.operators.arithmetic import OPERANDS, zero
from search_space.operators.base import REQUIRED_ARGUMENT, Args, Array, Definition, Operator, Precision
from search_space.operators.naming import over
from search_space.operators.sparse import (
    BYTES,
    DENSE,
    WORDS,
    BlockConstants,
    check_blocks,
    check_dtype,
    draw_integers,
    format_sparse,
    has_words,
    keep_inside,
    pack_word,
    unpack_blocks,
)
from search_space.operators.windows import Padding, Pair, Window, pad
from search_space.tags import Tag


def sparse_conv2d(
    batch: int = 1,
    height: int = REQUIRED_ARGUMENT,
    width: int = REQUIRED_ARGUMENT,
    in_channels: int = REQUIRED_ARGUMENT,
    out_channels: int = REQUIRED_ARGUMENT,
    kernel: Pair = 3,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    block: int | tuple[int, int] = REQUIRED_ARGUMENT,
    blocks: int = REQUIRED_ARGUMENT,
    fullest: int | None = None,
    dtype: str = "float32",
) -> dict[str, Any]:
    """Computes `conv2d` of data (batch, height, width, in_channels) without the weight's blocks of zeros.

    The constants are those of `sparse_matmul` for the weight (kernel height * kernel width * in_channels,
    out_channels). See both for the arguments; the depth of a block must divide in_channels.
    """
    dense = convolution.layer_arguments(
        batch=batch,
        height=height,
        width=width,
        in_channels=in_channels,
        out_channels=out_channels,
        kernel=kernel,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=1,
        bias=False,
        activation=None,
        dtype=check_dtype(dtype),
        constant_weight=True,
    )
    checked = check_blocks(
        dense["out_channels"], dense["in_channels"] * math.prod(dense["kernel"]), block, blocks, fullest
    )
    if dense["in_channels"] % checked["block"][1]:
        raise ValueError(
            f"`block` must have a depth that divides in_channels, "
            f"but got block={checked['block']}, in_channels={dense['in_channels']}"
        )
    return {**dense, **checked}


@dataclass(frozen=True)
class _Rows:
    """Images with their padding as rows of pixels, the phases of the strides apart.

    Attributes:
        window: window over the data.
    """

    window: Window

    @property
    def common(self) -> tuple[int, int]:
        """Greatest common divisors of stride and dilation: windows read phases that are multiples of them."""
        first, second = map(math.gcd, self.window.dilation, self.window.stride)
        return first, second

    @cached_property
    def phases(self) -> tuple[int, int]:
        """Number of phases along each axis that a window reads."""
        first, second = (
            min(s // g, (k - 1) * d // g + 1)
            for k, d, s, g in zip(
                self.window.kernel, self.window.dilation, self.window.stride, self.common, strict=True
            )
        )
        return first, second

    @cached_property
    def extents(self) -> tuple[int, int]:
        """Rows and columns of a phase of an image."""
        first, second = (
            n + (k - 1) * d // s
            for n, k, d, s in zip(
                self.window.output, self.window.kernel, self.window.dilation, self.window.stride, strict=True
            )
        )
        return first, second

    @property
    def pixels(self) -> int:
        """Pixels between the first and the last output, both included."""
        (height, width), across = self.window.output, self.extents[1]
        return (height - 1) * across + width

    def locate(self, tap: Expr) -> tuple[Expr, Expr]:
        """Returns the distance along a row and the phase of a position in the window."""
        down, right = tap // self.window.kernel[1], tap % self.window.kernel[1]
        (dh, dw), (sh, sw), (gh, gw) = self.window.dilation, self.window.stride, self.common
        distance = down * dh // sh * self.extents[1] + right * dw // sw
        return distance, down * (dh // gh) % (sh // gh) * self.phases[1] + right * (dw // gw) % (sw // gw)

    def lay_out(self, data: te.Tensor, value: Any, each: int = 1) -> te.Tensor:
        """Defines the rows (batch, pixels, phases * channels) of data (batch, height, width, channels).

        Args:
            data: the images.
            value: value of the padding.
            each: channels that are packed into each word; 1: channels stay as they are.
        """
        (sh, sw), (_, across), channels = self.window.stride, self.extents, data.shape[-1] // each
        (top, left), (height, width) = self.window.before, self.window.extent

        def body(n: te.IterVar, i: te.IterVar, c: te.IterVar) -> Expr:
            phase = c // channels
            h = i // across * sh + phase // self.phases[1] * self.common[0] - top
            w = i % across * sw + phase % self.phases[1] * self.common[1] - left
            inside = te.all(h >= 0, h < height, w >= 0, w < width)
            numbers = [data[n, h, w, c % channels * each + number] for number in range(each)]
            return te.if_then_else(inside, numbers[0] if each == 1 else pack_word(numbers), value)

        shape = (data.shape[0], math.prod(self.extents), math.prod(self.phases) * channels)
        return te.compute(shape, body, name="rows", tag=Tag.PAD)


def _product_arguments(args: Args) -> dict[str, Any]:
    """Returns the arguments of the product (pixels, window * channels) times (window * channels, out_channels)."""
    k = math.prod(args["kernel"]) * args["in_channels"]
    return {"n": args["out_channels"], "k": k, **{key: args[key] for key in ("block", "blocks", "fullest", "dtype")}}


def _dense_arguments(args: Args) -> dict[str, Any]:
    """Returns the arguments of the dense convolution."""
    return {**args, "groups": 1, "bias": False, "activation": None, "constant_weight": True}


def _data(args: Args) -> te.Tensor:
    shape = (args["batch"], args["height"], args["width"], args["in_channels"])
    return te.placeholder(shape, OPERANDS[args["dtype"]][0], "data")


def _tensors(args: Args, width: int = 1) -> list[te.Tensor]:
    """Defines the sums over the rows of pixels.

    Args:
        args: arguments of the operator.
        width: numbers that are multiplied at once, four bytes or one.
    """
    window, data, packed = Window.of(args), _data(args), BlockConstants.of(_product_arguments(args))
    rows, depth, channels = _Rows(window), args["block"][1] // width, args["in_channels"] // width
    source, each = rows.lay_out(data, zero(args["dtype"]), width), channels // depth
    words = packed.words if width > 1 else None

    # Divisions are slow: both parts of a position are computed once, before the first call.
    def locate(name: str, part: Callable[[Expr], Expr]) -> te.Tensor:
        return te.compute(
            packed.positions.shape,
            lambda row, t: cast(part(packed.position(row, t)), "int32"),
            name=name,
            tag=Tag.CONSTANT,
        )

    farthest, last = math.prod(rows.extents) - rows.pixels, source.shape[-1] // depth - 1
    distances = locate("distances", lambda position: rows.locate(position // each)[0]) if farthest else None
    columns = packed.positions
    if last:
        columns = locate("columns", lambda position: rows.locate(position // each)[1] * each + position % each)

    def body(n: te.IterVar, i: te.IterVar, j: te.IterVar) -> te.Reduction:
        def read(row: Expr, t: te.IterVar, p: te.IterVar) -> Expr:
            pixel = i if distances is None else i + keep_inside(distances[row, t], farthest)
            return source[n, pixel, keep_inside(columns[row, t], last) * depth + p]

        return packed.sum_blocks(j, read, words)

    shape = (args["batch"], rows.pixels, args["out_channels"])
    sums = te.compute(shape, body, name="sums", tag=Tag.SPARSE)
    across = rows.extents[1]
    out = te.compute(
        (args["batch"], *window.output, args["out_channels"]),
        over(("n", *window.spatial, "k"), lambda n, h, w, k: sums[n, h * across + w, k]),
        name="conv",
    )
    return [data, *packed.tensors, out]


def _dense(args: Args, algorithm: str = DENSE) -> list[te.Tensor]:
    """Defines the convolution with a dense weight: a sum over the window, or Winograd's algorithm."""
    window, data, packed = Window.of(args), _data(args), BlockConstants.of(_product_arguments(args))
    channels, across = args["in_channels"], window.kernel[1]
    weight = te.compute(
        (*window.kernel, channels, args["out_channels"]),
        lambda r, s, c, k: packed.element((r * across + s) * channels + c, k),
        name="weight",
        tag=Tag.CONSTANT,
    )
    dense = _dense_arguments(args)
    if algorithm != DENSE:
        return [data, *packed.tensors, winograd.layer(dense, algorithm, data, weight)]
    source = pad(data, window, zero(args["dtype"]))
    return [data, *packed.tensors, convolution.window_sum(source, weight, window, args["dtype"])]


def _available(args: Args, algorithm: str) -> bool:
    if algorithm == WORDS:
        return has_words(args)
    return algorithm not in winograd.TILES or winograd.available(_dense_arguments(args), algorithm)


def _reference(args: Args, data: Array, values: Array, positions: Array, counts: Array) -> Array:
    weight = unpack_blocks(_product_arguments(args), values, positions, counts)
    filters = weight.reshape(*args["kernel"], args["in_channels"], args["out_channels"])
    return convolution.reference(_dense_arguments(args), data, filters)


def _flops(args: Args) -> int:
    pixels = args["batch"] * math.prod(Window.of(args).output)
    return 2 * int(pixels * args["blocks"] * math.prod(args["block"]))


DEFINITIONS: Mapping[str, Definition] = {
    "direct": _tensors,
    WORDS: partial(_tensors, width=BYTES),
    DENSE: _dense,
    **{name: partial(_dense, algorithm=name) for name in winograd.TILES},
}
SPARSE_CONV2D = Operator(
    "sparse_conv2d",
    sparse_conv2d,
    DEFINITIONS,
    _reference,
    _flops,
    Precision(
        lambda args: int(args["fullest"] * args["block"][1]),
        lambda args: winograd.scale(_dense_arguments(args)),
        lambda args: winograd.floor(_dense_arguments(args)),
        rounding=lambda args, algorithm: winograd.rounding(_dense_arguments(args), algorithm),
    ),
    available=_available,
    describe=format_sparse,
    draw_integers=lambda args, shape, rng: draw_integers(_product_arguments(args), shape, rng),
)
