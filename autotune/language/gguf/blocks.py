"""Types of tensors in GGUF files: floats, and blocks of numbers of a few bits that share scales.

All blocks stand for `number * scale - shift`; decoding gives these three, and loses nothing. Layouts are those of
ggml's `ggml-common.h`, https://github.com/ggml-org/ggml.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune.graph.types import Array
from autotune.language.grouped import GroupedRows, GroupedWeight, narrow_scales
from search_space.dtypes import numpy_dtype

AT_ONCE = 1 << 22
"""Numbers that are decoded together, so that intermediate arrays stay small."""

Parts = tuple[Array, Array, Array | None]
"""Numbers, int8 or uint8 (n, size); scales, float32 (n, groups); shifts, float32 (n, groups), or None."""


@dataclass(frozen=True)
class BlockType:
    """A type of tensors.

    Attributes:
        name: name that ggml gives it.
        size: numbers of a block.
        nbytes: bytes of a block.
        bits: bits that hold a number of a product exactly, 4 or 8; 32: it is a float.
        group: numbers that share a scale.
        decode: function from blocks, uint8 (n, nbytes), to their parts; None: the numbers are floats.
        dtype: type of the floats.
    """

    name: str
    size: int
    nbytes: int
    bits: int = 32
    group: int = 0
    decode: Callable[[Array], Parts] | None = None
    dtype: str = ""


# ------------------------------------------------------------------ bits
def _halves(blocks: Array, at: int) -> Array:
    """Reads a float16 of each block as float32, (n, 1)."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _nibbles(data: Array, run: int) -> Array:
    """Unpacks bytes (n, m) in runs: the low halves of a run come before its high halves."""
    split = data.reshape(len(data), -1, 1, run)
    return np.concatenate([split & 15, split >> 4], axis=2).reshape(len(data), -1)


def _fifth_bits(data: Array) -> Array:
    """Unpacks 32 bits of each block (n, 4) to the value 16 or 0 of each number."""
    return np.unpackbits(data, axis=1, bitorder="little") << 4


def _lookup(table: tuple[int, ...], data: Array) -> Array:
    return np.array(table, np.int8)[_nibbles(data, 16)]


def _six_bit_pairs(data: Array) -> tuple[Array, Array]:
    """Unpacks 8 scales and 8 shifts of 6 bits each from 12 bytes, float32 (n, 8) each."""
    first, second, both = (data[:, at : at + 4] for at in (0, 4, 8))
    scales = np.concatenate([first & 63, both & 15 | first >> 2 & 48], axis=1)
    shifts = np.concatenate([second & 63, both >> 4 | second >> 2 & 48], axis=1)
    return scales.astype(np.float32), shifts.astype(np.float32)


# ------------------------------------------------------------------ types
def _q4_0(blocks: Array) -> Parts:
    return _nibbles(blocks[:, 2:], 16).view(np.int8) - np.int8(8), _halves(blocks, 0), None


def _q4_1(blocks: Array) -> Parts:
    return _nibbles(blocks[:, 4:], 16), _halves(blocks, 0), -_halves(blocks, 2)


def _q5_0(blocks: Array) -> Parts:
    numbers = _nibbles(blocks[:, 6:], 16) | _fifth_bits(blocks[:, 2:6])
    return numbers.view(np.int8) - np.int8(16), _halves(blocks, 0), None


def _q5_1(blocks: Array) -> Parts:
    numbers = _nibbles(blocks[:, 8:], 16) | _fifth_bits(blocks[:, 4:8])
    return numbers, _halves(blocks, 0), -_halves(blocks, 2)


def _q8_0(blocks: Array) -> Parts:
    return blocks[:, 2:].view(np.int8), _halves(blocks, 0), None


def _q4_k(blocks: Array) -> Parts:
    scales, shifts = _six_bit_pairs(blocks[:, 4:16])
    return _nibbles(blocks[:, 16:], 32), _halves(blocks, 0) * scales, _halves(blocks, 2) * shifts


def _q5_k(blocks: Array) -> Parts:
    scales, shifts = _six_bit_pairs(blocks[:, 4:16])
    fifth = blocks[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None] & 1
    numbers = _nibbles(blocks[:, 48:], 32) | fifth.reshape(len(blocks), -1) << 4
    return numbers, _halves(blocks, 0) * scales, _halves(blocks, 2) * shifts


def _q6_k(blocks: Array) -> Parts:
    low = _nibbles(blocks[:, :128], 64)
    high = blocks[:, 128:192].reshape(-1, 2, 1, 32) >> np.arange(0, 8, 2, dtype=np.uint8)[:, None] & 3
    numbers = (low | high.reshape(len(blocks), -1) << 4).view(np.int8) - np.int8(32)
    return numbers, _halves(blocks, 208) * blocks[:, 192:208].view(np.int8).astype(np.float32), None


IQ4_NL = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""Numbers of IQ4_NL's 16 codes."""
MXFP4 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
"""Numbers of MXFP4's 16 codes, twice those of the format E2M1, whose halves are in the scale."""


def _iq4_nl(blocks: Array) -> Parts:
    return _lookup(IQ4_NL, blocks[:, 2:]), _halves(blocks, 0), None


