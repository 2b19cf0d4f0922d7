"""Common parts of the rules for GPUs: cooperative copies to shared memory, register fragments, limits, tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from search_space.hardware import GpuLimits, Hardware
from search_space.ir.expr import Expr, const, lift, substitute
from search_space.ir.polynomial import canon
from search_space.ir.stmt import Constraint
from search_space.schedule.builder import Loop
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft
from search_space.sketch.reads import list_reads, same_places, variable

Number = Expr | int

VECTORS = (1, 2, 4)
"""Elements of 4 bytes that a thread reads or writes at once: 16 bytes at most."""


@dataclass(frozen=True)
class Threads:
    """Threads of a block along y and x, and along z if it has that dimension."""

    y: Number
    x: Number
    z: Number | None = None

    @property
    def count(self) -> Expr:
        return lift(self.y) * self.x * (1 if self.z is None else self.z)

    @property
    def tags(self) -> tuple[tuple[str, Number], ...]:
        """Tags and extents, the slowest first."""
        found = (("threadIdx.z", self.z), ("threadIdx.y", self.y), ("threadIdx.x", self.x))
        return tuple((tag, extent) for tag, extent in found if extent is not None)


def require_gpu(hardware: Hardware) -> GpuLimits:
    """Returns the limits of a GPU; only rules for GPUs call this."""
    assert hardware.gpu is not None, hardware.name
    return hardware.gpu


def add_limit(draft: Draft, name: str, left: Number, right: Number) -> Draft:
    """Adds the limit left <= right to a draft, unless both are numbers that satisfy it."""
    a, b = lift(left), lift(right)
    if a.is_const and b.is_const and a.value <= b.value:
        return draft
    return replace(draft, constraints=(*draft.constraints, Constraint(name, a, b)))


def add_divisor_limit(draft: Draft, name: str, total: Number, part: Number) -> Draft:
    """Adds the limit that `part` divides `total` to a draft."""
    return add_limit(draft, name, lift(total) % part, const(0))


def copy_to_shared(
    draft: Draft,
    tensor: str,
    anchor: tuple[str, Loop],
    threads: Threads,
    vector: Number,
    order: Sequence[int] | None = None,
    pad: Number = 0,
    loops: Sequence[int] | None = None,
) -> tuple[Draft, str]:
    """Copies a tensor to shared memory by all threads of a block, in vectors along its last dimension.

    Args:
        anchor: the reader, and its loop at which the copy is made.
        order, pad: layout of the copy, see `Relayout`.
        loops: order of the tensor's dimensions in memory, the last fastest; unchanged by default.
    """
    draft, copy = draft.cache_read(tensor, "shared", anchor[0])
    draft, axes = draft.compute_at(copy, *anchor), draft.stage(copy).spatial
    natural = tuple(range(len(axes)))
    if (order is not None and tuple(order) != natural) or pad != 0:
        draft = draft.relayout(copy, order or natural, pad)
    leaves = axes if loops is None else tuple(axes[d] for d in loops)
    if leaves != axes:
        draft = draft.reorder(copy, *leaves)
    return cooperative(draft, copy, leaves, threads, vector).finish(copy), copy


def cooperative(draft: Draft, name: str, loops: Sequence[Loop], threads: Threads, vector: Number) -> Draft:
    """Fuses the loops of a stage and distributes them to all threads of a block in vectors."""
    tags = threads.tags
    draft, fused = draft.fuse(name, loops)
    draft, (_, *dealt, lane) = draft.split(name, fused, (*(extent for _, extent in tags), vector), "guard")
    for loop, (tag, _) in zip(dealt, tags, strict=True):
        draft = draft.bind(name, loop, tag)
    return draft.vectorize(name, lane)


def fragment(draft: Draft, tensor: str, anchor: tuple[str, Loop], vector: Number) -> Draft:
    """Copies the part of a shared tile that one thread reads to registers."""
    draft, copy = draft.cache_read(tensor, "local", anchor[0])
    *outer, last = draft.stage(copy).leaves
    draft, inner = draft.compute_at(copy, *anchor).split(copy, last, (vector,))
    return draft.in_registers(copy, (*outer, *inner)).finish(copy)


def with_threads(draft: Draft, threads: Number, registers: Number, gpu: GpuLimits, most: int) -> Draft:
    """Limits a block: its threads, the registers of each and of all; at least one warp of threads.

    Args:
        most: threads that a block of this kernel may have at most.
        registers: registers of a thread's arrays.
    """
    used = lift(registers) + REGISTERS
    draft = add_limit(draft, "threads of a block", threads, gpu.threads_block)
    draft = add_limit(draft, "threads of a warp", min(most, gpu.warp), threads)
    draft = add_limit(draft, "registers of a thread", used, gpu.registers_thread)
    return add_limit(draft, "registers of a block", used * threads, gpu.registers_sm)


REGISTERS = 24
"""Number of registers of a thread besides those of its arrays, for addresses and loop counters."""


def same_elements(draft: Draft, sums: Stage, output: Stage) -> bool:
    """Tells whether the output has the elements of `sums` in the same order, its leading axes maybe split."""
    if sums.shape == output.shape:
        return same_places(draft, sums, output)
    if len(sums.axes) != 2 or sums.shape[-1] != output.shape[-1]:
        return False
    flat: Expr = lift(0)
    for axis in output.axes[:-1]:
        flat = flat * axis.extent + variable(axis)
    single: dict[str, Expr | int] = {a.name: 0 for a in output.axes if a.extent.value == 1}  # axes that are read at 0

    def at_single(index: Expr) -> Expr:
        return canon(substitute(index, single))

    wanted = at_single(flat), at_single(variable(output.axes[-1]))
    reads = list_reads(draft, output, sums.name)
    return bool(reads) and all((at_single(row), at_single(column)) == wanted for row, column in reads)
