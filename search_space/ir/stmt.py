"""Loop programs: the result of lowering a schedule; extents are symbolic until a candidate's numbers are substituted.

Grammar:
    program := params buffers, body
    stmt    := Seq stmt* | For var extent kind stmt | Allocate buffer stmt | Store buffer[indices] (reducer=) value
               | Intrinsic name operands | Barrier
    kind    := serial | parallel | vectorize | unroll | vthread | a thread tag (blockIdx.x, threadIdx.x, ...)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from search_space.ir.expr import Expr, lift, product, substitute
from search_space.ir.sizes import find_sizes

THREAD_TAGS = tuple(f"{kind}Idx.{axis}" for kind in ("block", "thread") for axis in "xyz")
WRITTEN_OUT = ("vectorize", "unroll")
"""Kinds of loops whose iterations are each written out as code, so that their number must be known."""
KINDS = ("serial", "parallel", *WRITTEN_OUT, "vthread", *THREAD_TAGS)


def is_thread(kind: str) -> bool:
    """Tells whether iterations of such a loop are threads of one block, virtual ones included."""
    return kind == "vthread" or kind.startswith("threadIdx.")


SCOPES = ("global", "shared", "local", "warp", "warpgroup", "input", "weight", "accumulator")


@dataclass(frozen=True, eq=False)
class Buffer:
    """An array; `scope` names its memory: `local` is registers of a CPU or a GPU thread, `warp` those of a warp.

    Scope `warpgroup` means registers of the four warps of a warpgroup.

    An array is dense and row-major unless `pitches` says how many elements lie between neighbours along each dimension.
    With `swizzled`, which targets set, parts of 16 bytes are permuted within every 1024 bytes, as tensor cores expect.
    Estimates take `mean` as the mean of elements that are numbers of iterations.
    """

    name: str
    shape: tuple[Expr, ...]
    dtype: str
    scope: str = "global"
    constant: bool = False
    pitches: tuple[int | Expr, ...] | None = None
    swizzled: bool = False
    mean: float | None = None

    @property
    def size(self) -> Expr:
        """Number of elements."""
        return product(self.shape)

    @property
    def strides(self) -> tuple[Expr, ...]:
        """Elements between neighbours along each dimension."""
        if self.pitches is not None:
            return tuple(lift(pitch) for pitch in self.pitches)
        return tuple(product(self.shape[i + 1 :]) for i in range(len(self.shape)))


class Stmt:
    """Base of the statement nodes."""


@dataclass(frozen=True, eq=False)
class Seq(Stmt):
    body: tuple[Stmt, ...]


@dataclass(frozen=True, eq=False)
class For(Stmt):
    """A loop `for var in range(extent)`; a trip count of 0 is allowed (a peeled tail that a candidate does not need).

    `pragmas` are hints by name, which a target may read.
    """

    var: str
    extent: Expr
    kind: str
    body: Stmt
    pragmas: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, eq=False)
class Allocate(Stmt):
    """`buffer` lives for the duration of `body`; its contents start undefined."""

    buffer: Buffer
    body: Stmt


@dataclass(frozen=True, eq=False)
class Store(Stmt):
    """`buffer[indices] = value`, or `reducer(buffer[indices], value)`; skipped where `predicate` is false."""

    buffer: str
    indices: tuple[Expr, ...]
    value: Expr
    reducer: str | None = None
    predicate: Expr | None = None


@dataclass(frozen=True, eq=False)
class Operand:
    """An intrinsic's tile of a buffer: the index of its first element, and of the element at (#0, #1, ...)."""

    buffer: str
    indices: tuple[Expr, ...]
    elements: tuple[Expr, ...]


@dataclass(frozen=True, eq=False)
class Intrinsic(Stmt):
    """One call of a hardware instruction: `output` is updated from `inputs`; with `reset` it starts from zero.

    It is skipped where `predicate` is false.
    """

    name: str
    output: Operand
    inputs: tuple[Operand, ...]
    reset: bool = False
    predicate: Expr | None = None


@dataclass(frozen=True, eq=False)
class Barrier(Stmt):
    """A point where all threads of a block wait for each other; earlier writes to shared memory are visible after it.

    Targets with concurrent threads insert it; loops that run one after another need none. With `pending`, each thread
    first waits for its asynchronous copies, except the latest `pending` groups. With `proxy` it makes its writes, and
    these copies, visible to tensor cores that read shared memory by themselves.
    """

    pending: int | None = None
    proxy: bool = False


@dataclass(frozen=True)
class Constraint:
    """A legality rule `left <= right` under a name that error messages can show."""

    name: str
    left: Expr
    right: Expr


