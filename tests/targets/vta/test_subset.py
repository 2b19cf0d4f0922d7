"""Reports of operations that only some of VTA's designs have."""

from __future__ import annotations

import re

import numpy as np
import pytest

from targets.vta import isa
from targets.vta.hardware import PYNQ
from targets.vta.isa import Alu, Finish, Gemm, Instruction, Load, Store
from tests.targets.vta.subset import outside_common_subset

STORE = Store(memory=isa.OUT, x_size=3, pop_prev=1)


def problems(*stream: Instruction) -> list[str]:
    """Messages about a stream that ends properly."""
    return [str(p) for p in outside_common_subset(isa.to_table([*stream, Finish()]), PYNQ, np.zeros(4096, np.uint8))]


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        (Alu(alu_op=isa.MUL), "instruction 0: `alu_op` must not be MUL"),
        (Alu(alu_op=isa.SHR, use_imm=1, imm=-1), "`imm` of SHR must be between 0 and 15, but got imm=-1"),
        (Alu(alu_op=isa.SHR, use_imm=1, imm=16), "`imm` of SHR must be between 0 and 15, but got imm=16"),
        (Alu(alu_op=isa.SHR), "SHR must have a number as second operand"),
        (Load(memory=isa.ACC_8BIT, x_size=1), "`memory` must not be ACC_8BIT"),
        (Load(memory=isa.WGT, x_size=1, x_pad_0=1), "only loads of INP may have pads"),
        (Load(memory=isa.UOP, x_size=1, y_size=2), "`y_size` of LOAD UOP must be 1, but got y_size=2"),
        (Gemm(uop_end=1, iter_in=2), "dst must differ from those of the 2 .* before, but got dst=0 again after 1"),
        (Gemm(uop_end=1, iter_out=3, iter_in=2, dst_in=1), "but got dst=0 again after 2"),
        (Store(memory=isa.OUT, x_size=1), "STORE must follow a GEMM or ALU operation on what it stores, but got acc 0"),
    ],
)
def test_each_thing_has_its_message(instruction: Instruction, message: str) -> None:
    (found,) = problems(instruction)
    assert re.search(message, found), found


@pytest.mark.parametrize(
    "instruction",
    [
        Alu(alu_op=isa.SHR, use_imm=1, imm=15),
        Load(memory=isa.INP, x_size=1, x_pad_0=1),
        Load(memory=isa.ACC_8BIT, x_size=0),
        Gemm(uop_end=1, iter_out=2, iter_in=3, dst_in=1),
    ],
)
def test_what_all_designs_do_has_none(instruction: Instruction) -> None:
    assert problems(instruction) == []


def test_stores_need_an_operation_after_loads_and_resets() -> None:
    alu = Alu(alu_op=isa.ADD, use_imm=1, uop_end=1, iter_in=3, dst_in=1, push_next=1)
    reset = Gemm(reset=1, uop_end=1, iter_in=3, dst_in=1, push_next=1)
    load = Load(memory=isa.ACC, sram_base=2, x_size=1, push_next=1)
    assert problems(Load(memory=isa.UOP, x_size=1), alu, STORE) == []
    assert len(problems(Load(memory=isa.UOP, x_size=1), reset, STORE)) == 1
    (found,) = problems(Load(memory=isa.UOP, x_size=1), Alu(**{**vars(alu), "push_next": 0}), load, STORE)
    assert found.endswith("but got acc 2")
