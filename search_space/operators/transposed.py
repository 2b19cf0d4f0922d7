"""Transposed convolution: every input element spreads its filter over the output."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from search_space import te
from search_space.ir.expr import Expr
from search_space.operators.arithmetic import OPERANDS, fast, product, zero
from search_space.operators.base import REQUIRED_ARGUMENT, Args, Array, Definition, Operator, Precision
from search_space.operators.checks import sizes, spread
from search_space.operators.convolution import ending
from search_space.operators.epilogue import apply_epilogue, with_epilogue
from search_space.operators.interleaved import COLUMNS, PHASES, columns, is_available, list_sides, phases, positions
from search_space.operators.windows import Pair
from search_space.tags import Tag


def conv2d_transpose(
    batch: int = 1,
    height: int = REQUIRED_ARGUMENT,
    width: int = REQUIRED_ARGUMENT,
    in_channels: int = REQUIRED_ARGUMENT,
    out_channels: int = REQUIRED_ARGUMENT,
    kernel: Pair = 3,
    stride: Pair = 1,
    padding: Pair = 0,
    output_padding: Pair = 0,
    bias: bool = False,
    activation: str | None = None,
    dtype: str = "float32",
) -> dict[str, Any]:
    """Computes the gradient of `conv2d`: data (batch, height, width, in_channels), weight (*kernel, in, out_channels).

    The output has (height - 1) * stride - 2 * padding + kernel + output_padding rows.

    Args:
        padding: rows and columns cut off the output on all sides; less than the kernel.
        output_padding: rows and columns added at the end; less than the stride.
        bias, activation, dtype: see `conv2d`.
    """
    args: dict[str, Any] = {
        **sizes(batch=batch, height=height, width=width, in_channels=in_channels, out_channels=out_channels),
        **spread(2, kernel=kernel, stride=stride),
        **spread(2, 0, padding=padding, output_padding=output_padding),
    }
    for name, limit in (("padding", "kernel"), ("output_padding", "stride")):
        if any(p >= k for p, k in zip(args[name], args[limit], strict=True)):
            raise ValueError(
                f"`{name}` must be less than {limit}, but got {name}={list(args[name])}, {limit}={list(args[limit])}"
            )
    for name, extent in zip(("height", "width"), _output(args), strict=True):
        if extent < 1:
            raise ValueError(
                f"`padding` must leave an output, but got padding={list(args['padding'])}, "
                f"kernel={list(args['kernel'])}, stride={list(args['stride'])}, {name}={args[name]}"
            )
    return {**args, **ending(bias, activation, dtype)}


def _output(args: Args) -> tuple[int, int]:
    rows, columns = (side.outputs for side in list_sides(args))
    return rows, columns


def direct(args: Args) -> list[te.Tensor]:
    """Defines the input with zeros between its elements and around them (`pad`), then a convolution."""
    (kh, kw), dtype, inputs = args["kernel"], args["dtype"], args["in_channels"]
    activations, weights = OPERANDS[dtype]
    data = te.placeholder((args["batch"], args["height"], args["width"], inputs), activations, "data")
    weight = te.placeholder((kh, kw, inputs, args["out_channels"]), weights, "weight", constant=True)
    rows, columns = _output(args)
    sides = list(zip(data.shape[1:3], args["kernel"], args["stride"], args["padding"], strict=True))

    def spread_data(n: Any, h: Any, w: Any, c: Any) -> Expr:
        conditions, index = [], []
        for i, (extent, k, s, p) in zip((h, w), sides, strict=True):
            first = k - 1 - p
            conditions += [i >= first, i < first + (extent - 1) * s + 1]
            if s > 1:
                conditions.append(te.eq((i + -first % s) % s, 0))
            index.append((i + -first % s) // s - (first + -first % s) // s)
        return te.if_then_else(te.all(*conditions), data[n, index[0], index[1], c], zero(dtype))

    shape = (args["batch"], rows + kh - 1, columns + kw - 1, inputs)
    source = te.compute(shape, spread_data, name="pad", tag=Tag.PAD)
    rh, rw, rc = (te.reduce_axis((0, e), name) for e, name in ((kh, "rh"), (kw, "rw"), (inputs, "rc")))

    def body(n: Any, h: Any, w: Any, k: Any) -> te.Reduction:
        turned = weight[kh - 1 - rh, kw - 1 - rw, rc, k]
        return te.sum(product(source[n, h + rh, w + rw, rc], turned, dtype), axis=[rh, rw, rc])

    layer = te.compute((args["batch"], rows, columns, args["out_channels"]), body, name="conv")
    return with_epilogue(args, [data, weight], layer)


def reference(args: Args, data: Array, weight: Array, *bias: Array) -> Array:
    """Adds one product of matrices for every position in the filter to a grid of output elements."""
    (kh, kw), (sh, sw), (ph, pw) = args["kernel"], args["stride"], args["padding"]
    x, filters, (rows, columns) = *(fast(each, args["dtype"]) for each in (data, weight)), _output(args)
    batch, height, width, _ = x.shape
    whole = np.zeros((batch, rows + 2 * ph, columns + 2 * pw, args["out_channels"]))
    for i, j in np.ndindex(kh, kw):
        whole[:, i : i + (height - 1) * sh + 1 : sh, j : j + (width - 1) * sw + 1 : sw] += x @ filters[i, j]
    return apply_epilogue(args, whole[:, ph : ph + rows, pw : pw + columns], *bias)


def flops(args: Args) -> int:
    """Counts two operations for every input element and position in a filter: none for the zeros in between."""
    size = args["batch"] * args["height"] * args["width"] * args["in_channels"] * args["out_channels"]
    return 2 * int(size) * prod(args["kernel"])


def _differentiable(args: Args, name: str) -> Definition | None:
    """Returns the definition whose gradient by the weight skips the zeros that a stride spreads."""
    return positions if name == "weight" and is_available(args, COLUMNS) else None


CONV2D_TRANSPOSE = Operator(
    "conv2d_transpose",
    conv2d_transpose,
    {"direct": direct, PHASES: phases, COLUMNS: columns},
    reference,
    flops,
    Precision(lambda args: prod(args["kernel"]) * int(args["in_channels"])),
    available=lambda args, algorithm: algorithm == "direct" or is_available(args, algorithm),
    differentiable=_differentiable,
)
