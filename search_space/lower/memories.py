"""What a program's buffers take of memories that programs fill themselves, as limits on its decisions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from search_space.ir.expr import Expr, const, dtype_bytes, lift, product
from search_space.ir.stmt import Allocate, Buffer, Constraint, For, LoopProgram, Seq, Stmt


def memory_limits(program: LoopProgram, memories: Sequence[tuple[str, int]]) -> tuple[Constraint, ...]:
    """One limit a memory: the bytes of all buffers in it, at once. A virtual thread has buffers of its own."""
    taken: dict[str, Expr] = {}
    for buffer, threads in _buffers(program.body, const(1)):
        size = product((*buffer.shape, threads)) * dtype_bytes(buffer.dtype)
        taken[buffer.scope] = lift(taken.get(buffer.scope, const(0)) + size)
    return tuple(Constraint(f"{scope} memory", taken[scope], const(size)) for scope, size in memories if scope in taken)


def _buffers(stmt: Stmt, threads: Expr) -> Iterator[tuple[Buffer, Expr]]:
    """Every buffer allocated, and how many virtual threads have one."""
    if isinstance(stmt, Seq):
        for child in stmt.body:
            yield from _buffers(child, threads)
    elif isinstance(stmt, For):
        yield from _buffers(stmt.body, lift(threads * stmt.extent) if stmt.kind == "vthread" else threads)
    elif isinstance(stmt, Allocate):
        yield stmt.buffer, threads
        yield from _buffers(stmt.body, threads)
