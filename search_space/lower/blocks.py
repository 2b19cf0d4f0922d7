"""What a program takes of a GPU, as limits on its decisions: bytes of shared memory in each of its kernels."""

from __future__ import annotations

from collections.abc import Iterator

from search_space.hardware import GpuLimits
from search_space.ir.expr import Expr, const, dtype_bytes, lift, total
from search_space.ir.stmt import Allocate, Constraint, For, LoopProgram, Seq, Stmt

PIPELINE = "pipeline"
"""Pragma of a loop whose shared buffers are there so many times: the next step's are filled while one is worked on."""
BULK = "bulk"
"""Pragma of such a loop whose buffers the device's copy unit fills, as far as they are boxes of arrays."""


def kernels(stmt: Stmt) -> Iterator[Stmt]:
    """The statements that are started one after another, each over a grid of blocks of its own."""
    if isinstance(stmt, Seq):
        for child in stmt.body:
            yield from kernels(child)
    elif isinstance(stmt, Allocate) and stmt.buffer.scope == "global":
        yield from kernels(stmt.body)
    else:
        yield stmt


def shared_bytes(stmt: Stmt, times: int = 1) -> Expr:
    """Bytes of all shared buffers in a kernel, at once."""
    if isinstance(stmt, Seq):
        return lift(total([shared_bytes(child, times) for child in stmt.body]))
    if isinstance(stmt, For):
        return shared_bytes(stmt.body, times * dict(stmt.pragmas).get(PIPELINE, 1))
    if isinstance(stmt, Allocate):
        inner = shared_bytes(stmt.body, times)
        if stmt.buffer.scope != "shared":
            return inner
        return lift(inner + stmt.buffer.size * dtype_bytes(stmt.buffer.dtype) * times)
    return const(0)


def shared_limits(program: LoopProgram, gpu: GpuLimits | None) -> tuple[Constraint, ...]:
    """One limit a kernel that has shared buffers; none where the machine is no GPU."""
    if gpu is None:
        return ()
    taken = [shared_bytes(kernel) for kernel in kernels(program.body)]
    return tuple(Constraint("shared memory", lift(t), const(gpu.shared_block)) for t in taken if t is not const(0))
