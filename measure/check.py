"""Comparison of a kernel's output with the reference, and poisoning of the output before the run that is checked."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Comparison:
    """Outcome of a comparison.

    Attributes:
        ok: whether every element is within tolerance.
        max_error: largest absolute difference / largest absolute reference value; NaN if an element is NaN.
        message: one sentence on the mismatch; empty if there is no mismatch.
    """

    ok: bool
    max_error: float
    message: str = ""


class Oracle:
    """The reference output of one task with its tolerance, computed once for many comparisons.

    An element is right if |actual - expected| <= atol + rtol * |expected|.

    Args:
        expected: the reference output.
        rtol: relative tolerance.
        atol: absolute tolerance.

    Raises:
        ValueError: the reference holds a NaN, so that it cannot decide anything.
    """

    def __init__(self, expected: NDArray[Any], rtol: float, atol: float) -> None:
        self.shape, self.dtype, self.rtol, self.atol = expected.shape, expected.dtype, rtol, atol
        self._expected = np.ascontiguousarray(_wide(expected))
        if np.isnan(self._expected).any():
            raise ValueError(
                f"`reference` must be free of NaN to check against, "
                f"but got nan={int(np.isnan(self._expected).sum())} of {expected.size}"
            )
        size = np.abs(self._expected)
        finite = np.isfinite(size)
        self._finite = bool(finite.all())
        self._limit = np.where(finite, atol + rtol * size, 0).astype(self._expected.dtype)
        self._scale = float(np.max(size, initial=0.0, where=finite)) or 1.0
        self._error = np.empty_like(self._expected)
        self._poisons: dict[bool, NDArray[Any]] = {}

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        return self._expected.nbytes * 5

    def poison(self, output: NDArray[Any], turn: int = 0) -> None:
        """Overwrites `output` so that an element the kernel does not write is wrong, whatever it held before.

        A result computed from the poison must not be right either, so that the poison differs each `turn`.
        Floating-point outputs get NaN, then infinity of either sign, as a maximum or minimum passes over NaN. Integers
        get the complement of the expected value, then its bits changed at random; booleans the complement, then random
        values.
        """
        if output.shape != self.shape or output.dtype != self.dtype:
            return  # `compare` refuses it
        odd = bool(turn % 2)
        if odd not in self._poisons:
            self._poisons[odd] = self._poison(odd)
        output[...] = self._poisons[odd]

    def _poison(self, odd: bool) -> NDArray[Any]:
        rng, kind = np.random.default_rng(0), self.dtype.kind
        if kind not in "iub":
            if not odd:
                return np.full((), math.nan, self.dtype)
            wrong = np.where(rng.integers(0, 2, self.shape, np.int8), np.float32(np.inf), np.float32(-np.inf))
            wrong = wrong if self._finite else np.where(np.isfinite(self._expected), wrong, np.float32(np.nan))
            return np.asarray(wrong, self.dtype)
        right: NDArray[Any] = self._expected.astype(self.dtype)
        if not odd:
            return np.asarray(~right)
        if kind == "b":
            return rng.integers(0, 2, self.shape, np.int8).astype(bool)
        mask = rng.integers(1, 256, (*self.shape, self.dtype.itemsize), np.uint8)
        return np.asarray(right ^ mask.view(self.dtype).reshape(self.shape))

    def compare(self, actual: NDArray[Any]) -> Comparison:
        """Compares one output with the reference."""
        if actual.shape != self.shape or actual.dtype != self.dtype:
            return Comparison(
                False,
                float("nan"),
                f"`output` must be {self.dtype}{list(self.shape)}, but got {actual.dtype}{list(actual.shape)}",
            )
        with np.errstate(invalid="ignore", over="ignore"):
            wide = _wide(actual)
            error = np.subtract(wide, self._expected, out=self._error)
            np.abs(error, out=error)
        if not self._finite:
            error[wide == self._expected] = 0  # equal infinities
        max_error = float(error.max(initial=0)) / self._scale
        right = error <= self._limit  # False for NaN
        if right.all():
            return Comparison(True, max_error)
        return Comparison(False, max_error, self._complaint(right, wide))

    def _complaint(self, right: NDArray[np.bool_], wide: NDArray[Any]) -> str:
        first = np.unravel_index(int(np.argmin(right)), right.shape)
        place = ", ".join(str(int(index)) for index in first)
        return (
            f"`output` must match the reference within rtol={self.rtol:g}, atol={self.atol:g}, but got "
            f"{right.size - int(right.sum())} of {right.size} elements wrong, first at [{place}]: "
            f"expected {self._expected[first]:g}, got {wide[first]:g}"
        )


def unwritten(run: Callable[[], NDArray[Any]], output: NDArray[Any]) -> int:
    """Counts the elements of an integer output that a kernel does not write; returns 0 for floating point.

    Prepares a comparison elsewhere, where the reference is. A floating-point output is filled with NaN, which stays in
    elements that are not written. Integers have no NaN, so that the kernel runs twice over different bytes.

    Args:
        run: runs the kernel, which writes to `output`.
        output: output buffer of the kernel.
    """
    if output.dtype.kind not in "iub":
        output[...] = np.nan
        run()
        return 0
    raw = output.reshape(-1).view(np.uint8)
    raw[...] = 0x55
    run()
    before = raw.copy()
    raw[...] = 0xAA
    run()
    return int(np.count_nonzero((before != raw).reshape(-1, output.itemsize).any(axis=1)))


def _wide(array: NDArray[Any]) -> NDArray[Any]:
    """Converts all types but float32 to float64, which is exact for integers up to 2**53 and avoids overflow."""
    return array if array.dtype == np.float32 else array.astype(np.float64)
