"""A convolution over an odd number of channels as one over an even number: for instructions that take them in pairs."""

from __future__ import annotations

from typing import Any

from search_space import te
from search_space.ir.expr import Expr
from search_space.operators.arithmetic import product
from search_space.operators.base import Args
from search_space.operators.convolution import placeholders
from search_space.operators.epilogue import with_epilogue
from search_space.operators.naming import over
from search_space.operators.windows import Window
from search_space.tags import Tag

PAIRS = "pairs"
"""The algorithm that multiplies one more channel, of zeros."""


def available(args: Args) -> bool:
    """Whether there are pairs of channels, and one is left over; the weights are filled before the first call."""
    channels = args["in_channels"]
    dense = args["dtype"] == "bfloat16" and args["groups"] == 1 and args["constant_weight"]
    return bool(dense and channels > 1 and channels % 2)


def even(args: Args) -> list[te.Tensor]:
    """As it is written, with one more channel of zeros: in the copy that pads the data, and in the weights."""
    window, dtype, channels = Window.of(args), args["dtype"], args["in_channels"]
    data, weight = placeholders(args)
    within, rc = window.reduce_axes(), te.reduce_axis((0, channels + 1), "rc")

    def copied(n: te.IterVar, *rest: te.IterVar) -> Expr:
        *at, c = rest
        sides = list(zip(at, window.padding, window.extent, strict=True))
        inside = [t for i, (p, q), extent in sides if p or q for t in (i >= p, i < extent + p)]
        value = data[(n, *(i - p for i, (p, _), _ in sides), c)]
        return te.if_then_else(te.all(*inside, c < channels), value, 0.0)

    shape = (args["batch"], *window.padded, channels + 1)
    source = te.compute(shape, over(("n", *window.spatial, "c"), copied), name="pad", tag=Tag.PAD)

    def filled(*index: te.IterVar) -> Expr:
        return te.if_then_else(index[-2] < channels, weight[index], 0.0)

    names = (*(axis.name for axis in within), "c", "k")
    filters = te.compute(
        (*window.kernel, channels + 1, args["out_channels"]), over(names, filled), name="weight_even", tag=Tag.CONSTANT
    )

    def body(n: Any, *rest: Any) -> te.Reduction:
        *at, k = rest
        value = source[(n, *window.index(at, within), rc)]
        return te.sum(product(value, filters[(*within, rc, k)], dtype), axis=[*within, rc])

    shape = (args["batch"], *window.output, args["out_channels"])
    layer = te.compute(shape, over(("n", *window.spatial, "k"), body), name="conv", tag=Tag.PAIRS)
    return with_epilogue(args, [data, weight], layer)
