"""VTA's instructions: bits, columns and text convert into each other and back."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from targets.vta import isa
from targets.vta.assembly import AssemblyError, print_stream
from targets.vta.hardware import PYNQ, VtaHardware
from targets.vta.isa import Alu, EncodingError, Finish, Gemm, Instruction, Load, Store
from tests.targets.vta.accesses import decode_uops
from tests.targets.vta.assembly import parse_stream

DESIGNS = [PYNQ, PYNQ.with_blocks(4, 8, 8), PYNQ.with_blocks(2, 16, 16), PYNQ.with_blocks(1, 8, 16)]


@st.composite
def streams(draw: st.DrawFn, hardware: VtaHardware) -> list[Instruction]:
    """Instructions of all kinds whose every field is drawn from all of its values."""
    found: list[Instruction] = []
    for opcode in draw(st.lists(st.integers(0, 4), max_size=6)):
        values: dict[str, Any] = {}
        for bits in isa.layout(opcode, hardware)[1:]:
            edges = st.sampled_from([bits.least, bits.most, 0, 1 if bits.most else 0])
            values[bits.name] = draw(st.integers(bits.least, bits.most) | edges)
        found.append(isa.CLASSES[opcode](**values))
    return found


@pytest.mark.parametrize("hardware", DESIGNS, ids=lambda h: h.name)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_words_tables_and_text_hold_all_of_an_instruction(hardware: VtaHardware, data: st.DataObject) -> None:
    stream = data.draw(streams(hardware))
    words = isa.encode(stream, hardware)
    assert isa.decode(words, hardware) == stream
    table = isa.to_table(stream)
    assert np.array_equal(isa.decode_table(words, hardware), table)
    assert isa.from_table(table) == stream
    assert parse_stream(print_stream(stream)) == stream


@pytest.mark.parametrize(
    ("instruction", "words"),
    [
        (
            Load(memory=isa.INP, sram_base=5, dram_base=0x80000001, y_size=3, x_size=7, x_stride=9, x_pad_1=15,
                 push_next=1),
            (0 | 1 << 6 | 2 << 7 | 5 << 10 | 0x80000001 << 26, 3 | 7 << 16 | 9 << 32 | 15 << 60),
        ),
        (
            Store(memory=isa.OUT, sram_base=0xFFFF, y_pad_0=1, y_pad_1=2, x_pad_0=3, pop_prev=1, y_size=0),
            (1 | 1 << 3 | 4 << 7 | 0xFFFF << 10, 1 << 48 | 2 << 52 | 3 << 56),
        ),
        (
            Gemm(
                reset=1, uop_begin=3, uop_end=8192, iter_out=11, iter_in=12, dst_out=1, dst_in=2, src_out=3, src_in=4,
                wgt_out=5, wgt_in=1023, pop_next=1,
            ),
            (
                2 | 1 << 4 | 1 << 7 | 3 << 8 | 8192 << 21 | 11 << 35 | 12 << 49,
                1 | 2 << 11 | 3 << 22 | 4 << 33 | 5 << 44 | 1023 << 54,
            ),
        ),
        (
            Alu(alu_op=isa.SHR, use_imm=1, imm=-1, uop_end=1, src_in=7, push_prev=1),
            (4 | 1 << 5 | 1 << 21 | 1 << 35 | 1 << 49, 7 << 33 | 3 << 44 | 1 << 47 | 0xFFFF << 48),
        ),
        (Finish(pop_next=1), (3 | 1 << 4, 0)),
    ],
)  # fmt: skip
def test_bits_stand_where_the_specification_puts_them(instruction: Instruction, words: tuple[int, int]) -> None:
    assert isa.encode([instruction], PYNQ).tolist() == [list(words)]


def test_a_micro_operation_is_dst_src_wgt_from_the_lowest_bit_on() -> None:
    words = isa.encode_uops(np.array([[2047, 1, 0], [0, 2, 1023]]), PYNQ)
    assert words.tolist() == [2047 | 1 << 11, 2 << 11 | 1023 << 22]


@pytest.mark.parametrize("hardware", DESIGNS, ids=lambda h: h.name)
def test_micro_operations_come_back(hardware: VtaHardware) -> None:
    draw = np.random.default_rng(0)
    depths = (hardware.acc_depth, 1 << hardware.src_bits, hardware.wgt_depth)
    uops = np.stack([draw.integers(0, depth, 100) for depth in depths], axis=1)
    assert np.array_equal(decode_uops(isa.encode_uops(uops, hardware), hardware), uops)


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        (
            Load(memory=isa.INP, x_pad_0=16),
            "instruction 1: `x_pad_0` of LOAD must be between 0 and 15, but got x_pad_0=16",
        ),
        (Gemm(iter_in=1 << 14), "`iter_in` of GEMM must be between 0 and 16383, but got iter_in=16384"),
        (Alu(alu_op=isa.ADD, use_imm=1, imm=1 << 15), "`imm` of ALU must be between -32768 and 32767, .* imm=32768"),
        (Gemm(wgt_in=-1), "`wgt_in` of GEMM must be between 0 and 1023, but got wgt_in=-1"),
    ],
)  # fmt: skip
def test_what_does_not_fit_its_bits_is_refused(instruction: Instruction, message: str) -> None:
    with pytest.raises(EncodingError, match=message):
        isa.encode([Finish(), instruction], PYNQ)


def test_unknown_opcodes_and_shapes_are_refused() -> None:
    words = np.array([[3, 0], [6, 0]], np.uint64)
    with pytest.raises(EncodingError, match="instruction 1: `opcode` must be one of 0 to 4, but got opcode=6"):
        isa.decode(words, PYNQ)
    with pytest.raises(EncodingError, match="`words` must be uint64"):
        isa.decode_table(words.astype(np.int64), PYNQ)  # type: ignore[arg-type]
    with pytest.raises(EncodingError, match="micro-operation 0: `src` must be between 0 and 2047, but got src=2048"):
        isa.encode_uops(np.array([[0, 2048, 0]]), PYNQ)
    table = isa.to_table([Finish()])
    table[0, 0] = 7
    with pytest.raises(EncodingError, match="opcode=7"):
        isa.encode_table(table, PYNQ)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("JUMP", "an instruction must be one of LOAD, STORE, GEMM, ALU, FINISH, but got 'JUMP'"),
        ("LOAD.DISK x=1", "a memory must be one of UOP, .*, but got 'DISK'"),
        ("LOAD.INP q=1", "an operand must be one of sram, dram, y, x, stride, pad, but got 'q'"),
        ("LOAD.INP x=1 x=2", "each key once"),
        ("LOAD.INP x=-1", "`x` must have the form"),
        ("GEMM.FAST uops=0:1", "the variant of GEMM must be RESET, but got 'FAST'"),
        ("GEMM uops=0-1", "`uops` must have the form"),
        ("ALU.ADD wgt=0,1", "but got 'wgt'"),
        ("ALU.XOR", "an? ALU operation must be one of MIN, MAX, ADD, SHR, MUL, but got 'XOR'"),
        ("FINISH now", "FINISH must have no operands"),
        ("FINISH ; jump", "a token must be one of pop_prev"),
    ],
)
def test_text_that_is_no_instruction_is_refused_with_its_line(line: str, message: str) -> None:
    with pytest.raises(AssemblyError, match=message) as caught:
        parse_stream(f"# a comment\n\n{line}\n")
    assert str(caught.value).startswith("line 3: ")


def test_every_dataclass_field_has_bits() -> None:
    for opcode, kind in enumerate(isa.CLASSES):
        assert {field.name for field in dataclasses.fields(kind)} == {b.name for b in isa.layout(opcode, PYNQ)[1:]}
