"""Loop programs to streams: nests of loops around one statement become instructions, buffers get places on the chip.

A nest that copies to a buffer is a LOAD; zeros in the accumulator and products of tiles are GEMM. Element-wise work on
accumulators whose result goes to memory is ALU and STORE. Loops around nests run here, so a stream is as long as the
work. Virtual threads have buffers of their own and are interleaved: one copies operands and multiplies them, then the
other does. So a thread's operands need not wait for those of the next. Dependences follow from the buffers that
instructions touch. A token is given if two modules touch a buffer one after the other, and one of the two writes. So
loop-carried dependences need no care of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest

import numpy as np

from search_space.ir.stmt import Allocate, Buffer, For, LoopProgram, Seq, Stmt, Store
from search_space.lower.memories import is_nest
from targets.base import BuildError
from targets.vta.builder import BuilderError, Program, StreamBuilder
from targets.vta.hardware import VtaHardware
from targets.vta.isa import ACC, COLUMN, INP, WGT, EncodingError
from targets.vta.leaves import MEMORY, ChipBuffer, Leaves, Segment, element_counts
from targets.vta.nests import Nest
from targets.vta.semantics import COMPUTE_MODULE, LOAD_MODULE, MODULES, STORE_MODULE

MOST_INSTRUCTIONS = 1 << 15
"""Instructions of a stream, at most: a longer one has tiles that are much too small, and takes seconds to simulate."""

Thread = tuple[int, int]
"""Number of a virtual thread, and how many there are."""
Execution = tuple[Stmt, dict[str, int], Thread]
"""A nest, the values of the loops around it, and the virtual thread."""


@dataclass(frozen=True)
class EmittedStream:
    """A stream, and where its tensors lie in DRAM.

    Attributes:
        program: the stream, and memory with the micro-operations in it.
        addresses: byte of each tensor.
        uops: byte at which micro-operations begin; the memory ends with them.
    """

    program: Program
    addresses: dict[str, int]
    uops: int


def emit(program: LoopProgram, hardware: VtaHardware) -> EmittedStream:
    """Emits the stream of a concrete loop program.

    Raises:
        BuildError: the program holds something that no instruction does, or too much for a buffer.
    """
    try:
        return _Emitter(program, hardware).kernel()
    except (BuilderError, EncodingError) as error:
        raise BuildError(str(error)) from error


class _Emitter:
    def __init__(self, program: LoopProgram, hardware: VtaHardware) -> None:
        self.program, self.hardware = program, hardware
        self.builder = StreamBuilder(hardware)
        self.elements = element_counts(hardware)
        self.depths = {INP: hardware.inp_depth, WGT: hardware.wgt_depth, ACC: hardware.acc_depth}
        self.free = {INP: 0, WGT: 0, ACC: 0}
        self.chip: dict[str, ChipBuffer] = {}
        # of each copy of a buffer the last instruction of each module that wrote it, and behind these that read it
        self.uses: dict[str, list[list[int]]] = {}
        self.last_waits = [[-1] * len(MODULES) for _ in MODULES]  # the last of a module that another waited for
        self.last_store: int | None = None

    def kernel(self) -> EmittedStream:
        addresses = {buffer.name: self.byte_offset(buffer) for buffer in self.program.params}
        order = self.executions(self.program.body, {}, (0, 1), [])
        of: dict[int, list[Execution]] = {}
        for execution in order:
            of.setdefault(id(execution[0]), []).append(execution)
        leaves = Leaves(self.program, self.hardware, self.builder, addresses, self.chip)
        segments = {
            leaf: leaves.segments(
                Nest.of(executions[0][0], [env for _, env, _ in executions]),
                np.array([thread for _, _, thread in executions], np.int64),
            )
            for leaf, executions in of.items()
        }
        self.builder.prefetch()
        done = dict.fromkeys(of, 0)
        for stmt, _, _ in order:
            leaf = id(stmt)
            for segment in segments[leaf]:
                self.append(segment, done[leaf])
            done[leaf] += 1
        return EmittedStream(self.builder.finish(self.last_store), addresses, self.builder.uop_base * 4)

    def byte_offset(self, buffer: Buffer) -> int:
        """Allocates a tensor and returns its first byte in memory."""
        if buffer.pitches is not None:
            raise BuildError(f"`{buffer.name}` must be dense, but got pitches={buffer.pitches}")
        size, width = int(buffer.size.value), np.dtype(buffer.dtype).itemsize
        align = max(self.hardware.acc_bytes, self.hardware.wgt_bytes, self.hardware.inp_bytes)  # of whatever reads it
        return self.builder.add_data(np.zeros(size * width, np.uint8), align) * align

    # ------------------------------------------------------------------ the order of things
    def executions(self, stmt: Stmt, env: dict[str, int], thread: Thread, into: list[Execution]) -> list[Execution]:
        """Lists nests in execution order. `thread`: number of the virtual thread, and how many there are."""
        if is_nest(stmt):
            into.append((stmt, env, thread))
        elif isinstance(stmt, Seq):
            for child in stmt.body:
                self.executions(child, env, thread, into)
        elif isinstance(stmt, Allocate):
            self.allocate(stmt.buffer, thread[1])
            self.executions(stmt.body, env, thread, into)
        elif isinstance(stmt, For):
            extent, (number, count) = int(stmt.extent.value), thread
            if stmt.kind != "vthread":
                for i in range(extent):
                    self.executions(stmt.body, {**env, stmt.var: i}, thread, into)
                return into
            threads = [
                self.executions(stmt.body, {**env, stmt.var: i}, (number * extent + i, count * extent), [])
                for i in range(extent)
            ]
            parts = [self.parts(each) for each in threads]
            into += (execution for step in zip_longest(*parts, fillvalue=[]) for part in step for execution in part)
        else:
            raise BuildError(f"a program must be made of loops, buffers and stores, but got {type(stmt).__name__}")
        return into

    def parts(self, thread: Sequence[Execution]) -> list[list[Execution]]:
        """Splits a virtual thread into parts, each up to where it copies operands once more."""
        parts: list[list[Execution]] = []
        for loads, run in groupby(thread, self.loads):
            if not parts or (loads and any(map(self.loads, parts[-1]))):
                parts.append([])
            parts[-1] += run
        return parts

    def loads(self, execution: Execution) -> bool:
        """Tells whether a nest copies operands to the chip, which the load module does."""
        stmt = execution[0]
        while isinstance(stmt, For):
            stmt = stmt.body
        chip = self.chip.get(stmt.buffer) if isinstance(stmt, Store) else None
        return chip is not None and chip.buffer.scope != "accumulator"

    def allocate(self, buffer: Buffer, threads: int) -> None:
        if buffer.name in self.chip:
            if self.chip[buffer.name].buffer is not buffer:
                raise BuildError(f"buffers must have names of their own, but two are called {buffer.name}")
            return
        memory = MEMORY.get(buffer.scope)
        if memory is None:
            raise BuildError(f"a buffer must be in {', '.join(MEMORY)}, but got {buffer.name} in {buffer.scope}")
        size, element = int(buffer.size.value), self.elements[memory]
        if size % element:
            raise BuildError(f"a buffer must hold whole elements of {element}, but got {buffer.name} of {size}")
        self.chip[buffer.name] = ChipBuffer(buffer, self.free[memory], size // element, threads)
        self.uses[buffer.name] = [[-1] * 2 * len(MODULES) for _ in range(threads)]
        self.free[memory] += size // element * threads
        if self.free[memory] > self.depths[memory]:
            raise BuildError(
                f"buffers must fit the {buffer.scope} memory of {self.depths[memory]} elements, "
                f"but take {self.free[memory]}"
            )

    def append(self, segment: Segment, execution: int) -> None:
        """Appends a segment's instructions of one execution, and tokens for the instructions that they wait for."""
        rows, module = segment.rows[execution], segment.module
        if segment.kernels is not None:
            rows[0][_BEGIN], rows[0][_END] = self.builder.fetch(segment.kernels[execution])
        last = self.builder.rows(rows, module)
        if last >= MOST_INSTRUCTIONS:
            raise BuildError(f"a stream must have at most {MOST_INSTRUCTIONS} instructions, but got more")
        writes = [self.uses[name][copies[execution]] for name, copies in segment.writes]
        reads = [self.uses[name][copies[execution]] for name, copies in segment.reads]
        for other in _NEIGHBOURS[module]:  # the last instruction there that must not be overtaken
            wait = max([of[other] for of in reads] + [max(of[other], of[_READ + other]) for of in writes])
            if wait > self.last_waits[other][module]:
                self.builder.order(wait, last - len(rows) + 1)
                self.last_waits[other][module] = wait
        for of in reads:
            of[_READ + module] = last
        for of in writes:
            of[module] = last
        if module == STORE_MODULE:
            self.last_store = last


_NEIGHBOURS = {
    LOAD_MODULE: (COMPUTE_MODULE,),
    COMPUTE_MODULE: (LOAD_MODULE, STORE_MODULE),
    STORE_MODULE: (COMPUTE_MODULE,),
}
"""Modules that exchange tokens. Loaded buffers are never stored, so load and store need not wait for each other."""
_READ = len(MODULES)
_BEGIN, _END = COLUMN["uop_begin"], COLUMN["uop_end"]

__all__ = ["EmittedStream", "emit"]
