"""What the features need to know of one store: its loops, its accesses, its operations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from costmodel.features.linear import Linear, linear
from search_space.ir.expr import Expr, const, dtype_bytes, product, walk
from search_space.ir.stmt import Allocate, Buffer, For, Intrinsic, LoopProgram, Seq, Stmt, Store

LINE_ELEMENTS = 16  # float32 elements of a 64-byte cache line


@dataclass(frozen=True)
class Loop:
    var: str
    extent: Expr
    kind: str


@dataclass(frozen=True)
class Access:
    """One buffer as a statement uses it."""

    buffer: Buffer
    dims: tuple[Linear, ...]
    write: bool

    @property
    def memory(self) -> bool:
        """Whether it goes to memory rather than registers."""
        return self.buffer.scope != "local"

    def depends(self, var: str) -> bool:
        return any(var in d.coefficients or var in d.opaque for d in self.dims)

    def footprint(self, running: dict[str, Expr]) -> Expr:
        """Bytes touched while the loops in `running` run, in whole cache lines along the last dimension."""
        from search_space.ir.expr import maximum

        spans = [d.span(running, extent) for d, extent in zip(self.dims, self.buffer.shape, strict=True)]
        if spans:
            spans[-1] = maximum(spans[-1], LINE_ELEMENTS)
        return product(spans) * dtype_bytes(self.buffer.dtype)


@dataclass(frozen=True)
class Statement:
    """A store under its loops, outermost first."""

    loops: tuple[Loop, ...]
    accesses: tuple[Access, ...]
    operations: dict[str, int]
    reducing: bool
    depth: int = 1

    def running(self, start: int) -> dict[str, Expr]:
        """Extents of the loops from `start` inward."""
        return {loop.var: loop.extent for loop in self.loops[start:]}

    @property
    def runtime_loops(self) -> int:
        """Loops that are neither unrolled nor vectorized; these stand outermost in generated programs."""
        return next((i for i, loop in enumerate(self.loops) if loop.kind in ("unroll", "vectorize")), len(self.loops))


def statements(program: LoopProgram) -> list[Statement]:
    """Every store that does work: initialisations of a reduction are left out."""
    return list(_walk(program.body, (), program))


def _walk(stmt: Stmt, loops: tuple[Loop, ...], program: LoopProgram) -> Iterator[Statement]:
    if isinstance(stmt, Seq):
        for child in stmt.body:
            yield from _walk(child, loops, program)
    elif isinstance(stmt, Allocate):
        yield from _walk(stmt.body, loops, program)
    elif isinstance(stmt, For):
        yield from _walk(stmt.body, (*loops, Loop(stmt.var, stmt.extent, stmt.kind)), program)
    elif isinstance(stmt, Store):
        if stmt.value.op != "const":
            yield _of_store(stmt, loops, program)
    elif isinstance(stmt, Intrinsic):
        yield _of_intrinsic(stmt, loops, program)


def _of_store(stmt: Store, loops: tuple[Loop, ...], program: LoopProgram) -> Statement:
    names = frozenset(loop.var for loop in loops)
    found: dict[tuple[str, tuple[int, ...], bool], Access] = {}

    def add(name: str, indices: tuple[Expr, ...], write: bool) -> None:
        key = (name, tuple(i.serial for i in indices), write)
        found[key] = Access(program.buffers[name], tuple(linear(i, names) for i in indices), write)

    add(stmt.buffer, stmt.indices, True)
    operations: dict[str, int] = {}
    for node in walk(stmt.value):
        if node.op == "load":
            add(node.args[0], node.args[1:], False)
        elif node.dtype != "int64":
            kind = node.args[0] if node.op == "call" else node.op
            operations[kind] = operations.get(kind, 0) + 1
    if stmt.reducer == "sum" and operations.get("mul"):
        operations["mul"] -= 1
        operations["fma"] = 1
    elif stmt.reducer:
        operations["reduce"] = 1
    return Statement(loops, tuple(found.values()), operations, stmt.reducer is not None)


def _of_intrinsic(stmt: Intrinsic, loops: tuple[Loop, ...], program: LoopProgram) -> Statement:
    from search_space.schedule.intrinsics import get_intrinsic

    extents = get_intrinsic(stmt.name).extents
    tile = tuple(Loop(f"#{i}", const(e), "vectorize") for i, e in enumerate(extents))
    names = frozenset(loop.var for loop in (*loops, *tile))
    accesses = [
        Access(program.buffers[o.buffer], tuple(linear(i, names) for i in o.elements), write)
        for o, write in ((stmt.output, True), *((x, False) for x in stmt.inputs))
    ]
    return Statement((*loops, *tile), tuple(accesses), {"fma": 1}, True, depth=extents[-1])
