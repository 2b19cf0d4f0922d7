"""VTA's instructions as text: one instruction a line.

    LOAD.INP    sram=0 dram=64 y=8 x=56 stride=56 pad=1,0,1,1     ; push_next
    GEMM.RESET  uops=0:48 loops=56x3 dst=1,0 src=1,1 wgt=0,3      ; pop_prev push_prev
    ALU.SHR     uops=48:50 loops=1x448 dst=0,1 src=0,1 imm=8
    FINISH

Pads are top, bottom, left, right; pairs are factors of the outer and the inner loop. Omitted operands are 0 (sizes and
loops 1, but x), and a `;` comes before the tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    """Formats instructions as text, one a line."""
    return "".join(print_instruction(instruction) + "\n" for instruction in stream)


def print_instruction(instruction: Instruction) -> str:
    """Formats one instruction; operands equal to their defaults are omitted."""
    head, operands = _operands(instruction)
    line = f"{head:<11} {' '.join(operands)}".rstrip()
    flags = [flag for flag in FLAGS if getattr(instruction, flag)]
    return f"{line:<80} ; {' '.join(flags)}" if flags else line


def _operands(instruction: Instruction) -> tuple[str, list[str]]:
    """Returns name and operands of an instruction."""
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
    """Returns the name of a number, or the number itself if it has no name."""
    return names[number] if 0 <= number < len(names) else str(number)
