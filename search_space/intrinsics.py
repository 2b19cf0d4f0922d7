"""The tensor instructions sketches may use, each with the hardware feature it needs."""

from __future__ import annotations

from collections.abc import Iterable

from search_space import te
from search_space.hardware import Hardware
from search_space.schedule.intrinsics import TensorIntrin, register_family, register_intrinsic


def _dot(name: str, lanes: int, depth: int, left: str, right: str, out: str, feature: str) -> TensorIntrin:
    """out[i] += sum over r < depth of left[r] * right[i, r], for `lanes` values of i."""
    a = te.placeholder((depth,), left, name="a")
    b = te.placeholder((lanes, depth), right, name="b")
    r = te.reduce_axis((0, depth), "r")
    c = te.compute((lanes,), lambda i: te.sum(a[r].astype(out) * b[i, r].astype(out), axis=r), name="c")
    return register_intrinsic(TensorIntrin(name, c.op, feature))


VNNI_DOT = _dot("vnni_dot_16x4", 16, 4, "uint8", "int8", "int32", "avx512vnni")
BF16_DOT = _dot("bf16_dot_16x2", 16, 2, "bfloat16", "bfloat16", "float32", "avx512bf16")
INTRINSICS: tuple[TensorIntrin, ...] = (VNNI_DOT, BF16_DOT)


def available(hardware: Hardware) -> Iterable[TensorIntrin]:
    """Instructions that `hardware` has."""
    return (i for i in INTRINSICS if i.feature in hardware.features)


SGEMM = "sgemm"
"""Family of whole products of float32 matrices by a library, `sgemm:MxNxK`, on hardware with the feature `cblas`."""


def _sgemm(sizes: str) -> TensorIntrin:
    """c[i, j] += sum over r of a[i, r] * b[r, j]."""
    parts = sizes.split("x")
    if len(parts) != 3 or not all(part.isdigit() and int(part) > 0 for part in parts):
        raise ValueError(f"`intrinsic` sgemm must be given its sizes as MxNxK, but got {sizes!r}")
    m, n, k = map(int, parts)
    a, b = te.placeholder((m, k), name="a"), te.placeholder((k, n), name="b")
    r = te.reduce_axis((0, k), "r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")
    return TensorIntrin(f"{SGEMM}:{sizes}", c.op, "cblas")


register_family(SGEMM, _sgemm)
