"""Convolutions in one, two and three dimensions, depthwise and transposed; activations are channel-last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from search_space import te
from search_space.ir.expr import Expr
from search_space.operators.base import (
    ACTIVATIONS,
    DATA_TYPES,
    Args,
    Array,
    Operator,
    activated,
    check_window,
    epilogue,
    one_of,
    pair,
    positive,
    product_of,
    several,
    wide,
    windows,
)

REDUCE_NAMES = ("rd", "rh", "rw")
SPATIAL_NAMES = ("d", "h", "w")


def pad(x: te.Tensor, padding: Sequence[int], value: float = 0) -> te.Tensor:
    """`x` (batch, *spatial, channels) with a border of `value`."""
    if not any(padding):
        return x
    sizes = x.shape[1:-1]
    shape = (x.shape[0], *(s + 2 * p for s, p in zip(sizes, padding, strict=True)), x.shape[-1])

    def body(*index: Any) -> Expr:
        spatial = list(zip(index[1:-1], padding, sizes, strict=True))
        inside = te.all(*(c for i, p, s in spatial if p for c in (i >= p, i < s + p)))
        moved = (index[0], *(i - p for i, p, _ in spatial), index[-1])
        return te.if_then_else(inside, x[moved], value)

    return te.compute(shape, body, name="pad", tag="pad")


def _sizes(args: Args) -> tuple[list[int], list[int]]:
    """Input and output sizes of the spatial axes."""
    inner = [args[n] for n in ("depth", "height", "width") if n in args]
    keys = zip(inner, args["kernel"], args["stride"], args["padding"], args["dilation"], strict=True)
    return inner, [windows(*k) for k in keys]


def _conv_tensors(args: Args) -> list[te.Tensor]:
    """Direct convolution of any number of spatial axes."""
    inner, outer = _sizes(args)
    channels, filters, groups = args["in_channels"], args["out_channels"], args.get("groups", 1)
    dtype = args.get("dtype", "float32")
    data = te.placeholder((args["batch"], *inner, channels), DATA_TYPES[dtype], "data")
    weight = te.placeholder((*args["kernel"], channels // groups, filters), dtype, "weight", constant=True)
    padded = pad(data, args["padding"])
    names = REDUCE_NAMES[-len(inner) :]
    window = [te.reduce_axis((0, k), n) for k, n in zip(args["kernel"], names, strict=True)]
    rc = te.reduce_axis((0, channels // groups), "rc")

    def at(spatial: Sequence[Any]) -> list[Any]:
        steps = zip(spatial, args["stride"], window, args["dilation"], strict=True)
        return [i * s + r * d for i, s, r, d in steps]

    def element(n: Any, spatial: Sequence[Any], k: Any) -> Any:
        channel = rc if groups == 1 else k // (filters // groups) * (channels // groups) + rc
        a, b = padded[(n, *at(spatial), channel)], weight[(*window, rc, k)]
        return te.sum(product_of(a, b, dtype), axis=[*window, rc])

    bodies: dict[int, Callable[..., Any]] = {
        1: lambda n, w, k: element(n, (w,), k),
        2: lambda n, h, w, k: element(n, (h, w), k),
        3: lambda n, d, h, w, k: element(n, (d, h, w), k),
    }
    conv = te.compute((args["batch"], *outer, filters), bodies[len(inner)], name="conv")
    inputs = [data, weight]
    bias = te.placeholder((filters,), name="bias", constant=True) if args.get("bias") else None
    inputs += [bias] if bias is not None else []
    return [*inputs, epilogue(conv, bias, args.get("activation"))]


def _shifts(args: Args, x: Array, value: float = 0) -> list[tuple[tuple[int, ...], Array]]:
    """Each position of the window with the input it sees, (batch, *outer, channels)."""
    _, outer = _sizes(args)
    border = [(0, 0), *((p, p) for p in args["padding"]), (0, 0)]
    padded = np.pad(x, border, constant_values=value)
    out = []
    for offset in np.ndindex(*args["kernel"]):
        starts = [o * d for o, d in zip(offset, args["dilation"], strict=True)]
        cuts = [slice(a, a + s * (n - 1) + 1, s) for a, s, n in zip(starts, args["stride"], outer, strict=True)]
        out.append((offset, padded[(slice(None), *cuts)]))
    return out


def _conv_reference(args: Args, x: Array, weight: Array, bias: Array | None = None) -> Array:
    groups, filters = args.get("groups", 1), args["out_channels"]
    per_in, per_out = args["in_channels"] // groups, filters // groups
    _, outer = _sizes(args)
    out = np.zeros((args["batch"], *outer, filters), wide(x).dtype)
    for offset, seen in _shifts(args, wide(x)):
        for g in range(groups):
            a = seen[..., g * per_in : (g + 1) * per_in].reshape(-1, per_in)
            b = wide(weight[offset][:, g * per_out : (g + 1) * per_out])
            out[..., g * per_out : (g + 1) * per_out] += (a @ b).reshape(*out.shape[:-1], per_out)
    if bias is not None:
        out = out + bias
    dtype = np.int32 if args.get("dtype") == "int8" else np.float32
    return activated(out, args.get("activation")).astype(dtype)


def _conv_flops(args: Args) -> int:
    _, outer = _sizes(args)
    per_output = prod(args["kernel"]) * args["in_channels"] // args.get("groups", 1)
    return int(2 * args["batch"] * prod(outer) * args["out_channels"] * per_output)


def _epilogue_arguments(bias: bool, activation: str | None, dtype: str) -> None:
    one_of("dtype", dtype, tuple(DATA_TYPES))
    if activation is not None:
        one_of("activation", activation, ACTIVATIONS)
    if dtype == "int8" and (bias or activation):
        raise ValueError(f"`bias` and `activation` must be left out where dtype=int8, but got {bias=}, {activation=}")


def conv2d_arguments(
    batch: int = 1,
    height: int = 0,
    width: int = 0,
    in_channels: int = 0,
    out_channels: int = 0,
    kernel: Any = 3,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    bias: bool = False,
    activation: str | None = None,
    dtype: str = "float32",
) -> dict[str, Any]:
    """A 2-D convolution: data (batch, height, width, in), weight (kh, kw, in / groups, out)."""
    positive(batch=batch, height=height, width=width, in_channels=in_channels, out_channels=out_channels, groups=groups)
    sizes = {
        "kernel": pair("kernel", kernel),
        "stride": pair("stride", stride),
        "padding": pair("padding", padding, 0),
        "dilation": pair("dilation", dilation),
    }
    for what, size, i in (("height", height, 0), ("width", width, 1)):
        check_window(what, size, sizes["kernel"][i], sizes["padding"][i], sizes["dilation"][i])
    if in_channels % groups or out_channels % groups:
        raise ValueError(
            f"`groups` must divide in_channels and out_channels, but got groups={groups}, "
            f"in_channels={in_channels}, out_channels={out_channels}"
        )
    _epilogue_arguments(bias, activation, dtype)
    return {
        "batch": batch,
        "height": height,
        "width": width,
        "in_channels": in_channels,
        "out_channels": out_channels,
        **sizes,
        "groups": groups,
        "bias": bool(bias),
        "activation": activation,
        "dtype": dtype,
    }


def conv1d_arguments(
    batch: int = 1,
    width: int = 0,
    in_channels: int = 0,
    out_channels: int = 0,
    kernel: Any = 3,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    bias: bool = False,
    activation: str | None = None,
) -> dict[str, Any]:
    """A 1-D convolution: data (batch, width, in_channels), weight (kw, in_channels, out_channels)."""
    positive(batch=batch, width=width, in_channels=in_channels, out_channels=out_channels)
    k, s = several("kernel", kernel, 1), several("stride", stride, 1)
    p, d = several("padding", padding, 1, 0), several("dilation", dilation, 1)
    check_window("width", width, k[0], p[0], d[0])
    _epilogue_arguments(bias, activation, "float32")
    sizes = {"kernel": k, "stride": s, "padding": p, "dilation": d}
    channels = {"in_channels": in_channels, "out_channels": out_channels}
    return {"batch": batch, "width": width, **channels, **sizes, "bias": bool(bias), "activation": activation}


def conv3d_arguments(
    batch: int = 1,
    depth: int = 0,
    height: int = 0,
    width: int = 0,
    in_channels: int = 0,
    out_channels: int = 0,
    kernel: Any = 3,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    bias: bool = False,
    activation: str | None = None,
) -> dict[str, Any]:
    """A 3-D convolution: data (batch, depth, height, width, in_channels), weight (kd, kh, kw, in, out)."""
    positive(batch=batch, depth=depth, height=height, width=width, in_channels=in_channels, out_channels=out_channels)
    k, s = several("kernel", kernel, 3), several("stride", stride, 3)
    p, d = several("padding", padding, 3, 0), several("dilation", dilation, 3)
    for i, (what, size) in enumerate({"depth": depth, "height": height, "width": width}.items()):
        check_window(what, size, k[i], p[i], d[i])
    _epilogue_arguments(bias, activation, "float32")
    spatial = {"depth": depth, "height": height, "width": width}
    sizes = {"kernel": k, "stride": s, "padding": p, "dilation": d}
    channels = {"in_channels": in_channels, "out_channels": out_channels}
    return {"batch": batch, **spatial, **channels, **sizes, "bias": bool(bias), "activation": activation}


# ---------------------------------------------------------------------- depthwise
def depthwise_arguments(
    batch: int = 1,
    height: int = 0,
    width: int = 0,
    channels: int = 0,
    kernel: Any = 3,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    bias: bool = False,
    activation: str | None = None,
) -> dict[str, Any]:
    """A depthwise 2-D convolution: data (batch, height, width, channels), weight (kh, kw, channels)."""
    positive(batch=batch, height=height, width=width, channels=channels)
    k, s = pair("kernel", kernel), pair("stride", stride)
    p, d = pair("padding", padding, 0), pair("dilation", dilation)
    check_window("height", height, k[0], p[0], d[0])
    check_window("width", width, k[1], p[1], d[1])
    _epilogue_arguments(bias, activation, "float32")
    sizes = {"kernel": k, "stride": s, "padding": p, "dilation": d}
    shape = {"batch": batch, "height": height, "width": width, "channels": channels}
    return {**shape, **sizes, "bias": bool(bias), "activation": activation}


def _depthwise_tensors(args: Args) -> list[te.Tensor]:
    inner, outer = _sizes(args)
    data = te.placeholder((args["batch"], *inner, args["channels"]), name="data")
    weight = te.placeholder((*args["kernel"], args["channels"]), name="weight", constant=True)
    padded = pad(data, args["padding"])
    rh, rw = (te.reduce_axis((0, k), n) for k, n in zip(args["kernel"], ("rh", "rw"), strict=True))
    (sh, sw), (dh, dw) = args["stride"], args["dilation"]
    conv = te.compute(
        (args["batch"], *outer, args["channels"]),
        lambda n, h, w, c: te.sum(padded[n, h * sh + rh * dh, w * sw + rw * dw, c] * weight[rh, rw, c], axis=[rh, rw]),
        name="conv",
    )
    bias = te.placeholder((args["channels"],), name="bias", constant=True) if args["bias"] else None
    return [data, weight, *([] if bias is None else [bias]), epilogue(conv, bias, args["activation"])]


def _depthwise_reference(args: Args, x: Array, weight: Array, bias: Array | None = None) -> Array:
    shifts = [seen * weight[offset] for offset, seen in _shifts(args, x)]
    out: Array = np.asarray(np.sum(shifts, axis=0, dtype=np.float32))
    return activated(out if bias is None else out + bias, args["activation"]).astype(np.float32)


def _depthwise_flops(args: Args) -> int:
    _, outer = _sizes(args)
    return int(2 * args["batch"] * prod(outer) * args["channels"] * prod(args["kernel"]))


# ---------------------------------------------------------------------- transposed
def transpose_arguments(
    batch: int = 1,
    height: int = 0,
    width: int = 0,
    in_channels: int = 0,
    out_channels: int = 0,
    kernel: Any = 3,
    stride: Any = 1,
    padding: Any = 0,
) -> dict[str, Any]:
    """A transposed 2-D convolution: data (batch, height, width, in_channels), weight (kh, kw, in, out)."""
    positive(batch=batch, height=height, width=width, in_channels=in_channels, out_channels=out_channels)
    k, s, p = pair("kernel", kernel), pair("stride", stride), pair("padding", padding, 0)
    if any(b >= a for a, b in zip(k, p, strict=True)):
        raise ValueError(f"`padding` must be smaller than kernel, but got padding={p}, kernel={k}")
    shape = {"batch": batch, "height": height, "width": width}
    channels = {"in_channels": in_channels, "out_channels": out_channels}
    return {**shape, **channels, "kernel": k, "stride": s, "padding": p}


def _transposed_size(args: Args, axis: int) -> int:
    size = (args["height"], args["width"])[axis]
    return int((size - 1) * args["stride"][axis] + args["kernel"][axis] - 2 * args["padding"][axis])


def _transpose_tensors(args: Args) -> list[te.Tensor]:
    """The input spread out by the stride and padded, then a convolution with the kernel turned around."""
    batch, channels, filters = args["batch"], args["in_channels"], args["out_channels"]
    sizes, (kh, kw), (sh, sw) = (args["height"], args["width"]), args["kernel"], args["stride"]
    data = te.placeholder((batch, *sizes, channels), name="data")
    weight = te.placeholder((kh, kw, channels, filters), name="weight", constant=True)
    qh, qw = kh - 1 - args["padding"][0], kw - 1 - args["padding"][1]
    outer = [_transposed_size(args, 0), _transposed_size(args, 1)]

    def spread(n: Any, h: Any, w: Any, c: Any) -> Expr:
        inside = te.all(h >= qh, w >= qw, h < qh + (sizes[0] - 1) * sh + 1, w < qw + (sizes[1] - 1) * sw + 1)
        on_grid = te.all(te.eq((h + (sh - qh % sh)) % sh, 0), te.eq((w + (sw - qw % sw)) % sw, 0))
        return te.if_then_else(te.all(inside, on_grid), data[n, (h - qh) // sh, (w - qw) // sw, c], 0.0)

    wide_data = te.compute((batch, outer[0] + kh - 1, outer[1] + kw - 1, channels), spread, name="pad", tag="pad")
    rh, rw, rc = (te.reduce_axis((0, e), n) for e, n in ((kh, "rh"), (kw, "rw"), (channels, "rc")))
    conv = te.compute(
        (batch, *outer, filters),
        lambda n, h, w, k: te.sum(
            wide_data[n, h + rh, w + rw, rc] * weight[kh - 1 - rh, kw - 1 - rw, rc, k], axis=[rh, rw, rc]
        ),
        name="conv",
    )
    return [data, weight, conv]


def _transpose_reference(args: Args, x: Array, weight: Array) -> Array:
    (kh, kw), (sh, sw), (ph, pw) = args["kernel"], args["stride"], args["padding"]
    n, h, w, _ = x.shape
    full = np.zeros((n, (h - 1) * sh + kh, (w - 1) * sw + kw, args["out_channels"]), np.float32)
    for i in range(kh):
        for j in range(kw):
            full[:, i : i + (h - 1) * sh + 1 : sh, j : j + (w - 1) * sw + 1 : sw] += x @ weight[i, j]
    return full[:, ph : full.shape[1] - ph, pw : full.shape[2] - pw]


def _transpose_flops(args: Args) -> int:
    pixels = args["batch"] * args["height"] * args["width"]
    return int(2 * pixels * args["in_channels"] * args["out_channels"] * prod(args["kernel"]))


OPERATORS = (
    Operator("conv2d", conv2d_arguments, _conv_tensors, _conv_reference, _conv_flops),
    Operator("conv1d", conv1d_arguments, _conv_tensors, _conv_reference, _conv_flops),
    Operator("conv3d", conv3d_arguments, _conv_tensors, _conv_reference, _conv_flops),
    Operator("depthwise_conv2d", depthwise_arguments, _depthwise_tensors, _depthwise_reference, _depthwise_flops),
    Operator("conv2d_transpose", transpose_arguments, _transpose_tensors, _transpose_reference, _transpose_flops),
)
