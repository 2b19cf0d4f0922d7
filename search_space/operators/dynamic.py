"""Products of weights of 4 or 8 bits with data that are rounded to bytes during the call: `dynamic_matmul`."""

from __future__ import annotations

from functools import reduce
from typing import Any, Literal

import numpy as np

from search_space import te
from search_space.ir.expr import Expr, byte_dot
from search_space.operators.base import Args, Array, Operator, Precision
from search_space.operators.weights_only import (
    BLOCKS,
    TINIEST,
    dequantise,
    make_inputs,
    matmul_nbits,
    pack_word,
    products,
)
from search_space.tags import Tag

MOST = 127
"""Integer that the largest number of a block becomes."""
PER_MOST = float(np.float32(1.0 / MOST))
BY_BYTES = "by_bytes"
"""The algorithm that multiplies bytes, adds up a block as integers and only then scales the sum."""


def dynamic_matmul(
    m: int, n: int, k: int, bits: int = 4, group: int = 32, zeros: bool | Literal["float32"] = False
) -> dict[str, Any]:
    """Computes `matmul_nbits` of data that are rounded to signed bytes, block by block.

    A block is 32 neighbours in a row, or 16 or 8 if `group` is not a multiple of more. Its numbers become multiples of
    a 127th of the largest. Inputs and other arguments are those of `matmul_nbits`.
    """
    return matmul_nbits(m, n, k, bits, group, zeros)


def block_size(group: int) -> int:
    """Returns the numbers of a row that are rounded together."""
    return next(size for size in BLOCKS if group % size == 0)


def round_data(args: Args, data: Array) -> Array:
    """Rounds the data (m, k) to the float32 values that are multiplied."""
    block, (m, k) = block_size(args["group"]), data.shape
    whole = np.zeros((m, -(-k // block), block), np.float32)
    whole.reshape(m, -1)[:, :k] = data
    peak = np.maximum(np.abs(whole).max(2, keepdims=True), np.float32(TINIEST))
    found: Array = np.rint(whole * (np.float32(MOST) / peak)) * (peak * np.float32(PER_MOST))
    return found.reshape(m, -1)[:, :k]


class _BlockRounding:
    """Stages of the data: the largest of each block, and values derived from it.

    Args:
        source: the data with zeros up to the end of the last group.
        blocks: number of blocks in a row.
        block: numbers of each.
    """

    def __init__(self, source: te.Tensor, blocks: int, block: int) -> None:
        self.source, self.blocks, self.block = source, blocks, block
        self.rows = source.shape[0]
        r = te.reduce_axis((0, block), "r")
        self.peak = self.of_blocks("peak", lambda i, b: te.max(te.abs(source[i, b * block + r]), axis=r))

    def of_blocks(self, name: str, value: Any) -> te.Tensor:
        """Makes a stage with one number for each block of each row."""
        return te.compute((self.rows, self.blocks), value, name=name, tag=Tag.SLICES)

    def multiple(self, i: Any, b: Any, position: Any) -> Expr:
        """Returns a number as a multiple of the unit of its block, in float32."""
        return te.rint(self.source[i, b * self.block + position] * (float(MOST) / te.maximum(self.peak[i, b], TINIEST)))

    def unit(self, i: Any, b: Any) -> Expr:
        """Returns the unit of a block, the distance of neighbouring rounded values."""
        return te.maximum(self.peak[i, b], TINIEST) * PER_MOST


def _in_floats(args: Args) -> list[te.Tensor]:
    inputs, source, groups = make_inputs(args)
    block = block_size(args["group"])
    data = _BlockRounding(source, groups * args["group"] // block, block)
    rounded_data = te.compute(
        source.shape,
        lambda i, r: data.multiple(i, r // block, r % block) * data.unit(i, r // block),
        name="rounded",
        tag=Tag.SLICES,
    )
    return products(args, inputs, rounded_data, "dynamic_matmul")


def _by_bytes(args: Args) -> list[te.Tensor]:
    m, n, group, bits = (args[name] for name in ("m", "n", "group", "bits"))
    inputs, source, groups = make_inputs(args)
    weight, scale, zero = inputs[1], inputs[2], inputs[3] if args["zeros"] else None
    block = block_size(group)
    count, width, stored = group // block, block // 4, block * bits // 32  # blocks of a group, words of a block
    data = _BlockRounding(source, groups * count, block)

    def word(i: te.IterVar, b: te.IterVar, w: te.IterVar) -> Expr:
        """Packs four numbers into the bytes of a word; they lie as far apart as the block has words."""
        parts = [(data.multiple(i, b, p * width + w).astype("int32") & 255) << 8 * p for p in range(4)]
        return reduce(lambda so_far, part: so_far + part, parts)

    bytes_ = te.compute((m, data.blocks, width), word, name="bytes", tag=Tag.SLICES)
    t = te.reduce_axis((0, block), "t")
    by = 1 << bits - 1 if zero is None else 1
    # The contribution of the weights' zeros, with which sums of bytes begin; zeros of groups are added for each group.
    start = data.of_blocks("start", lambda i, b: te.sum(data.multiple(i, b, t).astype("int32") * -by, axis=t))
    unit = data.of_blocks("unit", data.unit)
    words = te.compute(
        (groups, count, stored, n),
        lambda g, c, w, j: pack_word(weight, bits, g, c * block + w, width, j),
        name="words",
        tag=Tag.CONSTANT,
    )
    g, c = te.reduce_axis((0, groups), "g"), te.reduce_axis((0, count), "c")

    def product(i: te.IterVar, j: te.IterVar) -> Expr:
        b = g * count + c
        read = [words[g, c, w, j] for w in range(stored)]
        if bits == 4:
            read = [one >> 4 * half & 0x0F0F0F0F for half in (0, 1) for one in read]
        dots = [byte_dot(one, bytes_[i, b, w]) for w, one in enumerate(read)]
        # Two chains of instructions, since each instruction waits for the previous one of its chain.
        chains = [dots[::2], dots[1::2]]
        if zero is None:
            chains[0].insert(0, start[i, b])
        first, second = (reduce(lambda so_far, dot: so_far + dot, chain) for chain in chains)
        found = first + second
        total = unit[i, b] * found.astype("float32") * scale[g, j]
        if zero is None:
            return total
        taken = start[i, b].astype("float32") * unit[i, b]
        return total + zero[g, j].astype("float32") * scale[g, j] * taken

    out = te.compute((m, n), lambda i, j: te.sum(product(i, j), axis=[g, c]), name="dynamic_matmul")
    return [*inputs, out]


def _reference(args: Args, data: Array, weight: Array, scale: Array, zero: Array | None = None) -> Array:
    return round_data(args, data.astype(np.float32)) @ dequantise(args, weight, scale, zero)


DYNAMIC_MATMUL = Operator(
    "dynamic_matmul",
    dynamic_matmul,
    {"direct": _in_floats, BY_BYTES: _by_bytes},
    _reference,
    lambda args: 2 * int(args["m"] * args["n"] * args["k"]),
    Precision(lambda args: int(args["k"]), lambda args: float((1 << args["bits"]) + 255 * bool(args["zeros"]))),
)
