"""Layers of an integer accelerator: int8 in blocks of channels, sums in int32, shifted and clipped back to int8.

A tensor of channels lies in blocks, so that the tile of one instruction is contiguous. Activations are (batch blocks,
channel blocks, spatial..., batch in a block, channels in a block). Weights are (output blocks, input blocks, window...,
output channels in a block, input channels in a block). The ending is that of fixed-point inference and of VTA's
measured layers: `clip((sum >> shift) + bias)`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from search_space import te
from search_space.ir.expr import Expr
from search_space.operators.base import Args, Array, Operator
from search_space.operators.checks import flag, sizes, spread
from search_space.operators.naming import over
from search_space.operators.windows import Padding, Pair, Window, pad_array, taps, window_arguments
from search_space.tags import Tag

INT8 = (-128, 127)


def conv2d_blocked(
    height: int,
    width: int,
    in_channels: int,
    out_channels: int,
    batch: int = 1,
    kernel: Pair = 3,
    stride: Pair = 1,
    padding: Padding = 0,
    shift: int = 8,
    bias: bool = True,
    relu: bool = False,
    block: tuple[int, int, int] = (1, 16, 16),
) -> dict[str, Any]:
    """Computes a convolution of int8 in blocks: `clip((sum >> shift) + bias)`, to [-128, 127], or [0, 127] with `relu`.

    Args:
        shift: bits dropped of the int32 sum, rounding down, 0 to 15.
        bias: int32 (output blocks, batch in a block, output channels in a block).
        relu: clips at 0.
        block: batch, output channels and input channels in a block; they must divide theirs.
    """
    return {
        **_blocks(batch, in_channels, out_channels, block),
        **window_arguments(2, kernel, stride, padding, height=height, width=width),
        **_ending(shift, bias, relu),
    }


def dense_blocked(
    batch: int,
    in_features: int,
    out_features: int,
    shift: int = 8,
    bias: bool = True,
    relu: bool = False,
    block: tuple[int, int, int] = (1, 16, 16),
) -> dict[str, Any]:
    """Computes a product of int8 matrices in blocks. See `conv2d_blocked`; here every sample is a row."""
    channels = _blocks(batch, in_features, out_features, block)
    renamed = {"in_features": channels.pop("in_channels"), "out_features": channels.pop("out_channels")}
    return {**channels, **renamed, **_ending(shift, bias, relu)}


def _blocks(batch: Any, in_channels: Any, out_channels: Any, block: Any) -> dict[str, Any]:
    args = sizes(batch=batch, in_channels=in_channels, out_channels=out_channels)
    factors = spread(3, block=block)["block"]
    for name, size in zip(("batch", "out_channels", "in_channels"), factors, strict=True):
        if args[name] % size:
            raise ValueError(f"`block` must divide {name}, but got block={list(factors)}, {name}={args[name]}")
    return {**args, "block": factors}


def _ending(shift: Any, bias: Any, relu: Any) -> dict[str, Any]:
    if isinstance(shift, bool) or not isinstance(shift, int) or not 0 <= shift <= 15:
        raise ValueError(f"`shift` must be a whole number from 0 to 15, but got shift={shift!r}")
    return {"shift": shift, "bias": flag("bias", bias), "relu": flag("relu", relu)}


def _finish_layer(args: Args, inputs: list[te.Tensor], layer: te.Tensor) -> list[te.Tensor]:
    """Returns the inputs and the output: the layer shifted, with its bias, clipped to int8."""
    block = args["block"]
    channels = (layer.shape[1], *block[:2])
    bias = te.placeholder(channels, "int32", "bias", constant=True) if args["bias"] else None

    def end(*index: Any) -> Expr:
        value = layer[index] >> args["shift"]
        if bias is not None:
            value = value + bias[index[1], index[-2], index[-1]]
        low = 0 if args["relu"] else INT8[0]
        return te.maximum(te.minimum(value, INT8[1]), low).astype("int8")

    names = [axis.name for axis in layer.op.axis]
    out = te.compute(layer.shape, over(names, end), name="out")
    return [*inputs, *([bias] if bias is not None else []), out]


def _conv2d(args: Args) -> list[te.Tensor]:
    window, (batch, outs, ins) = Window.of(args), args["block"]
    n, k, c = args["batch"] // batch, args["out_channels"] // outs, args["in_channels"] // ins
    data = te.placeholder((n, c, *window.extent, batch, ins), "int8", "data")
    weight = te.placeholder((k, c, *window.kernel, outs, ins), "int8", "weight", constant=True)
    source = _pad_data(data, window)
    rc, ri, within = te.reduce_axis((0, c), "rc"), te.reduce_axis((0, ins), "ri"), window.reduce_axes()

    def body(n: Any, k: Any, h: Any, w: Any, b: Any, o: Any) -> te.Reduction:
        value = source[(n, rc, *window.index((h, w), within), b, ri)].astype("int32")
        return te.sum(value * weight[(k, rc, *within, o, ri)].astype("int32"), axis=[rc, *within, ri])

    shape = (n, k, *window.output, batch, outs)
    return _finish_layer(
        args, [data, weight], te.compute(shape, over(("n", "k", "h", "w", "b", "o"), body), name="conv")
    )


def _pad_data(data: te.Tensor, window: Window) -> te.Tensor:
    if not window.is_padded:
        return data
    (top, _), (left, _) = window.padding
    height, width = window.extent

    def body(n: Any, c: Any, h: Any, w: Any, b: Any, i: Any) -> Expr:
        inside = te.all(h >= top, h < height + top, w >= left, w < width + left)
        return te.if_then_else(inside, data[n, c, h - top, w - left, b, i], 0)

    shape = (*data.shape[:2], *window.padded_extents, *data.shape[-2:])
    return te.compute(shape, over(("n", "c", "h", "w", "b", "i"), body), name="pad", tag=Tag.PAD)


def _dense(args: Args) -> list[te.Tensor]:
    batch, outs, ins = args["block"]
    n, k, c = args["batch"] // batch, args["out_features"] // outs, args["in_features"] // ins
    data = te.placeholder((n, c, batch, ins), "int8", "data")
    weight = te.placeholder((k, c, outs, ins), "int8", "weight", constant=True)
    rc, ri = te.reduce_axis((0, c), "rc"), te.reduce_axis((0, ins), "ri")

    def body(n: Any, k: Any, b: Any, o: Any) -> te.Reduction:
        left, right = data[n, rc, b, ri].astype("int32"), weight[k, rc, o, ri].astype("int32")
        return te.sum(left * right, axis=[rc, ri])

    layer = te.compute((n, k, batch, outs), over(("n", "k", "b", "o"), body), name="dense")
    return _finish_layer(args, [data, weight], layer)


def _end_reference(args: Args, layer: Array, *bias: Array) -> Array:
    value: Array = layer.astype(np.int64) >> args["shift"]
    for b in bias:  # (k, batch, outs), in front of the spatial axes of (n, k, ..., batch, outs)
        value = value + b.reshape(1, b.shape[0], *(1,) * (layer.ndim - 4), *b.shape[1:])
    clipped: Array = np.clip(value, 0 if args["relu"] else INT8[0], INT8[1])
    return clipped


def _conv2d_reference(args: Args, data: Array, weight: Array, *bias: Array) -> Array:
    """Adds up a product of matrices for every position in the window, exact in float64."""
    window = Window.of(args)
    n, c, *_, batch, ins = data.shape
    rows = pad_array(data.transpose(0, 4, 2, 3, 1, 5).reshape(n * batch, *window.extent, c * ins), window)
    layer = np.zeros((n * batch, *window.output, args["out_channels"]))
    for place, row in taps(rows.astype(np.float64), window):
        at: Any = (slice(None), slice(None), *place)
        matrix = weight[at].transpose(1, 3, 0, 2).reshape(c * ins, -1)
        layer += row @ matrix.astype(np.float64)
    outs = args["block"][1]
    blocked = layer.reshape(n, batch, *window.output, -1, outs).transpose(0, 4, 2, 3, 1, 5)
    return _end_reference(args, blocked, *bias)


def _dense_reference(args: Args, data: Array, weight: Array, *bias: Array) -> Array:
    return _end_reference(args, np.einsum("ncbi,kcoi->nkbo", data.astype(np.float64), weight, optimize=True), *bias)


def _conv2d_flops(args: Args) -> int:
    window = Window.of(args)
    pixels = args["batch"] * window.output[0] * window.output[1]
    return 2 * int(pixels * args["out_channels"] * args["in_channels"] * window.kernel[0] * window.kernel[1])


CONV2D_BLOCKED = Operator("conv2d_blocked", conv2d_blocked, {"direct": _conv2d}, _conv2d_reference, _conv2d_flops)
DENSE_BLOCKED = Operator(
    "dense_blocked",
    dense_blocked,
    {"direct": _dense},
    _dense_reference,
    lambda args: 2 * int(args["batch"] * args["in_features"] * args["out_features"]),
)
