"""Products of matrices by a warpgroup: PTX's `wgmma.mma_async` of compute capability 9.0a.

Four warps together multiply tiles that lie in shared memory and add to a tile that their registers hold (scope
`warpgroup`). The left tile lies there with the reduction along its rows, the right one across them, as row-major
matrices do. How the tensor cores want rows to be placed is the target's affair. The layout of the sums is that of the
PTX ISA, "Matrix fragments for wgmma.mma_async.m64nNk16": that of `mma.sync` for each warp, 16 rows a warp.
"""

from __future__ import annotations

from dataclasses import dataclass

from search_space import te
from search_space.hardware import Hardware
from search_space.schedule.intrinsics import Fragment, TensorIntrin, register_intrinsic
from search_space.warp_intrinsics import SUMS

WGMMA = "wgmma"
"""Hardware feature of the instructions here."""
ROWS, DEPTH = 64, 16
"""Rows of the output's tile, and elements of one step of the reduction."""
THREADS = 128
"""Threads of a warpgroup."""
WIDTHS = (64, 128, 256)
"""Columns of the output's tile; the instruction takes any multiple of 8 up to 256."""
SCOPE = "warpgroup"
"""Scope of buffers that the threads of a warpgroup hold together."""


@dataclass(frozen=True)
class Wgmma:
    """out (64, columns) += left (64, 16) right (16, columns), added up in float32."""

    dtype: str
    columns: int
    product: TensorIntrin


def sums_fragment(columns: int) -> Fragment:
    """Lays out the output: 16 rows a warp, each warp's columns 8 at a time as `mma.sync` holds them."""
    return Fragment(
        (ROWS, columns),
        lambda row, column: row // 16 * 32 + SUMS.lane(row % 16, column % 8),
        lambda row, column: column // 8 * SUMS.registers + SUMS.register(row % 16, column % 8),
        ROWS * columns // THREADS,
    )


def _wgmma(dtype: str, columns: int) -> Wgmma:
    a, b = te.placeholder((ROWS, DEPTH), dtype, name="a"), te.placeholder((DEPTH, columns), dtype, name="b")
    r = te.reduce_axis((0, DEPTH), "r")
    c = te.compute(
        (ROWS, columns),
        lambda i, j: te.sum(a[i, r].astype("float32") * b[r, j].astype("float32"), axis=r),
        name="c",
    )
    name = f"wgmma_m{ROWS}n{columns}k{DEPTH}_{dtype}"
    held = (None, None, sums_fragment(columns))
    return Wgmma(dtype, columns, register_intrinsic(TensorIntrin(name, c.op, WGMMA, fragments=held)))


WGMMAS: tuple[Wgmma, ...] = tuple(_wgmma(dtype, n) for dtype in ("float16", "bfloat16") for n in WIDTHS)


def wgmmas_for(hardware: Hardware, left: str, right: str, out: str) -> tuple[Wgmma, ...]:
    """Lists the instructions that multiply factors of such dtypes, the narrowest first."""
    if WGMMA not in hardware.features or left != right or out != "float32":
        return ()
    return tuple(w for w in WGMMAS if w.dtype == left)
