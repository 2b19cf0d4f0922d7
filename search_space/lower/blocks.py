"""Limits of a GPU on a program's decisions: threads of a block and shared memory of each kernel."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product as cartesian

from search_space.gpu_limits import GpuLimits
from search_space.ir.expr import Expr, const, dtype_bytes, lift, product, total
from search_space.ir.stmt import Allocate, Constraint, For, LoopProgram, Seq, Stmt

PIPELINE = "pipeline"
"""Pragma of a loop: number of copies of its shared buffers, one filled for the next step while another is used."""
BULK = "bulk"
"""Pragma of a pipelined loop whose buffers the device's copy unit fills, if they are boxes of arrays."""


def kernels(stmt: Stmt) -> Iterator[Stmt]:
    """Lists the statements that are launched one after another, each over a grid of blocks of its own."""
    if isinstance(stmt, Seq):
        for child in stmt.body:
            yield from kernels(child)
    # A block cannot see the writes of another: an intermediate array in global memory lies between kernels, any other
    # one within a kernel.
    elif isinstance(stmt, Allocate) and stmt.buffer.scope == "global":
        yield from kernels(stmt.body)
    else:
        yield stmt


def shared_bytes(stmt: Stmt, times: int = 1) -> Expr:
    """Counts the bytes of all shared buffers in a kernel, which exist at the same time."""
    if isinstance(stmt, Seq):
        # Statements one after another add up: the target gives every shared buffer a place of its own.
        return lift(total([shared_bytes(child, times) for child in stmt.body]))
    if isinstance(stmt, For):
        return shared_bytes(stmt.body, times * dict(stmt.pragmas).get(PIPELINE, 1))
    if isinstance(stmt, Allocate):
        inner = shared_bytes(stmt.body, times)
        if stmt.buffer.scope != "shared":
            return inner
        return lift(inner + stmt.buffer.size * dtype_bytes(stmt.buffer.dtype) * times)
    return const(0)


def shared_limits(program: LoopProgram, gpu: GpuLimits) -> tuple[Constraint, ...]:
    """Makes a limit for each kernel that has shared buffers."""
    taken = [shared_bytes(kernel) for kernel in kernels(program.body)]
    return tuple(Constraint("shared memory", lift(t), const(gpu.shared_block)) for t in taken if t is not const(0))


BLOCK_TAGS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")


def thread_limits(program: LoopProgram, gpu: GpuLimits) -> tuple[Constraint, ...]:
    """Makes the limits on the threads of a block in each kernel.

    A kernel's stages may bind loops of several extents to one tag: the longest counts, so any of them must fit.
    """
    limits: list[Constraint] = []
    for kernel in kernels(program.body):
        extents: dict[str, dict[Expr, None]] = {}
        _bound_extents(kernel, extents)
        # Which of two symbolic extents is longer differs from candidate to candidate; a limit for each choice has the
        # effect of one for their maximum.
        for chosen in cartesian(*extents.values()):
            count = lift(product(chosen))
            # A number that fits is no limit; one that does not fit is kept, so that the sketch has no legal candidate.
            if not count.is_const or count.value > gpu.threads_block:
                limits.append(Constraint("threads of a block", count, const(gpu.threads_block)))
    return tuple(dict.fromkeys(limits))


def _bound_extents(stmt: Stmt, extents: dict[str, dict[Expr, None]]) -> None:
    """Collects the extents of loops by the tag of a block's threads that they are bound to, in order."""
    if isinstance(stmt, Seq):
        for child in stmt.body:
            _bound_extents(child, extents)
    elif isinstance(stmt, (For, Allocate)):
        if isinstance(stmt, For) and stmt.kind in BLOCK_TAGS:
            extents.setdefault(stmt.kind, {})[lift(stmt.extent)] = None
        _bound_extents(stmt.body, extents)
