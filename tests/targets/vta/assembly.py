"""A parser of the text of VTA's instructions that `targets.vta.assembly` prints; `#` begins a comment."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from targets.vta.assembly import MEMORY_KEYS, PADS, PAIRS, AssemblyError
from targets.vta.isa import ALU_OPCODES, FLAGS, MEMORIES, Alu, Finish, Gemm, Instruction, Load, Store


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
