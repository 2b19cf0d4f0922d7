"""Maximum and average pooling of channel-last images."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from search_space import te
from search_space.ir.expr import Expr, maximum, minimum
from search_space.operators.base import Args, Array, Operator, check_window, pair, positive
from search_space.operators.convolution import _shifts, _sizes, pad


def pool_arguments(
    batch: int = 1,
    height: int = 0,
    width: int = 0,
    channels: int = 0,
    kernel: Any = 2,
    stride: Any = 2,
    padding: Any = 0,
) -> dict[str, Any]:
    """A pooling window over data (batch, height, width, channels)."""
    positive(batch=batch, height=height, width=width, channels=channels)
    k, s, p = pair("kernel", kernel), pair("stride", stride), pair("padding", padding, 0)
    check_window("height", height, k[0], p[0])
    check_window("width", width, k[1], p[1])
    if any(2 * b > a for a, b in zip(k, p, strict=True)):
        raise ValueError(f"`padding` must be at most half of kernel, but got padding={p}, kernel={k}")
    sizes = {"kernel": k, "stride": s, "padding": p, "dilation": [1, 1]}
    return {"batch": batch, "height": height, "width": width, "channels": channels, **sizes}


def max_pool_arguments(
    batch: int = 1,
    height: int = 0,
    width: int = 0,
    channels: int = 0,
    kernel: Any = 2,
    stride: Any = 2,
    padding: Any = 0,
) -> dict[str, Any]:
    """The maximum over windows; the border counts as minus infinity."""
    return _stored(pool_arguments(batch, **_sized(height, width, channels, kernel, stride, padding)))


def avg_pool_arguments(
    batch: int = 1,
    height: int = 0,
    width: int = 0,
    channels: int = 0,
    kernel: Any = 2,
    stride: Any = 2,
    padding: Any = 0,
) -> dict[str, Any]:
    """The mean over windows; the border is left out of the count."""
    return _stored(pool_arguments(batch, **_sized(height, width, channels, kernel, stride, padding)))


def _sized(height: int, width: int, channels: int, kernel: Any, stride: Any, padding: Any) -> dict[str, Any]:
    shape = {"height": height, "width": width, "channels": channels}
    return {**shape, "kernel": kernel, "stride": stride, "padding": padding}


def _stored(args: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in args.items() if k != "dilation"}


def _full(args: Args) -> Args:
    return {**args, "dilation": [1, 1]}


def _window(args: Args, border: float) -> tuple[te.Tensor, te.Tensor, list[te.IterVar]]:
    data = te.placeholder((args["batch"], args["height"], args["width"], args["channels"]), name="data")
    axes = [te.reduce_axis((0, k), n) for k, n in zip(args["kernel"], ("rh", "rw"), strict=True)]
    return data, pad(data, args["padding"], border), axes


def _max_tensors(args: Args) -> list[te.Tensor]:
    _, outer = _sizes(_full(args))
    data, padded, (rh, rw) = _window(args, float("-inf"))
    sh, sw = args["stride"]
    body = lambda n, h, w, c: te.max(padded[n, h * sh + rh, w * sw + rw, c], axis=[rh, rw])  # noqa: E731
    return [data, te.compute((args["batch"], *outer, args["channels"]), body, name="max_pool")]


def _avg_tensors(args: Args) -> list[te.Tensor]:
    _, outer = _sizes(_full(args))
    data, padded, (rh, rw) = _window(args, 0.0)
    sh, sw = args["stride"]
    shape = (args["batch"], *outer, args["channels"])
    sums = te.compute(
        shape, lambda n, h, w, c: te.sum(padded[n, h * sh + rh, w * sw + rw, c], axis=[rh, rw]), name="window_sum"
    )

    def inside(i: Any, axis: int) -> Expr:
        """Positions of the window that lie in the image."""
        size, stride = (args["height"], args["width"])[axis], args["stride"][axis]
        start = i * stride - args["padding"][axis]
        return minimum(start + args["kernel"][axis], size) - maximum(start, 0)

    def mean(n: Any, h: Any, w: Any, c: Any) -> Expr:
        return sums[n, h, w, c] / (inside(h, 0) * inside(w, 1)).astype("float32")

    return [data, te.compute(shape, mean, name="avg_pool")]


def _max_reference(args: Args, x: Array) -> Array:
    return np.asarray(np.max([seen for _, seen in _shifts(_full(args), x, float("-inf"))], axis=0))


def _avg_reference(args: Args, x: Array) -> Array:
    sums = np.sum([seen for _, seen in _shifts(_full(args), x)], axis=0)
    counts = np.sum([seen for _, seen in _shifts(_full(args), np.ones_like(x))], axis=0)
    return np.asarray(sums / counts, np.float32)


def _flops(args: Args) -> int:
    _, outer = _sizes(_full(args))
    return int(args["batch"] * prod(outer) * args["channels"] * prod(args["kernel"]))


OPERATORS = (
    Operator("max_pool2d", max_pool_arguments, _max_tensors, _max_reference, _flops),
    Operator("avg_pool2d", avg_pool_arguments, _avg_tensors, _avg_reference, _flops),
)
