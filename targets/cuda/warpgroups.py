"""Lowering of warpgroup instructions: swizzled tiles, waits and fences.

`wgmma` reads both factors from shared memory through descriptors (PTX ISA, "Shared Memory Matrix Layout"). They
describe rows of 128 bytes, one after another. The row's number permutes the 8 parts of 16 bytes of a row (128-byte
swizzle). So neither rows nor columns of 8 x 8 matrices meet in a bank. Here a tile of more than 64 columns is cut into
such blocks:

    alloc a: float16[128, 128] in shared      ->      alloc a: float16[2, 128, 64] in shared, swizzled

The instructions are asynchronous. In front of each nest of them is a fence, which orders writes of threads to the sums'
registers. Behind it is the end of their group, with a wait for it. Barriers get a fence, too, by which tensor cores see
the threads' writes to shared memory. All of this is in the device program, so that the emulator detects omissions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from search_space.ir.expr import Expr, const, dtype_bytes, load, transform
from search_space.ir.regroup import Regrouping
from search_space.ir.stmt import (
    Allocate,
    Barrier,
    Buffer,
    For,
    Intrinsic,
    Operand,
    Seq,
    Stmt,
    Store,
    map_children,
    map_exprs,
    seq,
    walk_stmt,
)
from search_space.warpgroup_intrinsics import WGMMAS
from targets.base import BuildError

PRODUCTS = frozenset(w.product.name for w in WGMMAS)
FENCE, COMMIT, WAIT = "wgmma_fence", "wgmma_commit", "wgmma_wait"
"""`wgmma_wait:n` waits for all groups but the last n."""
LINE_BYTES, LINES = 128, 8
"""Bytes of a row, and rows over which its parts are exchanged."""
PATTERN = LINE_BYTES * LINES
"""Bytes after which the exchange repeats; tiles begin at multiples of it."""


def uses_warpgroups(stmt: Stmt) -> bool:
    return any(isinstance(n, Intrinsic) and n.name in PRODUCTS for n in walk_stmt(stmt))


def is_warpgroup_intrinsic(name: str) -> bool:
    """Tells whether all threads of a warpgroup come to an instruction together."""
    return name in PRODUCTS or name in (FENCE, COMMIT) or name.partition(":")[0] == WAIT


def waits(stmt: Stmt) -> bool:
    """Tells whether a statement waits for products."""
    return isinstance(stmt, Intrinsic) and stmt.name.partition(":")[0] == WAIT


def lower_warpgroups(stmt: Stmt) -> Stmt:
    """Rewrites tiles as swizzled ones, and inserts fences and waits around products.

    Raises:
        BuildError: a tile that is no whole number of swizzled blocks.
    """
    tiles: set[str] = set()
    for node in walk_stmt(stmt):
        if isinstance(node, Intrinsic) and node.name in PRODUCTS:
            tiles |= {o.buffer for o in node.inputs}
    return _fence_products(_Swizzling(tiles).stmt(stmt)) if tiles else stmt


def with_proxies(stmt: Stmt) -> Stmt:
    """Extends the barriers of a statement: tensor cores see earlier writes of threads to shared memory."""
    return replace(stmt, proxy=True) if isinstance(stmt, Barrier) else map_children(stmt, with_proxies)


# ---------------------------------------------------------------------- waiting
def _fence_products(stmt: Stmt) -> Stmt:
    """Puts each nest of nothing but products between a fence and a wait."""
    # Products into the same sums follow one another by themselves: one fence and one wait serve a whole nest.
    if _only_products(stmt):
        (sums,) = {n.output.buffer: n.output for n in walk_stmt(stmt) if isinstance(n, Intrinsic)}.values()
        zero = tuple(const(0) for _ in sums.indices)
        operand = Operand(sums.buffer, zero, zero)
        ends = [Intrinsic(name, operand, ()) for name in (FENCE, COMMIT, f"{WAIT}:0")]
        return seq(ends[0], stmt, *ends[1:])
    return map_children(stmt, _fence_products)


def _only_products(stmt: Stmt) -> bool:
    leaves = [n for n in walk_stmt(stmt) if not isinstance(n, (Seq, For))]
    return bool(leaves) and all(isinstance(n, Intrinsic) and n.name in PRODUCTS for n in leaves)


# ---------------------------------------------------------------------- tiles
class _Swizzling:
    """Cuts tiles into blocks of rows of 128 bytes."""

    def __init__(self, tiles: set[str]) -> None:
        self.tiles = tiles
        self.lines: dict[str, int] = {}
        self.ranges: dict[str, Expr] = {}
        self.simplify = Regrouping(self.ranges)

    def stmt(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, Allocate) and stmt.buffer.name in self.tiles:
            stmt = replace(stmt, buffer=self.buffer(stmt.buffer))
        if isinstance(stmt, For):
            self.ranges[stmt.var] = stmt.extent
            self.simplify.forget()
        if isinstance(stmt, Intrinsic):
            return replace(stmt, output=self.operand(stmt.output), inputs=tuple(map(self.operand, stmt.inputs)))
        if isinstance(stmt, (Seq, For, Allocate)):
            return map_children(stmt, self.stmt)
        assert isinstance(stmt, Store), stmt
        memo: dict[int, Expr] = {}
        done = map_exprs(stmt, lambda e: transform(e, self.read, memo))
        assert isinstance(done, Store)
        return replace(done, indices=self.swizzle(stmt.buffer, done.indices))

    def buffer(self, buffer: Buffer) -> Buffer:
        *lead, rows, columns = buffer.shape
        line = LINE_BYTES // dtype_bytes(buffer.dtype)
        whole = buffer.scope == "shared" and buffer.pitches is None and columns.value % line == 0
        if not whole or rows.value % LINES:
            raise BuildError(
                f"a tile of a warpgroup must be whole blocks of {LINES} rows of {line} in shared memory, but "
                f"{buffer.name} is {buffer.shape} in {buffer.scope}"
            )
        self.lines[buffer.name] = line
        return replace(buffer, shape=(*lead, const(columns.value // line), rows, const(line)), swizzled=True)

    def swizzle(self, name: str, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        if name not in self.lines:
            return indices
        *lead, row, column = indices
        line = self.lines[name]
        return (*lead, self.simplify(column // line), row, self.simplify(column % line))

    def operand(self, operand: Operand) -> Operand:
        if operand.buffer not in self.lines:
            return operand
        *lead, row, column = operand.elements
        line = self.lines[operand.buffer]
        elements = (*lead, column // line, row, column % line)
        return Operand(operand.buffer, self.swizzle(operand.buffer, operand.indices), elements)

    def read(self, node: Expr) -> Expr | None:
        if node.op != "load" or node.args[0] not in self.lines:
            return None
        indices = tuple(transform(a, self.read) for a in node.args[1:])
        return load(node.args[0], list(self.swizzle(node.args[0], indices)), node.dtype)


# ---------------------------------------------------------------------- descriptors
@dataclass(frozen=True)
class Descriptor:
    """The position and layout of a factor's tile for tensor cores.

    Attributes:
        start: start of the tile, in elements from the buffer's first, before swizzling.
        leading: bytes from one block to the next, of a tile that lies across the reduction; 16 where not used.
        stride: bytes from 8 rows to the next 8.
    """

    start: Expr
    leading: int
    stride: int = PATTERN


def descriptor(buffer: Buffer, operand: Operand, across: bool, start: Expr, simplify: Regrouping) -> Descriptor:
    """Describes a factor's tile in a swizzled buffer.

    Args:
        across: whether the reduction runs across rows of memory (MN-major) rather than along them (K-major).
        start: place of the tile's first element.

    Raises:
        BuildError: a tile that does not begin where the exchange does.
    """
    *_, row, column = operand.indices
    size = dtype_bytes(buffer.dtype)
    aligned = [simplify(row % LINES), simplify(column % (LINE_BYTES // size if across else 16 // size))]
    if not buffer.swizzled or any(not e.is_const or e.value for e in aligned):
        raise BuildError(f"a tile of a warpgroup must begin with a block's {LINES} rows, but got {operand.indices}")
    rows = int(buffer.shape[-2].value)
    return Descriptor(start, rows * LINE_BYTES if across else 16)


def encode(address: int, leading: int, stride: int) -> int:
    """Encodes a descriptor with 128-byte swizzle, for a tile at byte `address` of shared memory, in 64 bits."""
    # All in units of 16 bytes; bit 62 says 128-byte swizzle.
    return (address & 0x3FFFF) >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | 1 << 62
