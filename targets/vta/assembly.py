"""VTA's instructions as text: one instruction a line, printed and parsed.

    LOAD.INP    sram=0 dram=64 y=8 x=56 stride=56 pad=1,0,1,1     ; push_next
    GEMM.RESET  uops=0:48 loops=56x3 dst=1,0 src=1,1 wgt=0,3      ; pop_prev push_prev
    ALU.SHR     uops=48:50 loops=1x448 dst=0,1 src=0,1 imm=8
    FINISH

Pads are top, bottom, left, right; pairs are factors of the outer and the inner loop. What is left out is 0 (sizes and
loops 1, but x), and a `;` comes before the tokens. `#` begins a comment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from targets.vta.isa import (
    ALU_OPCODES,
    FLAGS,
    MEMORIES,
    Alu,
    Finish,
    Gemm,
    Instruction,
    Load,
    Store,
)

PAIRS = ("dst", "src", "wgt")
PADS = ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")
MEMORY_KEYS = {"sram": "sram_base", "dram": "dram_base", "y": "y_size", "x": "x_size", "stride": "x_stride"}


class AssemblyError(ValueError):
    """Text that is no instruction."""


def print_stream(stream: Sequence[Instruction]) -> str:
    """The text of instructions, one a line."""
    return "".join(print_instruction(instruction) + "\n" for instruction in stream)


def print_instruction(instruction: Instruction) -> str:
    """The text of one instruction; all that differs from its default stands there."""
    head, operands = _operands(instruction)
    line = f"{head:<11} {' '.join(operands)}".rstrip()
    flags = [flag for flag in FLAGS if getattr(instruction, flag)]
    return f"{line:<80} ; {' '.join(flags)}" if flags else line


def _operands(instruction: Instruction) -> tuple[str, list[str]]:
    """Name and operands."""
    if isinstance(instruction, Load | Store):
        name = _name(MEMORIES, instruction.memory)
        operands = [f"{key}={getattr(instruction, field)}" for key, field in MEMORY_KEYS.items()]
        pads = [getattr(instruction, pad) for pad in PADS]
        if any(pads):
            operands.append("pad=" + ",".join(map(str, pads)))
        return f"{type(instruction).__name__.upper()}.{name}", operands
    if isinstance(instruction, Gemm | Alu):
        operands = [f"uops={instruction.uop_begin}:{instruction.uop_end}"]
        operands.append(f"loops={instruction.iter_out}x{instruction.iter_in}")
        for name in PAIRS[: 3 if isinstance(instruction, Gemm) else 2]:
            factors = getattr(instruction, f"{name}_out"), getattr(instruction, f"{name}_in")
            if any(factors):
                operands.append(f"{name}={factors[0]},{factors[1]}")
        if isinstance(instruction, Gemm):
            return "GEMM.RESET" if instruction.reset else "GEMM", operands
        if instruction.reset:
            operands.append("reset=1")
        if instruction.use_imm:
            operands.append(f"imm={instruction.imm}")
        elif instruction.imm:
            operands.append(f"unused_imm={instruction.imm}")
        return f"ALU.{_name(ALU_OPCODES, instruction.alu_op)}", operands
    if isinstance(instruction, Finish):
        return "FINISH", []
    raise AssemblyError(f"`instruction` must be one of VTA's, but got {type(instruction).__name__}")


def _name(names: Sequence[str], number: int) -> str:
    """The name of a number, or the number itself where it has none."""
    return names[number] if 0 <= number < len(names) else str(number)


def parse_stream(text: str) -> list[Instruction]:
    """The instructions of a text.

    Raises:
        AssemblyError: a line is no instruction; the message has its number.
    """
    stream = []
    for number, line in enumerate(text.splitlines(), 1):
        code = line.partition("#")[0].strip()
        if code:
            try:
                stream.append(parse_instruction(code))
            except AssemblyError as error:
                raise AssemblyError(f"line {number}: {error}") from None
    return stream


def parse_instruction(text: str) -> Instruction:
    """The instruction of one line.

    Raises:
        AssemblyError: the line is no instruction.
    """
    code, _, tail = text.partition(";")
    values: dict[str, Any] = {}
    for flag in tail.split():
        if flag not in FLAGS:
            raise AssemblyError(f"a token must be one of {', '.join(FLAGS)}, but got {flag!r}")
        values[flag] = 1
    head, *operands = code.split() or [""]
    name, _, variant = head.partition(".")
    readers: dict[str, Callable[[str, list[str], dict[str, Any]], Instruction]] = {
        "LOAD": lambda *a: Load(**_memory(*a)),
        "STORE": lambda *a: Store(**_memory(*a)),
        "GEMM": lambda *a: Gemm(**_loops(*a)),
        "ALU": lambda head, words, known: Alu(**_loops(head, words, known, alu=True)),
        "FINISH": _finish,
    }
    if name not in readers:
        raise AssemblyError(f"an instruction must be one of {', '.join(readers)}, but got {name!r}")
    if name == "GEMM" and variant not in ("", "RESET"):
        raise AssemblyError(f"the variant of GEMM must be RESET, but got {variant!r}")
    return readers[name](variant, operands, values)


def _finish(variant: str, operands: list[str], values: dict[str, Any]) -> Instruction:
    if variant or operands:
        raise AssemblyError(f"FINISH must have no operands, but got {' '.join([variant, *operands]).strip()!r}")
    return Finish(**values)


def _memory(variant: str, operands: list[str], values: dict[str, Any]) -> dict[str, Any]:
    """Fields of a transfer."""
    values["memory"] = _number(MEMORIES, variant, "memory")
    for key, value in _pairs(operands):
        if key == "pad":
            values |= dict(zip(PADS, _integers(key, value, r"\d+,\d+,\d+,\d+"), strict=True))
        elif key in MEMORY_KEYS:
            (values[MEMORY_KEYS[key]],) = _integers(key, value, r"\d+")
        else:
            raise AssemblyError(f"an operand must be one of {', '.join([*MEMORY_KEYS, 'pad'])}, but got {key!r}")
    return values


def _loops(variant: str, operands: list[str], values: dict[str, Any], alu: bool = False) -> dict[str, Any]:
    """Fields of GEMM or of an ALU operation."""
    if alu:
        values["alu_op"] = _number(ALU_OPCODES, variant, "ALU operation")
    else:
        values["reset"] = int(variant == "RESET")
    for key, value in _pairs(operands):
        if key == "uops":
            values["uop_begin"], values["uop_end"] = _integers(key, value, r"\d+:\d+")
        elif key == "loops":
            values["iter_out"], values["iter_in"] = _integers(key, value, r"\d+x\d+")
        elif key in PAIRS[: 2 if alu else 3]:
            values[f"{key}_out"], values[f"{key}_in"] = _integers(key, value, r"\d+,\d+")
        elif alu and key in ("imm", "unused_imm"):
            (values["imm"],) = _integers(key, value, r"-?\d+")
            values["use_imm"] = int(key == "imm")
        elif alu and key == "reset":
            (values["reset"],) = _integers(key, value, r"[01]")
        else:
            raise AssemblyError(f"an operand must be one of uops, loops, dst, src and what is special, but got {key!r}")
    return values


def _pairs(operands: list[str]) -> list[tuple[str, str]]:
    """`key=value` taken apart, each key once."""
    found: dict[str, str] = {}
    for operand in operands:
        key, equals, value = operand.partition("=")
        if not equals or key in found:
            raise AssemblyError(f"an operand must be key=value, each key once, but got {operand!r}")
        found[key] = value
    return list(found.items())


def _integers(key: str, value: str, pattern: str) -> list[int]:
    """The numbers of a value that has the form `pattern`."""
    if not re.fullmatch(pattern, value):
        raise AssemblyError(f"`{key}` must have the form {pattern}, but got {key}={value}")
    return [int(part) for part in re.findall(r"-?\d+", value)]


def _number(names: Sequence[str], text: str, what: str) -> int:
    """The number of a name, or the number itself."""
    if text in names:
        return names.index(text)
    if text.isdigit():
        return int(text)
    raise AssemblyError(f"a {what} must be one of {', '.join(names)}, but got {text!r}")
