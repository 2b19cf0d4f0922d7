"""Products of float32 data with weights of 4 or 8 bits, quantised in groups along the sum: `matmul_nbits`."""

from __future__ import annotations

from functools import reduce
from typing import Any, Literal

import numpy as np

from search_space import te
from search_space.ir.expr import Expr, byte_dot, const
from search_space.operators.base import Args, Array, Operator, Precision
from search_space.operators.checks import flag, sizes
from search_space.tags import Tag

WORD = 8
"""Numbers of 4 bits in a word of 32, the first in the lowest bits."""


FRACTIONS = "float32"
"""Value of `zeros` for zeros that need not be integers."""


def matmul_nbits(
    m: int, n: int, k: int, bits: int = 4, group: int = 32, zeros: bool | Literal["float32"] = False
) -> dict[str, Any]:
    """Computes data (m, k) times weights (k, n) of a few bits, where a number q means `(q - zero) * scale`.

    Inputs are the data; the weights, uint8 (k / group, group * bits / 8, n), k / group rounded up; the scales (k /
    group, n); and the zeros, if any, uint8 or float32 (k / group, n). Of 4 bits, two neighbours along the sum share a
    byte, the first in the low half. By default a zero is 2**(bits - 1).

    Args:
        bits: 4 or 8.
        group: number of neighbours along the sum that share a scale and a zero, a multiple of 8; numbers of the last
            group beyond k are ignored.
        zeros: whether each group has its own zero; float32: zeros that need not be integers.
    """
    args = {**sizes(m=m, n=n, k=k), **sizes(bits=bits, group=group)}
    if args["bits"] not in (4, 8):
        raise ValueError(f"`bits` must be 4 or 8, but got bits={bits!r}")
    if args["group"] % WORD:
        raise ValueError(f"`group` must be a multiple of {WORD}, but got group={group!r}")
    return {**args, "zeros": zeros if zeros == FRACTIONS else flag("zeros", zeros)}


BY_WORD = "by_word"
"""The algorithm that multiplies the sum over a word by its scale, instead of each number."""


BY_SLICES = "by_slices"
"""The algorithm that multiplies integers: slices of the data, a byte each, times the weights as they are stored.

A row is scaled to integers of 24 bits, whose rounding errors are those of its largest float, and cut into signed bytes.
Their sums of products with a block of weights are exact; only these sums are converted to floats and scaled (Ozaki,
Ogita, Oishi, Rump, "Error-free transformations of matrix multiplication by using fast routines", 2012; for integer
instructions Ootomo, Ozaki, Yokota, "DGEMM on integer matrix multiplication unit", 2024).
"""
SLICES_EACH = 3
"""Number of bytes, and so of slices, of each number."""
TOP = 127 << 16
"""Integer that the largest number of a row becomes: its slices are below 128, and rounding does not change it."""
TINIEST = 2.0**-100
"""Least scale of a row or block, so that zeros are not divided by zero."""
BLOCKS = (32, 16, 8)
"""Numbers of weights along the sum that are added up as integers."""


BY_PANEL = "by_panel"
"""The algorithm that extracts the numbers of a few columns from their words once, for many rows of data."""


def _available(args: Args, algorithm: str) -> bool:
    """Tells whether an algorithm is available, by the weights alone: a definition holds for any number of rows."""
    return algorithm != BY_WORD or (args["bits"] == 4 and not args["zeros"])


