"""Barriers, derived from what threads write to shared memory and what others read of it.

Between two accesses of one buffer, one of them a write, all threads of the block must wait for each other. A barrier
goes in front of the outermost statement that holds the second access and not the first, and at the end of a loop whose
next iteration begins with an access that clashes with one of this iteration. Accesses to different parts of a buffer, told
apart by the first index as double buffers are, do not clash. Nothing is inserted where nothing is shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from search_space.ir.expr import Expr, substitute, variables
from search_space.ir.stmt import THREAD_TAGS, Allocate, Barrier, For, Seq, Stmt, seq
from targets.cuda.accesses import Access, accesses

_MOST_POINTS = 4096


@dataclass(frozen=True)
class _Pending:
    """An access since the last barrier; `loops` were around it, outermost first, with their extents."""

    access: Access
    loops: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class _Placed:
    """A statement with its barriers: accesses before its first barrier, those after its last, whether it has one."""

    stmt: Stmt
    first: tuple[_Pending, ...]
    last: tuple[_Pending, ...]
    separates: bool


def insert_barriers(body: Stmt, shared: frozenset[str]) -> Stmt:
    """The body of a kernel with the barriers that its buffers in shared memory need."""
    return _place(body, shared, ()).stmt if shared else body


def _place(stmt: Stmt, shared: frozenset[str], loops: tuple[tuple[str, int], ...]) -> _Placed:
    if isinstance(stmt, Seq):
        return _sequence([_place(s, shared, loops) for s in stmt.body])
    if isinstance(stmt, Allocate):
        inner = _place(stmt.body, shared, loops)
        return replace(inner, stmt=replace(stmt, body=inner.stmt))
    if isinstance(stmt, For):
        return _loop(stmt, shared, loops)
    if isinstance(stmt, Barrier):
        return _Placed(stmt, (), (), True)
    found = tuple(_Pending(a, loops) for a in dict.fromkeys(accesses(stmt)) if a.buffer in shared)
    return _Placed(stmt, found, found, False)


def _sequence(parts: Sequence[_Placed]) -> _Placed:
    out: list[Stmt] = []
    first: tuple[_Pending, ...] = ()
    pending: tuple[_Pending, ...] = ()
    separated = False
    for part in parts:
        if _clash(pending, part.first):
            out.append(Barrier())
            separated, pending = True, ()
        out.append(part.stmt)
        if not separated:
            first += part.first
        pending = part.last if part.separates else pending + part.last
        separated = separated or part.separates
    return _Placed(seq(*out), first, pending, separated)


def _loop(loop: For, shared: frozenset[str], loops: tuple[tuple[str, int], ...]) -> _Placed:
    extent = int(loop.extent.value)
    if loop.kind in THREAD_TAGS:
        inner = _place(loop.body, shared, loops)
        return replace(inner, stmt=replace(loop, body=inner.stmt))
    inner = _place(loop.body, shared, (*loops, (loop.var, extent)))
    body, last, separates = inner.stmt, inner.last, inner.separates
    # without a barrier inside, threads may be any number of iterations apart
    steps = range(1, 2 if separates else extent)
    if any(_clash(last, inner.first, _Carried(loop.var, step)) for step in steps if step < extent):
        body, last, separates = seq(body, Barrier()), (), True
    return _Placed(replace(loop, body=body), inner.first, last, separates)


@dataclass(frozen=True)
class _Carried:
    """From one iteration of the loop `variable` to the one `step` later."""

    variable: str
    step: int


def _clash(before: Sequence[_Pending], after: Sequence[_Pending], carried: _Carried | None = None) -> bool:
    """Whether two threads may be at one element, one of them writing."""
    return any(
        a.access.buffer == b.access.buffer and (a.access.write or b.access.write) and not _apart(a, b, carried)
        for a in before
        for b in after
    )


def _apart(a: _Pending, b: _Pending, carried: _Carried | None) -> bool:
    """Whether the first indices differ, whatever iteration of the loops around both it is."""
    common = [x for x, y in zip(a.loops, b.loops, strict=False) if x == y]
    if carried is not None:
        depth = [name for name, _ in common].index(carried.variable)
        common = common[: depth + 1]
    left, right = a.access.indices[0], b.access.indices[0]
    used = variables(left) | variables(right)
    if used - {name for name, _ in common}:
        return False
    points: list[dict[str, int]] = [{}]
    for name, extent in common:
        if carried is not None and name == carried.variable:
            points = [{**p, name: i} for p in points for i in range(extent - carried.step)]
        elif name in used:
            points = [{**p, name: i} for p in points for i in range(extent)]
        if len(points) > _MOST_POINTS:
            return False
    return all(_differ(left, p, right, _later(p, carried)) for p in points)


def _later(point: dict[str, int], carried: _Carried | None) -> dict[str, int]:
    return point if carried is None else {**point, carried.variable: point[carried.variable] + carried.step}


def _differ(left: Expr, at: dict[str, int], right: Expr, then: dict[str, int]) -> bool:
    first, second = substitute(left, at), substitute(right, then)
    return first.is_const and second.is_const and first.value != second.value
