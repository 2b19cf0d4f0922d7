"""Products with a constant whose blocks of zeros are left out: `sparse_matmul`.

The positions of the other blocks are data of the weight, in two further constants. Every row of blocks has room for as
many blocks as the fullest one, so that shapes are numbers (the ELLPACK format, in blocks); a count says how many of
them it has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from search_space import te
from search_space.ir.expr import INT, Expr, byte_dot, cast
from search_space.operators.arithmetic import OPERANDS, fast, product, zero
from search_space.operators.base import Args, Array, Operator, Precision, format_arguments
from search_space.operators.checks import choice, integer, sizes, spread
from search_space.tags import Tag

DENSE = "dense"
"""The algorithm that multiplies zeros, too: blocks are put into a dense weight once, before the first call."""


WORDS = "words"
"""The algorithm that multiplies words of four bytes by dot products."""
BYTES = 4
"""Bytes of a word."""
DTYPES = ("float32", "bfloat16", "int8")
"""Types in which sparse products are defined, as values of `dtype`."""


def sparse_matmul(
    m: int,
    n: int,
    k: int,
    block: int | tuple[int, int],
    blocks: int,
    fullest: int | None = None,
    dtype: str = "float32",
) -> dict[str, Any]:
    """Computes data (m, k) times a constant weight (k, n) without its blocks of zeros.

    A row of blocks is the columns `c * j` to `c * (j + 1)` of the weight. Inputs are the data; the other blocks' values
    (n / c, fullest, d, c); int32 positions (n / c, fullest) of each along k, ascending, in blocks; and int32 counts
    (n / c,) of the blocks of each row.

    Args:
        block: columns c and depth d of a block, as of a weight (outputs, inputs); c must divide n, and d must divide k.
        blocks: number of blocks that are multiplied, in all rows together.
        fullest: most blocks of a row; by default `blocks` spread evenly.
        dtype: float32; bfloat16, accumulated in float32; int8: uint8 data, int8 weights and an int32 output.
    """
    args = sizes(m=m, n=n, k=k)
    return {**args, **check_blocks(args["n"], args["k"], block, blocks, fullest), "dtype": check_dtype(dtype)}


def check_dtype(dtype: Any) -> str:
    """Checks the type of a sparse product."""
    return choice("dtype", dtype, list(DTYPES))


def check_blocks(n: int, k: int, block: Any, blocks: Any, fullest: Any) -> dict[str, Any]:
    """Checks the blocks of a weight (k, n).

    Raises:
        ValueError: blocks that do not divide the weight, or numbers of them that it cannot have.
    """
    checked = spread(2, block=block)
    for size, extent, name in zip(checked["block"], (n, k), "nk", strict=True):
        if extent % size:
            raise ValueError(f"`block` must divide n and k, but got block={checked['block']}, {name}={extent}")
    rows, depth = n // checked["block"][0], k // checked["block"][1]
    total = integer("blocks", blocks)
    if total > rows * depth:
        raise ValueError(f"`blocks` must be at most {rows * depth}, those of the weight, but got blocks={total}")
    least = -(-total // rows)
    most = least if fullest is None else integer("fullest", fullest)
    if not least <= most <= min(depth, total):
        limits = f"{least} to {min(depth, total)}"
        raise ValueError(f"`fullest` must be {limits} for blocks={total}, but got fullest={most}")
    return {**checked, "blocks": total, "fullest": most}


def format_sparse(args: Args) -> str:
    """Formats the arguments for keys, which leave out the type float32."""
    return format_arguments({name: value for name, value in args.items() if (name, value) != ("dtype", DTYPES[0])})


def keep_inside(position: Expr, last: int) -> Expr:
    """Limits a position that is data to 0 to `last`, so that no value of it reads outside."""
    return te.minimum(te.maximum(cast(position, INT), 0), last)


@dataclass(frozen=True)
class BlockConstants:
    """The constants of a sparse weight (k, n), and expressions of its elements.

    Attributes:
        args: n, k, block, blocks, fullest and dtype.
        values, positions, counts: the constants, see `sparse_matmul`.
    """

    args: Args
    values: te.Tensor
    positions: te.Tensor
    counts: te.Tensor

    @staticmethod
    def of(args: Args) -> BlockConstants:
        """Makes the placeholders."""
        (columns, depth), fullest = args["block"], args["fullest"]
        rows = args["n"] // columns
        return BlockConstants(
            args,
            te.placeholder((rows, fullest, depth, columns), OPERANDS[args["dtype"]][1], "values", constant=True),
            te.placeholder((rows, fullest), "int32", "positions", constant=True),
            te.placeholder((rows,), "int32", "counts", True, args["blocks"] / rows),
        )

    @property
    def tensors(self) -> list[te.Tensor]:
        """The constants in the order of the inputs."""
        return [self.values, self.positions, self.counts]

    def position(self, row: Any, t: Any) -> Expr:
        """Returns the position along k, in blocks, of a block of a row."""
        return keep_inside(self.positions[row, t], self.args["k"] // self.args["block"][1] - 1)

    @property
    def words(self) -> te.Tensor:
        """The values with each four rows of a block in the bytes of a word: (n / c, fullest, d / 4, c)."""
        rows, fullest, depth, columns = self.values.shape

        def word(row: te.IterVar, t: te.IterVar, p: te.IterVar, j: te.IterVar) -> Expr:
            return pack_word([self.values[row, t, p * BYTES + byte, j] for byte in range(BYTES)])

        shape = (rows, fullest, depth // BYTES, columns)
        return te.compute(shape, word, name="value_words", tag=Tag.CONSTANT)

    def sum_blocks(
        self, column: Any, read: Callable[[Expr, te.IterVar, te.IterVar], Expr], words: te.Tensor | None = None
    ) -> te.Reduction:
        """Sums the products of a column's blocks with data.

        Args:
            column: column of the weight.
            read: row of blocks, number of a block in it, and row within the block → the data.
            words: the constants' `words`, if `read` returns four rows of the data in a word.
        """
        values = self.values if words is None else words
        *_, fullest, depth, columns = values.shape
        t, p = te.reduce_axis((0, fullest), "t"), te.reduce_axis((0, depth), "p")
        row, dtype = column // columns, self.args["dtype"]
        data, value = read(row, t, p), values[row, t, p, column % columns]
        term = product(data, value, dtype) if words is None else byte_dot(data, value)
        return te.sum(te.if_then_else(t < cast(self.counts[row], INT), term, zero(dtype)), axis=[t, p])

    def element(self, r: Any, j: Any) -> Expr:
        """Returns an element of the dense weight: a search for its block among those of its row."""
        (columns, depth), fullest = self.args["block"], self.args["fullest"]
        row, wanted = j // columns, r // depth
        count = te.minimum(cast(self.counts[row], INT), fullest)

        def position(at: Expr) -> Expr:
            return cast(self.positions[row, te.minimum(te.maximum(at, 0), fullest - 1)], INT)

        # The number of blocks before the wanted one, by bisection.
        before: Expr = cast(te.const(0, INT), INT)
        for step in (1 << bit for bit in reversed(range(fullest.bit_length()))):
            later = before + step
            before = before + te.if_then_else(te.all(later <= count, position(later - 1) < wanted), step, 0)
        there = te.all(before < count, te.eq(position(before), wanted))
        value = self.values[row, te.minimum(te.maximum(before, 0), fullest - 1), r % depth, j % columns]
        return te.if_then_else(there, value, te.const(0, value.dtype))


def pack_word(numbers: Sequence[Expr]) -> Expr:
    """Packs four bytes into a word of int32, the first into the lowest bits."""
    return reduce(add, ((number.astype("int32") & 255) << 8 * byte for byte, number in enumerate(numbers)))


def has_words(args: Args) -> bool:
    """Tells whether blocks are of bytes, and as deep as words."""
    return bool(args["dtype"] == "int8" and args["block"][1] % BYTES == 0)


def _data(args: Args) -> te.Tensor:
    return te.placeholder((args["m"], args["k"]), OPERANDS[args["dtype"]][0], "data")


def _tensors(args: Args) -> list[te.Tensor]:
    data, packed, depth = _data(args), BlockConstants.of(args), args["block"][1]

    def body(i: te.IterVar, j: te.IterVar) -> te.Reduction:
        return packed.sum_blocks(j, lambda row, t, p: data[i, packed.position(row, t) * depth + p])

    out = te.compute((args["m"], args["n"]), body, name="sparse_matmul", tag=Tag.SPARSE)
    return [data, *packed.tensors, out]


def _by_words(args: Args) -> list[te.Tensor]:
    """Defines the product of bytes as dot products of words, which hold four neighbours along k."""
    data, packed, depth = _data(args), BlockConstants.of(args), args["block"][1] // BYTES
    data_words = te.compute(
        (args["m"], args["k"] // BYTES),
        lambda i, w: pack_word([data[i, w * BYTES + byte] for byte in range(BYTES)]),
        name="words",
        tag=Tag.SLICES,
    )
    words = packed.words

    def body(i: te.IterVar, j: te.IterVar) -> te.Reduction:
        return packed.sum_blocks(j, lambda row, t, p: data_words[i, packed.position(row, t) * depth + p], words)

    out = te.compute((args["m"], args["n"]), body, name="sparse_matmul", tag=Tag.SPARSE)
    return [data, *packed.tensors, out]


def _dense(args: Args) -> list[te.Tensor]:
    """Defines the product with a dense weight."""
    data, packed, dtype = _data(args), BlockConstants.of(args), args["dtype"]
    r = te.reduce_axis((0, args["k"]), "r")
    dense = te.compute((args["k"], args["n"]), packed.element, name="weight", tag=Tag.CONSTANT)

    def body(i: te.IterVar, j: te.IterVar) -> te.Reduction:
        return te.sum(product(data[i, r], dense[r, j], dtype), axis=r)

    return [data, *packed.tensors, te.compute((args["m"], args["n"]), body, name="sparse_matmul")]


def pack_blocks(weight: Array, block: tuple[int, int]) -> tuple[Array, Array, Array]:
    """Packs a weight for `sparse_matmul`: values, positions and counts of the blocks that hold a number other than 0.

    Args:
        weight: (k, n).
        block: columns and depth of a block; they divide n and k.

    Returns:
        (n / c, fullest, d, c), zeros in the places of missing blocks; int32 (n / c, fullest), the last position of k in
        these places; and int32 (n / c,).
    """
    columns, depth = block
    k, n = weight.shape
    blocks = weight.reshape(k // depth, depth, n // columns, columns).transpose(2, 0, 1, 3)
    # Not a number is another number than 0, too.
    used = (blocks != 0).any((2, 3))
    counts = used.sum(1)
    fullest = max(1, int(counts.max()))
    values = np.zeros((len(blocks), fullest, depth, columns), weight.dtype)
    positions = np.full((len(blocks), fullest), k // depth - 1, np.int32)
    for row, places in enumerate(used):
        (at,) = np.nonzero(places)
        values[row, : len(at)], positions[row, : len(at)] = blocks[row, at], at
    return values, positions, counts.astype(np.int32)


def unpack_blocks(args: Args, values: Array, positions: Array, counts: Array) -> Array:
    """Computes the dense weight (k, n) of packed blocks."""
    n, k, (columns, depth) = (args[name] for name in ("n", "k", "block"))
    blocks = np.zeros((n // columns, k // depth, depth, columns), values.dtype)
    for row, count in enumerate(counts):
        np.add.at(blocks[row], np.clip(positions[row, :count], 0, k // depth - 1), values[row, :count])
    return blocks.transpose(1, 2, 0, 3).reshape(k, n)


def _reference(args: Args, data: Array, values: Array, positions: Array, counts: Array) -> Array:
    weight = unpack_blocks(args, values, positions, counts)
    return fast(data, args["dtype"]) @ fast(weight, args["dtype"])


def draw_integers(args: Args, shape: tuple[int, ...], rng: np.random.Generator) -> Array | None:
    """Draws positions, ascending and distinct in each row, or counts that make `blocks` together; None: neither.

    Data in bytes of such a shape are small numbers then, which are as good as any.
    """
    n, k, (columns, depth), blocks, fullest = (args[name] for name in ("n", "k", "block", "blocks", "fullest"))
    rows = n // columns
    if shape == (rows, fullest):
        places = rng.permuted(np.tile(np.arange(k // depth), (rows, 1)), axis=1)[:, :fullest]
        return np.sort(places, axis=1)
    if shape != (rows,):
        return None
    # The fullest row first; the rest spread over the others as evenly as it goes.
    counts = np.full(rows, min(fullest, blocks))
    others = blocks - int(counts[0])
    if rows > 1:
        counts[1:] = others // (rows - 1)
        counts[1 : 1 + others % (rows - 1)] += 1
    return rng.permuted(counts)


SPARSE_MATMUL = Operator(
    "sparse_matmul",
    sparse_matmul,
    {"direct": _tensors, WORDS: _by_words, DENSE: _dense},
    _reference,
    lambda args: 2 * int(args["m"] * args["blocks"] * args["block"][0] * args["block"][1]),
    Precision(lambda args: int(args["fullest"] * args["block"][1])),
    available=lambda args, algorithm: algorithm != WORDS or has_words(args),
    describe=format_sparse,
    draw_integers=draw_integers,
)
