"""Pooling: the largest element or the mean of a window that slides over each channel."""

from __future__ import annotations

from functools import reduce
from math import prod
from typing import Any

import numpy as np

from search_space import te
from search_space.ir.expr import Expr
from search_space.operators.arithmetic import exact
from search_space.operators.base import REQUIRED_ARGUMENT, Args, Array, Operator, Precision, format_arguments
from search_space.operators.checks import choice, flag, sizes
from search_space.operators.windows import (
    Padding,
    Pair,
    Window,
    both_sides,
    pad,
    pad_array,
    slide,
    taps,
    window_arguments,
)

_LOWEST: dict[str, Any] = {"float32": float("-inf"), "uint8": 0, "int8": -128}
"""Dtypes whose elements can be compared, with the least element of each."""


def max_pool2d(
    batch: int = 1,
    height: int = REQUIRED_ARGUMENT,
    width: int = REQUIRED_ARGUMENT,
    channels: int = REQUIRED_ARGUMENT,
    kernel: Pair = 2,
    stride: Pair = 2,
    padding: Padding = 0,
    dtype: str = "float32",
) -> dict[str, Any]:
    """Computes the largest element of each window over data (batch, height, width, channels).

    Args:
        kernel, stride: one number, or one for height and one for width.
        padding: padding with the least element, as in `conv2d`; at most half the kernel on each side.
        dtype: float32, uint8 or int8.
    """
    args = window_arguments(2, kernel, stride, padding, height=height, width=width)
    if any(2 * max(p) > k for p, k in zip(both_sides(args["padding"]), args["kernel"], strict=True)):
        raise ValueError(
            f"`padding` must be at most half the kernel, but got padding={list(args['padding'])}, "
            f"kernel={list(args['kernel'])}"
        )
    return {**sizes(batch=batch), **args, **sizes(channels=channels), "dtype": choice("dtype", dtype, list(_LOWEST))}


def avg_pool2d(
    batch: int = 1,
    height: int = REQUIRED_ARGUMENT,
    width: int = REQUIRED_ARGUMENT,
    channels: int = REQUIRED_ARGUMENT,
    kernel: Pair = 2,
    stride: Pair = 2,
    padding: Padding = 0,
    count_padding: bool = False,
) -> dict[str, Any]:
    """Computes the mean of each window over data (batch, height, width, channels).

    Args:
        kernel, stride, padding: see `max_pool2d`.
        count_padding: whether padding counts as elements of value 0; else it is left out of the mean.
    """
    args = max_pool2d(batch, height, width, channels, kernel, stride, padding)
    del args["dtype"]
    return {**args, "count_padding": flag("count_padding", count_padding)}


def _max_pool(args: Args) -> list[te.Tensor]:
    return _slide(args, "max_pool", te.max, _LOWEST[args["dtype"]])


def _avg_pool(args: Args) -> list[te.Tensor]:
    window = Window.of(args)
    data, total = _slide(args, "total", te.sum, 0.0)
    sides = list(zip(window.extent, window.kernel, window.stride, window.before, strict=True))

    def mean(n: Any, h: Any, w: Any, c: Any) -> Expr:
        if args["count_padding"] or not window.is_padded:
            return total[n, h, w, c] * (1 / prod(window.kernel))
        rows, columns = (_inside(i, *side) for i, side in zip((h, w), sides, strict=True))
        return total[n, h, w, c] / (rows * columns).astype("float32")

    return [data, te.compute(total.shape, mean, name="avg_pool")]


def _slide(args: Args, name: str, reducer: Any, padding: float | int) -> list[te.Tensor]:
    window = Window.of(args)
    data = te.placeholder((args["batch"], *window.extent, args["channels"]), args.get("dtype", "float32"), "data")
    source = pad(data, window, padding)
    return [data, slide(source, window, name, lambda value, within, channel: reducer(value, axis=within))]


def _inside(i: Any, extent: int, kernel: int, stride: int, padding: int) -> Expr:
    """Counts the window's rows at output row `i` that are rows of the input."""
    first = i * stride - padding
    return te.minimum(first + kernel, extent) - te.maximum(first, 0)


def _max_reference(args: Args, data: Array) -> Array:
    window = Window.of(args)
    return reduce(np.maximum, (tap for _, tap in taps(pad_array(data, window, _LOWEST[args["dtype"]]), window)))


def _avg_reference(args: Args, data: Array) -> Array:
    window = Window.of(args)
    ones = np.ones((1, *window.extent, 1))
    total, count = (sum(tap for _, tap in taps(pad_array(x, window), window)) for x in (exact(data), ones))
    return np.asarray(total / (prod(window.kernel) if args["count_padding"] else count))


def _flops(args: Args) -> int:
    return int(args["batch"] * args["channels"]) * prod(Window.of(args).output) * prod(args["kernel"])


def _taps(args: Args) -> int:
    return prod(args["kernel"])


def _describe(args: Args) -> str:
    """Formats the arguments for keys without float32, so that keys from before `dtype` existed stay valid."""
    return format_arguments({name: value for name, value in args.items() if (name, value) != ("dtype", "float32")})


MAX_POOL2D = Operator("max_pool2d", max_pool2d, {"direct": _max_pool}, _max_reference, _flops, describe=_describe)
AVG_POOL2D = Operator(
    "avg_pool2d",
    avg_pool2d,
    {"direct": _avg_pool},
    _avg_reference,
    _flops,
    Precision(_taps, lambda args: 1 / _taps(args)),
)