def _mxfp4(blocks: Array) -> Parts:
    return _lookup(MXFP4, blocks[:, 1:]), np.ldexp(np.float32(1), blocks[:, :1].astype(np.int32) - 128), None


TYPES: dict[int, BlockType] = {
    0: BlockType("F32", 1, 4, dtype="float32"),
    1: BlockType("F16", 1, 2, dtype="float16"),
    30: BlockType("BF16", 1, 2, dtype="bfloat16"),
    2: BlockType("Q4_0", 32, 18, 4, 32, _q4_0),
    3: BlockType("Q4_1", 32, 20, 4, 32, _q4_1),
    6: BlockType("Q5_0", 32, 22, 8, 32, _q5_0),
    7: BlockType("Q5_1", 32, 24, 8, 32, _q5_1),
    8: BlockType("Q8_0", 32, 34, 8, 32, _q8_0),
    12: BlockType("Q4_K", 256, 144, 4, 32, _q4_k),
    13: BlockType("Q5_K", 256, 176, 8, 32, _q5_k),
    14: BlockType("Q6_K", 256, 210, 8, 16, _q6_k),
    20: BlockType("IQ4_NL", 32, 18, 8, 32, _iq4_nl),
    39: BlockType("MXFP4", 32, 17, 8, 32, _mxfp4),
}
"""Types that are read, by their numbers in files."""
OTHERS = {9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S"}
OTHERS |= {21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M"}
OTHERS |= {34: "TQ1_0", 35: "TQ2_0"}
"""Names of types that are not read, for messages."""


def name_type(number: int) -> str:
    """Returns the name of a type's number, or `type NUMBER` if it is unknown."""
    return TYPES[number].name if number in TYPES else OTHERS.get(number, f"type {number}")


# ------------------------------------------------------------------ tensors
@np.errstate(over="ignore", invalid="ignore")
def decode_blocks(data: Array, kind: BlockType) -> Parts:
    """Decodes a tensor of blocks.

    Args:
        data: uint8 (rows, bytes of a row).
        kind: type of the blocks.

    Returns:
        Numbers (rows, k), scales (rows, groups), and shifts (rows, groups) or None.
    """
    assert kind.decode is not None, "floats have no blocks"
    rows, blocks = len(data), data.shape[1] // kind.nbytes
    groups = kind.size // kind.group
    step = max(1, AT_ONCE // (blocks * kind.size))
    out: Parts | None = None
    for first in range(0, rows, step):
        part = data[first : first + step]
        pieces = kind.decode(part.reshape(-1, kind.nbytes))
        if out is None:
            numbers = np.empty((rows, blocks * kind.size), pieces[0].dtype)
            scales = np.empty((rows, blocks * groups), np.float32)
            out = numbers, scales, None if pieces[2] is None else np.empty_like(scales)
        for array, piece in zip(out, pieces, strict=True):
            if array is not None and piece is not None:
                array[first : first + step] = piece.reshape(len(part), -1)
    assert out is not None, "tensors have rows"
    return out


@np.errstate(over="ignore", invalid="ignore")
def read_floats(data: Array, kind: BlockType) -> Array:
    """Reads a tensor (rows, k) as floats: a view of the map for floats, float32 for blocks."""
    if kind.decode is None:
        dtype: np.dtype[Any] = np.dtype(numpy_dtype(kind.dtype))
        return data.reshape(-1).view(dtype).reshape(len(data), -1)
    numbers, scales, shifts = decode_blocks(data, kind)
    values = numbers.reshape(*scales.shape, -1).astype(np.float32)
    values *= scales[..., None]
    if shifts is not None:
        values -= shifts[..., None]
    return values.reshape(numbers.shape)


@np.errstate(over="ignore", invalid="ignore")
def make_product(parts: Parts, kind: BlockType) -> GroupedWeight:
    """Makes the weights of a product from a decoded tensor (outputs, inputs).

    Numbers and scales are exact. A shift is stored as the zero `shift / scale` in float32: a weight differs from that
    of the file by the rounding errors of its two terms.
    """
    numbers, scales, shifts = parts
    outputs, depth = numbers.shape
    zeros = None
    if shifts is None:
        numbers = numbers.view(np.uint8) + np.uint8(1 << kind.bits - 1)  # bytes wrap around: int8 becomes uint8
    else:
        constant = (scales == 0) & (shifts != 0)  # all weights of such a group are (0 - 1) * shift
        if constant.any():
            numbers = numbers.copy()
            numbers.reshape(outputs, -1, kind.group)[constant] = 0
        scales = np.where(constant, shifts, scales)
        divisors = np.where(scales == 0, np.float32(1), scales)
        zeros = np.ascontiguousarray(np.where(constant, np.float32(1), shifts / divisors).T)
    if kind.bits == 4:
        numbers = numbers[:, 0::2] | numbers[:, 1::2] << 4
    size = kind.group * kind.bits // 8
    stored = np.ascontiguousarray(numbers.T).reshape(depth // kind.group, size, outputs)
    return GroupedWeight(kind.bits, stored, narrow_scales(np.ascontiguousarray(scales.T)), zeros)


def make_rows(parts: Parts) -> GroupedRows:
    """Makes a table of embeddings from a decoded tensor (rows, features)."""
    numbers, scales, shifts = parts
    return GroupedRows(numbers, narrow_scales(scales), shifts)
