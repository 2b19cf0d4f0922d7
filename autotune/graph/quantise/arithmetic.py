"""Integers of a quantised layer: weights, the bias that holds all constants, and the factors between scales.

All is planned so that no int32 can overflow, for any bytes, and so that nothing is rounded but the bias and the end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Array
from autotune.graph.quantise.formats import TINIEST_SCALE, Format, Weights, quantise_weights, weight_scales

FURTHEST = 2.0**20
"""Between the scale of a sum and that of an operand or the output."""
LARGEST_BIAS = 2.0**28
LARGEST = 2**31 - 1
FINE = 64
"""Steps of a sum that a step of an operand or the output should have: the bias is whole steps of the sum."""
WIDENED = 2**14
"""Steps that the coarsest operand of a sum of bytes has for one of its own."""
MEAN_BITS = 24
"""Bits of the sums that means are made of; float32 holds them exactly."""


class NotExact(ValueError):
    """A layer that int32 does not hold."""


@dataclass(frozen=True)
class Sum:
    """End of a sum in int32: `clip(round(((sum << left) + residual * factor + bias) * scale))`.

    Attributes:
        left: shift of the sum, by channel.
        factors: of each further operand, int32.
        bias: of zero points and the layer's own, by channel.
        scales: float32, by channel: of the sum over the output's, or of the sum where the output is a float.
        format: of the output; None where it is the sum itself, as a float.
        low, high: bytes between which the output lies.
        zero: added to the rounded number, where it is not among the bias.
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
    """Weights and end of a layer.

    A residual is added without rounding: its scale is a whole multiple of the sum's, for which the weights' scales are
    made coarser by at most one part in `FINE`.

    Args:
        weight: floats, last axis: channels.
        source: of the data.
        residual: of what is added, at the output's shape.
        output: None for a float.
        bias: () or (channels,), float64.
        limits: between which the output is clipped.
        per_channel: whether each channel's weights have a scale of their own.

    Raises:
        NotExact: sums that int32 might not hold.
    """
    bias = np.broadcast_to(bias, weight.shape[-1:])
    others = [f.scale for f in (residual, output) if f is not None]
    scales = weight_scales(weight, per_channel)
    # Finer ones would have factors above `FURTHEST`, or a bias of more than 28 bits.
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
    return weights, _planned(left, factors, total, size, finest, output, limits)


def plan_sum(operands: tuple[Format, ...], output: Format | None, bias: Array, limits: tuple[float, float]) -> Sum:
    """A sum of bytes on different scales, all of which are among `factors`.

    Raises:
        NotExact: scales too far apart, or sums that int32 might not hold.
    """
    bias = np.atleast_1d(bias)
    known = [f.scale for f in (*operands, *([output] if output is not None else []))]
    unit = max(f.scale for f in operands) / WIDENED
    if max(known) > FURTHEST * min(known) or np.abs(bias / unit).max() > LARGEST_BIAS:
        apart = ", ".join(f"{scale:.3g}" for scale in known)
        raise NotExact(f"scales must be at most {FURTHEST:g} times each other, but got {apart}")
    factors = [np.full(bias.shape, round(f.scale / unit), np.int64) for f in operands]
    total = np.floor(bias / unit + 0.5).astype(np.int64)
    size = np.zeros(bias.shape, np.int64)
    for f, factor in zip(operands, factors, strict=True):
        total, size = total - f.zero * factor, size + 255 * factor
    nothing = np.zeros(bias.shape, np.int64)
    return _planned(nothing, tuple(factors), total, size, np.full(bias.shape, unit), output, limits)


def _planned(
    left: Array,
    factors: tuple[Array, ...],
    total: Array,
    size: Array,
    unit: Array,
    output: Format | None,
    limits: tuple[float, float],
) -> Sum:
    """The end of a sum of at most `size` steps of `unit`, to which `total` is added."""
    low, high = 0, 255
    scales = unit
    if output is not None:
        scales = unit / output.scale
        total = total + np.floor(output.zero / scales + 0.5).astype(np.int64)
        low, high = (int(b) for b in output.encode(np.array(limits)))
    check_sum(size, total)
    return Sum(left, factors, total, scales.astype(np.float32), output, low, high)


def check_sum(size: Array, total: Array) -> None:
    """Checks sums of at most `size` beside constants, by channel.

    Raises:
        NotExact: int32 might not hold them.
    """
    most = int((size + np.abs(total)).max())
    if most > LARGEST:
        raise NotExact(f"sums must be at most {LARGEST}, but could be {most}")


def plan_average(count: int, source: Format, output: Format | None) -> tuple[int, Sum]:
    """A factor for sums of `count` bytes, and what is done with the product.

    The factor makes the sum's scale finer, so that the output's zero is whole steps of it.

    Raises:
        NotExact: sums that int32 might not hold.
    """
    left = max(0, MEAN_BITS - (255 * count).bit_length()) if output is not None else 0
    unit = np.array([source.scale / count / 2.0**left])
    if output is not None and output.scale > FURTHEST * unit[0]:
        raise NotExact(f"means must be of fewer elements or on closer scales, but got {count}, {source} and {output}")
    nothing = np.zeros(1, np.int64)
    total = np.array([-source.zero * count << left])
    size = np.array([255 * count << left])
    return 1 << left, _planned(nothing, (), total, size, unit, output, (-np.inf, np.inf))
