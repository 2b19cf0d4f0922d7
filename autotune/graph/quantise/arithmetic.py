"""Integers of a quantised layer: weights, the bias that holds all constants, and the shifts between scales.

All is planned so that no int32 can overflow, for any bytes, and so that every shift but the last is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Array
from autotune.graph.quantise.formats import TINIEST, Format, Weights, quantise_weights

FURTHEST = 20
"""Bits between the scale of a sum and that of an operand or the output."""
LARGEST_BIAS = 2.0**28
LARGEST = 2**31 - 1
MEAN_BITS = 22
"""Bits of the reciprocal by which a sum is divided: 255 times as much are less than 2**31."""


class NotExact(ValueError):
    """A layer that int32 does not hold."""


@dataclass(frozen=True)
class Sum:
    """What is done with a sum in int32: `clip((sum << left) + (residual << residual_shift) + bias >> right)`.

    Attributes:
        left: shift of the sum, by channel.
        residual_shifts: of each further operand.
        bias: of zero points, roundings and the layer's own, by channel.
        right: shift to the output's scale, by channel.
        exponents: of the shifted sum's scale, by channel.
        format: of the output; None where it is the sum itself, as a float.
        low, high: bytes between which the output lies.
    """

    left: Array
    residual_shifts: tuple[Array, ...]
    bias: Array
    right: Array
    exponents: Array
    format: Format | None
    low: int = 0
    high: int = 255


def plan_layer(
    weight: Array,
    source: Format,
    residuals: Sequence[Format],
    output: Format | None,
    bias: Array,
    limits: tuple[float, float],
    per_channel: bool = True,
) -> tuple[Weights, Sum]:
    """Weights and end of a layer.

    Args:
        weight: floats, last axis: channels.
        source: of the data.
        residuals: of what is added, at the output's shape.
        output: None for a float.
        bias: () or (channels,), float64.
        limits: between which the output is clipped.
        per_channel: whether each channel's weights have a scale of their own.

    Raises:
        NotExact: sums that int32 might not hold.
    """
    bias = np.broadcast_to(bias, weight.shape[-1:])
    # Finer scales than these would shift by more than `FURTHEST`, or have a bias of more than 28 bits.
    least = np.full(weight.shape[-1:], TINIEST, np.int64)
    for other in [*residuals, *([output] if output is not None else [])]:
        least = np.maximum(least, other.exponent - FURTHEST - source.exponent)
    with np.errstate(divide="ignore"):
        needed = np.ceil(np.log2(np.abs(bias) / LARGEST_BIAS))
    least = np.maximum(least, np.where(bias == 0, TINIEST, needed).astype(np.int64) - source.exponent)
    weights = quantise_weights(weight, least, per_channel)
    columns = weights.values.reshape(-1, weight.shape[-1]).astype(np.int64)
    bound = 255 * np.abs(columns).sum(0)
    offset = -source.zero * columns.sum(0)
    return weights, _planned(source.exponent + weights.exponents, bound, offset, residuals, output, bias, limits)


def plan_sum(operands: Sequence[Format], output: Format | None, bias: Array, limits: tuple[float, float]) -> Sum:
    """A sum of bytes on different scales; the first operand is among `residual_shifts`.

    Raises:
        NotExact: scales too far apart.
    """
    bias = np.atleast_1d(bias)
    known = [f.exponent for f in (*operands, *([output] if output is not None else []))]
    finest = np.full(bias.shape, min(known), np.int64)
    if max(known) - min(known) > FURTHEST or np.abs(np.ldexp(bias, -finest)).max() > LARGEST_BIAS:
        raise NotExact(f"scales must be at most {FURTHEST} bits apart, but got exponents {known}")
    nothing = np.zeros(bias.shape, np.int64)
    return _planned(finest, nothing, nothing, operands, output, bias, limits)


def _planned(
    exponents: Array,
    bound: Array,
    offset: Array,
    residuals: Sequence[Format],
    output: Format | None,
    bias: Array,
    limits: tuple[float, float],
) -> Sum:
    """The end of a sum of scale 2**exponents and at most `bound`, to which `offset` is added."""
    finest = exponents
    for other in [*residuals, *([output] if output is not None else [])]:
        finest = np.minimum(finest, other.exponent)
    left = exponents - finest
    shifts = tuple(r.exponent - finest for r in residuals)
    total = np.floor(np.ldexp(bias, -finest) + 0.5).astype(np.int64) + (offset << left)
    size = bound << left
    for r, shift in zip(residuals, shifts, strict=True):
        total, size = total - (np.int64(r.zero) << shift), size + (np.int64(255) << shift)
    right = np.zeros_like(left)
    low, high = 0, 255
    if output is not None:
        right = output.exponent - finest
        total = (
            total + (np.int64(output.zero) << right) + np.where(right > 0, np.int64(1) << np.maximum(right - 1, 0), 0)
        )
        low, high = (int(b) for b in output.encode(np.array(limits)))
    if (size + np.abs(total)).max() > LARGEST:
        raise NotExact(f"sums must be at most {LARGEST}, but could be {int((size + np.abs(total)).max())}")
    return Sum(left, shifts, total, right, finest, output, low, high)


def plan_average(count: int, source: Format, output: Format | None) -> tuple[int, Sum]:
    """A factor for sums of `count` bytes, and what is done with the product; the factor is 1 for a float output.

    The factor is 1 / count in fixed point: the mean is at most half a step and 2**-10 of one off.

    Raises:
        NotExact: sums that int32 might not hold.
    """
    if output is None:
        exponents = np.array([source.exponent])
        nothing = np.zeros(1, np.int64)
        return 1, Sum(nothing, (), np.array([-source.zero * count]), nothing, exponents, None)
    bits = MEAN_BITS - max(0, source.exponent - output.exponent)
    factor = round(2.0 ** (bits + source.exponent - output.exponent) / count)
    if bits < 8 or not 1 <= factor <= LARGEST // (255 * count):
        raise NotExact(f"means must be of fewer elements or on closer scales, but got {count}, {source} and {output}")
    total = -source.zero * count * factor + (output.zero << bits) + (1 << (bits - 1))
    if abs(total) + 255 * count * factor > LARGEST:
        raise NotExact(f"sums must be at most {LARGEST}, but could be {abs(total) + 255 * count * factor}")
    at = np.array([source.exponent])
    return factor, Sum(np.zeros(1, np.int64), (), np.array([total]), np.array([bits]), at, output)
