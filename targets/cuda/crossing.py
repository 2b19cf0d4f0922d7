"""Reductions across threads: every thread has a part of a sum, and all that share a row add theirs up.

Before: `threadIdx.x t: out[i] += part`, where no index of `out` depends on the thread, so that each would add to the
same element. After: shuffles within warps, sums of warps through shared memory for longer rows, and one thread that
adds the sum to the earlier value. If that is the initial value, all threads store the sum. One thread sums rows whose
number of threads is no power of two. TVM: LowerThreadAllreduce.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from search_space.ir.expr import Expr, const, eq, load, logical_and, select, var, variables
from search_space.ir.stmt import Allocate, Barrier, Buffer, For, Intrinsic, Operand, Seq, Stmt, Store, seq
from search_space.schedule.state import identity
from targets.base import BuildError
from targets.cuda.bulk import is_bulk
from targets.cuda.warpgroups import is_warpgroup_intrinsic
from targets.cuda.warps import WARP_INTRINSICS

WARP = 32
WARP_REDUCE = "warp_reduce"
"""Family of instructions `warp_reduce:REDUCER:LANES`: values of neighbouring lanes reduced, the result in each."""
SHUFFLE_TYPES = ("float32", "int32")


@dataclass(frozen=True)
class _Around:
    """The surroundings of a statement: loops over threads, and buffers with the number of such loops around each."""

    loops: tuple[For, ...]
    buffers: tuple[tuple[Buffer, int], ...]


def reduce_across_threads(stmt: Stmt, buffers: Sequence[Buffer], block: tuple[int, int, int]) -> Stmt:
    """Lowers the reductions across threads in the body of a kernel.

    Args:
        buffers: buffers in device memory.
        block: threads along x, y and z.

    Raises:
        BuildError: a reduction across threads along y or z, or across some of those along x.
    """
    return _Crossing(block).stmt(stmt, _Around((), tuple((b, 0) for b in buffers)))


class _Crossing:
    def __init__(self, block: tuple[int, int, int]) -> None:
        self.block = block
        self.count = 0
        self.fresh: set[int] = set()  # reductions that begin with the initial value

    def stmt(self, stmt: Stmt, around: _Around) -> Stmt:
        if isinstance(stmt, Seq):
            return seq(*self.sequence(stmt.body, around))
        if isinstance(stmt, For):
            if stmt.kind.startswith("threadIdx") and stmt.extent.value > 1:
                around = replace(around, loops=(*around.loops, stmt))
            return replace(stmt, body=self.stmt(stmt.body, around))
        if isinstance(stmt, Allocate):
            inner = replace(around, buffers=(*around.buffers, (stmt.buffer, len(around.loops))))
            return replace(stmt, body=self.stmt(stmt.body, inner))
        if isinstance(stmt, Store) and stmt.reducer is not None:
            return self.store(stmt, around)
        return stmt

    def sequence(self, stmts: Sequence[Stmt], around: _Around) -> list[Stmt]:
        """Lowers a sequence; an initial value that a reduction across threads begins with is left out."""
        out: list[Stmt] = []
        for init, stmt in zip((None, *stmts), stmts, strict=False):
            found = _only_reduction(stmt)
            if found is not None and _is_init(init, found) and self.shuffles(found, around, stmt):
                out.pop()
                self.fresh.add(id(found))
            out.append(self.stmt(stmt, around))
        return out

    def shuffles(self, store: Store, around: _Around, stmt: Stmt) -> bool:
        """Tells whether a store inside `stmt` is a reduction across threads that leaves the result in each of them."""
        dtype = next(b.dtype for b, _ in reversed(around.buffers) if b.name == store.buffer)
        used = frozenset().union(*(variables(i) for i in store.indices))
        inside = [loop for loop in _loops_to_reduction(stmt) if loop.extent.value > 1]
        loops = [loop for loop in (*around.loops, *inside) if loop.kind == "threadIdx.x"]
        crossed = bool(loops) and loops[-1] in inside and not any(loop.var in used for loop in loops)
        return crossed and dtype in SHUFFLE_TYPES and self.block[0] & (self.block[0] - 1) == 0

    def store(self, store: Store, around: _Around) -> Stmt:
        buffer, depth = next((b, d) for b, d in reversed(around.buffers) if b.name == store.buffer)
        used = frozenset().union(*(variables(i) for i in store.indices))
        inside = around.loops[depth:]
        told_apart = {loop.kind for loop in inside if loop.var in used}
        crossed = [loop for loop in inside if loop.kind not in told_apart]
        if not crossed:
            return store
        kinds = {loop.kind for loop in crossed}
        if kinds != {"threadIdx.x"}:
            raise BuildError(
                f"a reduction across threads must run along threadIdx.x, but {store.buffer} is reduced along "
                f"{', '.join(sorted(kinds))}"
            )
        threads = int(crossed[0].extent.value)
        if threads != self.block[0]:
            raise BuildError(
                f"a reduction across threads must run over all of a block's {self.block[0]} along threadIdx.x, but "
                f"loop {crossed[0].var} has {threads}"
            )
        return self.lower_store(store, buffer, threads)

    def lower_store(self, store: Store, buffer: Buffer, threads: int) -> Stmt:
        self.count += 1
        name = f"{store.buffer}.across{self.count}"
        y, z = self.block[1:]
        tx, ty, tz = (var(f"{name}.{axis}") for axis in "xyz")
        row = ty + tz * y
        assert store.reducer is not None
        nothing = const(identity(store.reducer, buffer.dtype), buffer.dtype)
        # A thread with nothing to add takes part all the same: shuffles and barriers wait for all.
        value = store.value if store.predicate is None else select(store.predicate, store.value, nothing)
        first = eq(tx, const(0))
        alone = first if store.predicate is None else logical_and(first, store.predicate)
        power = threads & (threads - 1) == 0
        if power and buffer.dtype in SHUFFLE_TYPES:
            body = self._reduce_by_shuffles(store, buffer, name, threads, value, (tx, row), alone)
        else:
            shared = Buffer(f"{name}.parts", (const(y * z), const(threads)), buffer.dtype, "shared")
            each = var(f"{name}.i")
            part = load(shared.name, [row, each], buffer.dtype)
            last = Store(store.buffer, store.indices, part, store.reducer, alone)
            body = Allocate(
                shared,
                seq(Store(shared.name, (row, tx), value), For(f"{name}.i", const(threads), "serial", last)),
            )
        for axis, extent in zip("xyz", self.block, strict=True):
            body = For(f"{name}.{axis}", const(extent), f"threadIdx.{axis}", body)
        return body

    def _reduce_by_shuffles(
        self,
        store: Store,
        buffer: Buffer,
        name: str,
        threads: int,
        value: Expr,
        position: tuple[Expr, Expr],
        alone: Expr,
    ) -> Stmt:
        tx, row = position
        mine = Buffer(name, (const(1),), buffer.dtype, "local")
        zero = (const(0),)
        operand = Operand(name, zero, zero)
        total = load(name, [0], buffer.dtype)
        fresh = id(store) in self.fresh

        def across(lanes: int) -> Stmt:
            return Intrinsic(f"{WARP_REDUCE}:{store.reducer}:{lanes}", operand, (operand,))

        steps: list[Stmt] = [Store(name, zero, value), across(min(threads, WARP))]
        last = Store(store.buffer, store.indices, total, None if fresh else store.reducer, None if fresh else alone)
        if threads <= WARP:
            return Allocate(mine, seq(*steps, last))
        warps = threads // WARP
        shared = Buffer(f"{name}.warps", (const(self.block[1] * self.block[2]), const(warps)), buffer.dtype, "shared")
        steps += [
            Store(shared.name, (row, tx // WARP), total, None, eq(tx % WARP, const(0))),
            # Every group of as many lanes as there are warps adds up the same sums, so that all threads end with the
            # result.
            Store(name, zero, load(shared.name, [row, tx % warps], buffer.dtype)),
            across(warps),
            last,
        ]
        return Allocate(mine, Allocate(shared, seq(*steps)))


def _only_reduction(stmt: Stmt) -> Store | None:
    """Finds the one reducing store to a buffer from outside, with nothing but loops over threads around it."""
    if isinstance(stmt, (For, Allocate)):
        if isinstance(stmt, For) and not stmt.kind.startswith("threadIdx"):
            return None
        return _only_reduction(stmt.body)
    if isinstance(stmt, Seq):
        return _only_reduction(stmt.body[-1])
    return stmt if isinstance(stmt, Store) and stmt.reducer is not None else None


def _loops_to_reduction(stmt: Stmt) -> list[For]:
    """Lists the loops around the store that `_only_reduction` finds, without those of the statements in front of it."""
    if isinstance(stmt, For):
        return [stmt, *_loops_to_reduction(stmt.body)]
    if isinstance(stmt, Allocate):
        return _loops_to_reduction(stmt.body)
    return _loops_to_reduction(stmt.body[-1]) if isinstance(stmt, Seq) else []


def _is_init(stmt: Stmt | None, reduction: Store) -> bool:
    if not isinstance(stmt, Store) or stmt.buffer != reduction.buffer or stmt.indices != reduction.indices:
        return False
    if stmt.reducer is not None or stmt.predicate is not None or not stmt.value.is_const:
        return False
    assert reduction.reducer is not None
    return bool(stmt.value.value == identity(reduction.reducer, stmt.value.dtype))


def warp_reduce(name: str) -> tuple[str, int]:
    """Parses reducer and lanes of an instruction's name."""
    _, reducer, lanes = name.split(":")
    return reducer, int(lanes)


def synchronises(stmt: Stmt) -> bool:
    """Tells whether all threads must come to a statement together."""
    if not isinstance(stmt, Intrinsic):
        return isinstance(stmt, Barrier)
    together = stmt.name in WARP_INTRINSICS or is_warpgroup_intrinsic(stmt.name) or is_bulk(stmt)
    return together or stmt.name.startswith(f"{WARP_REDUCE}:")


__all__ = ["SHUFFLE_TYPES", "WARP", "WARP_REDUCE", "reduce_across_threads", "synchronises", "warp_reduce"]
