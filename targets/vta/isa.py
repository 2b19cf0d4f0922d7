"""VTA's instructions and micro-operations: dataclasses, columns of fields, and the bits of both.

An instruction is 128 bits, two little-endian words. A stream has three forms that convert into each other. People use a
list of dataclasses, the machine an array of words (instructions, 2). Programs that analyse many instructions at once
use a table of fields (instructions, fields).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from targets.vta.hardware import ITERATION_BITS, VtaHardware

Words = NDArray[np.uint64]  # (instructions, 2)
Table = NDArray[np.int64]  # (instructions, FIELDS)

LOAD, STORE, GEMM, FINISH, ALU = range(5)
OPCODES = ("LOAD", "STORE", "GEMM", "FINISH", "ALU")
UOP, WGT, INP, ACC, OUT, ACC_8BIT = range(6)
MEMORIES = ("UOP", "WGT", "INP", "ACC", "OUT", "ACC_8BIT")
MIN, MAX, ADD, SHR, MUL = range(5)
ALU_OPCODES = ("MIN", "MAX", "ADD", "SHR", "MUL")


class EncodingError(ValueError):
    """A field whose value does not fit its bits, or bits that are no instruction."""


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """The tokens that every instruction takes before it starts and gives when it ends."""

    pop_prev: int = 0
    pop_next: int = 0
    push_prev: int = 0
    push_next: int = 0


@dataclass(frozen=True, kw_only=True)
class _Memory(Instruction):
    """A two-dimensional transfer between DRAM and a buffer on the chip.

    Attributes:
        memory: `UOP`, `WGT`, `INP`, `ACC`, `OUT` or `ACC_8BIT`, by number.
        sram_base, dram_base: first element; addresses count elements of that memory.
        y_size, x_size: rows, and elements of a row.
        x_stride: elements from one row to the next, in DRAM.
        y_pad_0, y_pad_1, x_pad_0, x_pad_1: rows and elements of zeros around, written on the chip only.
    """

    memory: int
    sram_base: int = 0
    dram_base: int = 0
    y_size: int = 1
    x_size: int = 0
    x_stride: int = 0
    y_pad_0: int = 0
    y_pad_1: int = 0
    x_pad_0: int = 0
    x_pad_1: int = 0


@dataclass(frozen=True, kw_only=True)
class Load(_Memory):
    """DRAM to a buffer."""


@dataclass(frozen=True, kw_only=True)
class Store(_Memory):
    """Low 8 bits of the accumulator to DRAM."""


@dataclass(frozen=True, kw_only=True)
class _Loops(Instruction):
    """Micro-operations `uop_begin` up to `uop_end` in two loops; each index is field + i*out + j*in."""

    reset: int = 0
    uop_begin: int = 0
    uop_end: int = 0
    iter_out: int = 1
    iter_in: int = 1
    dst_out: int = 0
    dst_in: int = 0
    src_out: int = 0
    src_in: int = 0


@dataclass(frozen=True, kw_only=True)
class Gemm(_Loops):
    """acc[dst] += inp[src] * transpose(wgt[wgt]), or acc[dst] = 0 with `reset`."""

    wgt_out: int = 0
    wgt_in: int = 0


@dataclass(frozen=True, kw_only=True)
class Alu(_Loops):
    """acc[dst] = operation(acc[dst], imm or acc[src]), element-wise."""

    alu_op: int
    use_imm: int = 0
    imm: int = 0


@dataclass(frozen=True, kw_only=True)
class Finish(Instruction):
    """The end of the stream."""


CLASSES: tuple[type[Instruction], ...] = (Load, Store, Gemm, Finish, Alu)
"""The class of each opcode."""

FLAGS = tuple(field.name for field in fields(Instruction))
NAMES: tuple[str, ...] = ("opcode", *dict.fromkeys(field.name for kind in CLASSES for field in fields(kind)))
"""Columns of a table of fields; fields that an instruction lacks are 0."""
COLUMN = {name: number for number, name in enumerate(NAMES)}


@dataclass(frozen=True)
class Bits:
    """The position of a field in an instruction."""

    name: str
    word: int
    low: int
    width: int
    signed: bool = False

    @property
    def least(self) -> int:
        """Smallest value."""
        return -(1 << (self.width - 1)) if self.signed else 0

    @property
    def most(self) -> int:
        """Largest value."""
        return (1 << (self.width - self.signed)) - 1


def _consecutive(word: int, low: int, widths: Sequence[tuple[str, int]]) -> list[Bits]:
    """Places fields one after another from bit `low` on."""
    placed = []
    for name, width in widths:
        placed.append(Bits(name, word, low, width, signed=name == "imm"))
        low += width
    return placed


@cache
def layout(opcode: int, hardware: VtaHardware) -> tuple[Bits, ...]:
    """Lists all fields of an opcode; indices are as wide as the buffers of `hardware` are deep."""
    head = _consecutive(0, 0, [("opcode", 3), *((flag, 1) for flag in FLAGS)])
    if opcode in (LOAD, STORE):
        first = _consecutive(0, 7, [("memory", 3), ("sram_base", 16), ("dram_base", 32)])
        pads = [(pad, 4) for pad in ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")]
        return (*head, *first, *_consecutive(1, 0, [("y_size", 16), ("x_size", 16), ("x_stride", 16), *pads]))
    if opcode in (GEMM, ALU):
        uops = [("reset", 1), ("uop_begin", hardware.uop_bits), ("uop_end", hardware.uop_bits + 1)]
        loops = _consecutive(0, 7, [*uops, ("iter_out", ITERATION_BITS), ("iter_in", ITERATION_BITS)])
        dst = [("dst_out", hardware.acc_bits), ("dst_in", hardware.acc_bits)]
        if opcode == GEMM:
            src, wgt = hardware.inp_bits, hardware.wgt_bits
            factors = [*dst, ("src_out", src), ("src_in", src), ("wgt_out", wgt), ("wgt_in", wgt)]
        else:
            src = hardware.acc_bits
            factors = [*dst, ("src_out", src), ("src_in", src), ("alu_op", 3), ("use_imm", 1), ("imm", 16)]
        return (*head, *loops, *_consecutive(1, 0, factors))
    return tuple(head)


@cache
def limits(hardware: VtaHardware) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns smallest and largest value of every column for each opcode, 0 for missing fields: (opcodes, fields)."""
    least, most = np.zeros((2, len(CLASSES), len(NAMES)), np.int64)
    for opcode in range(len(CLASSES)):
        for bits in layout(opcode, hardware):
            least[opcode, COLUMN[bits.name]], most[opcode, COLUMN[bits.name]] = bits.least, bits.most
    return least, most


