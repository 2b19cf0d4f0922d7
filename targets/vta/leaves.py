"""Nests as instructions: all executions of one nest at once, each as runs of instructions of one module."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from search_space.ir.expr import Expr
from search_space.ir.expr import walk as walk_expr
from search_space.ir.stmt import Buffer, Intrinsic, LoopProgram, Operand, Store
from search_space.schedule.intrinsics import get_intrinsic
from targets.base import BuildError
from targets.vta.builder import StreamBuilder
from targets.vta.hardware import VtaHardware
from targets.vta.isa import ACC, ADD, ALU, COLUMN, GEMM, INP, LOAD, MAX, MIN, MUL, NAMES, OUT, SHR, STORE, WGT
from targets.vta.loops import Loop, fold
from targets.vta.nests import Interval, Ints, Linear, Nest, alike, bounds, conjuncts, flat
from targets.vta.semantics import COMPUTE_MODULE, STORE_MODULE, instruction_module
from targets.vta.transfers import Dimension, Transfer, transfers, zeros

MEMORY = {"input": INP, "weight": WGT, "accumulator": ACC}
_COMMUTATIVE = {"add": ADD, "min": MIN, "max": MAX, "mul": MUL}
_LARGEST_IMMEDIATE = (1 << 15) - 1  # the field `imm` has 16 bits, one of them the sign
_PADS = [COLUMN[name] for name in ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")]
_ADDRESS_COLUMNS = [COLUMN[name] for name in ("sram_base", "dram_base", "y_size", "x_size", "x_stride")]


@dataclass
class ChipBuffer:
    """A buffer on the chip: where its copies begin, one for each virtual thread around it, in elements."""

    buffer: Buffer
    base: int
    elements: int
    threads: int

    @property
    def name(self) -> str:
        return self.buffer.name

    def copies(self, threads: Ints) -> Ints:
        """Returns the number of the copy that each execution uses: (executions,), from threads (executions, 2)."""
        found: Ints = threads[:, 0] * self.threads // threads[:, 1]
        return found

    def starts(self, threads: Ints) -> Ints:
        """Returns the start of these copies: (executions,)."""
        found: Ints = self.base + self.copies(threads) * self.elements
        return found


@dataclass(frozen=True)
class Segment:
    """Instructions of one module that follow each other, for each execution of a nest.

    Attributes:
        rows: their fields.
        kernels: numbers of their micro-kernels, where they have one: one instruction an execution then.
        writes, reads: buffers, and the copy of each that an execution touches, (executions,).
    """

    module: int
    rows: Sequence[list[list[int]]]
    kernels: Sequence[int] | None = None
    writes: Sequence[tuple[str, list[int]]] = ()
    reads: Sequence[tuple[str, list[int]]] = ()


class Leaves:
    """A converter of nests to segments.

    Args:
        program: program that contains the nests.
        hardware: the design.
        builder: records micro-kernels.
        addresses: byte of each tensor in DRAM.
        chip: buffers on the chip.
    """

    def __init__(
        self,
        program: LoopProgram,
        hardware: VtaHardware,
        builder: StreamBuilder,
        addresses: Mapping[str, int],
        chip: Mapping[str, ChipBuffer],
    ) -> None:
        self.program, self.hardware, self.builder = program, hardware, builder
        self.addresses, self.chip = addresses, chip
        self.elements = element_counts(hardware)

    def segments(self, nest: Nest, threads: Ints) -> list[Segment]:
        """Converts a nest to instructions.

        `threads`: number of the virtual thread, and how many there are: (executions, 2).

        Raises:
            BuildError: it holds something that no instruction does.
        """
        body = nest.body
        if isinstance(body, Intrinsic):
            return self.products(nest, body, threads)
        if not isinstance(body, Store) or body.reducer is not None or body.predicate is not None:
            raise BuildError(f"a nest must copy, set to zero, multiply tiles or end in memory, but got {body}")
        if body.buffer not in self.chip:
            return self.ending(nest, body, threads)
        zero = body.value.is_const and body.value.value == 0
        if zero and self.chip[body.buffer].buffer.scope == "accumulator":
            return self.reset(nest, body, threads)
        return self.load(nest, body, threads)

    # ------------------------------------------------------------------ transfers
    def load(self, nest: Nest, body: Store, threads: Ints) -> list[Segment]:
        """Emits a copy to the chip, zeros where a condition fails."""
        value, conditions = body.value, []
        if value.op == "select":
            condition, value, otherwise = value.args
            conditions = conjuncts(condition)
            if not (otherwise.is_const and otherwise.value == 0):
                raise BuildError(f"padding must be zeros, but got {otherwise}")
        if value.op != "load" or value.args[0] not in self.addresses:
            raise BuildError(f"what is copied to the chip must be a tensor in memory, but got {value}")
        chip, source = self.chip[body.buffer], self.program.buffers[value.args[0]]
        memory = MEMORY[chip.buffer.scope]
        if source.dtype != chip.buffer.dtype:
            raise BuildError(f"a copy must keep its dtype, but got {source.dtype} to {chip.buffer.dtype}")
        sides = flat(chip.buffer, body.indices), flat(source, value.args[1:])
        origin = self.addresses[source.name] // (self.elements[memory] * (4 if memory == ACC else 1))
        valid = bounds(conditions, nest)
        rows = self.copies(nest, sides, self.elements[memory], valid, chip.starts(threads), origin, (LOAD, memory))
        return [Segment(instruction_module(LOAD, memory), rows, writes=[(chip.name, chip.copies(threads).tolist())])]

    def copies(
        self,
        nest: Nest,
        sides: tuple[Expr, Expr],
        element: int,
        valid: Ints,
        first: Ints,
        origin: int,
        kind: tuple[int, int],
    ) -> list[list[list[int]]]:
        """Converts a nest to the rows of its transfers.

        Args:
            sides: the places on the chip and in memory, in numbers.
            element: numbers in an element.
            valid: parts of the loops that are no padding: (executions, loops, 2).
            first: elements on the chip before the buffer's: (executions,).
            origin: elements in memory before the tensor's.
            kind: opcode and memory.
        """
        sram, dram = (nest.linear(side, "a copy") for side in sides)
        gone: NDArray[np.bool_] = np.any(valid[:, :, 0] >= valid[:, :, 1], axis=1)
        valid = np.where(gone[:, None, None], 0, valid)
        present = np.flatnonzero(np.logical_not(gone))
        outside, inside = [], 1
        for loop in np.argsort(sram.steps[0], kind="stable").tolist():
            a, b = sram.steps[:, loop], dram.steps[:, loop]
            if a[0] >= element or nest.extents[loop] == 1:
                outside.append(loop)
            elif (a != b).any() or (a != inside).any():
                name = nest.names[loop]
                raise BuildError(
                    f"an element of {element} must be copied whole, but loop {name} steps by {a[0]} and {b[0]}"
                )
            elif (valid[present, loop] != (0, nest.extents[loop])).any():
                raise BuildError(f"padding must be of whole elements, but loop {nest.names[loop]} is cut off")
            else:
                inside *= nest.extents[loop]
        if inside != element:
            raise BuildError(f"an element of {element} must be copied whole, but the loops cover {inside}")
        outside.sort()
        chosen = [loop in outside for loop in range(len(nest.names))]
        sram, dram = sram.over(element, chosen), dram.over(element, chosen)
        executions, count = nest.executions, len(outside)
        key = np.concatenate([sram.steps, dram.steps, valid[:, outside].reshape(executions, -1), gone[:, None]], axis=1)
        bases = np.stack([first + sram.base, origin + dram.base], axis=1)
        out: list[list[list[int]]] = [[]] * executions
        for values, members in alike(key):
            intervals = np.array(values[2 * count : -1], np.int64).reshape(count, 2).tolist()
            dims = [
                Dimension(nest.extents[loop], values[i], values[count + i], Interval(*intervals[i]))
                for i, loop in enumerate(outside)
            ]
            made = transfers(dims, 0, 0) if dims or not values[-1] else zeros(0, 1, 1)
            template, moves = _rows(made, kind)
            rows = np.repeat(template[None], len(members), axis=0)
            rows[:, :, _ADDRESS_COLUMNS[0]] += bases[members, :1]
            rows[:, :, _ADDRESS_COLUMNS[1]] += bases[members, 1:] * moves
            for execution, row in zip(members.tolist(), rows.tolist(), strict=True):
                out[execution] = row
        return out

    # ------------------------------------------------------------------ the compute module
    def reset(self, nest: Nest, body: Store, threads: Ints) -> list[Segment]:
        """Emits the zeroing of accumulators."""
        chip = self.chip[body.buffer]
        place = self.locate(nest, flat(chip.buffer, body.indices), chip, threads)
        nothing = Linear(np.zeros_like(place.base), np.zeros_like(place.steps))
        rows, kernels = self.compute(nest, [place, nothing, nothing], GEMM, {"reset": 1})
        return [Segment(COMPUTE_MODULE, rows, kernels, [(chip.name, chip.copies(threads).tolist())])]

    def products(self, nest: Nest, body: Intrinsic, threads: Ints) -> list[Segment]:
        """Emits products of tiles."""
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
        operands_at = [
            self.locate(nest, flat(chip.buffer, operand.indices), chip, threads)
            for chip, operand in zip(chips, operands, strict=True)
        ]
        rows, kernels = self.compute(nest, operands_at, GEMM, {})
        touched = [(chip.name, chip.copies(threads).tolist()) for chip in chips]
        return [Segment(COMPUTE_MODULE, rows, kernels, touched[:1], touched)]

    def check_tile(self, operand: Operand) -> None:
        """Checks that an instruction's tile is one whole element: its last two dimensions, in their order."""
        h = self.hardware
        chip = self.chip[operand.buffer].buffer
        rows = {
            "accumulator": (h.batch, h.block_out),
            "input": (h.batch, h.block_in),
            "weight": (h.block_out, h.block_in),
        }
        tile = tuple(int(e.value) for e in chip.shape[-2:])
        if tile != rows[chip.scope]:
            raise BuildError(f"`{chip.name}` must end in a tile of {rows[chip.scope]}, but got {tile}")

    def ending(self, nest: Nest, body: Store, threads: Ints) -> list[Segment]:
        """Emits element-wise work on accumulators, in place, and their transfer to memory."""
        target = self.program.buffers[body.buffer]
        if target.dtype != "int8" or body.value.op != "cast":
            raise BuildError(f"what goes out must be cast to int8, but got {target.dtype}: {body.value}")
        chain, source = _chain(body.value.args[0])
        chip = self.accumulator(source)
        element = self.elements[ACC]
        index = flat(chip.buffer, source.args[1:])
        mine = (chip.name, chip.copies(threads).tolist())
        here = self.locate(nest, index, chip, threads)
        segments = []
        for code, operand in chain:
            reads, fields, there = [mine], {"alu_op": code}, here
            if isinstance(operand, int):
                fields |= {"use_imm": 1, "imm": operand}
            else:
                other = self.accumulator(operand)
                there = self.locate(nest, flat(other.buffer, operand.args[1:]), other, threads)
                reads.append((other.name, other.copies(threads).tolist()))
            nothing = Linear(np.zeros_like(here.base), np.zeros_like(here.steps))
            rows, kernels = self.compute(nest, [here, there, nothing], ALU, fields)
            segments.append(Segment(COMPUTE_MODULE, rows, kernels, [mine], reads))
        sides, origin = (index, flat(target, body.indices)), self.addresses[target.name] // element
        stored = self.copies(nest, sides, element, bounds([], nest), chip.starts(threads), origin, (STORE, OUT))
        return [*segments, Segment(STORE_MODULE, stored, reads=[mine])]

    def accumulator(self, load: Expr) -> ChipBuffer:
        """Returns the buffer that contains an element-wise operand."""
        chip = self.chip.get(load.args[0])
        if chip is None or chip.buffer.scope != "accumulator":
            raise BuildError(f"what goes out must be in the accumulator, but got {load}")
        return chip

    def locate(self, nest: Nest, index: Expr, chip: ChipBuffer, threads: Ints) -> Linear:
        """Returns the elements of a buffer that a nest visits; loops within an element have no steps."""
        element = self.elements[MEMORY[chip.buffer.scope]]
        found = nest.linear(index, chip.name)
        inside = found.steps < element
        found = Linear(found.base, np.where(inside, 0, found.steps)).over(element, [True] * len(nest.names))
        return Linear(found.base + chip.starts(threads), found.steps)

    def compute(
        self, nest: Nest, operands: Sequence[Linear], opcode: int, fields: Mapping[str, int]
    ) -> tuple[list[list[list[int]]], list[int]]:
        """Emits one instruction an execution, and its micro-kernel.

        Args:
            operands: destination, source and weight.
        """
        h = self.hardware
        widest = (1 << h.acc_bits, 1 << (h.inp_bits if opcode == GEMM else h.acc_bits), 1 << h.wgt_bits)
        bases = np.stack([place.base for place in operands], axis=1)
        steps = np.stack([place.steps for place in operands], axis=2)  # (executions, loops, 3)
        rows: list[list[list[int]]] = [[]] * nest.executions
        kernels = [0] * nest.executions
        for values, members in alike(steps.reshape(nest.executions, -1)):
            each = np.array(values, np.int64).reshape(-1, 3).tolist()
            loops = [
                Loop(extent, (a, b, c)) for extent, (a, b, c) in zip(nest.extents, each, strict=True) if a or b or c
            ]
            folded = fold(loops, (0, 0, 0), widest)
            row = [0] * len(NAMES)
            row[0] = opcode
            for name, value in ({**folded.fields(), **fields}).items():
                if opcode == GEMM or not name.startswith("wgt"):
                    row[COLUMN[name]] = value
            kernel_of_base: dict[tuple[int, ...], int] = {}
            for execution, base in zip(members.tolist(), map(tuple, bases[members].tolist()), strict=True):
                if base not in kernel_of_base:
                    kernel_of_base[base] = self.builder.micro_kernel(folded.uops + np.array(base, np.int64))
                rows[execution], kernels[execution] = [row.copy()], kernel_of_base[base]
        return rows, kernels


