"""Limits on the decisions of programs that fill the machine's memories themselves: bytes and instructions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from search_space.ir.expr import Expr, const, dtype_bytes, lift, minimum, product, total
from search_space.ir.stmt import Allocate, Buffer, Constraint, For, Intrinsic, LoopProgram, Seq, Stmt, Store


def memory_limits(program: LoopProgram, memories: Sequence[tuple[str, int]]) -> tuple[Constraint, ...]:
    """Makes a limit for each memory: the bytes of all its buffers together. A virtual thread has its own buffers."""
    used: dict[str, Expr] = {}
    for buffer, threads in _buffers(program.body, const(1)):
        size = product((*buffer.shape, threads)) * dtype_bytes(buffer.dtype)
        # Buffers never share memory, whether or not they are needed at the same time: their addresses are fixed while a
        # program runs.
        used[buffer.scope] = lift(used.get(buffer.scope, const(0)) + size)
    return tuple(Constraint(f"{scope} memory", used[scope], const(size)) for scope, size in memories if scope in used)


def _buffers(stmt: Stmt, threads: Expr) -> Iterator[tuple[Buffer, Expr]]:
    """Lists every allocated buffer with the number of virtual threads that have one."""
    if isinstance(stmt, Seq):
        for child in stmt.body:
            yield from _buffers(child, threads)
    elif isinstance(stmt, For):
        yield from _buffers(stmt.body, lift(threads * stmt.extent) if stmt.kind == "vthread" else threads)
    elif isinstance(stmt, Allocate):
        yield stmt.buffer, threads
        yield from _buffers(stmt.body, threads)


def workspace_bytes(program: LoopProgram, threads: int) -> Expr:
    """Counts the bytes that a kernel needs besides inputs and output, as an expression in its decisions.

    It counts the buffers that the kernel allocates outside registers (any scope but `local`), all at once: buffers
    inside a parallel loop once for each of at most `threads` threads, buffers of virtual threads once for each. It adds
    the constants that prologues pack or derive. Rounding up to cache lines is left out.
    """
    parts: list[Expr] = []

    def visit(stmt: Stmt, times: Expr) -> None:
        if isinstance(stmt, Seq):
            for child in stmt.body:
                visit(child, times)
        elif isinstance(stmt, For):
            if stmt.kind == "parallel":
                times = lift(times * minimum(stmt.extent, threads))
            elif stmt.kind == "vthread":
                times = lift(times * stmt.extent)
            visit(stmt.body, times)
        elif isinstance(stmt, Allocate):
            if stmt.buffer.scope != "local":
                parts.append(lift(stmt.buffer.size * times * dtype_bytes(stmt.buffer.dtype)))
            visit(stmt.body, times)

    visit(program.body, const(1))
    # The output of a prologue is kept for all calls, beside its source constants.
    made = {name for prologue in program.prologues for name in prologue.outputs}
    parts += [lift(b.size * dtype_bytes(b.dtype)) for b in program.params if b.name in made]
    return lift(total(parts))


def nest_limit(program: LoopProgram, most: int) -> tuple[Constraint, ...]:
    """Makes the limit on the executions of innermost nests, each at least one instruction; no limit if `most` is 0."""
    if not most:
        return ()
    # Loops around nests are no instructions: a program is one stream, into which they are unrolled.
    return (Constraint("instructions", lift(total(list(_nests(program.body, const(1))))), const(most)),)


def _nests(stmt: Stmt, times: Expr) -> Iterator[Expr]:
    """Counts the executions of each nest of loops around a single statement."""
    if isinstance(stmt, Seq):
        for child in stmt.body:
            yield from _nests(child, times)
    elif isinstance(stmt, Allocate):
        yield from _nests(stmt.body, times)
    elif is_nest(stmt):
        yield times
    else:
        assert isinstance(stmt, For)
        yield from _nests(stmt.body, lift(times * stmt.extent))


def is_nest(stmt: Stmt) -> bool:
    """Tells whether a statement is a nest: loops, except virtual threads, around a single store or intrinsic."""
    while isinstance(stmt, For) and stmt.kind != "vthread":
        stmt = stmt.body
    return isinstance(stmt, (Store, Intrinsic))
