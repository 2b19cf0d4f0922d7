"""Statistics of a kernel's machine code, read from its object code: innermost loops, and their spills."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from search_space.ir.sizes import span
from search_space.ir.stmt import Allocate, For, Intrinsic, LoopProgram, Seq, Stmt, Store
from search_space.schedule.intrinsics import get_intrinsic

log = logging.getLogger(__name__)

_JUMP = re.compile(r"j|b$|b\.|cb|tb")
_TARGET = re.compile(r"#?0x([0-9a-f]+)$")
_VECTOR = re.compile(r"\b(?:[xyz]mm\d+|[vqz]\d+)\b")
_STACK = re.compile(r"\[(?:r?sp|e?sp)\b|\[rsp\b")
_PRODUCT = re.compile(r"v?fn?m(?:add|sub)|fml[as]|vp?dp|[su]?dot$|bfdot|bfmmla")

MINOR = 4
"""A sum with this many times fewer products than another, such as the remainder of its rows, is ignored."""


@dataclass(frozen=True)
class LoopCode:
    """One innermost loop of machine code.

    Attributes:
        instructions: number of instructions in its body.
        products: multiply-adds and dot products among them.
        spills: instructions that read or write a vector register's copy on the stack.
        reloads: instructions that read or write anything else on the stack, such as an address.
        saves: number of the spills that write.
    """

    instructions: int
    products: int
    spills: int
    reloads: int
    saves: int = 0


def innermost_loops(code: bytes, triple: str) -> list[LoopCode]:
    """Finds the innermost loops of object code, in the order of their addresses.

    Args:
        code: an object file.
        triple: LLVM's name of its platform, with an x86-64 or AArch64 processor.

    Raises:
        ValueError: another architecture.
    """
    loops: list[LoopCode] = []
    sections = [s.data() for s in llvm.ObjectFileRef.from_data(code).sections() if s.is_text() and s.size()]
    for section in sections:
        loops += _loops(list(_instructions(section, triple.partition("-")[0])))
    return loops


def busiest(loops: Sequence[LoopCode], products: int | None = None) -> LoopCode:
    """Picks the loop that does the work: the one with the most products, among such the longest.

    Args:
        loops: loops of a kernel.
        products: products that the body of its reduction has, if known. Then the loop with the closest number is
            picked, the shortest of several, as unrolled stages around it, such as Winograd's transforms, may have more.
    """

    def rank(loop: LoopCode) -> tuple[int, int]:
        if products is None:
            return loop.products, loop.instructions
        return -abs(loop.products - products), -loop.instructions

    return max(loops, key=rank, default=LoopCode(0, 0, 0, 0))


def body_products(program: LoopProgram) -> int | None:
    """Counts products in one pass of the innermost loop of a sum of products, the one that runs most often if several.

    None where a program has no such sum.
    """
    found = max(_reductions(program.body, 1, 1), default=None)
    return None if found is None else found[1]


def spilling(loops: Sequence[LoopCode], program: LoopProgram) -> tuple[float, float]:
    """Measures the stack references in the loops of a program's sums of products.

    Values that are only read there, such as constants kept from pass to pass, would otherwise be read from their
    origin. Values that are written are mostly sums that wait for each other.

    The first number is the share of spilling instructions, the second the number of vectors written to the stack per
    product.

    Of several sums, as attention has, each counts by its products; without a sum, the longest loop counts.
    """
    sums = sorted(_reductions(program.body, 1, 1), reverse=True)
    if not sums:
        loop = busiest(loops)
        return loop.spills / max(1, loop.instructions), 0.0
    rest, products, share, saves = list(loops), 0, 0.0, 0.0
    for runs, body in (found for found in sums if found[0] * MINOR >= sums[0][0]):
        loop = busiest(rest, body)
        if loop in rest:
            rest.remove(loop)  # another sum has a loop of its own
        products += runs
        share += runs * loop.spills / max(1, loop.instructions)
        saves += runs * loop.saves / body
    return share / products, saves / products


def _reductions(stmt: Stmt, runs: int, body: int) -> Iterator[tuple[int, int]]:
    """Lists (runs, runs per pass of its innermost loop) of every sum of products; vectors count as one."""
    if isinstance(stmt, Seq):
        for child in stmt.body:
            yield from _reductions(child, runs, body)
    elif isinstance(stmt, Allocate):
        yield from _reductions(stmt.body, runs, body)
    elif isinstance(stmt, For):
        extent = 1 if stmt.kind == "vectorize" else span(stmt.extent)[1]
        within = body * extent if stmt.kind in ("unroll", "vectorize") else 1
        yield from _reductions(stmt.body, runs * extent, within)
    elif isinstance(stmt, Store):
        if stmt.reducer == "sum" and stmt.value.op == "mul":
            yield runs, body
    elif isinstance(stmt, Intrinsic) and get_intrinsic(stmt.name).reducer is not None:
        yield runs, body


def table(code: bytes, triple: str) -> str:
    """Formats the innermost loops as text, a line each."""
    lines = [f"{'innermost loop':>14}  {'instructions':>12}  {'products':>8}  {'spills':>6}  {'reloads':>7}"]
    for number, loop in enumerate(innermost_loops(code, triple)):
        lines.append(f"{number:>14}  {loop.instructions:>12}  {loop.products:>8}  {loop.spills:>6}  {loop.reloads:>7}")
    return "\n".join(lines)


def _loops(code: list[tuple[int, int, str, str]]) -> Iterator[LoopCode]:
    """Finds the bodies between a backward jump and its destination that contain no other such body."""
    positions = {address: position for position, (address, *_) in enumerate(code)}
    spans = []
    for position, (address, _, name, operands) in enumerate(code):
        if _JUMP.match(name) and not (name.startswith("bl") or name == "br"):
            aim = _TARGET.search(operands)
            if aim is not None and int(aim[1], 16) <= address and int(aim[1], 16) in positions:
                spans.append((positions[int(aim[1], 16)], position))
    for first, last in sorted(spans):
        if not any((first, last) != other and first <= other[0] and other[1] <= last for other in spans):
            yield _body(code[first : last + 1])


def _body(code: list[tuple[int, int, str, str]]) -> LoopCode:
    products = spills = reloads = saves = 0
    for _, _, name, operands in code:
        products += bool(_PRODUCT.match(name))
        if _STACK.search(operands):
            if _VECTOR.search(operands):
                spills += 1
                saves += name.startswith("st") or bool(_STACK.search(operands.partition(",")[0]))  # AArch64; x86-64
            else:
                reloads += 1
    return LoopCode(len(code), products, spills, reloads, saves)


_BFLOAT16 = {0x52: "vdpbf16ps", 0x72: "vcvtneps2bf16"}
"""Instructions that the disassembler does not have, by their opcodes behind the prefix EVEX.F3.0F38.W0."""

_HALF_PRODUCTS = frozenset(opcode for first in (0x96, 0xA6, 0xB6) for opcode in range(first, first + 10))
"""Opcodes of the multiply-adds of AVX512-FP16, in map 6."""

_ADDITION = (0x58, 1)
"""Opcode and map of `vaddps`: an instruction with one address and no constant behind it."""

_SHUFFLE = (0xC6, 1)
"""Opcode and map of `vshufps`: an instruction with one address and a constant of a byte."""


def _instructions(code: bytes, architecture: str) -> Iterator[tuple[int, int, str, str]]:
    """Lists address, size, name and operands of each instruction.

    The disassembler has neither AVX512-BF16 nor AVX512-FP16. Such an instruction gets its operands and size from one
    of AVX-512 in the same form. At any other bytes the list ends, with a warning.
    """
    reader, start = _disassembler(architecture), 0
    while start < len(code):
        for instruction in reader.disasm_lite(code[start:], start):
            yield instruction
            start = instruction[0] + instruction[1]
        if start < len(code):
            unknown = _read_unknown(reader, code[start : start + 15], start)
            if unknown is None:
                _warn_of_unread_code(architecture)
                return
            yield unknown
            start += unknown[1]


def _read_unknown(reader: Any, code: bytes, start: int) -> tuple[int, int, str, str] | None:
    """Reads an instruction that the disassembler does not have (Intel, AVX512-FP16 architecture specification).

    None for any other bytes.
    """
    if len(code) >= 6 and code[0] == 0x62:
        kind, prefix, opcode = code[1] & 7, code[2] & 3, code[4]
        name = None
        if kind == 2 and prefix == 2:
            name = _BFLOAT16.get(opcode)
        elif kind in (5, 6):
            name = "vfmaddph" if kind == 6 and opcode in _HALF_PRODUCTS else f"vph{kind}{opcode:02x}"
        elif kind == 3 and prefix == 0:
            name = f"vph{kind}{opcode:02x}"
        if name is not None:
            like, table = _SHUFFLE if kind == 3 else _ADDITION
            form = bytes([0x62, code[1] & ~7 | table, code[2] & ~0x83, code[3], like]) + code[5:]
            for _, size, _, operands in reader.disasm_lite(form, start, 1):
                return start, size, name, operands
    return None


@cache
def _warn_of_unread_code(architecture: str) -> None:
    """Warns, once in a process, that loops are not examined."""
    log.warning(
        "an instruction of this %s processor cannot be read: spills of registers behind it are unseen", architecture
    )


@cache
def _disassembler(architecture: str) -> Any:
    import capstone

    kinds = {
        "x86_64": (capstone.CS_ARCH_X86, capstone.CS_MODE_64),
        "aarch64": (capstone.CS_ARCH_ARM64, capstone.CS_MODE_LITTLE_ENDIAN),
        "arm64": (capstone.CS_ARCH_ARM64, capstone.CS_MODE_LITTLE_ENDIAN),
    }
    if architecture not in kinds:
        raise ValueError(f"machine code must be for one of {', '.join(kinds)} to be read, but got {architecture}")
    return capstone.Cs(*kinds[architecture])
