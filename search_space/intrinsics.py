"""The tensor instructions sketches may use, each with the hardware feature it needs."""

from __future__ import annotations

from collections.abc import Iterable

from search_space import te
from search_space.hardware import Hardware
from search_space.schedule.intrinsics import TensorIntrin, get_intrinsic, register_family, register_intrinsic


def _dot(name: str, lanes: int, depth: int, left: str, right: str, out: str, feature: str) -> TensorIntrin:
    """Registers out[i] += sum over r < depth of left[r] * right[i, r], for `lanes` values of i."""
    a = te.placeholder((depth,), left, name="a")
    b = te.placeholder((lanes, depth), right, name="b")
    r = te.reduce_axis((0, depth), "r")
    c = te.compute((lanes,), lambda i: te.sum(a[r].astype(out) * b[i, r].astype(out), axis=r), name="c")
    return register_intrinsic(TensorIntrin(name, c.op, feature))


VNNI_DOT = _dot("vnni_dot_16x4", 16, 4, "uint8", "int8", "int32", "avx512vnni")
BF16_DOT = _dot("bf16_dot_16x2", 16, 2, "bfloat16", "bfloat16", "float32", "avx512bf16")


def _lane_dot(name: str, lanes: int, depth: int, left: str, right: str, out: str, feature: str) -> TensorIntrin:
    """Registers out[i] += sum over r < depth of left[i, r] * right[i, r], for `lanes` values of i."""
    a = te.placeholder((lanes, depth), left, name="a")
    b = te.placeholder((lanes, depth), right, name="b")
    r = te.reduce_axis((0, depth), "r")
    c = te.compute((lanes,), lambda i: te.sum(a[i, r].astype(out) * b[i, r].astype(out), axis=r), name="c")
    return register_intrinsic(TensorIntrin(name, c.op, feature))


VNNI_LANE_DOT = _lane_dot("vnni_lane_dot_16x4", 16, 4, "uint8", "int8", "int32", "avx512vnni")
BF16_LANE_DOT = _lane_dot("bf16_lane_dot_16x2", 16, 2, "bfloat16", "bfloat16", "float32", "avx512bf16")
LANES_APART: tuple[TensorIntrin, ...] = (VNNI_LANE_DOT, BF16_LANE_DOT)
"""Dot products whose lanes have factors of their own, as output channels of several groups do."""

INTRINSICS: tuple[TensorIntrin, ...] = (VNNI_DOT, BF16_DOT, *LANES_APART)

PAIR = 2
"""bfloat16 elements of a word of 32 bits."""


def _define_pairs(lanes: int, feature: str) -> TensorIntrin:
    """Registers out[i] += sum over r < 2 of left[r] * right[i, r], for `lanes` values of i, with `left` in float32.

    A shift makes float32 of the lower elements of a register of pairs, and a mask of the upper ones.
    """
    a, b = te.placeholder((PAIR,), "float32", name="a"), te.placeholder((lanes, PAIR), "bfloat16", name="b")
    r = te.reduce_axis((0, PAIR), "r")
    c = te.compute((lanes,), lambda i: te.sum(a[r] * b[i, r].astype("float32"), axis=r), name="c")
    return register_intrinsic(TensorIntrin(f"bf16_widened_{lanes}x{PAIR}", c.op, feature, steps=PAIR))


PAIR_PRODUCTS: tuple[TensorIntrin, ...] = (
    _define_pairs(16, "avx512f"),
    _define_pairs(8, "avx2"),
    _define_pairs(4, "neon"),
)
"""Products of float32 and pairs of bfloat16 by multiply-adds, for each width of vectors."""


def _tiles(name: str, pairs: int, left: str, right: str, out: str, feature: str) -> TensorIntrin:
    """Registers c[i, j] += sum over r < 16 and p < pairs of a[i, r, p] * b[r, j, p], for 16 x 16 sums.

    `pairs` elements fill 32 bits.
    """
    a, b = te.placeholder((16, 16, pairs), left, name="a"), te.placeholder((16, 16, pairs), right, name="b")
    r, p = te.reduce_axis((0, 16), "r"), te.reduce_axis((0, pairs), "p")
    c = te.compute(
        (16, 16), lambda i, j: te.sum(a[i, r, p].astype(out) * b[r, j, p].astype(out), axis=[r, p]), name="c"
    )
    return register_intrinsic(TensorIntrin(name, c.op, feature))


AMX_BF16 = _tiles("amx_bf16_16x16x32", 2, "bfloat16", "bfloat16", "float32", "amx-bf16")
AMX_INT8 = _tiles("amx_int8_16x16x64", 4, "uint8", "int8", "int32", "amx-int8")
"""Products of tile registers, for schedules by hand: `available` offers them to no sketch rule."""


def _sizes(sizes: str, family: str, form: str) -> tuple[int, int, int]:
    parts = sizes.split("x")
    if len(parts) != 3 or not all(part.isdigit() and int(part) > 0 for part in parts):
        raise ValueError(f"`intrinsic` {family} must be given its sizes as {form}, but got {sizes!r}")
    first, second, third = map(int, parts)
    return first, second, third


def available(hardware: Hardware) -> Iterable[TensorIntrin]:
    """Lists the instructions that `hardware` has, and the multiply-adds of its vectors that stand for some."""
    tiles = (get_intrinsic(f) for f in hardware.features if f.startswith(f"{GEMM_TILE}:"))
    widened = (i for i in PAIR_PRODUCTS if i.extents[0] == hardware.float_lanes)
    return (*(i for i in (*INTRINSICS, *widened) if i.feature in hardware.features), *tiles)


GEMM_TILE = "gemm_tile"
"""Family of products of one tile of int8, `gemm_tile:BxOxI`, the instruction of matrix accelerators."""


def gemm_tile(sizes: str) -> TensorIntrin:
    """Defines c[b, o] += sum over i of a[b, i] * w[o, i], factors in int8 and sums in int32."""
    batch, outs, ins = _sizes(sizes, GEMM_TILE, "BxOxI")
    a, w = te.placeholder((batch, ins), "int8", name="a"), te.placeholder((outs, ins), "int8", name="w")
    i = te.reduce_axis((0, ins), "i")
    c = te.compute(
        (batch, outs), lambda b, o: te.sum(a[b, i].astype("int32") * w[o, i].astype("int32"), axis=i), name="c"
    )
    return TensorIntrin(f"{GEMM_TILE}:{sizes}", c.op, f"{GEMM_TILE}:{sizes}")


register_family(GEMM_TILE, gemm_tile)

SGEMM = "sgemm"
"""Family of whole products of float32 matrices by a library, `sgemm:MxNxK`, on hardware with the feature `cblas`."""


def _sgemm(sizes: str) -> TensorIntrin:
    """Defines c[i, j] += sum over r of a[i, r] * b[r, j]."""
    m, n, k = _sizes(sizes, SGEMM, "MxNxK")
    a, b = te.placeholder((m, k), name="a"), te.placeholder((k, n), name="b")
    r = te.reduce_axis((0, k), "r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")
    return TensorIntrin(f"{SGEMM}:{sizes}", c.op, "cblas")


register_family(SGEMM, _sgemm)
