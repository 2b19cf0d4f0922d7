"""Storage of each buffer: a parameter, scratch memory, or registers if every access is known at compile time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from search_space.ir.expr import Expr, const, dtype_bytes, lift, variables, walk
from search_space.ir.flat import Strides, flat_index
from search_space.ir.polynomial import poly
from search_space.ir.sizes import span
from search_space.ir.stmt import Allocate, Buffer, For, Intrinsic, LoopProgram, Seq, Stmt, Store, walk_stmt
from search_space.schedule.intrinsics import get_intrinsic
from targets.base import BuildError

MAX_REGISTER_VALUES = 1024  # of one buffer: each is a value of its own in the text
MOST_OPEN_ELEMENTS = 1 << 31
"""Exclusive upper bound of the elements of an array of open sizes: distances between lanes are computed in 32 bits."""
SEVERAL = -1


@dataclass(frozen=True)
class Storage:
    """A placed buffer.

    Attributes:
        kind: `param` (pointer argument), `shared` or `scratch` (one or per thread, in the workspace), `register`.
        offset: bytes into the workspace area, for shared and scratch.
        strides: strides by dimension.
        lanes: vector width of a register buffer's values; 0 for scalars.
        grain: number of elements of a block, counted from the first, that is always either within a row or outside.
        row: extent of the last dimension; 0 if it is open, or its elements are not contiguous.
    """

    kind: str
    dtype: str
    strides: Strides
    offset: int = 0
    lanes: int = 0
    grain: int = 1
    row: int = 0


@dataclass(frozen=True)
class Loops:
    """Unrolled and vectorized loop variables of a program."""

    unrolled_variables: frozenset[str]
    lanes: dict[str, int]


def collect_loops(program: LoopProgram) -> Loops:
    """Returns unrolled loops, and vectorized ones with their extents (SEVERAL: a peeled tail has another extent)."""
    unrolled: set[str] = set()
    lanes: dict[str, int] = {}

    def go(stmt: Stmt) -> None:
        if isinstance(stmt, For):
            if stmt.kind == "unroll":
                unrolled.add(stmt.var)
            if stmt.kind == "vectorize":
                extent = int(stmt.extent.value)
                lanes[stmt.var] = extent if lanes.get(stmt.var, extent) == extent else SEVERAL
            go(stmt.body)
        elif isinstance(stmt, Seq):
            for s in stmt.body:
                go(s)
        elif isinstance(stmt, Allocate):
            go(stmt.body)

    go(program.body)
    return Loops(frozenset(unrolled - lanes.keys()), lanes)


def accesses(stmt: Stmt) -> Iterator[tuple[str, tuple[Expr, ...], int]]:
    """Lists every access below a statement: buffer, indices, and the lanes of the instruction that makes it, or 0."""
    for node in walk_stmt(stmt):
        if isinstance(node, Store):
            yield node.buffer, node.indices, 0
            for root in (node.value, *(() if node.predicate is None else (node.predicate,))):
                yield from ((e.args[0], e.args[1:], 0) for e in walk(root) if e.op == "load")
        elif isinstance(node, Intrinsic):
            lanes = get_intrinsic(node.name).extents[0]
            yield from ((operand.buffer, operand.elements, lanes) for operand in (node.output, *node.inputs))


def row_major_strides(buffer: Buffer) -> Strides:
    """Returns row-major strides in elements."""
    return tuple(int(s.value) if s.is_const else s for s in buffer.strides)


def _grain(buffer: Buffer) -> int:
    """Computes `Storage.grain` of a buffer."""
    strides = row_major_strides(buffer)
    if not strides or strides[-1] != 1:
        return 1
    return math.gcd(*(c for n in (buffer.shape[-1], *strides[:-1]) for c in poly(lift(n)).values()))


def _row(buffer: Buffer) -> int:
    """Computes `Storage.row` of a buffer."""
    strides = row_major_strides(buffer)
    last = buffer.shape[-1] if strides and strides[-1] == 1 else const(0)
    return int(last.value) if last.is_const else 0


def _bytes(buffer: Buffer) -> int:
    """Returns the greatest number of bytes for any sizes."""
    return span(buffer.size)[1] * dtype_bytes(buffer.dtype)


def plan_storage(program: LoopProgram) -> tuple[dict[str, Storage], int, int]:
    """Returns storage by buffer name, bytes of the shared area, and bytes of scratch a thread.

    Raises:
        BuildError: an array of open sizes that may be too large.
    """
    for b in program.buffers.values():
        if not b.size.is_const and span(b.size)[1] >= MOST_OPEN_ELEMENTS:
            raise BuildError(
                f"`{b.name}` must have fewer than 2**31 elements for all sizes, but has up to {span(b.size)[1]}"
            )
    loops = collect_loops(program)
    out = {
        b.name: Storage("param", b.dtype, row_major_strides(b), grain=_grain(b), row=_row(b)) for b in program.params
    }
    used: dict[str, list[tuple[tuple[Expr, ...], int]]] = {}
    for name, indices, lanes in accesses(program.body):
        used.setdefault(name, []).append((indices, lanes))
    sizes = {"shared": 0, "scratch": 0}

    def go(stmt: Stmt, area: str) -> None:
        if isinstance(stmt, Seq):
            for s in stmt.body:
                go(s, area)
        elif isinstance(stmt, For):
            go(stmt.body, "scratch" if stmt.kind == "parallel" else area)
        elif isinstance(stmt, Allocate):
            buffer = stmt.buffer
            strides = row_major_strides(buffer)
            register = None
            # Registers are values of one function, and the body of a parallel loop is another.
            if buffer.scope == "local" and buffer.size.is_const and not _has_parallel(stmt.body):
                register = _register_lanes(buffer, strides, used.get(buffer.name, []), loops)
            if register is not None:
                out[buffer.name] = Storage("register", buffer.dtype, strides, lanes=register)
            else:
                size = _bytes(buffer)
                out[buffer.name] = Storage(
                    area, buffer.dtype, strides, sizes[area], grain=_grain(buffer), row=_row(buffer)
                )
                sizes[area] += -(-size // 64) * 64 + 64
            go(stmt.body, area)

    go(program.body, "shared")
    return out, sizes["shared"], sizes["scratch"]


def _has_parallel(stmt: Stmt) -> bool:
    if isinstance(stmt, For):
        return stmt.kind == "parallel" or _has_parallel(stmt.body)
    if isinstance(stmt, Seq):
        return any(_has_parallel(s) for s in stmt.body)
    return isinstance(stmt, Allocate) and _has_parallel(stmt.body)


def _register_lanes(
    buffer: Buffer, strides: Strides, mentions: list[tuple[tuple[Expr, ...], int]], loops: Loops
) -> int | None:
    """Returns the vector width under which all accesses are to whole registers; None if memory is needed."""
    widths: set[int] = set()
    for indices, instruction_lanes in mentions:
        flat = flat_index(indices, strides)
        if instruction_lanes:
            # Which register it is must be known while code is emitted: only unrolled loops may choose.
            free = {v for v in variables(flat) if not v.startswith("#")}
            if free - loops.unrolled_variables:
                return None
            tiled = {v for v in variables(flat) if v.startswith("#")}
            if "#0" in tiled and len(tiled) > 1:
                return None  # a tile of several rows lies in memory
            widths.add(instruction_lanes if "#0" in tiled else 0)
            continue
        width = 0
        for monomial, coefficient in poly(flat).items():
            names = {v for atom in monomial for v in variables(atom)}
            lane = names & loops.lanes.keys()
            if lane:
                if len(monomial) != 1 or monomial[0].op != "var" or coefficient != 1:
                    return None
                width = loops.lanes[monomial[0].args[0]]
                if width == SEVERAL:
                    return None
            elif names - loops.unrolled_variables:
                return None
        widths.add(width)
        if width and any(c % width for m, c in poly(flat).items() if not (m and m[0].args[0] in loops.lanes)):
            return None
    count = int(buffer.size.value) // max(1, *widths) if widths else 0
    return widths.pop() if len(widths) == 1 and count <= MAX_REGISTER_VALUES else None


def free_variables(loop: For) -> set[str]:
    """Collects the loop variables used inside a loop."""
    names: set[str] = set()
    for stmt in walk_stmt(loop):
        exprs: list[Expr] = []
        if isinstance(stmt, Store):
            exprs = [*stmt.indices, stmt.value] + ([] if stmt.predicate is None else [stmt.predicate])
        elif isinstance(stmt, Intrinsic):
            exprs = [e for o in (stmt.output, *stmt.inputs) for e in (*o.indices, *o.elements)]
        elif isinstance(stmt, For):
            exprs = [stmt.extent]
        for e in exprs:
            names |= variables(e)
    return names
