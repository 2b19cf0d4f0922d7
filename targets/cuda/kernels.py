"""Device programs: kernels cut out of a loop program, memory placed, virtual threads and barriers inserted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from search_space.hardware import GpuLimits
from search_space.ir.stmt import (
    THREAD_TAGS,
    Allocate,
    Buffer,
    For,
    Intrinsic,
    LoopProgram,
    Seq,
    Stmt,
    Store,
    children,
    map_children,
    walk_stmt,
)
from search_space.ir.verify import verify
from targets.accesses import all_accesses
from targets.base import BuildError
from targets.buffers import buffer_bytes
from targets.cuda.barriers import insert_barriers
from targets.cuda.binding import bind_threads
from targets.cuda.bulk import bulk_copies, is_bulk, tensor_maps
from targets.cuda.crossing import reduce_across_threads, synchronises
from targets.cuda.lanes import in_squares
from targets.cuda.pipeline import rewrite_pipelines
from targets.cuda.program import DeviceKernel, DeviceProgram, Dim, alignment, list_allocations
from targets.cuda.vthreads import inject_vthreads
from targets.cuda.warpgroups import lower_warpgroups, uses_warpgroups, with_proxies
from targets.cuda.warps import lower_warps

MOST_BLOCKS = (2**31 - 1, 65535, 65535)  # limits of CUDA along x, y and z, as those of threads
MOST_THREADS = (1024, 1024, 64)
PRIVATE = "local"


def device_program(program: LoopProgram, limits: GpuLimits, name: str = "kernel") -> DeviceProgram:
    """Splits a concrete loop program into kernels.

    Every nest at the root becomes a kernel; results for the next one are in device memory. Nests with no thread tags
    are spread over threads where their iterations are independent.

    Raises:
        BuildError: the program cannot run on any GPU, or not on this one.
        VerifyError: the program breaks the grammar of loop programs.
    """
    verify(program)
    body = _prune(program.body)
    workspace: list[Buffer] = []
    nests: list[Stmt] = []
    _cut(body, workspace, nests)
    known = {b.name: b for b in (*program.params, *workspace)}
    kernels = tuple(_kernel(nest, f"{_identifier(name)}_{i}", known, limits) for i, nest in enumerate(nests))
    prologues = tuple(device_program(p, limits, f"{name}_pack{i}") for i, p in enumerate(program.prologues))
    return DeviceProgram(program, kernels, tuple(workspace), prologues)


def _identifier(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _prune(stmt: Stmt) -> Stmt:
    """Removes loops that never run."""
    return Seq(()) if isinstance(stmt, For) and not stmt.extent.value else map_children(stmt, _prune)


def _cut(stmt: Stmt, workspace: list[Buffer], nests: list[Stmt]) -> None:
    """Collects the nests at the root, and the buffers around them."""
    if isinstance(stmt, Seq):
        for s in stmt.body:
            _cut(s, workspace, nests)
    elif isinstance(stmt, Allocate):
        if stmt.buffer.scope != "global":
            raise BuildError(
                f"a buffer between kernels must be of scope global, but {stmt.buffer.name} is {stmt.buffer.scope}"
            )
        workspace.append(stmt.buffer)
        _cut(stmt.body, workspace, nests)
    else:
        nests.append(stmt)


def _kernel(nest: Stmt, name: str, buffers: dict[str, Buffer], limits: GpuLimits) -> DeviceKernel:
    if not any(isinstance(n, For) and n.kind in THREAD_TAGS for n in walk_stmt(nest)):
        nest = bind_threads(nest, buffers)
    # Each rewriting on what the one before has left: the TMA unit's boxes are found by the products that read them, so
    # before these are lowered; virtual threads come together before loops are pipelined, so that they share a tile.
    body = inject_vthreads(_make_private(lower_warpgroups(bulk_copies(lower_warps(nest), buffers))))
    grid, block = _dims(body)
    body = in_squares(body, block)
    body = reduce_across_threads(body, tuple(buffers.values()), block)
    body = rewrite_pipelines(body)
    touched = list(all_accesses(body))
    used, written = {a.buffer for a in touched}, {a.buffer for a in touched if a.write}
    shared = _place_buffers(list_allocations(body, "shared"))
    swizzled = {buffer.name for buffer, _ in shared if buffer.swizzled}
    # Last, when every access to shared memory stands where it will be.
    if block != (1, 1, 1):
        both = {a.buffer for a in touched if not a.write} & written & buffers.keys()
        # what the TMA unit fills is separated by the mbarriers and barriers that stand there already
        by_unit = {n.output.buffer for n in walk_stmt(body) if isinstance(n, Intrinsic) and is_bulk(n)}
        body = insert_barriers(body, frozenset(buffer.name for buffer, _ in shared) - by_unit | both, block)
    if uses_warpgroups(body) and any(isinstance(n, Store) and n.buffer in swizzled for n in walk_stmt(body)):
        body = with_proxies(body)
    kernel = DeviceKernel(
        name,
        grid,
        block,
        tuple(buffer for key, buffer in buffers.items() if key in used),
        frozenset(written & buffers.keys()),
        body,
        shared,
        tensor_maps(body, tuple(buffers.values())),
    )
    _check(kernel, limits)
    return kernel


def _dims(body: Stmt) -> tuple[Dim, Dim]:
    """Counts blocks, and threads of a block: for each tag, those of its longest loop."""
    sizes = dict.fromkeys(THREAD_TAGS, 1)
    for node in walk_stmt(body):
        if isinstance(node, For) and node.kind in THREAD_TAGS:
            sizes[node.kind] = max(sizes[node.kind], int(node.extent.value))
    grid, block = ([sizes[f"{kind}Idx.{axis}"] for axis in "xyz"] for kind in ("block", "thread"))
    return (grid[0], grid[1], grid[2]), (block[0], block[1], block[2])


def _place_buffers(buffers: list[Buffer]) -> tuple[tuple[Buffer, int], ...]:
    """Places buffers in shared memory one after another."""
    out: list[tuple[Buffer, int]] = []
    start = 0
    for buffer in buffers:
        start = -(-start // alignment(buffer)) * alignment(buffer)
        out.append((buffer, start))
        start += buffer_bytes(buffer)
    return tuple(out)


def _make_private(stmt: Stmt) -> Stmt:
    """Makes buffers that are not shared private to a thread.

    Raises:
        BuildError: such a buffer that several threads write.
    """
    if not isinstance(stmt, Allocate):
        return map_children(stmt, _make_private)
    buffer = stmt.buffer
    if buffer.scope not in ("shared", PRIVATE):
        buffer = replace(buffer, scope=PRIVATE)
    if buffer.scope == PRIVATE:
        for kind in _writer_tags(stmt.body, buffer.name):
            raise BuildError(
                f"a buffer that several threads fill must be of scope shared, but {buffer.name} is "
                f"{stmt.buffer.scope} and filled by threads of {kind}"
            )
    return Allocate(buffer, _make_private(stmt.body))


def _writer_tags(stmt: Stmt, name: str, tags: tuple[str, ...] = ()) -> Iterator[str]:
    """Lists thread tags between a buffer's allocation and statements that write it."""
    if isinstance(stmt, For) and stmt.kind in THREAD_TAGS and stmt.extent.value > 1:
        tags = (*tags, stmt.kind)
    for child in children(stmt):
        yield from _writer_tags(child, name, tags)
    if not children(stmt) and any(a.write and a.buffer == name for a in all_accesses(stmt)):
        yield from tags