@dataclass(frozen=True, eq=False)
class LoopProgram:
    """A kernel as loops.

    Attributes:
        prologues: programs that compute constants once, before the first call; the output of each is a parameter here.
        sources: inputs that callers pass, in order, if prologues compute parameters from them.
        sizes: least and greatest value of each open size of the shapes, by name.
    """

    name: str
    params: tuple[Buffer, ...]
    body: Stmt
    outputs: tuple[str, ...]
    constraints: tuple[Constraint, ...] = ()
    prologues: tuple[LoopProgram, ...] = ()
    sources: tuple[Buffer, ...] = ()
    buffers: Mapping[str, Buffer] = field(init=False)
    sizes: Mapping[str, tuple[int, int]] = field(init=False)

    def __post_init__(self) -> None:
        buffers = {b.name: b for b in self.params}
        for node in walk_stmt(self.body):
            if isinstance(node, Allocate):
                buffers[node.buffer.name] = node.buffer
        object.__setattr__(self, "buffers", buffers)
        object.__setattr__(self, "sizes", find_sizes(extent for b in self.params for extent in b.shape))

    @property
    def inputs(self) -> tuple[Buffer, ...]:
        """Buffers that callers pass, in order."""
        return self.sources if self.prologues else tuple(b for b in self.params if b.name not in self.outputs)

    def __str__(self) -> str:
        from search_space.ir.printer import print_program

        return print_program(self)


def with_pitches(program: LoopProgram, pitches: Mapping[str, tuple[int | Expr, ...]]) -> LoopProgram:
    """Replaces pitches of parameters: elements between neighbours along each dimension, by name."""
    params = tuple(replace(b, pitches=pitches[b.name]) if b.name in pitches else b for b in program.params)
    return replace(program, params=params)


def children(stmt: Stmt) -> tuple[Stmt, ...]:
    """Lists the direct children of a statement, in order."""
    if isinstance(stmt, Seq):
        return stmt.body
    return (stmt.body,) if isinstance(stmt, (For, Allocate)) else ()


def map_children(stmt: Stmt, function: Callable[[Stmt], Stmt]) -> Stmt:
    """Applies `function` to the direct children of a statement; a leaf is returned unchanged."""
    if isinstance(stmt, Seq):
        return seq(*map(function, stmt.body))
    return replace(stmt, body=function(stmt.body)) if isinstance(stmt, (For, Allocate)) else stmt


def walk_stmt(stmt: Stmt) -> Iterator[Stmt]:
    """Lists every statement, parents first."""
    yield stmt
    for child in children(stmt):
        yield from walk_stmt(child)


def seq(*stmts: Stmt) -> Stmt:
    """Makes a sequence, flattened; a single statement is returned as it is."""
    flat: list[Stmt] = []
    for stmt in stmts:
        flat += stmt.body if isinstance(stmt, Seq) else (stmt,)
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def map_exprs(stmt: Stmt, function: Callable[[Expr], Expr]) -> Stmt:
    """Applies `function` to every expression in a statement (extents, shapes, indices, values)."""

    def each(exprs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(function(e) for e in exprs)

    def operand(o: Operand) -> Operand:
        return Operand(o.buffer, each(o.indices), each(o.elements))

    if isinstance(stmt, Seq):
        return Seq(tuple(map_exprs(s, function) for s in stmt.body))
    if isinstance(stmt, For):
        return For(stmt.var, function(stmt.extent), stmt.kind, map_exprs(stmt.body, function), stmt.pragmas)
    if isinstance(stmt, Allocate):
        return Allocate(map_buffer(stmt.buffer, function), map_exprs(stmt.body, function))
    if isinstance(stmt, Store):
        predicate = None if stmt.predicate is None else function(stmt.predicate)
        return Store(stmt.buffer, each(stmt.indices), function(stmt.value), stmt.reducer, predicate)
    if isinstance(stmt, Barrier):
        return stmt
    assert isinstance(stmt, Intrinsic), stmt
    return replace(
        stmt,
        output=operand(stmt.output),
        inputs=tuple(operand(o) for o in stmt.inputs),
        predicate=None if stmt.predicate is None else function(stmt.predicate),
    )


def map_buffer(buffer: Buffer, function: Callable[[Expr], Expr]) -> Buffer:
    return replace(buffer, shape=tuple(function(e) for e in buffer.shape))


def substitute_program(program: LoopProgram, values: Mapping[str, int]) -> LoopProgram:
    """Replaces decision variables by a candidate's numbers, or sizes by those of a call."""
    memo: dict[int, Expr] = {}

    def function(e: Expr) -> Expr:
        return substitute(e, values, memo)

    return LoopProgram(
        program.name,
        tuple(map_buffer(b, function) for b in program.params),
        map_exprs(program.body, function),
        program.outputs,
        tuple(Constraint(c.name, function(lift(c.left)), function(lift(c.right))) for c in program.constraints),
        tuple(substitute_program(p, values) for p in program.prologues),
        tuple(map_buffer(b, function) for b in program.sources),
    )
