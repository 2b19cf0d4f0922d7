"""Depthwise convolution: every channel has a filter of its own."""

from __future__ import annotations

from math import prod
from typing import Any

from search_space import te
from search_space.ir.expr import Expr
from search_space.operators.arithmetic import OPERANDS, exact, factor, product, zero
from search_space.operators.base import REQUIRED_ARGUMENT, Args, Array, Operator, Precision
from search_space.operators.convolution import format_key_arguments, layer_arguments
from search_space.operators.epilogue import apply_epilogue, with_epilogue
from search_space.operators.tap_words import TAP_WORDS, available, in_words
from search_space.operators.windows import Padding, Pair, Window, pad, pad_array, slide, taps


def depthwise_conv2d(
    batch: int = 1,
    height: int = REQUIRED_ARGUMENT,
    width: int = REQUIRED_ARGUMENT,
    channels: int = REQUIRED_ARGUMENT,
    kernel: Pair = 3,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    bias: bool = False,
    activation: str | None = None,
    dtype: str = "float32",
    constant_weight: bool = True,
) -> dict[str, Any]:
    """Computes a convolution of each channel alone: data (batch, height, width, channels), weight (*kernel, channels).

    See `conv2d` for the arguments.
    """
    return layer_arguments(**locals())


def direct(args: Args) -> list[te.Tensor]:
    """Defines the convolution directly: a sum over the window."""
    window, channels, dtype = Window.of(args), args["channels"], args["dtype"]
    activations, weights = OPERANDS[dtype]
    data = te.placeholder((args["batch"], *window.extent, channels), activations, "data")
    weight = te.placeholder((*window.kernel, channels), weights, "weight", args["constant_weight"])

    def sum_products(value: Expr, within: list[te.IterVar], channel: Any) -> te.Reduction:
        return te.sum(product(value, weight[(*within, channel)], dtype), axis=within)

    layer = slide(pad(data, window, zero(dtype)), window, "conv", sum_products)
    return with_epilogue(args, [data, weight], layer)


def reference(args: Args, data: Array, weight: Array, *bias: Array) -> Array:
    """Adds up the input shifted to each position in the window, times the weights of the position."""
    window, filters = Window.of(args), exact(factor(weight, args["dtype"]))
    (_, first), *rest = taps(pad_array(exact(factor(data, args["dtype"])), window), window)
    layer = first * filters[(0,) * len(window.kernel)]
    for place, tap in rest:
        layer += tap * filters[place]
    return apply_epilogue(args, layer, *bias)


def flops(args: Args) -> int:
    """Counts two operations for every product, those with padding included."""
    return 2 * int(args["batch"] * args["channels"]) * prod(Window.of(args).output) * prod(args["kernel"])


DEPTHWISE_CONV2D = Operator(
    "depthwise_conv2d",
    depthwise_conv2d,
    {"direct": direct, TAP_WORDS: in_words},
    reference,
    flops,
    Precision(lambda args: prod(args["kernel"])),
    available=lambda args, algorithm: algorithm != TAP_WORDS or available(args),
    describe=format_key_arguments,
)
