"""ONNX's GridSample by its definition in NumPy, one neighbour of all positions after another.

ONNX's own evaluator computes one element after another in Python. With cubic weights it also brings positions to the
border before it weighs what is around them, which runtimes do not.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from autotune.graph.frontends.onnx.windows import Attributes
from autotune.graph.ir import Array

_CUBIC = -0.75
"""Coefficient of the cubic convolution (Keys, "Cubic convolution interpolation", 1981), as ONNX states it."""


def grid_sample(attrs: Attributes, opset: int, x: Array, grid: Array) -> Array:
    """Samples an image (n, c, *spatial) at positions (n, *out, rank), the last axis of the image first."""
    n, c, *spatial = x.shape
    given = _text(attrs, "mode", "linear")
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(given, given)
    padding, aligned = _text(attrs, "padding_mode", "zeros"), bool(attrs.get("align_corners", 0))
    positions = grid.reshape(n, math.prod(grid.shape[1:-1]), len(spatial))[..., ::-1].astype(np.float64)
    axes = []
    for axis, extent in enumerate(spatial):
        at = (positions[..., axis] + 1) * ((extent - 1 if aligned else extent) / 2) - (0 if aligned else 0.5)
        axes.append([(*_pixel(place, extent, padding, aligned), weight) for place, weight in _neighbours(at, mode)])
    pixels, out = x.reshape(n, c, math.prod(spatial)), np.zeros((n, c, positions.shape[1]))
    for corner in itertools.product(*axes):
        flat = np.zeros(positions.shape[:2], np.int64)
        inside, weight = np.ones(flat.shape, bool), np.ones(flat.shape)
        for extent, (pixel, counts, share) in zip(spatial, corner, strict=True):
            flat, inside, weight = flat * extent + pixel, inside & counts, weight * share
        values = np.take_along_axis(pixels, flat[:, None, :], 2)
        out += np.where(inside[:, None, :], values, 0) * weight[:, None, :]
    return out.reshape(n, c, *grid.shape[1:-1]).astype(x.dtype)


def _text(attrs: Attributes, name: str, default: str) -> str:
    return bytes(attrs.get(name, default.encode())).decode()


def _neighbours(at: Array, mode: str) -> list[tuple[Array, Array]]:
    """Lists the whole numbers around positions, with their weights."""
    if mode == "nearest":
        return [(np.rint(at), np.ones_like(at))]
    below = np.floor(at)
    share = at - below
    if mode == "linear":
        return [(below, 1 - share), (below + 1, share)]
    near = [((_CUBIC + 2) * d - (_CUBIC + 3)) * d * d + 1 for d in (share, 1 - share)]
    far = [((d - 5) * d + 8) * d * _CUBIC - 4 * _CUBIC for d in (share + 1, 2 - share)]
    return [(below + step, weight) for step, weight in zip((-1, 0, 1, 2), (far[0], *near, far[1]), strict=True)]


def _pixel(number: Array, extent: int, padding: str, aligned: bool) -> tuple[Array, Array]:
    """Returns the pixel for each whole number along an axis, and whether it counts."""
    if padding == "reflection":
        span = extent - 1 if aligned else extent
        number = np.mod(number, 2 * span) if span else np.zeros_like(number)
        number = np.where(number < extent, number, 2 * span - number - (0 if aligned else 1))
    inside = (number >= 0) & (number < extent) if padding == "zeros" else np.ones(number.shape, bool)
    return np.clip(np.nan_to_num(number), 0, extent - 1).astype(np.int64), inside
