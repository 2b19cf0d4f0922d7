"""Loop programs to streams: every nest of loops around one statement becomes instructions, buffers get places on the chip.

A nest that copies to a buffer is a LOAD, zeros in the accumulator and products of tiles are GEMM, element-wise work on
accumulators that goes out to memory is ALU and STORE. Loops around nests run here, so a stream is as long as the work.
Virtual threads have buffers of their own and take turns, nest by nest. Which instructions must wait for which follows
from the buffers they touch: a token is given where the last of one module that touches a buffer is followed by one of
another module that touches it too, and one of the two writes; so loop-carried dependences need no care of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from search_space.ir.expr import Expr
from search_space.ir.expr import walk as walk_expr
from search_space.ir.stmt import Allocate, Buffer, For, Intrinsic, LoopProgram, Operand, Seq, Stmt, Store
from search_space.schedule.intrinsics import get_intrinsic
from targets.base import BuildError
from targets.vta.builder import Builder, BuilderError, Program
from targets.vta.hardware import VtaHardware
from targets.vta.isa import ACC, ADD, INP, MAX, MIN, MUL, SHR, WGT, EncodingError
from targets.vta.loops import Folded, Loop, fold
from targets.vta.nests import Integer, Nest, bounds, conjuncts, flat, integer
from targets.vta.transfers import Dimension, transfers

MEMORY = {"input": INP, "weight": WGT, "accumulator": ACC}
_SWAPPED = {"add": ADD, "min": MIN, "max": MAX, "mul": MUL}
_LARGEST_IMMEDIATE = (1 << 15) - 1

Emit = Callable[[], None]
Thread = tuple[int, int]
"""Number of a virtual thread, and how many there are."""


@dataclass(frozen=True)
class Kernel:
    """A stream, and where its tensors lie in DRAM.

    Attributes:
        program: the stream, and memory with the micro-operations in it.
        places: byte of each tensor.
        uops: byte at which micro-operations begin; the memory ends with them.
    """

    program: Program
    places: dict[str, int]
    uops: int


@dataclass
class _Chip:
    """A buffer on the chip: where its copies begin, one for each virtual thread around it, in elements."""

    buffer: Buffer
    base: int
    elements: int
    threads: int

    def copy(self, thread: Thread) -> int:
        """Number of the copy that a virtual thread uses."""
        number, count = thread
        return number * self.threads // count


@dataclass
class _Uses:
    """The last instruction of each module that wrote and that read a buffer."""

    wrote: dict[int, int] = field(default_factory=dict)
    read: dict[int, int] = field(default_factory=dict)


def emit(program: LoopProgram, hardware: VtaHardware) -> Kernel:
    """The stream of a concrete loop program.

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
        self.builder = Builder(hardware)
        self.elements = {INP: hardware.inp_bytes, WGT: hardware.wgt_bytes, ACC: hardware.acc_bytes // 4}
        self.depths = {INP: hardware.inp_depth, WGT: hardware.wgt_depth, ACC: hardware.acc_depth}
        self.free = {INP: 0, WGT: 0, ACC: 0}
        self.chip: dict[str, _Chip] = {}
        self.uses: dict[tuple[str, int], _Uses] = {}
        self.known: dict[tuple[int, int], int] = {}
        self.compiled: dict[int, Callable[[Mapping[str, int], Thread], None]] = {}
        self.last_store: int | None = None

    def kernel(self) -> Kernel:
        places: dict[str, int] = {}
        for buffer in self.program.params:
            if buffer.pitches is not None:
                raise BuildError(f"`{buffer.name}` must be dense, but got pitches={buffer.pitches}")
            size, width = int(buffer.size.value), np.dtype(buffer.dtype).itemsize
            align = self.hardware.acc_bytes * self.hardware.wgt_bytes  # of whatever reads it
            places[buffer.name] = self.builder.place(np.zeros(size * width, np.uint8), align) * align
        self.places = places
        for step in self.steps(self.program.body, {}, (0, 1)):
            step()
        return Kernel(self.builder.finish(self.last_store), places, self.builder.uop_base * 4)

    # ------------------------------------------------------------------ the order of things
    def steps(self, stmt: Stmt, env: dict[str, int], thread: Thread) -> Iterator[Emit]:
        """What is to be done in order. `thread`: number of the virtual thread, and how many there are."""
        if isinstance(stmt, Seq):
            for child in stmt.body:
                yield from self.steps(child, env, thread)
        elif isinstance(stmt, Allocate):
            self.allocate(stmt.buffer, thread[1])
            yield from self.steps(stmt.body, env, thread)
        elif isinstance(stmt, For) and (stmt.kind == "vthread" or not isinstance(Nest.of(stmt).body, (Store, Intrinsic))):
            extent = int(stmt.extent.value)
            if stmt.kind != "vthread":
                for i in range(extent):
                    yield from self.steps(stmt.body, {**env, stmt.var: i}, thread)
                return
            number, count = thread
            turns = [
                self.steps(stmt.body, {**env, stmt.var: i}, (number * extent + i, count * extent))
                for i in range(extent)
            ]
            while turns:
                for turn in list(turns):
                    step = next(turn, None)
                    if step is None:
                        turns.remove(turn)
                    else:
                        yield step
        else:
            yield lambda: self.leaf(stmt)(env, thread)

    def allocate(self, buffer: Buffer, threads: int) -> None:
        if buffer.name in self.chip:
            return
        memory = MEMORY.get(buffer.scope)
        if memory is None:
            raise BuildError(f"a buffer must be in {', '.join(MEMORY)}, but got {buffer.name} in {buffer.scope}")
        size, element = int(buffer.size.value), self.elements[memory]
        if size % element:
            raise BuildError(f"a buffer must hold whole elements of {element}, but got {buffer.name} of {size}")
        self.chip[buffer.name] = _Chip(buffer, self.free[memory], size // element, threads)
        self.free[memory] += size // element * threads
        if self.free[memory] > self.depths[memory]:
            raise BuildError(
                f"buffers must fit the {buffer.scope} memory of {self.depths[memory]} elements, "
                f"but take {self.free[memory]}"
            )

    # ------------------------------------------------------------------ nests
    def leaf(self, stmt: Stmt) -> Callable[[Mapping[str, int], Thread], None]:
        """How a nest is emitted, analysed once."""
        if id(stmt) not in self.compiled:
            nest = Nest.of(stmt)
            body = nest.body
            if isinstance(body, Intrinsic):
                self.compiled[id(stmt)] = self.products(nest, body)
            elif isinstance(body, Store) and body.reducer is None and body.predicate is None:
                self.compiled[id(stmt)] = self.store(nest, body)
            else:
                raise BuildError(f"a nest must copy, set to zero, multiply tiles or end in memory, but got {body}")
        return self.compiled[id(stmt)]

    def store(self, nest: Nest, body: Store) -> Callable[[Mapping[str, int], Thread], None]:
        if body.buffer not in self.chip:
            return self.ending(nest, body)
        chip = self.chip[body.buffer]
        if body.value.is_const and body.value.value == 0 and chip.buffer.scope == "accumulator":
            return self.reset(nest, body)
        return self.load(nest, body)

    def load(self, nest: Nest, body: Store) -> Callable[[Mapping[str, int], Thread], None]:
        """A copy to the chip, zeros where a condition fails."""
        value, conditions = body.value, []
        if value.op == "select":
            condition, value, otherwise = value.args
            conditions = conjuncts(condition)
            if not (otherwise.is_const and otherwise.value == 0):
                raise BuildError(f"padding must be zeros, but got {otherwise}")
        if value.op != "load" or value.args[0] not in self.places:
            raise BuildError(f"what is copied to the chip must be a tensor in memory, but got {value}")
        chip, source = self.chip[body.buffer], self.program.buffers[value.args[0]]
        memory = MEMORY[chip.buffer.scope]
        if source.dtype != chip.buffer.dtype:
            raise BuildError(f"a copy must keep its dtype, but got {source.dtype} to {chip.buffer.dtype}")
        sram, dram = integer(flat(chip.buffer, body.indices)), integer(flat(source, value.args[1:]))
        valid, element = bounds(conditions, nest), self.elements[memory]
        bytes_each = element * (4 if memory == ACC else 1)
        origin = self.places[source.name] // bytes_each

        def run(env: Mapping[str, int], thread: Thread) -> None:
            zero, ranges, copy = nest.at(env), valid(env), chip.copy(thread)
            dims = self.dimensions(nest, env, (sram, dram), element, ranges)
            if not dims and any(interval.empty for interval in ranges.values()):
                raise BuildError(f"a copy of one element must not be all padding, but got {body.buffer}")
            first = chip.base + copy * chip.elements + _whole(sram(zero), element)
            for t in transfers(dims, first, origin + _whole(dram(zero), element)):
                at = self.builder.load(memory, t.sram, t.dram, t.y, t.x, t.stride, **t.fields())
                self.touch(at, writes=[(body.buffer, copy)])

        return run

    def dimensions(
        self, nest: Nest, env: Mapping[str, int], places: tuple[Integer, Integer], element: int, ranges: Mapping[str, object]
    ) -> list[Dimension]:
        """The loops of a copy in elements; those within an element must run through it in both memories alike."""
        sram, dram = (nest.steps(place, env, "a copy") for place in places)
        inside, dims = 1, []
        for (name, extent), a, b in sorted(zip(nest.pairs, sram, dram, strict=True), key=lambda x: x[1]):
            if a < element:
                if a != b or a != inside:
                    raise BuildError(f"an element of {element} must be copied whole, but loop {name} steps by {a} and {b}")
                inside *= extent
            else:
                dims.append(Dimension(extent, _whole(a, element), _whole(b, element), ranges[name]))  # type: ignore[arg-type]
        if inside != element:
            raise BuildError(f"an element of {element} must be copied whole, but the loops cover {inside}")
        return dims

    def reset(self, nest: Nest, body: Store) -> Callable[[Mapping[str, int], Thread], None]:
        """Accumulators set to zero."""
        chip = self.chip[body.buffer]
        element, place = self.elements[ACC], integer(flat(chip.buffer, body.indices))

        def run(env: Mapping[str, int], thread: Thread) -> None:
            steps = nest.steps(place, env, body.buffer)
            loops = [
                Loop(extent, (_whole(a, element), 0, 0))
                for (_, extent), a in zip(nest.pairs, steps, strict=True)
                if a >= element
            ]
            copy = chip.copy(thread)
            base = chip.base + copy * chip.elements + _whole(place(nest.at(env)), element)
            folded = self.folded(loops, (base, 0, 0), "gemm")
            at = self.builder.gemm(folded.uops, reset=1, **folded.fields())
            self.touch(at, writes=[(body.buffer, copy)])

        return run

    def products(self, nest: Nest, body: Intrinsic) -> Callable[[Mapping[str, int], Thread], None]:
        """Products of tiles."""
        h = self.hardware
        if get_intrinsic(body.name).extents != (h.batch, h.block_out, h.block_in):
            raise BuildError(f"products must be of {h.batch}x{h.block_out}x{h.block_in}, but got {body.name}")
        if body.reset:
            raise BuildError("products must be added to what is there; zeros are set before")
        operands = (body.output, *body.inputs)
        for operand, scope in zip(operands, ("accumulator", "input", "weight"), strict=True):
            if operand.buffer not in self.chip or self.chip[operand.buffer].buffer.scope != scope:
                raise BuildError(f"`{operand.buffer}` must be in the {scope} memory")
            self.check_tile(operand)
        chips = [self.chip[operand.buffer] for operand in operands]
        sizes = [self.elements[memory] for memory in (ACC, INP, WGT)]
        places = [
            integer(flat(chip.buffer, operand.indices)) for chip, operand in zip(chips, operands, strict=True)
        ]

        def run(env: Mapping[str, int], thread: Thread) -> None:
            zero = nest.at(env)
            threads = [chip.copy(thread) for chip in chips]
            steps = [nest.steps(place, env, "a product") for place in places]
            loops = [
                Loop(extent, tuple(_whole(s[i], size) for s, size in zip(steps, sizes, strict=True)))  # type: ignore[arg-type]
                for i, extent in enumerate(nest.extents)
            ]
            base = tuple(
                chip.base + t * chip.elements + _whole(place(zero), size)
                for chip, t, place, size in zip(chips, threads, places, sizes, strict=True)
            )
            folded = self.folded(loops, base, "gemm")  # type: ignore[arg-type]
            at = self.builder.gemm(folded.uops, **folded.fields())
            names = [(operand.buffer, t) for operand, t in zip(operands, threads, strict=True)]
            self.touch(at, writes=names[:1], reads=names)

        return run

    def check_tile(self, operand: Operand) -> None:
        """An instruction's tile must be one whole element: its last two dimensions, in their order."""
        h = self.hardware
        chip = self.chip[operand.buffer].buffer
        element = self.elements[MEMORY[chip.scope]]
        rows = {"accumulator": (h.batch, h.block_out), "input": (h.batch, h.block_in), "weight": (h.block_out, h.block_in)}
        tile = tuple(int(e.value) for e in chip.shape[-2:])
        if tile != rows[chip.scope] or int(np.prod(tile)) != element:
            raise BuildError(f"`{chip.name}` must end in a tile of {rows[chip.scope]}, but got {tile}")

    def ending(self, nest: Nest, body: Store) -> Callable[[Mapping[str, int], Thread], None]:
        """Element-wise work on accumulators, in place, which then go out to memory."""
        target = self.program.buffers[body.buffer]
        if target.dtype != "int8" or body.value.op != "cast":
            raise BuildError(f"what goes out must be cast to int8, but got {target.dtype}: {body.value}")
        chain, source = _chain(body.value.args[0])
        chip = self.chip.get(source.args[0])
        if chip is None or chip.buffer.scope != "accumulator":
            raise BuildError(f"what goes out must be in the accumulator, but got {source}")
        element = self.elements[ACC]
        place, out = integer(flat(chip.buffer, source.args[1:])), integer(flat(target, body.indices))
        others = [
            (code, None, operand)
            if isinstance(operand, int)
            else (code, self.chip[operand.args[0]], integer(flat(self.chip[operand.args[0]].buffer, operand.args[1:])))
            for code, operand in chain
        ]
        origin = self.places[target.name] // element

        def run(env: Mapping[str, int], thread: Thread) -> None:
            zero = nest.at(env)
            steps = nest.steps(place, env, chip.buffer.name)
            mine = chip.copy(thread)
            base = chip.base + mine * chip.elements + _whole(place(zero), element)
            for code, other, operand in others:
                reads = [(chip.buffer.name, mine)]
                source_steps, source_base, immediate = (0,) * len(steps), base, {}
                if other is None:
                    immediate = {"use_imm": 1, "imm": operand}
                    source_steps = steps
                else:
                    theirs = other.copy(thread)
                    source_steps = nest.steps(operand, env, other.buffer.name)  # type: ignore[arg-type]
                    source_base = other.base + theirs * other.elements + _whole(operand(zero), element)  # type: ignore[operator]
                    reads.append((other.buffer.name, theirs))
                loops = [
                    Loop(extent, (_whole(a, element), _whole(b, element), 0))
                    for (_, extent), a, b in zip(nest.pairs, steps, source_steps, strict=True)
                    if a >= element
                ]
                folded = self.folded(loops, (base, source_base, 0), "alu")
                fields = {k: v for k, v in folded.fields().items() if not k.startswith("wgt")}
                at = self.builder.alu(folded.uops, alu_op=code, **immediate, **fields)
                self.touch(at, writes=[(chip.buffer.name, mine)], reads=reads)
            dims = self.dimensions(nest, env, (place, out), element, _everything(nest))
            for t in transfers(dims, base, origin + _whole(out(zero), element)):
                at = self.last_store = self.builder.store(t.sram, t.dram, t.y, t.x, t.stride)
                self.touch(at, reads=[(chip.buffer.name, mine)])

        return run

    def folded(self, loops: list[Loop], base: tuple[int, int, int], unit: str) -> Folded:
        h = self.hardware
        acc, source = 1 << h.acc_bits, 1 << (h.inp_bits if unit == "gemm" else h.acc_bits)
        return fold(loops, base, (acc, source, 1 << h.wgt_bits))

    # ------------------------------------------------------------------ who waits for whom
    def touch(
        self, at: int, writes: list[tuple[str, int]] = [], reads: list[tuple[str, int]] = []
    ) -> None:
        """Notes what an instruction touches, and lets it wait for those of other modules that it must not overtake."""
        module = self.builder.module(at)
        waits: dict[int, int] = {}
        for name in reads:
            for other, index in self.uses.setdefault(name, _Uses()).wrote.items():
                waits[other] = max(waits.get(other, -1), index)
        for name in writes:
            uses = self.uses.setdefault(name, _Uses())
            for before in (uses.wrote, uses.read):
                for other, index in before.items():
                    waits[other] = max(waits.get(other, -1), index)
        for other, index in waits.items():
            if other != module and index > self.known.get((other, module), -1):
                self.builder.order(index, at)
                self.known[other, module] = index
        for name in reads:
            self.uses[name].read[module] = at
        for name in writes:
            self.uses[name].wrote[module] = at


def _everything(nest: Nest) -> dict[str, object]:
    return bounds([], nest)({}) if nest.names else {}  # type: ignore[return-value]


def _whole(numbers: int, element: int) -> int:
    if numbers % element:
        raise BuildError(f"places must be multiples of an element of {element}, but got {numbers}")
    return numbers // element


def _chain(value: Expr) -> tuple[list[tuple[int, int | Expr]], Expr]:
    """Element-wise work as operations in place, first to last, and the accumulator they begin with.

    Raises:
        BuildError: work that is no chain of min, max, add, multiply and shift.
    """
    done: list[tuple[int, int | Expr]] = []
    while value.op != "load":
        if value.op in _SWAPPED:
            left, right = value.args
            if left.is_const or (left.op == "load" and _depth(right) > 0):
                left, right = right, left
            done.append((_SWAPPED[value.op], _operand(right)))
            value = left
        elif value.op in ("shr", "shl", "sub") and value.args[1].is_const:
            number = int(value.args[1].value)
            done.append((ADD, -number) if value.op == "sub" else (SHR, number if value.op == "shr" else -number))
            value = value.args[0]
        else:
            raise BuildError(f"work on accumulators must be min, max, add, multiply or shift, but got {value}")
    for _, operand in done:
        if isinstance(operand, int) and not -_LARGEST_IMMEDIATE - 1 <= operand <= _LARGEST_IMMEDIATE:
            raise BuildError(f"a number in an instruction must fit 16 bits, but got {operand}")
    return done[::-1], value


def _depth(value: Expr) -> int:
    return sum(node.op != "load" and node.dtype == "int32" and not node.is_const for node in walk_expr(value))


def _operand(value: Expr) -> int | Expr:
    if value.is_const:
        return int(value.value)
    if value.op != "load":
        raise BuildError(f"the second operand must be a number or in the accumulator, but got {value}")
    return value


__all__ = ["Kernel", "emit"]
