"""Images of at most three channels as pixels of four bytes: one word of 32 bits each, in the order of its bytes.

An image comes channels first and in floats; a dot product of bytes needs four channels of a pixel side by side. A
vector of such words is computed from vectors along the rows of each channel, without shuffles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autotune.graph.ops.base import GraphOp, Kind, Tensors, Types, exactly, register
from autotune.graph.ops.quantised import quantise_array, quantised_linear, rounded_steps
from autotune.graph.types import Array, Attributes, TensorType
from search_space import te
from search_space.ir.expr import Expr

BYTES = 4
"""Bytes of a pixel."""


def pixel_word(pixel: Array) -> np.int32:
    """Returns four bytes as the little-endian number that they are in memory."""
    return np.int32(np.asarray(pixel, np.uint8).view("<i4")[0])


def _attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
    wanted = ["float32", "float32", "uint8", "int32"]
    if [kind.dtype for kind in types] != wanted or {kind.size for kind in types[1:]} != {1}:
        raise ValueError(
            f"inputs must be an image, its scale, its zero and a word, of {', '.join(wanted)}, "
            f"but got {', '.join(map(str, types)) or 'none'}"
        )
    if len(types[0].shape) != 4 or not 1 <= types[0].shape[1] < BYTES:
        raise ValueError(f"the image must be (n, c, h, w) of 1 to {BYTES - 1} channels, but got {types[0]}")
    return exactly(inverse=False)(attributes, types)


def _image_words(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    image, scale, zero, more = tensors
    samples, channels, height, width = image.shape

    def byte(x: Expr) -> Expr:
        steps = x * scale[0] if attrs["inverse"] else x / scale[0]
        return rounded_steps(steps, zero[0], "uint8")

    def word(n: Any, h: Any, w: Any) -> Expr:
        made: Expr = more[0]
        for channel in range(channels):
            made = made + (byte(image[n, channel, h, w]) << 8 * channel)
        return made

    return te.compute((samples, height, width), word, name="image_words")


def _compute(attrs: Attributes, image: Array, scale: Array, zero: Array, more: Array) -> Array:
    found = (quantise_array if attrs["inverse"] else quantised_linear)(image, scale, zero).astype(np.int32)
    shifts = 8 * np.arange(image.shape[1]).reshape(-1, 1, 1)
    return np.asarray((found << shifts).sum(1) + more)


def _bytes_attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
    if [kind.dtype for kind in types] != ["int32"]:
        raise ValueError(f"the input must be words of int32, but got {', '.join(map(str, types)) or 'none'}")
    return exactly()(attributes, types)


class _AsBytes(GraphOp):
    """A view: the bytes of each word along a new last axis."""

    def infer(self, attrs: Attributes, types: Types) -> TensorType:
        return TensorType((*types[0].shape, BYTES), "uint8")

    def evaluate(self, attrs: Attributes, arrays: Sequence[Array]) -> Array:
        words = np.ascontiguousarray(arrays[0]).astype("<i4", copy=False)
        return words.view(np.uint8).reshape(*words.shape, BYTES)


register(
    # The bytes of floats (n, c, h, w), rounded as in `quantise_linear`, or as in `quantise` if the scale is `inverse`;
    # the last input has the bytes of the channels beyond theirs.
    GraphOp("image_words", Kind.compute, _attributes, _image_words, compute=_compute),
    _AsBytes("as_bytes", Kind.view, _bytes_attributes),
)
