"""Data of one store that features are computed from: its loops, its accesses, its operations."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import product

from search_space.intrinsics import SGEMM
from search_space.ir.access import conjuncts
from search_space.ir.expr import Expr, const, substitute, variables, walk
from search_space.ir.stmt import THREAD_TAGS, Allocate, Buffer, For, Intrinsic, LoopProgram, Seq, Stmt, Store
from search_space.lower.blocks import BULK
from search_space.lower.borders import borders, present
from search_space.lower.counted import assume_mean
from search_space.lower.selected import assume_iterations

_BUFFER = tuple(field.name for field in fields(Buffer))
HOLDING_THREADS = {"local": 1, "warp": 32, "warpgroup": 128}
"""Scopes of registers, and the number of threads that hold a buffer together."""
INLINE_KINDS = ("unroll", "vectorize", "tensor", "library")  # loops that do not exist in machine code
TAKEN_IN = {"float32": "mul", "int32": "bytedot"}
"""Products that become one instruction with their addition, by element type."""
MAX_COPIES = 64
"""Maximum number of copies of a statement, by the values of unrolled loops, that are examined one by one."""


@dataclass(frozen=True)
class Loop:
    """A loop around a statement; kind `tensor` is a loop inside an instruction, `library` one inside a call.

    A unit of the device, instead of threads, fills the tiles of a loop that is `bulk`.
    """

    var: str
    extent: Expr
    kind: str
    bulk: bool = False

    @property
    def runtime(self) -> bool:
        """Tells whether it is a loop in machine code, too."""
        return self.kind not in INLINE_KINDS


@dataclass(frozen=True)
class Access:
    """One element or vector of a buffer that a statement reads, writes, or both."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    reads: bool
    writes: bool

    @property
    def memory(self) -> bool:
        """Tells whether it goes to memory rather than registers."""
        return self.buffer.scope not in HOLDING_THREADS

    @property
    def key(self) -> Hashable:
        """Key of the whole access: buffers are compared by their attributes."""
        return self.indices, self.reads, self.writes, *(getattr(self.buffer, name) for name in _BUFFER)

    def depends(self, var: str) -> bool:
        return any(var in variables(index) for index in self.indices)


@dataclass(frozen=True)
class Statement:
    """A store with its loops.

    Attributes:
        loops: loops, outermost first, without those that always run once.
        output: written access.
        inputs: read accesses besides the output, in order of appearance.
        operations: counts of one execution, by kind or math function; means if unrolled copies differ.
        reducing: whether it accumulates.
        allocation: number of the loops around the allocation of `output`.
        guard_variables: variables of loops whose positions decide whether an element is read.
        tests: number of comparisons that decide it.
        inside: comparisons of which one fails if an instruction would add zeros of a border; it is skipped then.
    """

    loops: tuple[Loop, ...]
    output: Access
    inputs: tuple[Access, ...]
    operations: Mapping[str, float]
    reducing: bool
    allocation: int
    guard_variables: frozenset[str] = frozenset()
    tests: int = 0
    inside: tuple[Expr, ...] = ()

    @property
    def key(self) -> Hashable:
        """Key of the whole statement: equal exactly for equal statements."""
        operations = tuple(self.operations.items())  # in their order, as sums depend on it
        loops, ends = (self.loops, self.allocation, self.reducing), (self.guard_variables, self.tests, self.inside)
        return tuple(a.key for a in self.accesses), operations, loops, ends

    @property
    def accesses(self) -> tuple[Access, ...]:
        """All accesses, the output first."""
        return (self.output, *self.inputs)

    def is_reduction(self, loop: Loop) -> bool:
        """Tells whether the loop accumulates: it is inside the output's allocation, and not one of its axes."""
        inside = loop in self.loops[self.allocation :]
        return self.reducing and inside and not self.output.depends(loop.var)


def statements(program: LoopProgram) -> tuple[Statement, ...]:
    """Lists every store that computes; leaves out stores of a constant, unless there are no others."""
    program = assume_iterations(assume_mean(program))
    found = tuple(_walk(program.body, (), {}, program))
    working = tuple(s for s in found if s.inputs or s.reducing)
    return working or found


