"""Instructions of a GPU's tensor cores: products of small matrices that the lanes of a warp hold together.

The layouts are those of PTX's `mma.sync` (PTX ISA, "Matrix fragments for mma.m16n8k8", "m16n8k16" and "m16n8k32"). A
tile in buffers of scope `warp` is an integer number of fragments, each distributed to lanes as its layout says.
"""

from __future__ import annotations

from dataclasses import dataclass

from search_space import te
from search_space.hardware import Hardware
from search_space.ir.expr import Expr, dtype_bytes
from search_space.ir.rounding import TFLOAT32
from search_space.schedule.intrinsics import Fragment, TensorIntrin, register_intrinsic

MMA = "mma"
"""Hardware feature of the instructions here."""
ROWS, COLUMNS = 16, 8
"""Rows and columns of the output's tile."""


@dataclass(frozen=True)
class Mma:
    """A product of tiles, and the loads that bring its operands from shared memory into the registers of a warp.

    Attributes:
        dtypes: types of the left and right factors, and of the sums. Factors of tfloat32 are float32 in memory and in
            registers; the instruction's expression rounds them.
        depth: elements along the reduction.
        turned: whether the right operand's tile lies in shared memory with the reduction along its rows.
        left, right: loads; product: out (16, 8) += left (16, depth) right (depth, 8), or right (8, depth) if turned.
    """

    dtypes: tuple[str, str, str]
    depth: int
    turned: bool
    left: TensorIntrin
    right: TensorIntrin
    product: TensorIntrin

    @property
    def register_dtypes(self) -> tuple[str, str, str]:
        """Dtypes of the elements in registers."""
        left, right, out = (_memory(d) for d in self.dtypes)
        return left, right, out


def _memory(dtype: str) -> str:
    return "float32" if dtype == TFLOAT32 else dtype


def left_fragment(depth: int) -> Fragment:
    """Lays out 16 rows by `depth`: two rows of each lane, in runs of 4 bytes, the halves of the depth in turn."""
    run, half = depth // 8, depth // 2

    def lane(row: Expr, column: Expr) -> Expr:
        return row % 8 * 4 + column % half // run

    def register(row: Expr, column: Expr) -> Expr:
        return column // half * (2 * run) + row // 8 * run + column % run

    return Fragment((ROWS, depth), lane, register, 4 * run)


def right_fragment(depth: int, turned: bool) -> Fragment:
    """Lays out `depth` by 8 columns, or turned: 8 by `depth`."""
    run, half = depth // 8, depth // 2

    def lane(k: Expr, column: Expr) -> Expr:
        return column * 4 + k % half // run

    def register(k: Expr, column: Expr) -> Expr:
        return k // half * run + k % run

    if turned:
        return Fragment((COLUMNS, depth), lambda n, k: lane(k, n), lambda n, k: register(k, n), 2 * run)
    return Fragment((depth, COLUMNS), lane, register, 2 * run)


SUMS = Fragment(
    (ROWS, COLUMNS),
    lambda row, column: row % 8 * 4 + column // 2,
    lambda row, column: row // 8 * 2 + column % 2,
    4,
)
"""Layout of the output: rows 8 apart, two columns next to each other."""


def _load(name: str, dtype: str, fragment: Fragment) -> TensorIntrin:
    """Registers the load of a tile from shared memory into the registers of a warp."""
    tile = te.placeholder(fragment.shape, dtype, name="tile")
    copy = te.compute(fragment.shape, lambda i, j: tile[i, j], name="fragment")
    return register_intrinsic(TensorIntrin(name, copy.op, MMA, fragments=(None, fragment)))


def _mma(left: str, right: str, out: str) -> Mma:
    """Defines a product and its loads.

    Loads of 16-bit operands can transpose them; of bytes the right operand must be turned in shared memory.
    """
    size = dtype_bytes(_memory(left))
    depth, turned = 32 // size, size == 1
    a = te.placeholder((ROWS, depth), _memory(left), name="a")
    b = te.placeholder((COLUMNS, depth) if turned else (depth, COLUMNS), _memory(right), name="b")
    r = te.reduce_axis((0, depth), "r")

    def product(i: te.IterVar, j: te.IterVar) -> te.Reduction:
        factors = (a[i, r], b[j, r] if turned else b[r, j])
        x, y = (te.tfloat32(f) if left == TFLOAT32 else f.astype(out) for f in factors)
        return te.sum(x * y, axis=r)

    c = te.compute((ROWS, COLUMNS), product, name="c")
    shape = f"m16n8k{depth}"
    layouts = left_fragment(depth), right_fragment(depth, turned)
    return Mma(
        (left, right, out),
        depth,
        turned,
        _load(f"load_left_{shape}_{left}", _memory(left), layouts[0]),
        _load(f"load_right_{shape}_{right}", _memory(right), layouts[1]),
        register_intrinsic(TensorIntrin(f"mma_{shape}_{left}_{right}", c.op, MMA, fragments=(*layouts, SUMS))),
    )


MMAS: tuple[Mma, ...] = (
    _mma("float16", "float16", "float32"),
    _mma("bfloat16", "bfloat16", "float32"),
    _mma("uint8", "int8", "int32"),
    _mma(TFLOAT32, TFLOAT32, "float32"),
)


def mma_for(hardware: Hardware, left: str, right: str, out: str) -> Mma | None:
    """Returns the instruction that multiplies factors of such dtypes, maybe tfloat32; None if the machine has none."""
    if MMA not in hardware.features:
        return None
    return next((m for m in MMAS if m.dtypes == (left, right, out)), None)
