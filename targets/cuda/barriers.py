"""Barriers, derived from the threads' accesses to shared memory.

Between two accesses of one buffer, one of them a write, all threads of the block must wait for each other. A barrier
goes in front of the outermost statement that holds the second access and not the first. Another one goes at the end of
a loop whose next iteration begins with an access that clashes with one of this iteration. Without shared buffers there
are no barriers. These accesses do not clash:

- accesses to different parts of a buffer, told apart by the first index, as double buffers are;
- accesses of elements that belong to one thread each;
- a plain store and itself: an element written twice gets the same value twice, as long as no thread reads in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from search_space.ir.expr import Expr, variables
from search_space.ir.semantics import BINARY
from search_space.ir.stmt import THREAD_TAGS, Allocate, Barrier, For, Seq, Stmt, Store, seq
from targets.accesses import Access, accesses

_MOST_ELEMENTS = 1 << 20  # points to evaluate; beyond, two accesses are assumed to clash
_EACH = {"min": np.minimum, "max": np.maximum, "and": np.logical_and, "or": np.logical_or}


@dataclass(frozen=True)
class _Loop:
    variable: str
    extent: int
    kind: str


@dataclass(frozen=True)
class _Pending:
    """An access of a statement since the last barrier, with the loops around it, outermost first."""

    access: Access
    stmt: Stmt
    loops: tuple[_Loop, ...]


@dataclass(frozen=True)
class _SeparateStmt:
    """A statement with its barriers: accesses before the first and after the last one, and whether it has one."""

    stmt: Stmt
    first: tuple[_Pending, ...]
    last: tuple[_Pending, ...]
    separates: bool


@dataclass(frozen=True)
class _LoopStep:
    """A step from one iteration of the loop `variable` to the one `step` later."""

    variable: str
    step: int


def insert_barriers(body: Stmt, shared: frozenset[str], block: tuple[int, int, int]) -> Stmt:
    """Inserts the barriers that the body of a kernel needs.

    Args:
        shared: names of the buffers that threads share.
        block: threads of a block along x, y and z.
    """
    return _Insertion(shared, block).insert(body, ()).stmt if shared else body


class _Insertion:
    def __init__(self, shared: frozenset[str], block: tuple[int, int, int]) -> None:
        self.shared = shared
        self.threads = {f"threadIdx.{axis}": extent for axis, extent in zip("xyz", block, strict=True)}

    def insert(self, stmt: Stmt, loops: tuple[_Loop, ...]) -> _SeparateStmt:
        if isinstance(stmt, Seq):
            return self.sequence([self.insert(s, loops) for s in stmt.body])
        if isinstance(stmt, Allocate):
            inner = self.insert(stmt.body, loops)
            return replace(inner, stmt=replace(stmt, body=inner.stmt))
        if isinstance(stmt, For):
            return self.loop(stmt, loops)
        if isinstance(stmt, Barrier):
            return _SeparateStmt(stmt, (), (), True)
        found = tuple(_Pending(a, stmt, loops) for a in dict.fromkeys(accesses(stmt)) if a.buffer in self.shared)
        return _SeparateStmt(stmt, found, found, False)

    def sequence(self, parts: Sequence[_SeparateStmt]) -> _SeparateStmt:
        out: list[Stmt] = []
        first: tuple[_Pending, ...] = ()
        pending: tuple[_Pending, ...] = ()
        separated = False
        for part in parts:
            if self.clash(pending, part.first):
                out.append(Barrier())
                separated, pending = True, ()
            out.append(part.stmt)
            # What stands behind a barrier cannot clash with anything in front of this sequence.
            if not separated:
                first += part.first
            pending = part.last if part.separates else pending + part.last
            separated = separated or part.separates
        return _SeparateStmt(seq(*out), first, pending, separated)

    def loop(self, loop: For, loops: tuple[_Loop, ...]) -> _SeparateStmt:
        extent = int(loop.extent.value)
        inner = self.insert(loop.body, (*loops, _Loop(loop.var, extent, loop.kind)))
        body, last, separates = inner.stmt, inner.last, inner.separates
        if loop.kind not in THREAD_TAGS:
            # without a barrier inside, threads may be any number of iterations apart
            steps = range(1, min(2, extent) if separates else extent)
            if any(self.clash(last, inner.first, _LoopStep(loop.var, step)) for step in steps):
                body, last, separates = seq(body, Barrier()), (), True
        return _SeparateStmt(replace(loop, body=body), inner.first, last, separates)

    def clash(self, before: Sequence[_Pending], after: Sequence[_Pending], loop_step: _LoopStep | None = None) -> bool:
        """Tells whether two threads may be at one element, one of them writing."""
        # The tests that look at every point come last.
        return any(
            a.access.buffer == b.access.buffer
            and (a.access.write or b.access.write)
            and not _same_plain_store(a, b)
            and not _apart(a, b, loop_step)
            and not _own(a, b, self.threads)
            for a in before
            for b in after
        )


def _same_plain_store(a: _Pending, b: _Pending) -> bool:
    both_write = a.access.write and b.access.write
    return both_write and a.stmt is b.stmt and isinstance(a.stmt, Store) and a.stmt.reducer is None


def _apart(a: _Pending, b: _Pending, loop_step: _LoopStep | None) -> bool:
    """Tells whether the first indices differ in every iteration of the loops around both."""
    # Two threads are at the same iteration of loops around both, but never of loops over threads.
    common = [x for x, y in zip(a.loops, b.loops, strict=False) if x == y and x.kind not in THREAD_TAGS]
    if loop_step is not None:
        common = common[: [loop.variable for loop in common].index(loop_step.variable) + 1]
    left, right = a.access.indices[0], b.access.indices[0]
    used = variables(left) | variables(right)
    # An index that another loop moves may be anywhere.
    if used - {loop.variable for loop in common}:
        return False
    ranges = [
        (loop.variable, loop.extent - (loop_step.step if loop_step and loop.variable == loop_step.variable else 0))
        for loop in common
        if loop.variable in used or (loop_step is not None and loop.variable == loop_step.variable)
    ]
    if np.prod([float(n) for _, n in ranges]) > _MOST_ELEMENTS:
        return False
    grids = np.indices([n for _, n in ranges], sparse=True) if ranges else ()
    now = dict(zip((name for name, _ in ranges), grids, strict=True))
    then = now if loop_step is None else {**now, loop_step.variable: now[loop_step.variable] + loop_step.step}
    try:
        return bool(np.all(evaluate_grid(left, now) != evaluate_grid(right, then)))
    except KeyError:
        return False


def _own(a: _Pending, b: _Pending, threads: Mapping[str, int]) -> bool:
    """Tells whether both go to the same elements, each of which belongs to one thread."""
    if a.access.indices != b.access.indices:
        return False
    used = frozenset().union(*(variables(i) for i in a.access.indices))
    tags = [{loop.variable: loop.kind for loop in p.loops if loop.kind in THREAD_TAGS} for p in (a, b)]
    if any(tags[0].get(v) != tags[1].get(v) for v in used) or any(v.startswith("#") for v in used):
        return False
    return _belong_to_one(a, used, threads)


def _belong_to_one(a: _Pending, index_variables: frozenset[str], threads: Mapping[str, int]) -> bool:
    """Tells whether no two threads are at one element, over all iterations of the loops around."""
    axes = [
        *threads.items(),
        *((x.variable, x.extent) for x in a.loops if x.variable in index_variables and x.kind not in threads),
    ]
    blocks = [x for x in a.loops if x.kind.startswith("blockIdx") and x.variable in index_variables]
    axes = [(name, n) for name, n in axes if name not in {x.variable for x in blocks}]
    if np.prod([float(n) for _, n in axes]) > _MOST_ELEMENTS:
        return False
    grids = dict(zip((name for name, _ in axes), np.indices([n for _, n in axes], sparse=True), strict=True))
    values = {
        x.variable: grids[x.kind] if x.kind in threads else grids[x.variable]
        for x in a.loops
        if x.variable in index_variables and x not in blocks
    }
    values |= {x.variable: np.asarray(x.extent - 1, np.int64) for x in blocks}  # what holds in one block holds in each
    try:
        indices = [evaluate_grid(i, values) for i in a.access.indices]
    except KeyError:
        return False
    shape = [n for _, n in axes]
    thread = np.zeros(shape, np.int64)
    for kind, extent in threads.items():
        thread = thread * extent + grids[kind]
    rows = [np.broadcast_to(i, shape).reshape(-1) for i in indices]
    owners = np.unique(np.stack([*rows, thread.reshape(-1)]), axis=1)
    return bool(np.unique(owners[:-1], axis=1).shape[1] == owners.shape[1])


def evaluate_grid(e: Expr, values: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
    """Evaluates an index or a condition at all points at once; KeyError if it is no arithmetic over loops."""
    if e.op == "const":
        return np.asarray(e.value, np.int64)
    if e.op == "var":
        return values[e.args[0]]
    left, right = (evaluate_grid(x, values) for x in e.operands)
    if e.op in _EACH:
        return np.asarray(_EACH[e.op](left, right))
    if e.op not in ("add", "sub", "mul", "floordiv", "mod", "lt", "le", "eq", "ne"):
        raise KeyError(e.op)
    return np.asarray(BINARY[e.op].array(left, right))
