"""Simplification of concrete programs: trivial loops, predicates that hold, indices in canonical form."""

from __future__ import annotations

from collections.abc import Mapping

from search_space.ir.expr import Expr, const, load, select, substitute, transform
from search_space.ir.regroup import Regrouping
from search_space.ir.simplify import Simplifier
from search_space.ir.stmt import (
    THREAD_TAGS,
    Allocate,
    For,
    Intrinsic,
    LoopProgram,
    Seq,
    Stmt,
    Store,
    map_buffer,
    map_exprs,
    seq,
    walk_stmt,
)


def cleanup(program: LoopProgram) -> LoopProgram:
    """Removes loops of extent 0 or 1 and simplifies under the ranges of the loops that remain."""
    # Threads divide flattened indices, and vectors are seen to be contiguous only after regrouping. Loops of CPUs
    # seldom divide, and would pay for the rules at every node.
    threads = any(isinstance(s, For) and s.kind in THREAD_TAGS for s in walk_stmt(program.body))
    body = _tidy(program.body, {}, {}, Regrouping if threads else Simplifier)
    params = tuple(map_buffer(b, Simplifier({})) for b in program.params)
    return LoopProgram(
        program.name,
        params,
        body if body is not None else Seq(()),
        program.outputs,
        program.constraints,
        tuple(cleanup(p) for p in program.prologues),
        program.sources,
    )


def tidy_part(stmt: Stmt, ranges: Mapping[str, Expr]) -> Stmt | None:
    """Simplifies a part of a program under the ranges of the loops around it; None if nothing remains."""
    return _tidy(stmt, dict(ranges), {}, Simplifier)


def _tidy(stmt: Stmt, ranges: dict[str, Expr], fixed: dict[str, Expr], rules: type[Simplifier]) -> Stmt | None:
    """Simplifies a statement, None if nothing remains; `fixed` are the variables of loops of extent 1 around it."""
    if isinstance(stmt, Seq):
        done = [t for t in [_tidy(s, ranges, fixed, rules) for s in stmt.body] if t is not None]
        return seq(*done) if done else None
    # Variables of loops of one iteration are collected, and substituted once at the leaves: a substitution for each
    # loop would walk the same expressions again and again.
    simplify = rules(ranges)

    def put(e: Expr) -> Expr:
        return simplify(substitute(e, fixed) if fixed else e)

    if isinstance(stmt, For):
        extent = put(stmt.extent)
        if extent.is_const and extent.value <= 0:
            return None
        if extent.is_const and extent.value == 1:
            body = _tidy(stmt.body, ranges, {**fixed, stmt.var: const(0)}, rules)
            if body is None or not stmt.kind.startswith("blockIdx."):
                return body
            return For(stmt.var, extent, stmt.kind, body, stmt.pragmas)  # the loop marks its body as one kernel
        body = _tidy(stmt.body, {**ranges, stmt.var: extent}, fixed, rules)
        return None if body is None else For(stmt.var, extent, stmt.kind, body, stmt.pragmas)
    if isinstance(stmt, Allocate):
        body = _tidy(stmt.body, ranges, fixed, rules)
        return None if body is None else Allocate(map_buffer(stmt.buffer, put), body)
    if isinstance(stmt, Intrinsic):
        return map_exprs(stmt, put)
    assert isinstance(stmt, Store), stmt
    predicate = None if stmt.predicate is None else put(stmt.predicate)
    if predicate is not None and predicate.is_const:
        if not predicate.value:
            return None
        predicate = None
    indices = tuple(put(i) for i in stmt.indices)
    # Not `put`: sums of floats must not be rearranged, only indices and conditions within.
    value = substitute(stmt.value, fixed) if fixed else stmt.value
    return Store(stmt.buffer, indices, simplify_value(value, simplify), stmt.reducer, predicate)


def simplify_value(value: Expr, simplify: Simplifier) -> Expr:
    """Simplifies the indices, conditions and integer parts of a stored value."""

    memo: dict[int, Expr] = {}  # for both branches of a select, too: they may share most of their nodes

    def visit(node: Expr) -> Expr | None:
        if node.op == "load":
            return load(node.args[0], [simplify(i) for i in node.args[1:]], node.dtype)
        if node.op == "select":
            condition = simplify(node.args[0])
            return select(condition, transform(node.args[1], visit, memo), transform(node.args[2], visit, memo))
        if node.dtype == "int64":
            return simplify(node)
        return None

    return transform(value, visit, memo)
