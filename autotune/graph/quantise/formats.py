"""Formats: how a value is stored in 8 bits, and the choice of scales, which are powers of two."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Array
from autotune.graph.ops.quantised import dequantised, quantised

METHODS = ("mse", "max", "percentile")
PERCENTILE = 99.99
FINER = 4
"""How many exponents below that of the largest value are tried where the squared error decides."""
TINIEST = -64


@dataclass(frozen=True)
class Format:
    """Unsigned bytes q that stand for (q - zero) * 2**exponent."""

    exponent: int
    zero: int = 0

    def encode(self, array: Array) -> Array:
        """The nearest bytes."""
        return quantised(array, self.exponent, self.zero)

    def decode(self, array: Array) -> Array:
        """The numbers that bytes stand for, float32."""
        return dequantised(array, self.exponent, self.zero)

    @property
    def dtype(self) -> str:
        """Of the bytes."""
        return "uint8"

    def __str__(self) -> str:
        return f"{'int8' if self.zero else 'uint8'} * 2^{self.exponent}"


@dataclass(frozen=True)
class Signed(Format):
    """int8 numbers q that stand for q * 2**exponent, as accelerators take them: the zero is 0."""

    def encode(self, array: Array) -> Array:
        return quantised(array, self.exponent, 0, self.dtype)

    @property
    def dtype(self) -> str:
        return "int8"

    def __str__(self) -> str:
        return f"int8 * 2^{self.exponent}"


def covering(largest: float, limit: int) -> int:
    """The least exponent whose scale takes a number within `limit` steps."""
    return max(TINIEST, math.ceil(math.log2(largest / limit))) if largest > 0 else TINIEST


def choose_format(values: Array, low: float, high: float, method: str = "mse", signed: bool = False) -> Format:
    """A format for a tensor; unsigned where no value is negative, unless it is to be `Signed`.

    Args:
        values: a sample of the tensor.
        low, high: the smallest and the largest of all its values.
        method: `max` clips nothing; `percentile` clips 0.01 % of the sample; `mse` has the least squared error.
    """
    if method not in METHODS:
        raise ValueError(f"`method` must be one of {', '.join(METHODS)}, but got method={method!r}")
    zero, limit = (0, 127) if signed else (128, 127) if low < 0 else (0, 255)
    kind = Signed if signed else Format
    size = max(-low, high)
    if method == "percentile":
        size = float(np.percentile(np.abs(values), PERCENTILE))
    top = covering(size, limit)
    tried = [kind(top - i, zero) for i in range(FINER if method == "mse" else 1)]
    return min(tried, key=lambda f: squared_error(values, f))


def squared_error(values: Array, format: Format) -> float:
    """Mean over the values."""
    found = format.decode(format.encode(values)).astype(np.float64)
    return float(np.mean((found - values) ** 2))


@dataclass(frozen=True)
class Weights:
    """int8 weights, whose last axis is that of the output's channels: q * 2**exponents.

    Attributes:
        values: int8, -127 to 127.
        exponents: of each channel, int.
    """

    values: Array
    exponents: Array

    def decode(self) -> Array:
        """The numbers they stand for, float32."""
        return np.ldexp(self.values.astype(np.float32), self.exponents)


def quantise_weights(weight: Array, least: Array, per_channel: bool = True) -> Weights:
    """The exponents with the least squared error, of that of the largest weight and the one below.

    Args:
        weight: last axis: channels.
        least: smallest exponent allowed, by channel.
        per_channel: whether each channel has an exponent of its own; else the tensor has one.
    """
    columns = weight.reshape(-1, weight.shape[-1]).astype(np.float64)
    groups: Iterable[Array] = columns.T if per_channel else [columns]
    chosen = [_weight_exponent(group) for group in groups]
    exponents = np.maximum(np.broadcast_to(np.array(chosen, np.int64), least.shape), least)
    return Weights(_weight_bytes(columns, exponents).reshape(weight.shape), exponents)


def _weight_exponent(values: Array) -> int:
    top = covering(float(np.abs(values).max()), 127)
    if top == TINIEST:
        return top

    def error(exponent: int) -> float:
        at = np.array(exponent)
        return float(np.mean((np.ldexp(_weight_bytes(values, at).astype(np.float64), at) - values) ** 2))

    return min((top, top - 1), key=error)


def _weight_bytes(values: Array, exponents: Array) -> Array:
    return np.clip(np.floor(np.ldexp(values, -exponents) + 0.5), -127, 127).astype(np.int8)
