"""Sums of as many terms as a constant says: the loop over the terms ends there, instead of adding zeros."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from search_space.ir.expr import INT, Expr, condition_of_term, const, maximum, minimum, var, variables, walk
from search_space.ir.intervals import DTYPE_RANGES
from search_space.ir.stmt import Buffer, For, LoopProgram, Seq, Stmt, Store, map_children, walk_stmt

INTEGERS = ("int32", "int64")
"""Types of constants that counts are read from."""


def end_at_counts(program: LoopProgram) -> LoopProgram:
    """Ends loops over the terms of a sum at the count of terms, which is read from a constant.

    Before:  for t in 20: s[j] += select(t < counts[j], x[...] * w[j, t], 0)
    After:   for t in max(min(20, counts[j]), 0): s[j] += x[...] * w[j, t]

    Sums start at zero, and a sum of zeros and nothing else is no -0, so that leaving zeros out changes no sum.
    """
    return _rewrite_loops(program, shorten=True)


def assume_mean(program: LoopProgram) -> LoopProgram:
    """Removes the conditions that `end_at_counts` removes, and ends the loops at the mean of their counts.

    This is for estimates. Without a mean, loops stay at full length.
    """
    return _rewrite_loops(program, shorten=False)


def _rewrite_loops(program: LoopProgram, shorten: bool) -> LoopProgram:
    """Rewrites the loops that have a count; returns the program itself if none has."""
    counts = {buffer.name: buffer for buffer in program.params if buffer.constant and buffer.dtype in INTEGERS}
    loops = (stmt for stmt in walk_stmt(program.body) if isinstance(stmt, For)) if counts else ()
    if not any(_find_count(loop, counts) is not None for loop in loops):
        return program
    return replace(program, body=_rewrite(program.body, counts, shorten))


def _rewrite(stmt: Stmt, constants: Mapping[str, Buffer], shorten: bool) -> Stmt:
    stmt = map_children(stmt, lambda child: _rewrite(child, constants, shorten))
    if not isinstance(stmt, For) or stmt.kind != "serial":
        return stmt
    count = _find_count(stmt, constants)
    if count is None:
        return stmt
    end = count if shorten else _find_mean(count, constants)
    extent = stmt.extent if end is None else maximum(minimum(stmt.extent, end), 0)
    return replace(stmt, extent=extent, body=_assume(stmt.body, var(stmt.var) < count))


def _find_mean(count: Expr, constants: Mapping[str, Buffer]) -> Expr | None:
    """Returns the mean of a count that is an element of a constant, rounded, at least 1; None if it is unknown."""
    read = count.args[0] if count.op == "cast" else count
    mean = constants[read.args[0]].mean if read.op == "load" else None
    return None if mean is None else const(min(max(round(mean), 1), DTYPE_RANGES[INT][1]), INT)


def _find_count(loop: For, constants: Mapping[str, Buffer]) -> Expr | None:
    """Returns the number of iterations after which all terms of a loop's sums are zero; None if they do not say."""
    counts: set[Expr | None] = set()
    inner = set()
    for stmt in walk_stmt(loop.body):
        if isinstance(stmt, For):
            inner.add(stmt.var)
        elif isinstance(stmt, Store):
            counts.add(_count(stmt, loop.var, constants))
        elif not isinstance(stmt, Seq):
            return None
    count = counts.pop() if len(counts) == 1 else None
    return None if count is None or variables(count) & (inner | {loop.var}) else count


def _count(store: Store, loop: str, constants: Mapping[str, Buffer]) -> Expr | None:
    """Returns the number of terms of a sum along a loop; None if it has no count read from a constant."""
    condition = condition_of_term(store.value)
    if store.reducer != "sum" or condition is None or condition.op != "lt" or condition.args[0] is not var(loop):
        return None
    count: Expr = condition.args[1]
    read = [node for node in walk(count) if node.op == "load"]
    return count if read and all(node.args[0] in constants for node in read) else None


def _assume(stmt: Stmt, condition: Expr) -> Stmt:
    """Replaces choices by a condition that holds."""
    if isinstance(stmt, Store):
        value = stmt.value
        return replace(stmt, value=value.args[1]) if value.op == "select" and value.args[0] is condition else stmt
    return map_children(stmt, lambda child: _assume(child, condition))
