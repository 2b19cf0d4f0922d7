"""Fourier transforms as products with matrices: the whole one, or, of a composite length, a short one for each factor.

Cooley and Tukey's way for a length that is a product of digits d1, d2, ..., dL: places are
`t = a1 * P1 + a2 * P2 + ...` with `Pj` the length over the first j digits' product `Dj`, and frequencies
`k = k1 + D1 * k2 + D2 * k3 + ...`. As `Pj * Dj` is the length, digit j of the place meets the first j digits of the
frequency alone: a stage replaces `aj` by `kj`, and twiddle factors are part of its matrices, of which it has one for
each `(k1, ..., k(j-1))`. Signals lie side by side behind the digits, so that no stage moves what it reads; digits are
put in order once, at the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

import numpy as np

from autotune.graph.ir import Array
from autotune.graph.passes.split_windows import BALANCE, START

Digits = tuple[int, ...]


def whole(extent: int, parts: int, length: int, inverse: bool, onesided: bool) -> Array:
    """What each part of each place of the signal gives to each part of each frequency, (extent * parts, outputs).

    A signal shorter than the transform goes on with zeros, what is longer than it is left out.
    """
    unit: Array = np.eye(extent * parts).reshape(-1, extent, parts)
    signal = unit[..., 0] + (1j * unit[..., 1] if parts == 2 else 0)
    found: Array
    if inverse and onesided:
        found = np.fft.irfft(signal, length, axis=1)[..., None]
    else:
        waves = (np.fft.ifft if inverse else np.fft.fft)(signal, length, axis=1)
        waves = waves[:, : length // 2 + 1] if onesided else waves
        found = np.stack([waves.real, waves.imag], -1)
    return found.reshape(extent * parts, -1)


def stages(digits: Digits, parts: int, inverse: bool) -> Iterator[Array]:
    """The matrices of each stage, (batch, frequencies, parts of outputs, parts of inputs, places).

    The batch is that of the digits of frequencies that there are, the first one outermost. The inverse is scaled.
    """
    sign = 1 if inverse else -1
    known = np.zeros(1, np.int64)  # frequencies of the batch
    scale = 1 / math.prod(digits) if inverse else 1.0
    for digit in digits:
        size = len(known)
        frequencies = known[:, None] + size * np.arange(digit)
        cycles = frequencies[:, :, None] * np.arange(digit) % (size * digit) / (size * digit)
        waves = scale * np.exp(2j * np.pi * sign * cycles)
        real = np.stack([waves.real, waves.imag], 2)
        yield np.stack([real, np.stack([-waves.imag, waves.real], 2)][:parts], 3)
        known, scale, parts = frequencies.reshape(-1), 1.0, 2


def digits_of(length: int, parts: int, columns: int, moved: bool) -> Digits:
    """The factors of a length, in order, whose stages cost least; itself alone where one product costs less.

    What is counted: multiply-adds, `BALANCE` of them for each number that is read or written, weights
    included, and `START` for each kernel.

    Args:
        length: of the transform.
        parts: 1 where the signal is real, 2 where it is complex.
        columns: how many signals are transformed.
        moved: whether one product needs transpositions before and after it, as stages do.
    """
    size = length * columns

    def stage(done: int, digit: int) -> int:
        of = parts if done == 1 else 2
        numbers = size * (of + 2) + done * 2 * of * digit * digit
        return size * 2 * of * digit + BALANCE * numbers + START

    divisors = _divisors(length)

    @cache
    def best(done: int) -> tuple[int, Digits]:
        """What the stages cost that come after those whose digits' product is `done`."""
        rest = length // done
        found: list[tuple[int, Digits]] = [(stage(done, rest), (rest,))]
        for digit in divisors:
            if digit < rest and rest % digit == 0:
                cost, digits = best(done * digit)
                found.append((stage(done, digit) + cost, (digit, *digits)))
        return min(found)

    around = BALANCE * 2 * size * (parts + 2) + 2 * START
    found: list[tuple[int, Digits]] = [(stage(1, length) + (around if moved else 0), (length,))]
    for digit in divisors:
        cost, digits = best(digit)
        found.append((stage(1, digit) + cost + around, (digit, *digits)))
    return min(found)[1]


def shapes_of(digits: Digits, parts: int) -> Iterator[tuple[int, int, int]]:
    """Of the matrices of each stage: how many there are, numbers that they give, numbers that they take."""
    done = 1
    for digit in digits:
        yield done, 2 * digit, parts * digit
        done, parts = done * digit, 2


def _divisors(number: int) -> list[int]:
    """But for 1 and the number."""
    low = [d for d in range(2, math.isqrt(number) + 1) if number % d == 0]
    return sorted({*low, *(number // d for d in low)})
