"""Depthwise convolution of bytes by dot products of four: taps of four window rows become the bytes of a word.

A channel has a filter of its own, so that an instruction that adds four products of bytes to each lane cannot add up
channels. It can add up taps: four rows of the padded input become a word for every column and channel, once for all
columns of the window. The weights of a column become such words, too, with zeros if the window has fewer rows.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from search_space import te
from search_space.ir.expr import Expr
from search_space.operators.arithmetic import OPERANDS, product, zero
from search_space.operators.base import Args
from search_space.operators.epilogue import with_epilogue
from search_space.operators.naming import over
from search_space.operators.windows import Window, pad
from search_space.tags import Tag

TAP_WORDS = "tap_words"
"""The algorithm's name."""
DEPTH = 4
"""Products that an instruction adds to a lane: bytes of a word."""
LANES = 16
"""Words that an instruction processes at once, a channel each."""
MOST = 60_000
"""Greatest number of taps whose sum certainly fits int32."""


def available(args: Args) -> bool:
    """Tells whether bytes are multiplied by constants, channels are whole vectors, and a window has several rows."""
    known = args["dtype"] == "int8" and args["constant_weight"] and args["channels"] % LANES == 0
    return bool(known and args["kernel"][0] > 1 and prod(args["kernel"]) <= MOST)


def in_words(args: Args) -> list[te.Tensor]:
    """Defines the convolution as a sum over words of rows, columns of the window, and the rows of a word."""
    window, channels, dtype = Window.of(args), args["channels"], args["dtype"]
    (height, width), (down, right), (apart, _) = window.kernel, window.stride, window.dilation
    words, rows = -(-height // DEPTH), window.output[0]
    activations, weights = OPERANDS[dtype]
    data = te.placeholder((args["batch"], *window.extent, channels), activations, "data")
    weight = te.placeholder((*window.kernel, channels), weights, "weight", True)
    # The last word of the last row may reach below the window: rows there are multiplied by zeros.
    last = (rows - 1) * down + (words * DEPTH - 1) * apart + 1
    (above, below), sides = window.padding
    more = max(0, last - window.padded_extents[0])
    source = pad(data, replace(window, padding=((above, below + more), sides)), zero(dtype))
    columns = window.padded_extents[1]

    def gather_word(n: Any, h: Any, q: Any, w: Any, c: Any, t: Any) -> Expr:
        return source[n, h * down + (q * DEPTH + t) * apart, w, c]

    taken = te.compute((args["batch"], rows, words, columns, channels, DEPTH), gather_word, name="words", tag=Tag.WORDS)

    def read_tap(q: Any, w: Any, c: Any, t: Any) -> Expr:
        tap = q * DEPTH + t
        return te.if_then_else(tap < height, weight[te.minimum(tap, height - 1), w, c], 0)

    filters = te.compute((words, width, channels, DEPTH), read_tap, name="weight_words", tag=Tag.CONSTANT)
    rq, rw, rt = (
        te.reduce_axis((0, extent), name)
        for name, extent in zip(("rq", "rw", "rt"), (words, width, DEPTH), strict=True)
    )

    def body(n: Any, h: Any, w: Any, c: Any) -> te.Reduction:
        value = taken[n, h, rq, w * right + rw * window.dilation[1], c, rt]
        return te.sum(product(value, filters[rq, rw, c, rt], dtype), axis=[rq, rw, rt])

    shape = (args["batch"], *window.output, channels)
    layer = te.compute(shape, over(("n", *window.spatial, "c"), body), name="conv", tag=Tag.PAIRS)
    return with_epilogue(args, [data, weight], layer)