def to_table(stream: Sequence[Instruction]) -> Table:
    """Converts instructions to a table of fields with columns named by `NAMES`: (instructions, fields)."""
    table = np.zeros((len(stream), len(NAMES)), np.int64)
    for row, instruction in zip(table, stream, strict=True):
        row[0] = CLASSES.index(type(instruction))
        for name, value in vars(instruction).items():
            row[COLUMN[name]] = value
    return table


def from_table(table: Table) -> list[Instruction]:
    """Converts a table to instructions.

    Raises:
        EncodingError: an unknown opcode.
    """
    stream = []
    for index, row in enumerate(table.tolist()):
        if not 0 <= row[0] < len(CLASSES):
            raise EncodingError(f"instruction {index}: `opcode` must be one of 0 to 4, but got opcode={row[0]}")
        kind = CLASSES[row[0]]
        values: dict[str, Any] = {field.name: row[COLUMN[field.name]] for field in fields(kind)}
        stream.append(kind(**values))
    return stream


def encode_table(table: Table, hardware: VtaHardware) -> Words:
    """Encodes a table of instructions as words: (instructions, 2).

    Raises:
        EncodingError: an unknown opcode, or a value that does not fit its field.
    """
    words = np.zeros((len(table), 2), np.uint64)
    unknown = np.flatnonzero((table[:, 0] < 0) | (table[:, 0] >= len(CLASSES)))
    if len(unknown):
        index = unknown[0]
        raise EncodingError(f"instruction {index}: `opcode` must be one of 0 to 4, but got opcode={table[index, 0]}")
    for index, message in misfits(table, hardware):
        raise EncodingError(f"instruction {index}: {message}")
    for opcode in np.unique(table[:, 0]).tolist():
        rows = np.flatnonzero(table[:, 0] == opcode)
        for bits in layout(opcode, hardware):
            values = table[rows, COLUMN[bits.name]]
            mask = np.uint64((1 << bits.width) - 1)
            words[rows, bits.word] |= (values.astype(np.uint64) & mask) << np.uint64(bits.low)
    return words


