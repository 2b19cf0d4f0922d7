"""A convolution over an odd number of channels as one over an even number: for instructions that process pairs."""

from __future__ import annotations

from search_space import te
from search_space.ir.expr import Expr
from search_space.operators.base import Args
from search_space.operators.convolution import placeholders, window_sum
from search_space.operators.epilogue import with_epilogue
from search_space.operators.naming import over
from search_space.operators.windows import Window, pad
from search_space.tags import Tag

PAIRS = "pairs"
"""The algorithm that multiplies one more channel, of zeros."""


def available(args: Args) -> bool:
    """Tells whether channels are odd, dense and of bfloat16, and weights are filled before the first call."""
    channels = args["in_channels"]
    dense = args["dtype"] == "bfloat16" and args["groups"] == 1 and args["constant_weight"]
    return bool(dense and channels > 1 and channels % 2)


def even(args: Args) -> list[te.Tensor]:
    """Defines the convolution with one more channel of zeros: in the copy that pads the data, and in the weights."""
    window, dtype, channels = Window.of(args), args["dtype"], args["in_channels"]
    data, weight = placeholders(args)
    source = pad(data, window, 0.0, channels + 1)

    def read_weight(*index: te.IterVar) -> Expr:
        return te.if_then_else(index[-2] < channels, weight[index], 0.0)

    names = (*(f"r{name}" for name in window.spatial), "c", "k")
    filters = te.compute(
        (*window.kernel, channels + 1, args["out_channels"]),
        over(names, read_weight),
        name="weight_even",
        tag=Tag.CONSTANT,
    )

    layer = window_sum(source, filters, window, dtype, tag=Tag.PAIRS)
    return with_epilogue(args, [data, weight], layer)
