"""Device programs: a loop program cut into kernels, each with its grid, its block and its barriers.

A kernel's body is a statement of `search_space.ir.stmt`. A loop with a thread tag does not iterate. Its variable is the
index of the thread or block that runs it, the same for all loops with that tag. Threads past its extent skip its body.
Buffers of scope `shared` belong to a block, `local` ones to a thread, all others are device memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from search_space.ir.expr import dtype_bytes
from search_space.ir.printer import print_program
from search_space.ir.stmt import Allocate, Barrier, Buffer, LoopProgram, Stmt, walk_stmt
from targets.buffers import buffer_bytes

Dim = tuple[int, int, int]
ALIGNMENT = 16
"""Bytes: the widest access of one thread; every buffer begins at a multiple of it."""
SWIZZLE_ALIGNMENT = 1024
"""Bytes after which the exchange of parts in swizzled buffers repeats."""


@dataclass(frozen=True)
class TensorMap:
    """The tensor map of an array; extents as in NumPy, the last dimension contiguous.

    Attributes:
        buffer: the array.
        shape: shape in elements; elements outside are zero.
        strides: bytes between neighbours along each dimension but the last.
        box: elements that one copy moves; rows are swizzled within `swizzle` bytes.
    """

    buffer: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 128

    @property
    def name(self) -> str:
        """Unique among the maps of a kernel."""
        return f"{self.buffer}.box{'x'.join(map(str, self.box))}"

    @property
    def box_bytes(self) -> int:
        return math.prod(self.box) * dtype_bytes(self.dtype)


@dataclass(frozen=True, eq=False)
class DeviceKernel:
    """One launch of a kernel.

    Attributes:
        name: a C identifier, unique in the program.
        grid: blocks along x, y and z.
        block: threads of a block along x, y and z.
        params: buffers in device memory that it takes pointers of, in order.
        writes: names of the buffers that it writes.
        body: statement that every thread runs; contains the barriers.
        shared: its buffers in shared memory, and the byte where each begins.
        maps: maps of arrays that the TMA unit copies; arguments behind the pointers.
    """

    name: str
    grid: Dim
    block: Dim
    params: tuple[Buffer, ...]
    writes: frozenset[str]
    body: Stmt
    shared: tuple[tuple[Buffer, int], ...]
    maps: tuple[TensorMap, ...] = ()

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return math.prod(self.block)

    @property
    def blocks(self) -> int:
        return math.prod(self.grid)

    @property
    def alignment(self) -> int:
        """Bytes at a multiple of which its shared memory begins."""
        return max((alignment(buffer) for buffer, _ in self.shared), default=ALIGNMENT)

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a block."""
        return max((start + buffer_bytes(buffer) for buffer, start in self.shared), default=0)

    @property
    def barriers(self) -> int:
        """Barriers in the text of the body; a barrier in a loop counts once."""
        return sum(isinstance(node, Barrier) for node in walk_stmt(self.body))

    def extent(self, tag: str) -> int:
        """Blocks or threads along the axis of a thread tag."""
        return (self.grid if tag.startswith("block") else self.block)["xyz".index(tag[-1])]

    def __str__(self) -> str:
        head = f"# grid {_dim(self.grid)}, block {_dim(self.block)}, {self.shared_bytes} bytes of shared memory"
        outputs = tuple(b.name for b in self.params if b.name in self.writes)
        return f"{head}\n{print_program(LoopProgram(self.name, self.params, self.body, outputs))}"


@dataclass(frozen=True, eq=False)
class DeviceProgram:
    """The kernels that compute a loop program on a device.

    Attributes:
        program: loop program that the kernels compute.
        kernels: kernels, launched one after another; each sees the results of the earlier ones.
        workspace: buffers in device memory that one kernel writes for another.
        prologues: make packed constants before the first launch.
    """

    program: LoopProgram
    kernels: tuple[DeviceKernel, ...]
    workspace: tuple[Buffer, ...]
    prologues: tuple[DeviceProgram, ...] = ()

    def __str__(self) -> str:
        parts = [str(kernel) for prologue in self.prologues for kernel in prologue.kernels]
        return "\n\n".join([*parts, *map(str, self.kernels)])


def _dim(dim: Dim) -> str:
    return "x".join(map(str, dim))


def alignment(buffer: Buffer) -> int:
    """Returns the bytes at a multiple of which a buffer begins."""
    return SWIZZLE_ALIGNMENT if buffer.swizzled else ALIGNMENT


def list_allocations(stmt: Stmt, scope: str) -> list[Buffer]:
    """Lists the buffers of a scope that are allocated in a statement, in order."""
    return [n.buffer for n in walk_stmt(stmt) if isinstance(n, Allocate) and n.buffer.scope == scope]
