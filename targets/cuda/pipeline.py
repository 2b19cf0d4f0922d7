"""Pipelined loops: tiles of the next steps are copied into shared memory while one is worked on.

Before: `for k [pipeline=n]: {fill tile from k; work on tile}`. After: n tiles, the first n - 1 filled in front of the
loop. Every step waits until its tile is there and no thread works on the one before any more. It then starts to fill
that one for n - 1 steps later, and works: one barrier a step. Copies from device memory are asynchronous (`cp.async`),
each step's a group of its own. TVM: InjectSoftwarePipeline.

Products of warpgroups are asynchronous, too. With three tiles or more, products of a step overlap with those of the
next one. A step waits for the products of the step before, whose tile is filled again after the next barrier, so n - 2
steps ahead.

Tiles that the TMA unit fills (`bulk.py`) are asked for at the same places, by one thread. A step waits for their
arrival behind its barrier, after the next have been asked for.

Loops that are not pipelined are filled by such copies, too, between two barriers. The copies take no registers. They
write zeros where there is no element, without a branch that later loads would wait for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from search_space.ir.expr import Expr, const, logical_and, substitute, var
from search_space.ir.stmt import (
    Allocate,
    Barrier,
    Buffer,
    For,
    Intrinsic,
    Seq,
    Stmt,
    Store,
    map_children,
    map_exprs,
    seq,
    walk_stmt,
)
from search_space.lower.blocks import PIPELINE
from targets.accesses import all_accesses
from targets.base import BuildError
from targets.cuda.bulk import Ring, is_copy, is_unawaited_copy
from targets.cuda.vthreads import add_index
from targets.cuda.warpgroups import WAIT, waits

ASYNC = "async"
"""Pragma of a statement's loop: copies inside may come later; when it ends, so does a group of them."""


def rewrite_pipelines(stmt: Stmt) -> Stmt:
    """Rewrites the pipelined loops of a statement.

    Raises:
        BuildError: tiles that are made of other tiles, or used before they are filled.
    """
    loop = map_children(stmt, rewrite_pipelines)
    if not isinstance(loop, For):
        return loop
    stages = dict(loop.pragmas).get(PIPELINE, 1)
    loop = replace(loop, pragmas=tuple((k, v) for k, v in loop.pragmas if k != PIPELINE))
    return _rewritten(loop, stages) if stages > 1 and loop.extent.value > 1 else _fill_by_copies(loop)


def _fill_by_copies(loop: For) -> Stmt:
    """Turns the filling of a loop's tiles into copies, if it comes first in a step and reads no other tile."""
    tiles: list[Buffer] = []
    others: list[Buffer] = []
    parts = _flat(loop.body, tiles, others)
    fills, work = _split_fills(parts, {tile.name for tile in tiles})
    if loop.kind != "serial" or not fills or not work or not _filled_first(parts, fills, {t.name for t in tiles}):
        if any(map(is_unawaited_copy, parts)):
            raise BuildError(f"tiles of the loop {loop.var} that the TMA unit fills must be filled first in each step")
        return loop
    filling, step = _Filling(fills, tiles, loop.var, 1), var(loop.var)
    there = [*filling.await_copies(step), *([Barrier(pending=0)] if filling.needs_group else [])]
    # Nobody may still work on the tile when it is filled again, nor begin before it is full.
    body: Stmt = seq(Barrier(), *filling.start_copies(fills, step, f"{loop.var}.fill"), *there, *work)
    for buffer in reversed((*tiles, *others)):
        body = Allocate(buffer, body)
    return filling.around(replace(loop, body=body))


class _Filling:
    """The filling of a loop's tiles: groups of asynchronous copies, the TMA unit, or both.

    Args:
        fills: statements that fill tiles.
        tiles: tiles of the loop.
        loop: its variable.
        stages: number of copies of each tile.
    """

    def __init__(self, fills: Sequence[Stmt], tiles: Sequence[Buffer], loop: str, stages: int) -> None:
        by_unit = {s.output.buffer for s in fills if isinstance(s, Intrinsic) and is_copy(s)}
        self.needs_group = any(not is_copy(s) for s in fills)
        self.ring = Ring.of(loop, stages, [t for t in tiles if t.name in by_unit]) if by_unit else None

    def start_copies(self, fills: Sequence[Stmt], step: Expr, name: str) -> list[Stmt]:
        """Starts the fills of a step, as copies that arrive later."""
        copies = [s for s in fills if isinstance(s, Intrinsic) and is_copy(s)]
        out = self.ring.start_copies(copies, step) if self.ring is not None and copies else []
        return [*out, _group(seq(*(s for s in fills if not is_copy(s))), name)] if self.needs_group else out

    def await_copies(self, step: Expr) -> list[Stmt]:
        return [] if self.ring is None else self.ring.await_copies(step)

    def around(self, stmt: Stmt) -> Stmt:
        """Puts the mbarriers around a statement."""
        return stmt if self.ring is None else Allocate(self.ring.buffer, seq(*self.ring.begin(), stmt))


