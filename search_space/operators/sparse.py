"""Products with a constant whose blocks of zeros are left out: `sparse_matmul`.

The positions of the other blocks are data of the weight, in two further constants. Every row of blocks has room for as
many blocks as the fullest one, so that shapes are numbers (the ELLPACK format, in blocks); a count says how many of
them it has.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from search_space import te
from search_space.ir.expr import INT, Expr, cast
from search_space.operators.base import Args, Array, Operator, Precision
from search_space.operators.checks import integer, sizes, spread
from search_space.tags import Tag

DENSE = "dense"
"""The algorithm that multiplies zeros, too: blocks are put into a dense weight once, before the first call."""


def sparse_matmul(
    m: int, n: int, k: int, block: int | tuple[int, int], blocks: int, fullest: int | None = None
) -> dict[str, Any]:
    """Computes data (m, k) times a constant weight (k, n) without its blocks of zeros.

    A row of blocks is the columns `c * j` to `c * (j + 1)` of the weight. Inputs are the data; the other blocks' values
    (n / c, fullest, d, c); int32 positions (n / c, fullest) of each along k, ascending, in blocks; and int32 counts
    (n / c,) of the blocks of each row.

    Args:
        block: columns c and depth d of a block, as of a weight (outputs, inputs); c must divide n, and d must divide k.
        blocks: number of blocks that are multiplied, in all rows together.
        fullest: most blocks of a row; by default `blocks` spread evenly.
    """
    args = sizes(m=m, n=n, k=k)
    checked = spread(2, block=block)
    for size, extent, name in zip(checked["block"], (args["n"], args["k"]), "nk", strict=True):
        if extent % size:
            raise ValueError(f"`block` must divide n and k, but got block={checked['block']}, {name}={extent}")
    rows, depth = args["n"] // checked["block"][0], args["k"] // checked["block"][1]
    total = integer("blocks", blocks)
    if total > rows * depth:
        raise ValueError(f"`blocks` must be at most {rows * depth}, those of the weight, but got blocks={total}")
    least = -(-total // rows)
    most = least if fullest is None else integer("fullest", fullest)
    if not least <= most <= min(depth, total):
        limits = f"{least} to {min(depth, total)}"
        raise ValueError(f"`fullest` must be {limits} for blocks={total}, but got fullest={most}")
    return {**args, **checked, "blocks": total, "fullest": most}


def make_inputs(args: Args) -> list[te.Tensor]:
    """Returns the data, the values of the blocks, their positions, and the blocks of each row."""
    m, n, k, (columns, depth), fullest = (args[name] for name in ("m", "n", "k", "block", "fullest"))
    rows = n // columns
    return [
        te.placeholder((m, k), name="data"),
        te.placeholder((rows, fullest, depth, columns), name="values", constant=True),
        te.placeholder((rows, fullest), "int32", "positions", constant=True),
        te.placeholder((rows,), "int32", "counts", constant=True),
    ]


def _tensors(args: Args) -> list[te.Tensor]:
    data, values, positions, counts = inputs = make_inputs(args)
    m, n, k, (columns, depth), fullest = (args[name] for name in ("m", "n", "k", "block", "fullest"))
    t, p = te.reduce_axis((0, fullest), "t"), te.reduce_axis((0, depth), "p")

    def term(i: te.IterVar, j: te.IterVar) -> Expr:
        row = j // columns
        # Positions are data: they are kept inside, so that no value of them reads outside of the data.
        position = te.minimum(te.maximum(cast(positions[row, t], INT), 0), k // depth - 1)
        product = data[i, position * depth + p] * values[row, t, p, j % columns]
        return te.if_then_else(t < cast(counts[row], INT), product, 0.0)

    out = te.compute((m, n), lambda i, j: te.sum(term(i, j), axis=[t, p]), name="sparse_matmul", tag=Tag.SPARSE)
    return [*inputs, out]


def _dense(args: Args) -> list[te.Tensor]:
    """Defines the product with a dense weight, each element of which searches its block among those of its row."""
    data, values, positions, counts = inputs = make_inputs(args)
    m, n, k, (columns, depth), fullest = (args[name] for name in ("m", "n", "k", "block", "fullest"))

    def weight(r: te.IterVar, j: te.IterVar) -> Expr:
        row, wanted = j // columns, r // depth
        count = te.minimum(cast(counts[row], INT), fullest)

        def position(at: Expr) -> Expr:
            return cast(positions[row, te.minimum(te.maximum(at, 0), fullest - 1)], INT)

        # The number of blocks before the wanted one, by bisection.
        before: Expr = cast(te.const(0, INT), INT)
        for step in (1 << bit for bit in reversed(range(fullest.bit_length()))):
            later = before + step
            before = before + te.if_then_else(te.all(later <= count, position(later - 1) < wanted), step, 0)
        there = te.all(before < count, te.eq(position(before), wanted))
        value = values[row, te.minimum(te.maximum(before, 0), fullest - 1), r % depth, j % columns]
        return te.if_then_else(there, value, 0.0)

    r = te.reduce_axis((0, k), "r")
    dense = te.compute((k, n), weight, name="weight", tag=Tag.CONSTANT)
    return [*inputs, te.compute((m, n), lambda i, j: te.sum(data[i, r] * dense[r, j], axis=r), name="sparse_matmul")]


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
    return data @ unpack_blocks(args, values, positions, counts)


def _draw_integers(args: Args, shape: tuple[int, ...], rng: np.random.Generator) -> Array | None:
    """Draws positions, ascending and distinct in each row, or counts that make `blocks` together; None: neither."""
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
    {"direct": _tensors, DENSE: _dense},
    _reference,
    lambda args: 2 * int(args["m"] * args["blocks"] * args["block"][0] * args["block"][1]),
    Precision(lambda args: int(args["fullest"] * args["block"][1])),
    draw_integers=_draw_integers,
)
