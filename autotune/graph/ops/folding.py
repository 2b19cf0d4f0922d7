"""The inverse of window extraction (col2im): blocks return to their places in the image and overlaps are summed."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from autotune.graph.ops.base import GraphOp, Kind, Tensors, Types, freeze, register
from autotune.graph.types import Array, Attributes
from search_space import te
from search_space.ir.expr import FLOATS, Expr, const, eq, lift

_PER_AXIS = ("image", "block", "stride", "dilation", "before", "after")


def count_blocks(attrs: Attributes) -> tuple[int, ...]:
    """Counts the blocks along each axis of the image."""
    fields = zip(*(attrs[name] for name in _PER_AXIS), strict=True)
    return tuple((n + b + a - d * (k - 1) - 1) // s + 1 for n, k, s, d, b, a in fields)


def _attributes(attributes: Attributes, types: Types) -> dict[str, Any]:
    (data,) = types
    attrs = {name: freeze(attributes[name]) for name in _PER_AXIS}
    if len({len(value) for value in attrs.values()}) != 1:
        raise ValueError(f"attributes must be of as many axes as `image`, but got {attrs}")
    if min(*attrs["stride"], *attrs["dilation"]) < 1 or min(*attrs["before"], *attrs["after"]) < 0:
        raise ValueError(f"strides and dilations must be positive and padding not negative, but got {attrs}")
    blocks, block_size = count_blocks(attrs), math.prod(attrs["block"])
    if data.dtype not in FLOATS or len(data.shape) != 3:
        raise ValueError(f"data must be floating-point samples, elements of blocks and blocks, but got {data}")
    if data.shape[1] % block_size or data.shape[2] != math.prod(blocks) or min(blocks) < 1:
        raise ValueError(
            f"data must have a multiple of {block_size} elements of blocks, and {list(blocks)} blocks, but got {data}"
        )
    return attrs


def _col2im(attrs: Attributes, tensors: Tensors) -> te.Tensor:
    """Sums the elements of all blocks that cover each element of the image."""
    (data,) = tensors
    block, blocks, dtype = attrs["block"], count_blocks(attrs), data.dtype
    wide = "float32" if dtype in FLOATS else dtype
    steps = [te.reduce_axis((0, extent), f"k{position}") for position, extent in enumerate(block)]
    sides = list(zip(attrs["before"], attrs["dilation"], attrs["stride"], blocks, strict=True))

    def body(sample: Any, channel: Any, *index: Any) -> te.Reduction:
        element, number = channel, lift(0)
        here: list[Expr] = []
        for at, step, extent, (before, dilation, stride, count) in zip(index, steps, block, sides, strict=True):
            position = at + before - step * dilation
            here += [position >= 0, position < count * stride]
            if stride > 1:
                here.append(eq(position % stride, lift(0)))
            element = element * extent + step
            number = number * count + te.minimum(te.maximum(position // stride, 0), count - 1)
        value = data[sample, element, number].astype(wide)
        return te.sum(te.if_then_else(te.all(*here), value, const(0, wide)), axis=steps)

    shape = (data.shape[0], data.shape[1] // math.prod(block), *attrs["image"])
    out = te.compute(shape, body, name="col2im")
    return out if wide == dtype else te.compute(shape, lambda *i: out[i].astype(dtype), name="narrow")


def _compute(attrs: Attributes, data: Array) -> Array:
    block, blocks = attrs["block"], count_blocks(attrs)
    split = data.reshape(data.shape[0], -1, *block, *blocks).astype(np.float64)
    sides = zip(attrs["before"], attrs["image"], attrs["after"], strict=True)
    out = np.zeros((*split.shape[:2], *map(sum, sides)))
    for element in itertools.product(*map(range, block)):
        fields = zip(element, attrs["dilation"], attrs["stride"], blocks, strict=True)
        places = tuple(slice(e * d, e * d + (n - 1) * s + 1, s) for e, d, s, n in fields)
        here: Any = (slice(None), slice(None), *places)
        part: Any = (slice(None), slice(None), *element)
        out[here] += split[part]
    kept: Any = (..., *(slice(b, b + n) for b, n in zip(attrs["before"], attrs["image"], strict=True)))
    image: Array = out[kept]
    return image


register(GraphOp("col2im", Kind.compute, _attributes, _col2im, compute=_compute))
