"""Fourier transforms as matrix products: one product, or for composite lengths a short one for each factor.

Cooley and Tukey's method applies to a length that is a product of digits d1, d2, ..., dL. Positions are
`t = a1 * P1 + a2 * P2 + ...`, where `Pj` is the length divided by the product `Dj` of the first j digits. Frequencies
are `k = k1 + D1 * k2 + D2 * k3 + ...`. As `Pj * Dj` is the length, digit j of the position interacts only with the
first j digits of the frequency. A stage replaces `aj` by `kj`. Its matrices, one for each `(k1, ..., k(j-1))`, include
the twiddle factors. Signals lie side by side behind the digits, so that no stage copies its input; digits are
reordered once, at the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

import numpy as np

from autotune.graph.ir import Array
from autotune.graph.passes.split_windows import BALANCE, START

Digits = tuple[int, ...]


def full_matrix(extent: int, parts: int, length: int, inverse: bool, onesided: bool) -> Array:
    """Returns the matrix from parts of the signal to parts of the frequencies, (extent * parts, outputs).

    A shorter signal is padded with zeros, a longer one is cut.
    """
    unit: Array = np.eye(extent * parts).reshape(-1, extent, parts)
    signal = unit[..., 0] + (1j * unit[..., 1] if parts == 2 else 0)
    outputs: Array
    if inverse and onesided:
        outputs = np.fft.irfft(signal, length, axis=1)[..., None]
    else:
        waves = (np.fft.ifft if inverse else np.fft.fft)(signal, length, axis=1)
        waves = waves[:, : length // 2 + 1] if onesided else waves
        outputs = np.stack([waves.real, waves.imag], -1)
    return outputs.reshape(extent * parts, -1)


def stages(digits: Digits, parts: int, inverse: bool) -> Iterator[Array]:
    """Yields the matrices of each stage, (batch, frequencies, parts of outputs, parts of inputs, places).

    The batch consists of the frequency digits of earlier stages, the first one outermost. The inverse is scaled.
    """
    sign = 1 if inverse else -1
    done = np.zeros(1, np.int64)  # frequencies of the batch
    scale = 1 / math.prod(digits) if inverse else 1.0
    for digit in digits:
        size = len(done)
        frequencies = done[:, None] + size * np.arange(digit)
        cycles = frequencies[:, :, None] * np.arange(digit) % (size * digit) / (size * digit)
        waves = scale * np.exp(2j * np.pi * sign * cycles)
        real = np.stack([waves.real, waves.imag], 2)
        yield np.stack([real, np.stack([-waves.imag, waves.real], 2)][:parts], 3)
        done, scale, parts = frequencies.reshape(-1), 1.0, 2


def choose_digits(length: int, parts: int, columns: int, moved: bool) -> Digits:
    """Returns the factors of a length, in order, whose stages cost least; the length itself if one product costs less.

    The cost counts multiply-adds, `BALANCE` of them for each number that is read or written, weights included, and
    `START` for each kernel.

    Args:
        length: length of the transform.
        parts: 1 for real signals, 2 for complex ones.
        columns: number of signals.
        moved: whether one product needs transpositions before and after it, as stages do.
    """
    size = length * columns

    def stage(product: int, digit: int) -> int:
        of = parts if product == 1 else 2
        numbers = size * (of + 2) + product * 2 * of * digit * digit
        return size * 2 * of * digit + BALANCE * numbers + START

    divisors = _divisors(length)

    @cache
    def best(product: int) -> tuple[int, Digits]:
        """Returns the cost and digits of the stages after those whose digits have the product `product`."""
        rest = length // product
        ways: list[tuple[int, Digits]] = [(stage(product, rest), (rest,))]
        for digit in divisors:
            if digit < rest and rest % digit == 0:
                cost, digits = best(product * digit)
                ways.append((stage(product, digit) + cost, (digit, *digits)))
        return min(ways)

    around = BALANCE * 2 * size * (parts + 2) + 2 * START
    ways: list[tuple[int, Digits]] = [(stage(1, length) + (around if moved else 0), (length,))]
    for digit in divisors:
        cost, digits = best(digit)
        ways.append((stage(1, digit) + cost + around, (digit, *digits)))
    return min(ways)[1]


def list_shapes(digits: Digits, parts: int) -> Iterator[tuple[int, int, int]]:
    """Yields for the matrices of each stage their number, outputs and inputs."""
    done = 1
    for digit in digits:
        yield done, 2 * digit, parts * digit
        done, parts = done * digit, 2


def _divisors(number: int) -> list[int]:
    """Lists the divisors of a number except 1 and itself."""
    low = [d for d in range(2, math.isqrt(number) + 1) if number % d == 0]
    return sorted({*low, *(number // d for d in low)})