def _check(kernel: DeviceKernel, limits: GpuLimits) -> None:
    """Raises BuildError for a launch that the device refuses, or a barrier that not all threads reach."""
    for axis, size, most in zip("xyz", kernel.grid, MOST_BLOCKS, strict=True):
        if size > most:
            raise BuildError(f"blocks along blockIdx.{axis} must be at most {most}, but got {size}")
    for axis, size, most in zip("xyz", kernel.block, MOST_THREADS, strict=True):
        if size > most:
            raise BuildError(f"threads along threadIdx.{axis} must be at most {most}, but got {size}")
    if kernel.threads > limits.threads_block:
        raise BuildError(f"threads of a block must be at most {limits.threads_block}, but got {kernel.threads}")
    if kernel.shared_bytes > limits.shared_block:
        raise BuildError(
            f"shared memory of a block must be at most {limits.shared_block} bytes, but got {kernel.shared_bytes}"
        )
    # Threads beyond a loop's extent skip it; a barrier inside would wait for them for ever.
    for loop in walk_stmt(kernel.body):
        if isinstance(loop, For) and loop.kind in THREAD_TAGS and loop.extent.value < kernel.extent(loop.kind):
            if any(map(synchronises, walk_stmt(loop.body))):
                raise BuildError(
                    f"threads that wait for each other must all come to the same place, but loop {loop.var} has "
                    f"{loop.extent} of {kernel.extent(loop.kind)} along {loop.kind}"
                )


__all__ = ["device_program"]
