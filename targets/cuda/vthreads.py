"""Virtual threads: loops of kind `vthread` are moved inward, so that all of them go through a serial loop together.

Before: `vthread v: for k: {fill shared; use(v)}`. After: `for k: {fill shared; for v: use(v)}`, unrolled. So a thread
does the work of several, spread over the tile, and data that they share are fetched once. Buffers of a thread that are
allocated inside get one more dimension. TVM: InjectVirtualThread.
"""

from __future__ import annotations

from dataclasses import replace

from search_space.ir.expr import Expr, load, transform, var, variables
from search_space.ir.stmt import (
    THREAD_TAGS,
    Allocate,
    Barrier,
    For,
    Intrinsic,
    Operand,
    Seq,
    Stmt,
    Store,
    map_children,
    map_exprs,
    walk_stmt,
)
from targets.accesses import all_accesses, expressions
from targets.base import BuildError

_SUNK_THROUGH = ("serial", *THREAD_TAGS)


def inject_vthreads(stmt: Stmt) -> Stmt:
    """Moves virtual threads next to each other, as unrolled loops.

    Raises:
        BuildError: a padded buffer that differs between virtual threads.
    """
    if not isinstance(stmt, For) or stmt.kind != "vthread":
        return map_children(stmt, inject_vthreads)
    body = inject_vthreads(stmt.body)
    return _Injection(replace(stmt, kind="unroll"), _different(body, stmt.var)).sink(body)


def _different(body: Stmt, variable: str) -> frozenset[str]:
    """Finds the buffers allocated in `body` whose contents differ between virtual threads."""
    inside = {n.buffer.name for n in walk_stmt(body) if isinstance(n, Allocate)}
    # What is made of a buffer that differs differs, too: until no more are found.
    different: set[str] = set()
    while True:
        before = len(different)
        _spread(body, {variable}, different, inside)
        if len(different) == before:
            return frozenset(different)


def _spread(body: Stmt, names: set[str], spread_names: set[str], inside: set[str]) -> None:
    for stmt in walk_stmt(body):
        if not isinstance(stmt, (Seq, For, Allocate, Barrier)):
            touched = list(all_accesses(stmt))
            differs = any(variables(e) & names for e in expressions(stmt)) or any(
                a.buffer in spread_names for a in touched if not a.write
            )
            spread_names |= {a.buffer for a in touched if a.write and differs} & inside


class _Injection:
    """A rewriter that moves one loop over virtual threads inward."""

    def __init__(self, loop: For, different: frozenset[str]) -> None:
        self.loop, self.different = loop, different

    def sink(self, stmt: Stmt) -> Stmt:
        if not self.depends(stmt):
            return stmt
        # A buffer that is the same for all stays one, and is filled once.
        if isinstance(stmt, Allocate) and stmt.buffer.name in self.different:
            shape = (self.loop.extent, *stmt.buffer.shape)
            if stmt.buffer.pitches is not None:
                raise BuildError(f"a buffer of virtual threads must not be padded, but {stmt.buffer.name} is")
            inner = add_index(stmt.body, stmt.buffer.name, var(self.loop.var))
            return Allocate(replace(stmt.buffer, shape=shape), self.sink(inner))
        through = isinstance(stmt, For) and stmt.kind in _SUNK_THROUGH and self.loop.var not in variables(stmt.extent)
        if through or isinstance(stmt, (Seq, Allocate)):
            return map_children(stmt, self.sink)
        return replace(self.loop, body=stmt)

    def depends(self, stmt: Stmt) -> bool:
        """Tells whether virtual threads do different things in `stmt`."""
        if any(self.loop.var in variables(e) for e in expressions(stmt)):
            return True
        return any(access.buffer in self.different for access in all_accesses(stmt))


def add_index(stmt: Stmt, name: str, index: Expr) -> Stmt:
    """Adds a first index wherever a statement reads or writes the buffer `name`."""
    memo: dict[int, Expr] = {}

    def visit(node: Expr) -> Expr | None:
        if node.op == "load" and node.args[0] == name:
            return load(name, [index, *(transform(a, visit, memo) for a in node.args[1:])], node.dtype)
        return None

    def operand(o: Operand) -> Operand:
        return Operand(o.buffer, (index, *o.indices), (index, *o.elements)) if o.buffer == name else o

    def targets(s: Stmt) -> Stmt:
        if isinstance(s, Store):
            return replace(s, indices=(index, *s.indices)) if s.buffer == name else s
        if isinstance(s, Intrinsic):
            return replace(s, output=operand(s.output), inputs=tuple(map(operand, s.inputs)))
        return map_children(s, targets)

    return targets(map_exprs(stmt, lambda e: transform(e, visit, memo)))


__all__ = ["add_index", "inject_vthreads"]
