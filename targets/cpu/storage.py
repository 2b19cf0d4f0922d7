"""Where each buffer lives: a parameter, scratch memory, or registers when every access is known at compile time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from search_space.ir.expr import Expr, const, dtype_bytes, lift, total, var, variables, walk
from search_space.ir.polynomial import Monomial, Poly, from_poly, poly, poly_mul
from search_space.ir.simplify import Simplifier
from search_space.ir.sizes import is_sized, span
from search_space.ir.stmt import Allocate, Buffer, For, Intrinsic, LoopProgram, Seq, Stmt, Store, walk_stmt
from targets.base import BuildError

MAX_REGISTER_VALUES = 1024
MOST_OPEN_ELEMENTS = 1 << 31
"""Of an array of open sizes: distances between lanes are computed in 32 bits."""
SEVERAL = -1
Strides = tuple[int | Expr, ...]
"""Elements between neighbours along each dimension; expressions of sizes where these are open."""


@dataclass(frozen=True)
class Storage:
    """A placed buffer.

    Attributes:
        kind: `param` (pointer argument), `shared` or `scratch` (one or per thread, in the workspace), `register`.
        offset: bytes into the workspace area, for shared and scratch.
        strides: by dimension.
        lanes: vector width of a register buffer's values; 0 for scalars.
        grain: blocks of so many elements, counted from the first, lie in the rows or outside of them as a whole.
        row: neighbours along the last dimension; 0 where they do not lie side by side.
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
    """The loop variables of a program by what happens to them."""

    unrolled: frozenset[str]
    lanes: dict[str, int]


def loops_of(program: LoopProgram) -> Loops:
    """Names of unrolled loops, and of vectorized ones with their extents (SEVERAL: a peeled tail has another)."""
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


def accesses(stmt: Stmt) -> Iterator[tuple[str, tuple[Expr, ...], bool]]:
    """Every access below: buffer, indices, and whether an instruction makes it."""
    for node in walk_stmt(stmt):
        if isinstance(node, Store):
            yield node.buffer, node.indices, False
            for root in (node.value, *(() if node.predicate is None else (node.predicate,))):
                yield from ((e.args[0], e.args[1:], False) for e in walk(root) if e.op == "load")
        elif isinstance(node, Intrinsic):
            yield from ((operand.buffer, operand.elements, True) for operand in (node.output, *node.inputs))


def strides_of(buffer: Buffer) -> Strides:
    """Row-major strides in elements."""
    return tuple(int(s.value) if s.is_const else s for s in buffer.strides)


def _grain(buffer: Buffer) -> int:
    """See `Storage.grain`."""
    strides = strides_of(buffer)
    if not strides or strides[-1] != 1:
        return 1
    return math.gcd(*(c for n in (buffer.shape[-1], *strides[:-1]) for c in poly(lift(n)).values()))


def _row(buffer: Buffer) -> int:
    """See `Storage.row`."""
    strides = strides_of(buffer)
    last = buffer.shape[-1] if strides and strides[-1] == 1 else const(0)
    return int(last.value) if last.is_const else 0


def _bytes(buffer: Buffer) -> int:
    """At most, whatever the sizes."""
    return span(buffer.size)[1] * dtype_bytes(buffer.dtype)


def flat_index(indices: tuple[Expr, ...], strides: Strides, simplify: Simplifier | None = None) -> Expr:
    """The element offset, with x // c * c + x % c put together again; see `merge_divisions`."""
    flat = total(i * s for i, s in zip(indices, strides, strict=True))
    return merge_divisions(flat, simplify)


def stride_along(flat: Expr, name: str) -> Expr:
    """How many elements an offset moves on with a variable that is in no division."""
    along = var(name)
    return from_poly({tuple(a for a in m if a is not along): c for m, c in poly(flat).items() if along in m})


def merge_divisions(flat: Expr, simplify: Simplifier | None = None) -> Expr:
    """Replaces c * k * (x // c) + k * (x % c) by k * x, where c, and factors of k, may be of sizes; and before that
    c * k * (x // c % d) + k * (x % c) by k * (x % (c * d)), as the index of several axes in one has both.

    Args:
        flat: sums of quotients and remainders.
        simplify: writes quotients and remainders as `flat` has them.
    """
    terms = dict(poly(flat))
    changed = True
    while changed:
        changed = False
        for monomial, k in list(terms.items()):
            found = _remainder(monomial)
            if found is None:
                continue
            (x, c), rest = found
            quotient = _atom(simplify.floordiv(x, c)) if simplify else None
            quotient = _quotient(x, c) if quotient is None else quotient
            # Only both together are x again; a remainder alone stays.
            ((twin, scale),) = poly_mul(poly(c), {(quotient, *rest): 1}).items()
            if terms.get(twin) == k * scale:
                del terms[monomial], terms[twin]
                merged = poly(x)
            elif c.is_const and (outer := _remainder_of(quotient, rest, k * int(c.value), terms)) is not None:
                del terms[monomial], terms[outer[0]]
                wider = c * outer[1]
                merged = poly(simplify.mod(x, wider) if simplify else x % wider)
            else:
                continue
            for m, d in poly_mul(merged, {rest: 1}).items():
                terms[m] = terms.get(m, 0) + k * d
            changed = True
            break
    return from_poly({m: c for m, c in terms.items() if c})