def element_counts(hardware: VtaHardware) -> dict[int, int]:
    """Numbers in an element of each memory."""
    return {INP: hardware.inp_bytes, WGT: hardware.wgt_bytes, ACC: hardware.acc_bytes // 4}


def _rows(moves: Iterable[Transfer], kind: tuple[int, int]) -> tuple[Ints, Ints]:
    """Returns fields of transfers (transfers, fields), and 1 for those that access memory, 0 for the rest."""
    found = list(moves)
    rows = np.zeros((len(found), len(NAMES)), np.int64)
    rows[:, 0], rows[:, COLUMN["memory"]] = kind
    for row, t in zip(rows, found, strict=True):
        row[_ADDRESS_COLUMNS] = (t.sram, t.dram, t.y, t.x, t.stride)
        row[_PADS] = t.pads
    return rows, (rows[:, _ADDRESS_COLUMNS[2]] > 0).astype(np.int64)


def _chain(value: Expr) -> tuple[list[tuple[int, int | Expr]], Expr]:
    """Splits element-wise work into operations in place, first to last, and the accumulator they begin with.

    Raises:
        BuildError: work that is no chain of min, max, add, multiply and shift.
    """
    done: list[tuple[int, int | Expr]] = []
    while value.op != "load":
        if value.op in _COMMUTATIVE:
            left, right = value.args
            if left.is_const or (left.op == "load" and _depth(right) > 0):
                left, right = right, left
            done.append((_COMMUTATIVE[value.op], _operand(right)))
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
