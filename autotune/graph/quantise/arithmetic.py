"""Integers of a quantised layer: weights, the bias, which includes all constants, and the factors between scales.

They are planned so that no int32 overflows for any bytes, and only the bias and the final result are rounded.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Array
from autotune.graph.quantise.formats import TINIEST_SCALE, Format, Weights, quantise_weights, weight_scales

FURTHEST = 2.0**20
"""Maximum ratio of an operand's or the output's scale to a sum's."""
LARGEST_BIAS = 2.0**28
"""Maximum bias in steps of a sum, which leaves most of int32 to the products."""
LARGEST = 2**31 - 1
"""Greatest int32."""
FINE = 64
"""Minimum number of a sum's steps per step of an operand or the output: the bias is whole steps of the sum."""
SUM_STEPS = 2**14
"""Number of a sum's steps per step of its coarsest operand."""
MEAN_BITS = 24
"""Bits of the sums from which means are computed; float32 represents them exactly."""


class NotExact(ValueError):
    """A layer whose sums may exceed int32."""


@dataclass(frozen=True)
class Sum:
    """The end of an int32 sum: `clip(round(((sum << left) + residual * factor + bias) * scale))`.

    Attributes:
        left: shift of the sum, by channel.
        factors: int32 factors of further operands.
        bias: sum of the zero points' terms and the layer's own bias, by channel.
        scales: float32, by channel: the sum's scale over the output's, or the sum's scale if the output is a float.
        format: format of the output; None: the sum itself, as a float.
        low, high: limits of the output's bytes.
        zero: zero that is added to the rounded number, if the bias does not include it.
    """

    left: Array
    factors: tuple[Array, ...]
    bias: Array
    scales: Array
    format: Format | None
    low: int = 0
    high: int = 255
    zero: int = 0


def plan_layer(
    weight: Array,
    source: Format,
    residual: Format | None,
    output: Format | None,
    bias: Array,
    limits: tuple[float, float],
    per_channel: bool = True,
) -> tuple[Weights, Sum]:
    """Plans the weights and the end of a layer.

    A residual is added without rounding, as its scale is a whole multiple of the sum's. This makes the weights' scales
    coarser by at most one part in `FINE`.

    Args:
        weight: floats, last axis: channels.
        source: format of the data.
        residual: format of a summand of the output's shape, or None.
        output: format of the output; None: a float.
        bias: () or (channels,), float64.
        limits: limits at which the output is clipped.
        per_channel: whether each channel's weights have a scale of their own.

    Raises:
        NotExact: sums may exceed int32.
    """
    bias = np.broadcast_to(bias, weight.shape[-1:])
    others = [f.scale for f in (residual, output) if f is not None]
    scales = weight_scales(weight, per_channel)
    # Finer scales would need factors above `FURTHEST`, or a bias of more than 28 bits.
    least = np.maximum(np.abs(bias) / LARGEST_BIAS, max(others, default=0.0) / FURTHEST) / source.scale
    scales = np.maximum(scales, np.maximum(least, TINIEST_SCALE))
    if not per_channel:
        scales = np.full(scales.shape, scales.max())
    unit = source.scale * scales
    left = np.zeros(scales.shape, np.int64)
    if others:
        left = np.maximum(0, np.ceil(np.log2(unit * FINE / min(others)))).astype(np.int64)
    factor = None
    if residual is not None:
        factor = np.maximum(1, np.floor(residual.scale / np.ldexp(unit, -left)))
        scales = np.ldexp(residual.scale / factor, left) / source.scale
    weights = quantise_weights(weight, scales)
    columns = weights.values.reshape(-1, weight.shape[-1]).astype(np.int64)
    finest = np.ldexp(source.scale * scales, -left)
    total = np.floor(bias / finest + 0.5).astype(np.int64) - (source.zero * columns.sum(0) << left)
    size = 255 * np.abs(columns).sum(0) << left
    factors: tuple[Array, ...] = ()
    if residual is not None and factor is not None:
        factors = (factor.astype(np.int64),)
        total, size = total - residual.zero * factors[0], size + 255 * factors[0]
    return weights, _plan_end(left, factors, total, size, finest, output, limits)


def plan_sum(operands: tuple[Format, ...], output: Format | None, bias: Array, limits: tuple[float, float]) -> Sum:
    """Plans a sum of bytes on different scales, with a factor for each operand.

    Raises:
        NotExact: scales are too far apart, or sums may exceed int32.
    """
    bias = np.atleast_1d(bias)
    known = [f.scale for f in (*operands, *([output] if output is not None else []))]
    unit = max(f.scale for f in operands) / SUM_STEPS
    if max(known) > FURTHEST * min(known) or np.abs(bias / unit).max() > LARGEST_BIAS:
        apart = ", ".join(f"{scale:.3g}" for scale in known)
        raise NotExact(f"scales must be at most {FURTHEST:g} times each other, but got {apart}")
    factors = [np.full(bias.shape, round(f.scale / unit), np.int64) for f in operands]
    total = np.floor(bias / unit + 0.5).astype(np.int64)
    size = np.zeros(bias.shape, np.int64)
    for f, factor in zip(operands, factors, strict=True):
        total, size = total - f.zero * factor, size + 255 * factor
    nothing = np.zeros(bias.shape, np.int64)
    return _plan_end(nothing, tuple(factors), total, size, np.full(bias.shape, unit), output, limits)


def _plan_end(
    left: Array,
    factors: tuple[Array, ...],
    total: Array,
    size: Array,
    unit: Array,
    output: Format | None,
    limits: tuple[float, float],
) -> Sum:
    """Plans the end of a sum of at most `size` steps of `unit` to which `total` is added."""
    low, high = 0, 255
    scales = unit
    if output is not None:
        scales = unit / output.scale
        total = total + np.floor(output.zero / scales + 0.5).astype(np.int64)
        low, high = (int(b) for b in output.encode(np.array(limits)))
    check_sum(size, total)
    return Sum(left, factors, total, scales.astype(np.float32), output, low, high)


def check_sum(size: Array, total: Array) -> None:
    """Checks sums of at most `size` plus constants, by channel.

    Raises:
        NotExact: sums may exceed int32.
    """
    most = int((size + np.abs(total)).max())
    if most > LARGEST:
        raise NotExact(f"sums must be at most {LARGEST}, but could be {most}")


def plan_average(count: int, source: Format, output: Format | None) -> tuple[int, Sum]:
    """Plans a factor for sums of `count` bytes, and the end of the product.

    The factor makes the sum's scale finer, so that the output's zero is whole steps of it.

    Raises:
        NotExact: sums may exceed int32.
    """
    left = max(0, MEAN_BITS - (255 * count).bit_length()) if output is not None else 0
    unit = np.array([source.scale / count / 2.0**left])
    if output is not None and output.scale > FURTHEST * unit[0]:
        raise NotExact(f"means must be of fewer elements or on closer scales, but got {count}, {source} and {output}")
    nothing = np.zeros(1, np.int64)
    total = np.array([-source.zero * count << left])
    size = np.array([255 * count << left])
    return 1 << left, _plan_end(nothing, (), total, size, unit, output, (-np.inf, np.inf))
