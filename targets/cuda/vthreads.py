"""Virtual threads: loops of kind `vthread` are moved inward, so that all of them go through a serial loop together.

Before: `vthread v: for k: {fill shared; use(v)}`. After: `for k: {fill shared; for v: use(v)}`, unrolled. A thread so
does the work of several, spread over the tile, and what they share is fetched once. Buffers of a thread that are
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
    map_exprs,
    seq,
)
from targets.base import BuildError
from targets.cuda.accesses import all_accesses, expressions

_SUNK_THROUGH = ("serial", *THREAD_TAGS)


def inject_vthreads(stmt: Stmt) -> Stmt:
    """The statement with its virtual threads next to each other, as unrolled loops.

    Raises:
        BuildError: a padded buffer that differs between virtual threads.
    """
    if isinstance(stmt, Seq):
        return seq(*(inject_vthreads(s) for s in stmt.body))
    if isinstance(stmt, Allocate):
        return replace(stmt, body=inject_vthreads(stmt.body))
    if isinstance(stmt, For):
        body = inject_vthreads(stmt.body)
        if stmt.kind != "vthread":
            return replace(stmt, body=body)
        loop = replace(stmt, kind="unroll")
        return _Injection(loop, _different(body, stmt.var)).sink(body)
    return stmt


def _different(body: Stmt, variable: str) -> frozenset[str]:
    """Buffers allocated in `body` whose contents differ between virtual threads."""
    inside = {n.buffer.name for n in _allocations(body)}
    found: set[str] = set()
    while True:
        before = len(found)
        _spread(body, {variable}, found, inside)
        if len(found) == before:
            return frozenset(found)


def _allocations(stmt: Stmt) -> list[Allocate]:
    if isinstance(stmt, Seq):
        return [a for s in stmt.body for a in _allocations(s)]
    if isinstance(stmt, Allocate):
        return [stmt, *_allocations(stmt.body)]
    return _allocations(stmt.body) if isinstance(stmt, For) else []


def _spread(stmt: Stmt, names: set[str], found: set[str], inside: set[str]) -> None:
    if isinstance(stmt, Seq):
        for s in stmt.body:
            _spread(s, names, found, inside)
    elif isinstance(stmt, (For, Allocate)):
        _spread(stmt.body, names, found, inside)
    elif not isinstance(stmt, Barrier):
        touched = list(all_accesses(stmt))
        differs = any(variables(e) & names for e in expressions(stmt)) or any(
            a.buffer in found for a in touched if not a.write
        )
        found |= {a.buffer for a in touched if a.write and differs} & inside


class _Injection:
    """Moves one loop over virtual threads inward."""

    def __init__(self, loop: For, different: frozenset[str]) -> None:
        self.loop, self.different = loop, different

    def sink(self, stmt: Stmt) -> Stmt:
        if not self.depends(stmt):
            return stmt
        if isinstance(stmt, Seq):
            return seq(*(self.sink(s) for s in stmt.body))
        if isinstance(stmt, Allocate):
            if stmt.buffer.name not in self.different:
                return replace(stmt, body=self.sink(stmt.body))
            shape = (self.loop.extent, *stmt.buffer.shape)
            if stmt.buffer.pitches is not None:
                raise BuildError(f"a buffer of virtual threads must not be padded, but {stmt.buffer.name} is")
            inner = indexed(stmt.body, stmt.buffer.name, var(self.loop.var))
            return Allocate(replace(stmt.buffer, shape=shape), self.sink(inner))
        if isinstance(stmt, For) and stmt.kind in _SUNK_THROUGH and self.loop.var not in variables(stmt.extent):
            return replace(stmt, body=self.sink(stmt.body))
        return replace(self.loop, body=stmt)

    def depends(self, stmt: Stmt) -> bool:
        """Whether virtual threads do different things in `stmt`."""
        if any(self.loop.var in variables(e) for e in expressions(stmt)):
            return True
        return any(access.buffer in self.different for access in all_accesses(stmt))


def indexed(stmt: Stmt, name: str, index: Expr) -> Stmt:
    """The statement with one more index, the first, wherever it reads or writes the buffer `name`."""
    memo: dict[int, Expr] = {}

    def visit(node: Expr) -> Expr | None:
        if node.op == "load" and node.args[0] == name:
            return load(name, [index, *(transform(a, visit, memo) for a in node.args[1:])], node.dtype)
        return None

    def operand(o: Operand) -> Operand:
        return Operand(o.buffer, (index, *o.indices), (index, *o.elements)) if o.buffer == name else o

    def targets(s: Stmt) -> Stmt:
        if isinstance(s, Seq):
            return Seq(tuple(targets(x) for x in s.body))
        if isinstance(s, (For, Allocate)):
            return replace(s, body=targets(s.body))
        if isinstance(s, Store):
            return replace(s, indices=(index, *s.indices)) if s.buffer == name else s
        if isinstance(s, Intrinsic):
            return replace(s, output=operand(s.output), inputs=tuple(map(operand, s.inputs)))
        return s

    return targets(map_exprs(stmt, lambda e: transform(e, visit, memo)))


__all__ = ["indexed", "inject_vthreads"]
