"""Sums of terms of which a condition selects one iteration: the iteration is computed, instead of adding zeros.

A scatter is such a sum: of all rows of a table, the index of a term selects the one that the term is added to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from search_space.ir.expr import Expr, condition_of_term, const, logical_and, make, substitute, var, variables, walk
from search_space.ir.polynomial import canon, from_poly, poly, poly_add
from search_space.ir.stmt import For, LoopProgram, Seq, Stmt, Store, map_children, map_exprs, walk_stmt


def select_iterations(program: LoopProgram) -> LoopProgram:
    """Replaces loops by the one iteration in which an equality holds, or by none if it holds outside of the loop.

    Before:  for i in 64: for c in 32: t[64 b + i, c] += select(e == 64 b + i, x[c], 0)
    After:   for c in 32: if 0 <= e - 64 b < 64: t[e, c] += x[c]

    Sums start at zero, and a sum of zeros and nothing else is no -0, so that leaving zeros out changes no sum.
    """
    return _Rewriter(_list_lanes(program)).run(program)


def assume_iterations(program: LoopProgram) -> LoopProgram:
    """Replaces the loops that `select_iterations` replaces by their first iteration, without a condition.

    This is for estimates: the iteration that is selected is unknown.
    """
    return _Rewriter(_list_lanes(program), assumed=True).run(program)


def _list_lanes(program: LoopProgram) -> frozenset[str]:
    """Lists the variables of vectorised loops."""
    loops = (stmt for stmt in walk_stmt(program.body) if isinstance(stmt, For))
    return frozenset(loop.var for loop in loops if loop.kind == "vectorize")


@dataclass(frozen=True)
class _Rewriter:
    """A rewriter of loops: each becomes its selected iteration, or its first one if that is `assumed`.

    The iteration may not differ between `lanes`, as some would add to the same element at once.
    """

    lanes: frozenset[str]
    assumed: bool = False

    def run(self, program: LoopProgram) -> LoopProgram:
        """Rewrites a program; returns the program itself if it has no such loop."""
        if not any(self.find_iteration(stmt) is not None for stmt in walk_stmt(program.body)):
            return program
        return replace(program, body=self.rewrite(program.body))

    def rewrite(self, stmt: Stmt) -> Stmt:
        stmt = map_children(stmt, self.rewrite)
        iteration = self.find_iteration(stmt)
        if iteration is None:
            return stmt
        assert isinstance(stmt, For)
        inside = logical_and(make("le", const(0), iteration), make("lt", iteration, stmt.extent))
        body = _take_terms(stmt.body, None if self.assumed else inside)
        values = {stmt.var: const(0) if self.assumed else iteration}
        return map_exprs(body, lambda e: canon(substitute(e, values)))

    def find_iteration(self, loop: Stmt) -> Expr | None:
        """Finds the only iteration of a serial loop that adds anything but zeros; None if it is unknown, or no loop.

        It must be the same for all stores in the loop, and known in front of the loop. A condition of a store may not
        guard what it is read from.
        """
        if not isinstance(loop, For) or loop.kind != "serial":
            return None
        iterations: set[Expr | None] = set()
        inner, guarded = {loop.var}, set[str]()
        for stmt in walk_stmt(loop.body):
            if isinstance(stmt, For) and loop.var not in variables(stmt.extent):
                inner.add(stmt.var)
            elif isinstance(stmt, Store):
                iterations.add(_solve(stmt, loop.var))
                guarded |= set() if stmt.predicate is None else variables(stmt.predicate)
            elif not isinstance(stmt, Seq):
                return None
        iteration = iterations.pop() if len(iterations) == 1 else None
        if iteration is None or variables(iteration) & (inner | self.lanes):
            return None
        read = {name for node in walk(iteration) if node.op == "load" for name in variables(node)}
        return None if read & guarded else iteration


def _solve(store: Store, name: str) -> Expr | None:
    """Solves the equality that selects a term of a store for a loop's variable; None if it is not linear in it."""
    condition = condition_of_term(store.value)
    if store.reducer != "sum" or condition is None or condition.op != "eq":
        return None
    left, right = condition.args
    if left.dtype != "int64" or right.dtype != "int64":
        return None
    gap = poly_add(poly(left), poly(right), -1)
    factor = gap.pop((var(name),), 0)
    if factor not in (1, -1) or any(name in variables(atom) for monomial in gap for atom in monomial):
        return None
    return canon(from_poly(poly_add({(): 0}, gap, -factor)))


def _take_terms(stmt: Stmt, condition: Expr | None) -> Stmt:
    """Replaces each store's choice between a term and zero by the term, added under a condition if one is given."""
    if isinstance(stmt, Store):
        tests = [test for test in (condition, stmt.predicate) if test is not None]
        return replace(stmt, value=stmt.value.args[1], predicate=logical_and(*tests) if tests else None)
    return map_children(stmt, lambda child: _take_terms(child, condition))
