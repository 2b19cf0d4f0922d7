"""Peeling of a loop's last iteration if it alone is cut short, so that the other iterations need no checks.

If vectors do not divide a row, a mask is computed and applied to every access in each iteration. In a peeled last
iteration the lanes past the end are known at compile time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from search_space.ir.expr import Expr, const, substitute, variables, walk
from search_space.ir.stmt import For, LoopProgram, Seq, Stmt, Store, map_children, map_exprs, seq, walk_stmt
from search_space.lower.cleanup import tidy_part

MOST_WRITTEN = 64
"""Greatest number of statements in an unrolled body, which peeling writes a second time."""


def peel_last_iterations(program: LoopProgram) -> LoopProgram:
    """Peels the last iteration of serial loops of vectors that have no other check.

    Before:  for i in 9: vector v in 16: y[16 i + v] = x[16 i + v]  if 16 i + v < 130
    After:   for i in 8: vector v in 16: y[16 i + v] = x[16 i + v]
             vector v in 16: y[128 + v] = x[128 + v]  if 128 + v < 130

    Loops with further checks stay unchanged, and so do loops whose extent is no number.
    """
    return replace(program, body=_peel_loops(program.body, {}))


def _peel_loops(stmt: Stmt, ranges: Mapping[str, Expr]) -> Stmt:
    if not isinstance(stmt, For):
        return map_children(stmt, lambda s: _peel_loops(s, ranges))
    if stmt.kind == "serial" and stmt.extent.is_const and _may_be_written_twice(stmt) and _checks(stmt):
        extent = int(stmt.extent.value)
        most = tidy_part(replace(stmt, extent=const(extent - 1)), ranges)
        if most is not None and not _checks(stmt, most):
            last = tidy_part(map_exprs(stmt.body, lambda e: substitute(e, {stmt.var: extent - 1})), ranges)
            return seq(most, *([] if last is None else [last]))
    inner = {**ranges, stmt.var: stmt.extent}
    return replace(stmt, body=_peel_loops(stmt.body, inner))


def _may_be_written_twice(loop: For) -> bool:
    """Tells whether a loop runs more than once, and its body is a short sequence of vectors."""
    inner = [s for s in walk_stmt(loop.body) if not isinstance(s, Seq)]
    if loop.extent.value < 2 or any(not isinstance(s, (For, Store)) for s in inner):
        return False
    written = sum(isinstance(s, Store) for s in inner)
    for s in inner:
        if isinstance(s, For):
            if s.kind not in ("unroll", "vectorize"):
                return False
            written *= int(s.extent.value) if s.kind == "unroll" else 1
    return written <= MOST_WRITTEN


def _checks(loop: For, within: Stmt | None = None) -> list[Expr]:
    """Lists conditions that differ from lane to lane and from iteration to iteration of `loop`."""
    lanes = {s.var for s in walk_stmt(loop) if isinstance(s, For) and s.kind == "vectorize"}
    conditions: list[Expr] = []
    for s in walk_stmt(loop if within is None else within):
        if isinstance(s, Store):
            chosen = [e.args[0] for e in walk(s.value) if e.op == "select"]
            conditions += [*chosen, *([] if s.predicate is None else [s.predicate])]
    return [e for e in conditions if loop.var in variables(e) and variables(e) & lanes]
