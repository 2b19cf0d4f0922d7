"""Reads and writes of a statement."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from search_space.ir.expr import Expr, walk
from search_space.ir.stmt import For, Intrinsic, Stmt, Store, walk_stmt


@dataclass(frozen=True)
class Access:
    """One read or write of a buffer.

    Attributes:
        indices: indices of the element; of an instruction's tile, indices in which `#` variables run over the tile.
    """

    buffer: str
    write: bool
    indices: tuple[Expr, ...]


def accesses(stmt: Stmt) -> Iterator[Access]:
    """Lists the accesses of one statement, without those of the statements inside it."""
    if isinstance(stmt, Store):
        yield from _loads(stmt.value, *stmt.indices, *(() if stmt.predicate is None else (stmt.predicate,)))
        if stmt.reducer is not None:
            yield Access(stmt.buffer, False, stmt.indices)
        yield Access(stmt.buffer, True, stmt.indices)
    elif isinstance(stmt, Intrinsic):
        yield from _loads(*(() if stmt.predicate is None else (stmt.predicate,)))
        for operand in stmt.inputs:
            yield Access(operand.buffer, False, operand.elements)
        if not stmt.reset:
            yield Access(stmt.output.buffer, False, stmt.output.elements)
        yield Access(stmt.output.buffer, True, stmt.output.elements)
    elif isinstance(stmt, For):
        yield from _loads(stmt.extent)


def all_accesses(stmt: Stmt) -> Iterator[Access]:
    """Lists the accesses of a statement and of all statements inside it."""
    for node in walk_stmt(stmt):
        yield from accesses(node)


def expressions(stmt: Stmt) -> Iterator[Expr]:
    """Lists the expressions of a statement and of all statements inside it, indices of tiles included."""
    for node in walk_stmt(stmt):
        if isinstance(node, Store):
            yield node.value
            yield from node.indices
            if node.predicate is not None:
                yield node.predicate
        elif isinstance(node, Intrinsic):
            for operand in (node.output, *node.inputs):
                yield from operand.indices
                yield from operand.elements
            if node.predicate is not None:
                yield node.predicate
        elif isinstance(node, For):
            yield node.extent


def _loads(*exprs: Expr) -> Iterator[Access]:
    for e in exprs:
        for node in walk(e):
            if node.op == "load":
                yield Access(node.args[0], False, node.args[1:])
