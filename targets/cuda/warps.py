"""Matrices that warps hold: buffers of scope `warp` become arrays of each lane, as the instructions' fragments say.

Before: `alloc c: float32[32, 16] in warp; mma(&c[16, 8], ...); threadIdx.x lane: y[...] = c[i, j]`. After: `alloc c:
float32[2, 2, 4] in local; mma(&c[1, 1, 0], ...); threadIdx.x lane: y[...] = c[i // 16, j // 8, register]`. A register
holds several elements of less than 4 bytes, so only instructions access them. TVM: LowerWarpMemory.
"""

from __future__ import annotations

from dataclasses import replace

from search_space.ir.expr import Expr, const, dtype_bytes, load, transform, var
from search_space.ir.regroup import Regrouping, recombine
from search_space.ir.stmt import Allocate, Buffer, For, Intrinsic, Operand, Seq, Stmt, Store, map_children, walk_stmt
from search_space.schedule.intrinsics import Fragment, get_intrinsic
from search_space.warp_intrinsics import MMAS
from search_space.warpgroup_intrinsics import SCOPE as WARPGROUP
from search_space.warpgroup_intrinsics import WGMMAS
from targets.base import BuildError

WORD = 4
"""Bytes of a register."""
WARP_INTRINSICS = frozenset(i.name for m in MMAS for i in (m.left, m.right, m.product))
WARP_OPERATIONS = WARP_INTRINSICS | {w.product.name for w in WGMMAS}
"""Instructions whose operands warps hold, or warpgroups."""


def lower_warps(stmt: Stmt) -> Stmt:
    """Turns every buffer of scope `warp` into an array of each lane.

    Raises:
        BuildError: an element that a thread reads and another lane holds, or unsupported statements on such buffers.
    """
    fragments: dict[str, Fragment] = {}
    for node in walk_stmt(stmt):
        if isinstance(node, Intrinsic) and node.name in WARP_OPERATIONS:
            held = get_intrinsic(node.name).fragments
            for operand, fragment in zip((*node.inputs, node.output), held, strict=True):
                if fragment is not None:
                    fragments[operand.buffer] = fragment
    return _Lowering(fragments).stmt(stmt) if fragments else stmt


def registers(fragment: Fragment, dtype: str) -> int:
    """Returns the registers of a lane that one fragment takes."""
    return fragment.registers * min(WORD, dtype_bytes(dtype)) // WORD


class _Lowering:
    def __init__(self, fragments: dict[str, Fragment]) -> None:
        self.fragments = fragments
        self.buffers: dict[str, Buffer] = {}
        self.ranges: dict[str, Expr] = {}
        self.simplify = Regrouping(self.ranges)
        self.lanes: set[str] = set()

    def stmt(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, Seq):
            return map_children(stmt, self.stmt)
        if isinstance(stmt, Allocate):
            return self.allocate(stmt)
        if isinstance(stmt, For):
            self.ranges[stmt.var] = stmt.extent
            self.simplify.forget()
            if stmt.kind == "threadIdx.x":
                self.lanes.add(stmt.var)
            fill = self.fill(stmt)
            return replace(stmt, body=self.stmt(stmt.body)) if fill is None else fill
        if isinstance(stmt, Intrinsic):
            return replace(stmt, output=self.operand(stmt.output), inputs=tuple(map(self.operand, stmt.inputs)))
        assert isinstance(stmt, Store), stmt
        if stmt.buffer in self.buffers:
            raise BuildError(
                f"a buffer of scope warp must be filled by instructions or with one number, but {stmt.buffer} is "
                f"given {stmt.value}"
            )
        return replace(stmt, value=transform(stmt.value, self.element))

    def allocate(self, stmt: Allocate) -> Stmt:
        buffer = stmt.buffer
        if buffer.scope not in ("warp", WARPGROUP):
            return replace(stmt, body=self.stmt(stmt.body))
        if buffer.name not in self.fragments:
            raise BuildError(f"a buffer of scope warp must be an operand of an instruction, but got {buffer.name}")
        fragment, (*lead, rows, columns) = self.fragments[buffer.name], buffer.shape
        tiles = []
        for extent, tile in zip((rows, columns), fragment.shape, strict=True):
            if extent.value % tile:
                raise BuildError(f"{buffer.name} must hold whole tiles of {fragment.shape}, but got {buffer.shape}")
            tiles.append(const(extent.value // tile))
        self.buffers[buffer.name] = buffer
        # Instructions take whole registers, whatever is packed in them.
        dtype = buffer.dtype if dtype_bytes(buffer.dtype) >= WORD else "int32"
        shape = (*lead, *tiles, const(registers(fragment, buffer.dtype)))
        return Allocate(Buffer(buffer.name, shape, dtype, "local"), self.stmt(stmt.body))

    def tile(self, name: str, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Returns the indices of the tile that contains an element."""
        *lead, row, column = indices
        rows, columns = self.fragments[name].shape
        return (*lead, self.simplify(row // rows), self.simplify(column // columns))

    def operand(self, operand: Operand) -> Operand:
        if operand.buffer not in self.buffers:
            return operand
        at = (*self.tile(operand.buffer, operand.indices), const(0))
        return Operand(operand.buffer, at, at)

    def element(self, node: Expr) -> Expr | None:
        """Rewrites the read of one element for the lane that holds it."""
        if node.op != "load" or node.args[0] not in self.buffers:
            return None
        name, indices = node.args[0], node.args[1:]
        fragment, buffer = self.fragments[name], self.buffers[name]
        if dtype_bytes(buffer.dtype) < WORD:
            raise BuildError(f"elements of {name} must be read by instructions alone, as registers hold several")
        row, column = (self.simplify(i % e) for i, e in zip(indices[-2:], fragment.shape, strict=True))
        lane = recombine(self.simplify(fragment.lane(row, column)), self.simplify)
        # Any other lane's would have to be shuffled here; rules loop over elements as lanes hold them.
        if lane.op != "var" or lane.args[0] not in self.lanes:
            raise BuildError(
                f"a thread must read the elements of {name} that its lane holds, but {node} is with {lane}"
            )
        register = self.simplify(fragment.register(row, column))
        return load(name, [*self.tile(name, indices), register], node.dtype)

    def fill(self, loop: For) -> Stmt | None:
        """Rewrites loops over a whole tile that set it to a number: each lane sets its registers."""
        inner = loop.body
        if not isinstance(inner, For) or not isinstance(inner.body, Store) or inner.body.buffer not in self.buffers:
            return None
        store, fragment = inner.body, self.fragments[inner.body.buffer]
        self.ranges[inner.var] = inner.extent
        self.simplify.forget()
        within = [self.simplify(i % e) for i, e in zip(store.indices[-2:], fragment.shape, strict=True)]
        whole = (loop.extent.value, inner.extent.value) == fragment.shape
        plain = store.value.is_const and store.reducer is None and store.predicate is None
        if not plain or not whole or within != [var(loop.var), var(inner.var)]:
            return None
        count = registers(fragment, self.buffers[store.buffer].dtype)
        tile = self.tile(store.buffer, store.indices)
        value = store.value if dtype_bytes(store.value.dtype) >= WORD else const(0, "int32")
        return For(loop.var, const(count), "unroll", Store(store.buffer, (*tile, var(loop.var)), value))


__all__ = ["WARP_INTRINSICS", "WORD", "lower_warps", "registers"]