def _walk(
    stmt: Stmt, loops: tuple[Loop, ...], allocation_depths: dict[str, int], program: LoopProgram
) -> Iterator[Statement]:
    if isinstance(stmt, Seq):
        for child in stmt.body:
            yield from _walk(child, loops, allocation_depths, program)
    elif isinstance(stmt, Allocate):
        yield from _walk(stmt.body, loops, {**allocation_depths, stmt.buffer.name: len(loops)}, program)
    elif isinstance(stmt, For):
        once = stmt.extent.is_const and stmt.extent.value == 1
        inner = loops if once else (*loops, Loop(stmt.var, stmt.extent, stmt.kind, BULK in dict(stmt.pragmas)))
        yield from _walk(stmt.body, inner, allocation_depths, program)
    elif isinstance(stmt, Store):
        yield _of_store(stmt, loops, allocation_depths, program)
    elif isinstance(stmt, Intrinsic):
        yield _of_intrinsic(stmt, loops, allocation_depths, program)


def _of_store(
    stmt: Store, loops: tuple[Loop, ...], allocation_depths: Mapping[str, int], program: LoopProgram
) -> Statement:
    inputs: dict[tuple[str, tuple[int, ...]], Access] = {}
    here = (stmt.buffer, tuple(i.serial for i in stmt.indices))
    for node in walk(stmt.value):
        if node.op == "load":
            key = (node.args[0], tuple(i.serial for i in node.args[1:]))
            inputs.setdefault(key, Access(program.buffers[node.args[0]], node.args[1:], True, False))
    operations = _operations(stmt.value, loops)
    if program.buffers[stmt.buffer].scope == "shared":
        for ends in ("guard", "select"):  # the ends of a tile, which a copy fills with zeros
            operations.pop(ends, None)
    reads_itself = inputs.pop(here, None) is not None or stmt.reducer is not None
    output = Access(program.buffers[stmt.buffer], stmt.indices, reads_itself, True)
    if stmt.reducer == "sum" and operations.get("mul", 0) >= 1:
        operations["mul"] -= 1
        operations["fma"] = operations.get("fma", 0) + 1
    elif stmt.reducer:
        kind = {"sum": "add", "prod": "mul"}.get(stmt.reducer, stmt.reducer)
        operations[kind] = operations.get(kind, 0) + 1
    loops, depth = _threads_once(loops, output.buffer, allocation_depths.get(stmt.buffer, 0))
    conditions = [node.args[0] for node in walk(stmt.value) if _is_mask(node)]
    tests = sum(part.op in ("lt", "le") for condition in conditions for part in walk(condition))
    guarded = frozenset(v for node in walk(stmt.value) if _guards(node) for v in variables(node.args[0]))
    return Statement(loops, output, tuple(inputs.values()), operations, stmt.reducer is not None, depth, guarded, tests)


def _operations(value: Expr, loops: Sequence[Loop]) -> dict[str, float]:
    """Counts the operations of one execution of `value`, by kind or math function.

    A choice by the position in an unrolled loop, as in Winograd's transforms, is made when code is emitted. Each copy
    counts only its branch, and common parts of copies count once.
    """
    lanes = frozenset(loop.var for loop in loops if loop.kind == "vectorize")
    copies = _copies(value, loops)
    seen: set[int] = set()
    counts: dict[str, float] = {}

    def visit(node: Expr) -> None:
        if node.serial in seen:
            return
        seen.add(node.serial)
        if node.op in ("load", "const", "var"):
            return
        product = _find_fused_product(node)
        for operand in node.operands:
            for part in product.operands if operand is product else (operand,):
                visit(part)
        if node.op == "cast" or node.dtype in ("int64", "bool") or _masks(node, lanes):
            return
        kind = node.args[0] if node.op == "call" else node.op
        kind = kind if product is None else "fma" if product.op == "mul" else product.op
        kind = "guard" if _guards(node) else kind
        counts[kind] = counts.get(kind, 0) + 1

    for copy in copies:
        visit(copy)
    return {kind: count / len(copies) for kind, count in counts.items()} if len(copies) > 1 else counts


