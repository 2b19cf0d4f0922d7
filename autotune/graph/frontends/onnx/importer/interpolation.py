"""Positions and weights of ONNX's `Resize` along one axis: a few input neighbours for each output element."""

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
    """A resize of one axis.

    Attributes:
        extent: extent of the input.
        size: extent of the output.
        scale: stated ratio of output to input; `size` is rounded.
        transformation: ONNX's name of the mapping from output to input positions.
        region: begin and end of the resized part, as shares of the axis; for `tf_crop_and_resize`.
    """

    extent: int
    size: int
    scale: float
    transformation: str = "half_pixel"
    region: tuple[float, float] = (0.0, 1.0)

    @property
    def same(self) -> bool:
        """Tells whether the output equals the input."""
        return self.size == self.extent and bool((self.compute_positions() == np.arange(self.extent)).all())

    def compute_positions(self) -> Array:
        """Computes the input position of each output element, (size,); pixels are 1 apart, the first is at 0."""
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
        """Computes positions in float32 with ONNX Runtime's rounding, which decides ties in `nearest`.

        Each step is rounded; if the centres of output and input are aligned, only the last one.
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
        return self.compute_positions().astype(single)

    def outside(self) -> Array:
        """Marks output elements that lie outside the input and have no value in it, (size,)."""
        if self.transformation != "tf_crop_and_resize":
            return np.zeros(self.size, bool)
        places = self.compute_positions()
        return (places < 0) | (places > self.extent - 1)

    def nearest(self, rounding: str) -> Array:
        """Computes the nearest input element of each output element, (size,)."""
        where = self._rounded_places()
        rounded = {
            "round_prefer_floor": np.ceil(where - np.float32(0.5)),
            "round_prefer_ceil": np.floor(where + np.float32(0.5)),
            "floor": np.floor(where),
            "ceil": np.ceil(where),
        }[rounding]
        return np.clip(rounded.astype(np.int64), 0, self.extent - 1)


@dataclass(frozen=True)
class InterpolationKernel:
    """An interpolation kernel, which weights the neighbours of a position.

    Attributes:
        cubic: whether it is a cubic convolution (Keys, 1981) over four neighbours; otherwise linear between two.
        coefficient: coefficient of the cubic convolution.
        antialias: whether the kernel widens to the distance of output pixels if these are fewer.
        exclude_outside: whether neighbours beyond the ends have weight 0; otherwise they repeat the end.
    """

    cubic: bool = False
    coefficient: float = -0.75
    antialias: bool = False
    exclude_outside: bool = False

    def taps(self, axis: Axis) -> tuple[Array, Array]:
        """Computes each position's first neighbour, int32 (size,), and the weights from it on, float32 (size, taps)."""
        shrink = min(1.0, axis.scale) if self.antialias else 1.0
        reach = (2 if self.cubic else 1) / shrink
        where = axis.compute_positions()
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
    """Converts sums of neighbours to adjacent neighbours within the axis: adds duplicates, drops zero weights."""
    size = len(near)
    read = weights != 0
    low = np.where(read, near, extent).min(1)
    high = np.where(read, near, -1).max(1)
    taps = int(max(1, (high - low).max() + 1))
    first = np.clip(low, 0, extent - taps)
    summed = np.zeros((size, taps))
    rows = np.broadcast_to(np.arange(size)[:, None], near.shape)
    columns = np.where(read, near - first[:, None], 0)
    np.add.at(summed, (rows, columns), weights)
    return first.astype(np.int32), summed.astype(np.float32)
