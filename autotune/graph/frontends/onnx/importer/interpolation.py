"""Where ONNX's `Resize` reads along one axis, and with which weights: a few neighbours for each place of the output."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Array

TRANSFORMATIONS = (
    *("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"),
    "tf_crop_and_resize",
)
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@dataclass(frozen=True)
class Axis:
    """How one axis is resized.

    Attributes:
        extent: of the input.
        size: of the output.
        scale: of one to the other, as it is stated; `size` is rounded.
        transformation: of places of the output to places of the input, by ONNX's names.
        region: beginning and end of what is resized, as shares of the axis; for `tf_crop_and_resize`.
    """

    extent: int
    size: int
    scale: float
    transformation: str = "half_pixel"
    region: tuple[float, float] = (0.0, 1.0)

    @property
    def same(self) -> bool:
        """Whether every place of the output is the same of the input."""
        return self.size == self.extent and bool((self.places() == np.arange(self.extent)).all())

    def places(self) -> Array:
        """Where each place of the output lies in the input, (size,): pixels are one apart, the first is at 0."""
        at: Array = np.arange(self.size, dtype=np.float64)
        last = self.extent - 1
        match self.transformation:
            case "asymmetric":
                return at / self.scale
            case "align_corners":
                return at * (last / max(1, self.size - 1))
            case "tf_crop_and_resize":
                begin, end = self.region
                if self.size == 1:
                    return np.full(1, (begin + end) * last / 2)
                return begin * last + at * ((end - begin) * last / (self.size - 1))
            case "pytorch_half_pixel" if self.size == 1:
                return np.zeros(1)
        where = (at + 0.5) / self.scale - 0.5
        if self.transformation == "half_pixel_symmetric":
            where += self.extent / 2 * (1 - self.size / (self.scale * self.extent))
        return where

    def _rounded_places(self) -> Array:
        """The same as float32, rounded as in ONNX Runtime: next to whole numbers and halves the nearest depends on it.

        Each step is rounded; where the middle of the output is put upon that of the input, the last one alone.
        """
        single = np.float32
        at: Array = np.arange(self.size, dtype=single)
        extent, last, scale = single(self.extent), single(self.extent - 1), single(self.scale)
        match self.transformation:
            case "asymmetric":
                return at / scale
            case "align_corners":
                return at * last / single(max(1, self.size - 1))
            case "half_pixel" | "pytorch_half_pixel" if self.size > 1 or self.transformation == "half_pixel":
                return (at + single(0.5)) / scale - single(0.5)
            case "half_pixel_symmetric":
                share = float(single(self.size) / (scale * extent))
                where = self.extent / 2 * (1 - share) + (at.astype(np.float64) + 0.5) / float(scale) - 0.5
                return where.astype(single)
            case "tf_crop_and_resize" if self.size > 1:
                begin, end = map(single, self.region)
                return begin * last + at * (end - begin) * last / single(self.size - 1)
        return self.places().astype(single)

    def outside(self) -> Array:
        """Which places of the output lie outside of the input and have no value of it, (size,)."""
        if self.transformation != "tf_crop_and_resize":
            return np.zeros(self.size, bool)
        places = self.places()
        return (places < 0) | (places > self.extent - 1)

    def nearest(self, rounding: str) -> Array:
        """The nearest place of the input for each of the output, (size,)."""
        where = self._rounded_places()
        rounded = {
            "round_prefer_floor": np.ceil(where - np.float32(0.5)),
            "round_prefer_ceil": np.floor(where + np.float32(0.5)),
            "floor": np.floor(where),
            "ceil": np.ceil(where),
        }[rounding]
        return np.clip(rounded.astype(np.int64), 0, self.extent - 1)


@dataclass(frozen=True)
class Kernel:
    """What weighs the neighbours of a place.

    Attributes:
        cubic: a cubic convolution (Keys, 1981) over four neighbours; else a line between two.
        coefficient: of the cubic one.
        antialias: a kernel as wide as the pixels of the output, where these are fewer.
        exclude_outside: neighbours beyond the ends weigh nothing; else they are what stands at the end.
    """

    cubic: bool = False
    coefficient: float = -0.75
    antialias: bool = False
    exclude_outside: bool = False

    def taps(self, axis: Axis) -> tuple[Array, Array]:
        """The first neighbour of each place, int32 (size,), and the weights from it on, float32 (size, taps)."""
        shrink = min(1.0, axis.scale) if self.antialias else 1.0
        reach = (2 if self.cubic else 1) / shrink
        where = axis.places()
        first = np.floor(where - reach).astype(np.int64) + 1
        near = first[:, None] + np.arange(math.ceil(2 * reach))
        weights = self._weight(np.abs(near - where[:, None]) * shrink)
        if self.exclude_outside:
            weights = np.where((near >= 0) & (near < axis.extent), weights, 0.0)
        total = weights.sum(1, keepdims=True)
        weights /= np.where(total == 0, 1.0, total)
        return _within(np.clip(near, 0, axis.extent - 1), weights, axis.extent)

    def _weight(self, distance: Array) -> Array:
        if not self.cubic:
            line: Array = np.maximum(0.0, 1 - distance)
            return line
        a, x = self.coefficient, distance
        inner = ((a + 2) * x - (a + 3)) * x * x + 1
        outer = ((x - 5) * x + 8) * x * a - 4 * a
        weight: Array = np.where(x <= 1, inner, np.where(x < 2, outer, 0.0))
        return weight


def _within(near: Array, weights: Array, extent: int) -> tuple[Array, Array]:
    """The same sums of neighbours that lie within the axis, side by side: equal ones are added up, unread ones go."""
    size = len(near)
    read = weights != 0
    low = np.where(read, near, extent).min(1)
    high = np.where(read, near, -1).max(1)
    taps = int(max(1, (high - low).max() + 1))
    first = np.clip(low, 0, extent - taps)
    found = np.zeros((size, taps))
    rows = np.broadcast_to(np.arange(size)[:, None], near.shape)
    columns = np.where(read, near - first[:, None], 0)
    np.add.at(found, (rows, columns), weights)
    return first.astype(np.int32), found.astype(np.float32)