def misfits(table: Table, hardware: VtaHardware) -> list[tuple[int, str]]:
    """Lists fields whose values do not fit their bits, of instructions with valid opcodes: instruction and message."""
    least, most = limits(hardware)
    known = (table[:, 0] >= 0) & (table[:, 0] < len(CLASSES))
    opcodes = np.where(known, table[:, 0], 0)
    wrong = ((table < least[opcodes]) | (table > most[opcodes])) & known[:, None]
    messages = []
    for index, number in np.argwhere(wrong).tolist():
        opcode, name, value = opcodes[index], NAMES[number], table[index, number]
        bounds = f"between {least[opcode, number]} and {most[opcode, number]}"
        messages.append((index, f"`{name}` of {OPCODES[opcode]} must be {bounds}, but got {name}={value}"))
    return messages


def decode_table(words: Words, hardware: VtaHardware) -> Table:
    """Decodes words to a table of fields; of an unknown opcode only the flags are read."""
    if words.ndim != 2 or words.shape[1] != 2 or words.dtype != np.uint64:
        raise EncodingError(f"`words` must be uint64 (instructions, 2), but got {words.dtype} {words.shape}")
    table = np.zeros((len(words), len(NAMES)), np.int64)
    opcodes = (words[:, 0] & np.uint64(7)).astype(np.int64)
    for opcode in np.unique(opcodes).tolist():
        rows = np.flatnonzero(opcodes == opcode)
        chosen = words[rows]
        for bits in layout(opcode, hardware):
            mask = np.uint64((1 << bits.width) - 1)
            values = ((chosen[:, bits.word] >> np.uint64(bits.low)) & mask).astype(np.int64)
            if bits.signed:
                values -= (values >> (bits.width - 1)) << bits.width
            table[rows, COLUMN[bits.name]] = values
    return table


def encode(stream: Sequence[Instruction], hardware: VtaHardware) -> Words:
    """Encodes instructions as words: (instructions, 2).

    Raises:
        EncodingError: a value that does not fit its field.
    """
    return encode_table(to_table(stream), hardware)


def decode(words: Words, hardware: VtaHardware) -> list[Instruction]:
    """Decodes words to instructions.

    Raises:
        EncodingError: an unknown opcode.
    """
    return from_table(decode_table(words, hardware))


def encode_uops(uops: NDArray[np.int64], hardware: VtaHardware) -> NDArray[np.uint32]:
    """Encodes micro-operations as words of 32 bits.

    Args:
        uops: dst, src and wgt of each: (micro-operations, 3).

    Raises:
        EncodingError: an index that does not fit its field.
    """
    words = np.zeros(len(uops), np.uint32)
    low = 0
    for column, (name, width) in enumerate(uop_widths(hardware)):
        values = uops[:, column]
        wrong = np.flatnonzero((values < 0) | (values >= 1 << width))
        if len(wrong):
            raise EncodingError(
                f"micro-operation {wrong[0]}: `{name}` must be between 0 and {(1 << width) - 1}, "
                f"but got {name}={values[wrong[0]]}"
            )
        words |= values.astype(np.uint32) << np.uint32(low)
        low += width
    return words


def uop_widths(hardware: VtaHardware) -> tuple[tuple[str, int], ...]:
    """Names and bits of a micro-operation's fields, lowest first."""
    return ("dst", hardware.acc_bits), ("src", hardware.src_bits), ("wgt", hardware.wgt_bits)