def _find_fused_product(node: Expr) -> Expr | None:
    """Finds the product that becomes one multiply-add, or one dot of bytes, with an addition; None if absent."""
    if node.op != "add" or node.dtype not in TAKEN_IN:
        return None
    return next((operand for operand in node.operands if operand.op == TAKEN_IN[node.dtype]), None)


def _copies(value: Expr, loops: Sequence[Loop]) -> list[Expr]:
    """Lists copies of `value`, one for each position that it selects by; `value` alone if by none or by too many."""
    extents = {loop.var: int(loop.extent.value) for loop in loops if loop.kind == "unroll" and loop.extent.is_const}
    chosen: dict[str, None] = {}
    for node in walk(value):
        if node.op == "select" and node.args[0].op == "eq":
            index, place = node.args[0].args
            index = place if index.op == "const" else index
            if index.op == "var" and index.args[0] in extents:
                chosen[index.args[0]] = None
    copies = 1
    for name in chosen:
        copies *= extents[name]
    if not 1 < copies <= MAX_COPIES:
        return [value]
    positions = product(*(range(extents[name]) for name in chosen))
    return [substitute(value, dict(zip(chosen, position, strict=True))) for position in positions]


def _masks(node: Expr, lanes: frozenset[str]) -> bool:
    """Tells whether a select only guards the end of a vector axis: it becomes a mask of the load, at no extra cost."""
    return node.op == "select" and all(variables(part) & lanes for part in conjuncts(node.args[0]))


def _guards(node: Expr) -> bool:
    """Tells whether a select only prevents reading an element that does not exist: it chooses addresses, not values."""
    if node.op != "select" or node.args[1].op != "load" or node.args[2].op != "const":
        return False
    return all(part.op not in ("load", "call") for part in walk(node.args[0]))


def _is_mask(node: Expr) -> bool:
    """Tells whether a select returns zero, or another number, where no element exists."""
    return node.op == "select" and node.args[2].op == "const" and node.args[0].op not in ("load", "call")


def _of_intrinsic(
    stmt: Intrinsic, loops: tuple[Loop, ...], allocation_depths: Mapping[str, int], program: LoopProgram
) -> Statement:
    from search_space.schedule.intrinsics import get_intrinsic

    intrinsic = get_intrinsic(stmt.name)
    computes = intrinsic.reducer is not None  # rather than copies
    kind = "library" if stmt.name.partition(":")[0] == SGEMM else "tensor"
    tile = tuple(Loop(f"#{i}", const(e), kind) for i, e in enumerate(intrinsic.extents))
    output = Access(program.buffers[stmt.output.buffer], stmt.output.elements, computes, True)
    inputs = tuple(Access(program.buffers[o.buffer], o.elements, True, False) for o in stmt.inputs)
    loops, depth = _threads_once(loops, output.buffer, allocation_depths.get(stmt.output.buffer, 0))
    exact = output.buffer.dtype == "int32"  # only integers: 0 times NaN is NaN
    inside = present(borders(program), stmt) if exact else ()
    operations = {"fma": float(intrinsic.steps)} if computes else {}
    return Statement((*loops, *tile), output, inputs, operations, computes, depth, inside=inside)


def _threads_once(loops: tuple[Loop, ...], output: Buffer, depth: int) -> tuple[tuple[Loop, ...], int]:
    """Leaves out loops of threads that a loop of the same threads inside them replaces; returns loops and new depth.

    A block's threads write shared memory together, and once for all virtual threads.
    """
    if not any(loop.kind in THREAD_TAGS for loop in loops):
        return loops, depth
    last = {loop.kind: i for i, loop in enumerate(loops)}
    indices = [
        i
        for i, loop in enumerate(loops)
        if not (loop.kind in THREAD_TAGS and last[loop.kind] != i)
        and not (loop.kind == "vthread" and output.scope == "shared")
    ]
    return tuple(loops[i] for i in indices), sum(i < depth for i in indices)
