"""Storage formats of values in 8 bits, and the choice of scales and zeros."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Array
from autotune.graph.ops.quantised import RANGES, dequantise_array, exact_scale, inverse_scale, quantise_array

METHODS = ("mse", "max", "percentile")
PERCENTILE = 99.99
STEPS = 255
"""Steps from the least to the greatest byte."""
RANGE_SHARES = 0.95 ** np.arange(40)
"""Shares of the range that are tried to minimise the squared error."""
FINER = 4
"""Number of exponents that are tried, from that of the largest value down."""
LEAST_SCALE = 2.0**-100
TINIEST = -64
"""Least exponent of a power-of-two scale; a tensor of zeros gets it."""
TINIEST_SCALE = 2.0**TINIEST
MOST_DECIBELS = 999.0
"""Decibels that are reported without any noise."""


@dataclass(frozen=True)
class Format:
    """A format of unsigned bytes q that represent (q - zero) * scale; the scale is a float32.

    Raises:
        ValueError: the scale is out of range, or the zero is not a byte.
    """

    scale: float
    zero: int = 0

    def __post_init__(self) -> None:
        if not LEAST_SCALE <= self.scale <= 1 / LEAST_SCALE:
            raise ValueError(
                f"`scale` must be from {LEAST_SCALE:g} to {1 / LEAST_SCALE:g}, but got scale={self.scale!r}"
            )
        low, high = RANGES[self.dtype]
        if not low <= self.zero <= high:
            raise ValueError(f"`zero` must be a byte, {low} to {high}, but got zero={self.zero}")

    @property
    def inverse(self) -> np.float32:
        """Inverse of the scale, by which numbers are multiplied."""
        return inverse_scale(self.scale)

    def encode(self, array: Array) -> Array:
        """Rounds to bytes."""
        return quantise_array(array, np.asarray(self.inverse), np.asarray(self.zero), self.dtype)

    def decode(self, array: Array) -> Array:
        """Computes the numbers that bytes represent, float32."""
        return dequantise_array(array, np.asarray(np.float32(self.scale)), np.asarray(self.zero))

    @property
    def dtype(self) -> str:
        """Dtype of the bytes."""
        return "uint8"

    def __str__(self) -> str:
        return f"uint8 - {self.zero} * {self.scale:.3g}" if self.zero else f"uint8 * {self.scale:.3g}"


@dataclass(frozen=True)
class Signed(Format):
    """A format of int8 numbers q that represent q * scale, a power of two, for accelerators: the zero is 0."""

    @classmethod
    def of(cls, exponent: int) -> Signed:
        """Builds a format with a scale of 2**exponent."""
        return cls(2.0**exponent)

    @property
    def exponent(self) -> int:
        """Exponent of the scale."""
        return math.frexp(self.scale)[1] - 1

    @property
    def dtype(self) -> str:
        return "int8"

    def __str__(self) -> str:
        return f"int8 * 2^{self.exponent}"


def covering(largest: float, limit: int) -> int:
    """Returns the least exponent whose scale represents a number within `limit` steps."""
    return max(TINIEST, math.ceil(math.log2(largest / limit))) if largest > 0 else TINIEST


def choose_format(values: Array, low: float, high: float, method: str = "mse", signed: bool = False) -> Format:
    """Chooses a format for a tensor: `Signed`, or unsigned with a zero according to its range.

    Args:
        values: sample of the tensor.
        low, high: minimum and maximum of the tensor.
        method: `max` clips nothing; `percentile` clips 0.01 % of the sample; `mse` minimises the squared error.
    """
    if method not in METHODS:
        raise ValueError(f"`method` must be one of {', '.join(METHODS)}, but got method={method!r}")
    if signed:
        return _signed_format(values, max(-low, high), method)
    if method == "percentile":
        rest = (100 - PERCENTILE) / (2 if low < 0 < high else 1)
        ends = np.percentile(values, [rest if low < 0 else 0.0, 100 - rest if high > 0 else 100.0])
        low, high = float(ends[0]), float(ends[1])
    whole = format_of_range(low, high)
    if method != "mse":
        return whole
    return min((whole, format_of_range(*least_noise(values, low, high))), key=lambda f: squared_error(values, f))


def format_of_range(low: float, high: float) -> Format:
    """Returns the finest format that represents all numbers from `low` to `high`, and 0 exactly."""
    low, high = min(low, 0.0), max(high, 0.0)
    scale = max((high - low) / STEPS, TINIEST_SCALE)
    zero = round(-low / scale)
    if 0 < zero < STEPS:  # the zero was rounded: the scale must cover both ends
        scale = max(-low / zero, high / (STEPS - zero), TINIEST_SCALE)
    return Format(exact_scale(scale), zero)


def least_noise(values: Array, low: float, high: float) -> tuple[float, float]:
    """Returns the range with the least squared error when values outside are clipped.

    Rounding contributes a twelfth of a squared step per value except zeros, which are exact; clipping is summed up.
    """
    ordered = np.sort(values.astype(np.float64).reshape(-1))
    lows, highs = (RANGE_SHARES * low if low < 0 else np.zeros(1)), (RANGE_SHARES * high if high > 0 else np.zeros(1))
    sums, squares = (np.concatenate([[0.0], np.cumsum(ordered**n)]) for n in (1, 2))

    def clip_error(position: Array, ends: Array, above: bool) -> Array:
        """Sums the squared distances of the values beyond an end to that end."""
        count = len(ordered) - position if above else position
        total, square = (s[-1] - s[position] if above else s[position] for s in (sums, squares))
        return np.asarray(np.maximum(square - 2 * ends * total + count * ends**2, 0.0))

    below, above = np.searchsorted(ordered, lows), np.searchsorted(ordered, highs, side="right")
    rounded = np.maximum(above[None, :] - below[:, None] - np.count_nonzero(ordered == 0.0), 0)
    steps = (highs[None, :] - lows[:, None]) / STEPS
    noise = rounded * steps**2 / 12 + clip_error(below, lows, False)[:, None] + clip_error(above, highs, True)[None, :]
    row, column = np.unravel_index(int(np.argmin(noise)), noise.shape)
    return float(lows[row]), float(highs[column])


def _signed_format(values: Array, size: float, method: str) -> Format:
    if method == "percentile":
        size = float(np.percentile(np.abs(values), PERCENTILE))
    top = covering(size, 127)
    tried = [Signed.of(top - i) for i in range(FINER if method == "mse" else 1)]
    return min(tried, key=lambda f: squared_error(values, f))


def decibels(signal: float, noise: float) -> float:
    """Computes the ratio of two powers in dB."""
    if noise == 0:
        return MOST_DECIBELS
    return float(10 * np.log10(signal / noise)) if signal > 0 else -MOST_DECIBELS


def squared_error(values: Array, format: Format) -> float:
    """Computes the mean squared error of values in a format."""
    found = format.decode(format.encode(values)).astype(np.float64)
    return float(np.mean((found - values) ** 2))


@dataclass(frozen=True)
class Weights:
    """Quantised weights q * scales in int8; the last axis is that of the output's channels.

    Attributes:
        values: int8, -127 to 127.
        scales: float64, one per channel.
    """

    values: Array
    scales: Array

    def decode(self) -> Array:
        """Computes the numbers that the weights represent, float32."""
        return (self.values * self.scales).astype(np.float32)


def quantise_weights(weight: Array, scales: Array) -> Weights:
    """Rounds to multiples of the scales, one for each channel, the last axis; ties upwards."""
    values = np.floor(weight.astype(np.float64) / scales + 0.5)
    return Weights(np.clip(values, -127, 127).astype(np.int8), np.broadcast_to(scales, weight.shape[-1:]))


WEIGHTS_SHRUNK = (1.0, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6)
"""Shares of the largest weight that are tried."""


def weight_scales(weight: Array, per_channel: bool = True) -> Array:
    """Returns the scales with the least squared error, (channels,), among `WEIGHTS_SHRUNK` of the covering ones.

    Args:
        weight: last axis: channels.
        per_channel: whether each channel has a scale of its own; otherwise the tensor has one.
    """
    columns = weight.reshape(-1, weight.shape[-1]).astype(np.float64)
    if not per_channel:
        columns = columns.reshape(-1, 1)
    whole = np.maximum(np.abs(columns).max(0) / 127, TINIEST_SCALE)
    tried = np.stack([whole * part for part in WEIGHTS_SHRUNK])
    errors = np.stack([((quantise_weights(columns, s).values * s - columns) ** 2).sum(0) for s in tried])
    best = tried[errors.argmin(0), np.arange(len(whole))]
    return np.array(np.broadcast_to(best, weight.shape[-1:]))


def power_weights(weight: Array, least: int) -> tuple[Weights, int]:
    """Quantises weights with one power-of-two scale, that of the largest weight or half of it.

    Args:
        weight: last axis: channels.
        least: minimum exponent.

    Returns:
        The weights, and the exponent of their scale.
    """
    top = covering(float(np.abs(weight).max()), 127)

    def make_weights(exponent: int) -> Weights:
        return quantise_weights(weight, np.full(weight.shape[-1:], 2.0**exponent))

    def error(exponent: int) -> float:
        found = make_weights(exponent)
        return float(np.mean((found.values * found.scales - weight) ** 2))

    tried: Iterable[int] = (top,) if top == TINIEST else (top, top - 1)
    exponent = max(min(tried, key=error), least)
    return make_weights(exponent), exponent