def _split_fills(parts: Sequence[Stmt], names: set[str]) -> tuple[list[Stmt], list[Stmt]]:
    """Separates the statements that fill tiles from the ones that work on them."""
    fills = [s for s in parts if any(a.write and a.buffer in names for a in all_accesses(s))]
    return fills, [s for s in parts if s not in fills]


def _filled_first(parts: Sequence[Stmt], fills: Sequence[Stmt], names: set[str]) -> bool:
    """Tells whether the fills come first, and no tile is computed from others."""
    reads = any(a.buffer in names for s in fills for a in all_accesses(s) if not a.write)
    return not reads and list(parts[: len(fills)]) == list(fills)


def _rewritten(loop: For, stages: int) -> Stmt:
    tiles: list[Buffer] = []
    others: list[Buffer] = []
    parts = _flat(loop.body, tiles, others)
    if not tiles:
        return loop
    names = {tile.name for tile in tiles}
    fills, work = _split_fills(parts, names)
    if not _filled_first(parts, fills, names):
        raise BuildError(f"tiles of the pipelined loop {loop.var} must be filled first, from memory, in each step")
    step = var(loop.var)
    overlapping = stages > 2 and any(map(waits, work))
    ahead = stages - 2 if overlapping else stages - 1
    filling = _Filling(fills, tiles, loop.var, stages)
    prefill = [
        s
        for i in range(ahead)
        for s in filling.start_copies(
            _at(fills, loop, const(i), names, const(i), i < int(loop.extent.value)), const(i), f"{loop.var}.fill{i}"
        )
    ]
    later = step + ahead
    inside = later < loop.extent
    # A group ends in every step, also where there is nothing left to copy: waits count groups, and must find as many.
    following = filling.start_copies(_at(fills, loop, later, names, later % stages, inside), later, f"{loop.var}.fill")
    working = [_add_tile_index(s, names, step % stages) for s in work]
    # Products of a step are waited for one step later; those of the last behind the loop.
    behind: list[Stmt] = []
    if overlapping:
        behind = [s for s in working if waits(s)]
        working = [replace(s, name=f"{WAIT}:1") if isinstance(s, Intrinsic) and waits(s) else s for s in working]
    # Groups arrive in order: when all but the youngest `ahead` - 1 have, this step's tile is full.
    separating = Barrier(pending=ahead - 1 if filling.needs_group else None)
    body: Stmt = seq(separating, *following, *filling.await_copies(step), *working)
    for buffer in reversed(others):
        body = Allocate(buffer, body)
    out = filling.around(seq(*prefill, replace(loop, body=body), *behind))
    for tile in reversed(tiles):
        out = Allocate(replace(tile, shape=(const(stages), *tile.shape)), out)
    return out


def _flat(stmt: Stmt, tiles: list[Buffer], others: list[Buffer]) -> list[Stmt]:
    """Lists the statements of a loop's body in order, and takes out the allocations around them."""
    if isinstance(stmt, Seq):
        return [p for s in stmt.body for p in _flat(s, tiles, others)]
    if isinstance(stmt, Allocate) and (stmt.buffer.scope == "shared" or not _only_around_one(stmt)):
        (tiles if stmt.buffer.scope == "shared" else others).append(stmt.buffer)
        return _flat(stmt.body, tiles, others)
    return [stmt]


def _only_around_one(stmt: Allocate) -> bool:
    """Tells whether no tile is allocated inside."""
    return not any(isinstance(n, Allocate) and n.buffer.scope == "shared" for n in walk_stmt(stmt.body))


def _group(stmt: Stmt, name: str) -> Stmt:
    return For(name, const(1), "serial", stmt, ((ASYNC, 1),))


def _at(fills: Sequence[Stmt], loop: For, step: Expr, names: set[str], tile: Expr, inside: Expr | bool) -> list[Stmt]:
    """Returns the fills of a step into a tile, if there is such a step."""
    memo: dict[int, Expr] = {}
    out = [_add_tile_index(map_exprs(f, lambda e: substitute(e, {loop.var: step}, memo)), names, tile) for f in fills]
    if isinstance(inside, bool):
        return out if inside else []
    return [_only_where(s, inside) for s in out]


def _only_where(stmt: Stmt, condition: Expr) -> Stmt:
    if isinstance(stmt, (Seq, For, Allocate)):
        return map_children(stmt, lambda child: _only_where(child, condition))
    if not isinstance(stmt, Store) and not is_copy(stmt):
        raise BuildError(f"a tile of a pipelined loop must be filled by stores, but got {stmt}")
    assert isinstance(stmt, (Store, Intrinsic))
    return replace(stmt, predicate=condition if stmt.predicate is None else logical_and(condition, stmt.predicate))


def _add_tile_index(stmt: Stmt, names: set[str], tile: Expr) -> Stmt:
    """Adds an index, the tile's number, to every access to one of the tiles."""

    for name in sorted(names):
        stmt = add_index(stmt, name, tile)
    return stmt


__all__ = ["ASYNC", "rewrite_pipelines"]
