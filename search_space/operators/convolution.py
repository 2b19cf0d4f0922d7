"""Convolution over any number of axes: arguments, direct definition, reference, work."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from search_space import te
from search_space.operators.arithmetic import OPERANDS, fast, product, zero
from search_space.operators.base import Args, Array, format_arguments
from search_space.operators.checks import choice, flag, sizes
from search_space.operators.epilogue import apply_epilogue, epilogue_arguments, with_epilogue
from search_space.operators.naming import over
from search_space.operators.windows import EXTENTS, Window, pad, pad_array, window_arguments, window_rows
from search_space.tags import Tag


def layer_arguments(**arguments: Any) -> dict[str, Any]:
    """Checks all arguments of a convolution, whose rank follows from the extents that are given.

    Raises:
        ValueError: an argument that the operator is not defined for.
    """
    extents = {name: arguments[name] for name in EXTENTS if name in arguments}
    window = {name: arguments[name] for name in ("kernel", "stride", "padding", "dilation")}
    args = sizes(
        **{
            name: arguments[name]
            for name in ("batch", "in_channels", "out_channels", "groups", "channels")
            if name in arguments
        }
    )
    for name in ("in_channels", "out_channels"):
        if "groups" in args and args[name] % args["groups"]:
            raise ValueError(f"`groups` must divide {name}, but got groups={arguments['groups']}, {name}={args[name]}")
    return {
        **args,
        **window_arguments(len(extents), **window, **extents),
        **ending(arguments["bias"], arguments["activation"], arguments["dtype"]),
        "constant_weight": flag("constant_weight", arguments["constant_weight"]),
    }


def ending(bias: Any, activation: Any, dtype: Any) -> dict[str, Any]:
    """Checks bias, activation and dtype."""
    dtype = choice("dtype", dtype, list(OPERANDS))
    return {**epilogue_arguments(bias, activation, dtype), "dtype": dtype}


def format_key_arguments(args: Args) -> str:
    """Formats the arguments for keys, where a weight is a constant by default."""
    return format_arguments({name: value for name, value in args.items() if (name, value) != ("constant_weight", True)})


def placeholders(args: Args) -> tuple[te.Tensor, te.Tensor]:
    """Makes the placeholders of data and weight."""
    window, (activations, weights) = Window.of(args), OPERANDS[args["dtype"]]
    shape = (args["batch"], *window.extent, args["in_channels"])
    filters = (*window.kernel, args["in_channels"] // args["groups"], args["out_channels"])
    data = te.placeholder(shape, activations, "data")
    return data, te.placeholder(filters, weights, "weight", args["constant_weight"])


def direct(args: Args) -> list[te.Tensor]:
    """Defines the convolution directly: a sum over the window and the input channels."""
    window, dtype = Window.of(args), args["dtype"]
    data, weight = placeholders(args)
    layer = window_sum(pad(data, window, zero(dtype)), weight, window, dtype, args["groups"])
    return with_epilogue(args, [data, weight], layer)


def window_sum(
    source: te.Tensor,
    weight: te.Tensor,
    window: Window,
    dtype: str,
    groups: int = 1,
    tag: Tag = Tag.NONE,
    name: str = "conv",
) -> te.Tensor:
    """Sums the products over the window and the channels of a group: (batch, output..., out_channels).

    Args:
        source: padded data, (batch, spatial..., in_channels).
        weight: (kernel..., in_channels / groups, out_channels).
        window: window over the data.
        dtype: type of the operator, which determines how factors are multiplied.
        groups: number of groups of channels.
        tag: tag of the stage; name: its name.
    """
    depth, width = weight.shape[-2], weight.shape[-1] // groups
    within, rc = window.reduce_axes(), te.reduce_axis((0, depth), "rc")

    def body(n: Any, *rest: Any) -> te.Reduction:
        *at, k = rest
        channel = rc if groups == 1 else k // width * depth + rc
        value = source[(n, *window.index(at, within), channel)]
        return te.sum(product(value, weight[(*within, rc, k)], dtype), axis=[*within, rc])

    shape = (source.shape[0], *window.output, weight.shape[-1])
    return te.compute(shape, over(("n", *window.spatial, "k"), body), name=name, tag=tag)


def reference(args: Args, data: Array, weight: Array, *bias: Array) -> Array:
    """Adds up a product of matrices for every row of the window."""
    window, groups = Window.of(args), args["groups"]
    pixels = args["batch"] * prod(window.output)
    *_, across, depth, outputs = weight.shape
    source, filters = pad_array(fast(data, args["dtype"]), window), fast(weight, args["dtype"])
    layer = np.zeros((groups, pixels, outputs // groups), source.dtype)
    for place, row in window_rows(source, window):
        columns = row.reshape(pixels, across, groups, depth).transpose(2, 0, 1, 3)
        taken = filters[place].reshape(across, depth, groups, outputs // groups).transpose(2, 0, 1, 3)
        layer += columns.reshape(groups, pixels, -1) @ taken.reshape(groups, across * depth, -1)
    shape = (args["batch"], *window.output, outputs)
    return apply_epilogue(args, layer.transpose(1, 0, 2).reshape(shape), *bias)


def terms(args: Args) -> int:
    """Counts the products that are added up for one output element."""
    return prod(args["kernel"]) * int(args["in_channels"]) // int(args["groups"])


def flops(args: Args) -> int:
    """Counts two operations for every product, those with padding included."""
    return 2 * int(args["batch"]) * prod(Window.of(args).output) * int(args["out_channels"]) * terms(args)