def make_inputs(args: Args) -> tuple[list[te.Tensor], te.Tensor, int]:
    """Returns the inputs, the data with zeros up to the end of the last group, and the number of groups."""
    m, n, k, group, bits = (args[name] for name in ("m", "n", "k", "group", "bits"))
    groups = -(-k // group)
    data = te.placeholder((m, k), name="data")
    weight = te.placeholder((groups, group * bits // 8, n), "uint8", "weight", constant=True)
    scale = te.placeholder((groups, n), name="scale", constant=True)
    dtype = FRACTIONS if args["zeros"] == FRACTIONS else "uint8"
    zeros = [te.placeholder((groups, n), dtype, "zero", constant=True)] if args["zeros"] else []
    source = data
    if groups * group > k:
        source = te.compute(
            (m, groups * group), lambda i, r: te.if_then_else(r < k, data[i, r], 0.0), name="padded", tag=Tag.PAD
        )
    return [data, weight, scale, *zeros], source, groups


def _tensors(args: Args, by_word: bool = False, by_panel: bool = False) -> list[te.Tensor]:
    inputs, source, _ = make_inputs(args)
    return products(args, inputs, source, "matmul_nbits", by_word, by_panel)


def products(
    args: Args,
    inputs: list[te.Tensor],
    source: te.Tensor,
    name: str,
    by_word: bool = False,
    by_panel: bool = False,
) -> list[te.Tensor]:
    """Returns the inputs and the product in floats.

    Args:
        source: left factor, the data as `make_inputs` gives them or rounded.
        name: name of the product.
        by_word, by_panel: the algorithm; neither: `direct`.
    """
    m, n, group, bits = (args[name] for name in ("m", "n", "group", "bits"))
    groups = int(inputs[1].shape[0])
    weight, scale, zero = inputs[1], inputs[2], inputs[3] if args["zeros"] else None
    extents = (groups, group) if bits == 8 else (groups, group // WORD, WORD)
    if bits == 8 and zero is None:  # as signed bytes, which have no zero to subtract
        of = te.compute(
            weight.shape,
            lambda g, r, j: (weight[g, r, j].astype("int32") - 128).astype("int8"),
            name="signed",
            tag=Tag.CONSTANT,
        )
    elif bits == 8:
        of = weight
    else:
        of = te.compute((*extents[:2], n), lambda g, w, j: _word(weight, g, w, j), name="words", tag=Tag.CONSTANT)

    def number(*index: Any) -> Expr:
        """Computes a weight from a group, the position in it, and a column; signed bytes have no zero to subtract."""
        g, *_, j = index
        if bits == 8:
            q: Expr = of[index].astype("float32")
        else:
            q = (of[g, index[1], j] >> (index[2] * 4).astype("int32")) % 16
            q = (q if zero is not None else q - 8).astype("float32")
        by = scale[g, j]
        return q * by if zero is None else q * by + zero[g, j].astype("float32") * -by

    axes = [te.reduce_axis((0, e), axis) for e, axis in zip(extents, "gr" if bits == 8 else "gwb", strict=True)]
    at = axes[0] * group + (axes[1] if bits == 8 else axes[1] * WORD + axes[2])
    if by_panel:
        panel = te.compute((*extents, n), number, name="panel", tag=Tag.PANEL)
        out = te.compute((m, n), lambda i, j: te.sum(source[i, at] * panel[(*axes, j)], axis=axes), name=name)
    elif by_word:
        g, w = axes[:2]

        def product(i: te.IterVar, j: te.IterVar) -> Expr:
            numbers = [((of[g, w, j] >> const(4 * b, "int32")) % 16 - 8).astype("float32") for b in range(WORD)]
            terms = [source[i, g * group + w * WORD + b] * q for b, q in enumerate(numbers)]
            return reduce(lambda so_far, term: so_far + term, terms) * scale[g, j]

        out = te.compute((m, n), lambda i, j: te.sum(product(i, j), axis=axes[:2]), name=name)
    else:
        out = te.compute((m, n), lambda i, j: te.sum(source[i, at] * number(*axes, j), axis=axes), name=name)
    return [*inputs, out]


def _by_slices(args: Args) -> list[te.Tensor]:
    m, n, group, bits = (args[name] for name in ("m", "n", "group", "bits"))
    inputs, source, groups = make_inputs(args)
    weight, scale, zero = inputs[1], inputs[2], inputs[3] if args["zeros"] else None
    block = next(size for size in BLOCKS if group % size == 0)
    count, width = groups * (group // block), block // 4
    r = te.reduce_axis((0, groups * group), "r")
    peak = te.compute((m,), lambda i: te.max(te.abs(source[i, r]), axis=r), name="peak", tag=Tag.SLICES)

    def multiple(i: Any, column: Any) -> Expr:
        return te.rint(source[i, column] * (float(TOP) / te.maximum(peak[i], TINIEST)))

    def pack_slice(i: te.IterVar, b: te.IterVar, d: te.IterVar, w: te.IterVar) -> Expr:
        """Packs a slice of four numbers into a word's bytes; they lie as far apart as the block has words."""
        numbers = [multiple(i, b * block + p * width + w).astype("int32") + 0x808080 for p in range(4)]
        parts = [((q >> (d * 8).astype("int32")) + 128) & 255 for q in numbers]
        return reduce(lambda so_far, part: so_far + part, [part << 8 * p for p, part in enumerate(parts)])

    slices = te.compute((m, count, SLICES_EACH, width), pack_slice, name="slices", tag=Tag.SLICES)
    t = te.reduce_axis((0, block), "t")
    by = 1 << bits - 1 if zero is None else 1
    total = te.compute(
        (m, count), lambda i, b: te.sum(multiple(i, b * block + t) * float(by), axis=t), name="total", tag=Tag.SLICES
    )
    each = WORD * 4 // bits  # numbers of the block in four bytes
    words = te.compute(
        (groups, group // block, block // each, n),
        lambda g, c, w, j: pack_word(weight, bits, g, c * block + w, width, j),
        name="words",
        tag=Tag.CONSTANT,
    )
    g, c = te.reduce_axis((0, groups), "g"), te.reduce_axis((0, group // block), "c")

    def product(i: te.IterVar, j: te.IterVar) -> Expr:
        b = g * (group // block) + c
        read = [words[g, c, w, j] for w in range(block // each)]
        if bits == 4:
            read = [word >> 4 * half & 0x0F0F0F0F for half in (0, 1) for word in read]

        def dots(d: int) -> Expr:
            """Adds up two chains of instructions, since each instruction waits for the previous one of its chain."""
            found = [byte_dot(word, slices[i, b, d, w]) for w, word in enumerate(read)]
            chains = [reduce(lambda so_far, dot: so_far + dot, found[first::2]) for first in (0, 1)]
            return chains[0] + chains[1]

        low, middle, high = (dots(d) for d in range(SLICES_EACH))
        found = high.astype("float32") * 65536.0 + ((middle << 8) + low).astype("float32")
        if zero is None:
            return (found - total[i, b]) * scale[g, j]
        by_scale = found * scale[g, j]
        return by_scale - zero[g, j].astype("float32") * scale[g, j] * total[i, b]

    sums = te.compute((m, n), lambda i, j: te.sum(product(i, j), axis=[g, c]), name="sums")
    unit = te.compute((m,), lambda i: te.maximum(peak[i], TINIEST) * (1.0 / TOP), name="unit", tag=Tag.SLICES)
    out = te.compute((m, n), lambda i, j: unit[i] * sums[i, j], name="matmul_nbits")
    return [*inputs, out]


def pack_word(weight: te.Tensor, bits: int, g: Any, first: Any, step: int, j: Any) -> Expr:
    """Packs every `step`-th number of a group from `first` on into the bytes of a word.

    For 4 bits, the numbers `step // 2` further on are in the high halves of the bytes.
    """

    def number(r: Any) -> Expr:
        byte: Expr = weight[g, r if bits == 8 else r // 2, j].astype("int32")
        return byte if bits == 8 else (byte >> (r % 2 * 4).astype("int32")) % 16

    parts = [number(first + p * step) for p in range(4)]
    if bits == 4:
        parts = [part + (number(first + p * step + step // 2) << 4) for p, part in enumerate(parts)]
    return reduce(lambda so_far, part: so_far + part, [part << 8 * p for p, part in enumerate(parts)])


def _word(weight: te.Tensor, g: Any, w: Any, j: Any) -> Expr:
    """Packs four bytes of `weight` into one number of 32 bits, so that a vector of them is read at once."""
    parts = [weight[g, w * 4 + p, j].astype("int32") << 8 * p for p in range(4)]
    return parts[0] + parts[1] + parts[2] + parts[3]


def dequantise(args: Args, weight: Array, scale: Array, zero: Array | None = None) -> Array:
    """Computes the weights in float32 (k, n)."""
    if args["bits"] == 4:
        pairs = np.stack([weight & 15, weight >> 4], axis=2)
        weight = pairs.reshape(weight.shape[0], -1, weight.shape[2])
    zeros = np.float32(1 << (args["bits"] - 1)) if zero is None else zero.astype(np.float32)[:, None]
    whole = (weight.astype(np.float32) - zeros) * scale[:, None]
    found: Array = whole.reshape(-1, weight.shape[2])[: args["k"]]
    return found


def _reference(args: Args, data: Array, weight: Array, scale: Array, zero: Array | None = None) -> Array:
    return data.astype(np.float32) @ dequantise(args, weight, scale, zero)


MATMUL_NBITS = Operator(
    "matmul_nbits",
    matmul_nbits,
    {
        "direct": _tensors,
        BY_WORD: lambda args: _tensors(args, by_word=True),
        BY_SLICES: _by_slices,
        BY_PANEL: lambda args: _tensors(args, by_panel=True),
    },
    _reference,
    lambda args: 2 * int(args["m"] * args["n"] * args["k"]),
    # Zeros are bytes, for numbers of 4 bits, too.
    Precision(lambda args: int(args["k"]), lambda args: float((1 << args["bits"]) + 255 * bool(args["zeros"]))),
    available=_available,
)