def _remainder(monomial: Monomial) -> tuple[tuple[Expr, Expr], Monomial] | None:
    """The operands of a remainder by a number or a product of sizes, and what it is multiplied with, sizes alone."""
    for place, atom in enumerate(monomial):
        if atom.op == "mod" and len(poly(atom.args[1])) == 1:
            rest, factors = monomial[:place] + monomial[place + 1 :], next(iter(poly(atom.args[1])))
            if all(map(is_sized, (*rest, *factors))):
                return (atom.args[0], atom.args[1]), rest
    return None


def _atom(e: Expr) -> Expr | None:
    """The variable or quotient that an expression is, if it is no sum or product."""
    terms = poly(e)
    if len(terms) != 1:
        return None
    ((monomial, c),) = terms.items()
    (atom,) = monomial if len(monomial) == 1 else (None,)
    return atom if c == 1 else None


def _remainder_of(x: Expr, rest: Monomial, k: int, terms: Poly) -> tuple[Monomial, Expr] | None:
    """The monomial of k * (x % d), d a number, times `rest`, if it is among some terms, and d."""
    for monomial, c in terms.items():
        if c == k and (found := _remainder(monomial)) is not None:
            (y, d), others = found
            if y is x and d.is_const and others == rest:
                return monomial, d
    return None


def _quotient(x: Expr, divisor: Expr) -> Expr:
    """x // divisor, as the simplifier writes it where x is itself a quotient."""
    if x.op == "floordiv" and x.args[1].is_const and divisor.is_const:
        return _quotient(x.args[0], x.args[1] * divisor)
    return x // divisor


def place(program: LoopProgram) -> tuple[dict[str, Storage], int, int]:
    """Storage by buffer name, bytes of the shared area, bytes of scratch a thread.

    Raises:
        BuildError: an array of open sizes that may be too large.
    """
    for b in program.buffers.values():
        if not b.size.is_const and span(b.size)[1] >= MOST_OPEN_ELEMENTS:
            raise BuildError(
                f"`{b.name}` must have fewer than 2**31 elements for all sizes, but has up to {span(b.size)[1]}"
            )
    loops = loops_of(program)
    out = {b.name: Storage("param", b.dtype, strides_of(b), grain=_grain(b), row=_row(b)) for b in program.params}
    used: dict[str, list[tuple[tuple[Expr, ...], bool]]] = {}
    for name, indices, by_instruction in accesses(program.body):
        used.setdefault(name, []).append((indices, by_instruction))
    sizes = {"shared": 0, "scratch": 0}

    def go(stmt: Stmt, area: str) -> None:
        if isinstance(stmt, Seq):
            for s in stmt.body:
                go(s, area)
        elif isinstance(stmt, For):
            go(stmt.body, "scratch" if stmt.kind == "parallel" else area)
        elif isinstance(stmt, Allocate):
            buffer = stmt.buffer
            strides = strides_of(buffer)
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
    buffer: Buffer, strides: Strides, used: list[tuple[tuple[Expr, ...], bool]], loops: Loops
) -> int | None:
    """The vector width under which all accesses are to whole registers; None where memory is needed."""
    found: set[int] = set()
    for indices, by_instruction in used:
        flat = flat_index(indices, strides)
        if by_instruction:
            # Which register it is must be known while code is emitted: only unrolled loops may choose.
            free = {v for v in variables(flat) if not v.startswith("#")}
            if free - loops.unrolled:
                return None
            tiled = {v for v in variables(flat) if v.startswith("#")}
            if "#0" in tiled and len(tiled) > 1:
                return None  # a tile of several rows lies in memory
            found.add(_tile_lanes(flat))
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
            elif names - loops.unrolled:
                return None
        found.add(width)
        if width and any(c % width for m, c in poly(flat).items() if not (m and m[0].args[0] in loops.lanes)):
            return None
    count = int(buffer.size.value) // max(1, *found) if found else 0
    return found.pop() if len(found) == 1 and count <= MAX_REGISTER_VALUES else None


def _tile_lanes(flat: Expr) -> int:
    """An instruction's output tile occupies one register of as many lanes as #0 runs over (16 int32)."""
    return 16 if "#0" in variables(flat) else 0


def free_variables(loop: For) -> set[str]:
    """Loop variables used inside a loop."""
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
