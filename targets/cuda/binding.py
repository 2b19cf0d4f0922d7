"""Threads for nests that have none: independent iterations of the outer loops are spread over blocks and threads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from search_space.ir.expr import Expr, const, logical_and, substitute, var, variables
from search_space.ir.polynomial import poly
from search_space.ir.stmt import Allocate, Buffer, For, Intrinsic, Seq, Stmt, Store, map_children, map_exprs, walk_stmt
from targets.accesses import all_accesses

THREADS = 256
"""Threads of a block, if the work suffices."""


def bind_threads(nest: Stmt, buffers: Mapping[str, Buffer]) -> Stmt:
    """Binds the outer loops of a nest as far as each of their iterations writes elements of its own.

    Args:
        nest: has no thread tags.
        buffers: buffers in device memory.
    """
    loops: list[For] = []
    inner = nest
    # A vector's loop stays whole, as one wide access.
    while isinstance(inner, For) and inner.kind != "vectorize" and _independent(inner, buffers):
        loops.append(inner)
        inner = inner.body
    total = prod(int(loop.extent.value) for loop in loops)
    if total <= 1:
        return nest
    threads = min(THREADS, total)
    block, thread = (f"{nest_name(loops)}.{part}" for part in ("block", "thread"))
    position = var(block) * threads + var(thread)
    values: dict[str, Expr] = {}
    rest = position
    # The innermost loop goes from thread to thread, so that neighbours read neighbours.
    for loop in reversed(loops[1:]):
        values[loop.var] = rest % loop.extent
        rest = rest // loop.extent
    values[loops[0].var] = rest
    memo: dict[int, Expr] = {}
    body = map_exprs(inner, lambda e: substitute(e, values, memo))
    if total % threads:
        body = _guard(body, position < total)
    blocks = -(-total // threads)
    return For(block, const(blocks), "blockIdx.x", For(thread, const(threads), "threadIdx.x", body))


def nest_name(loops: list[For]) -> str:
    return loops[0].var.partition(".")[0]


def _independent(loop: For, buffers: Mapping[str, Buffer]) -> bool:
    """Tells whether every write to device memory inside has an index that the loop alone moves.

    This holds for loops over axes of a stage's output, and for tiles of them. A loop that is not recognised as
    independent runs in one thread.
    """
    writes = 0
    for node in walk_stmt(loop.body):
        # Of what an instruction writes, single elements are not known.
        if isinstance(node, Intrinsic):
            return False
        if isinstance(node, Store) and node.buffer in buffers:
            writes += 1
            if not any(_moves_alone(i, loop) for i in node.indices):
                return False
    return writes > 0 and not _reads_own_writes(loop, buffers)


def _moves_alone(index: Expr, loop: For) -> bool:
    """Tells whether different iterations give different indices, whatever the values of inner loops."""
    terms = poly(index)
    scale = terms.get((var(loop.var),), 0)
    if not scale or any(loop.var in variables(a) for m in terms for a in m if m != (var(loop.var),)):
        return False
    inner = {n.var: int(n.extent.value) for n in walk_stmt(loop.body) if isinstance(n, For)}
    reach = 0
    for monomial, c in terms.items():
        if not monomial or monomial == (var(loop.var),):
            continue
        if len(monomial) == 1 and monomial[0].op == "var":
            name = monomial[0].args[0]
            reach += abs(c) * (inner[name] - 1) if name in inner else 0
        elif any(variables(a) & inner.keys() for a in monomial):
            return False
    return reach < abs(scale)


def _reads_own_writes(loop: For, buffers: Mapping[str, Buffer]) -> bool:
    """Tells whether the nest reads, other than to add to it, a buffer in device memory that it writes."""
    nodes = [n for n in walk_stmt(loop) if isinstance(n, Store)]
    written = {n.buffer for n in nodes if n.buffer in buffers}
    for node in nodes:
        reads = [a for a in all_accesses(node) if not a.write and a.buffer in written]
        if any(a.indices != node.indices or a.buffer != node.buffer for a in reads):
            return True
    return False


def _guard(stmt: Stmt, condition: Expr) -> Stmt:
    """Guards every store of the statement by a condition."""
    if isinstance(stmt, (Seq, For, Allocate)):
        return map_children(stmt, lambda child: _guard(child, condition))
    assert isinstance(stmt, Store), stmt
    predicate = condition if stmt.predicate is None else logical_and(condition, stmt.predicate)
    return replace(stmt, predicate=predicate)


__all__ = ["bind_threads"]
