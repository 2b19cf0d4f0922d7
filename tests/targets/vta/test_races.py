"""Missing tokens are found, whatever order the simulator happens to run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from targets.vta import isa
from targets.vta.hardware import PYNQ
from targets.vta.isa import COLUMN, Alu, Finish, Gemm, Instruction, Load, Store
from targets.vta.races import races
from targets.vta.reference_conv import Conv2d, Knobs, lower
from targets.vta.resnet18 import operands
from targets.vta.verify import Deadlock
from tests.targets.vta.random_streams import SMALL, random_stream, with_tokens

DRAM = np.zeros(1 << 14, np.uint8)


def found(*stream: Instruction) -> list[str]:
    """Messages about a stream."""
    return [str(race) for race in races(isa.to_table([*stream, Finish()]), PYNQ, DRAM)]


UOPS = Load(memory=isa.UOP, x_size=1)
INP = Load(memory=isa.INP, x_size=1, dram_base=4)
GEMM = Gemm(uop_end=1)
STORE = Store(memory=isa.OUT, x_size=2, dram_base=8)


def test_reading_what_is_being_loaded_is_a_race() -> None:
    assert found(UOPS, INP, GEMM) == [
        "inp 0 is written by instruction 1 (load) and read by instruction 2 (compute), but no tokens order the two"
    ]
    assert found(UOPS, replace(INP, push_next=1), replace(GEMM, pop_prev=1)) == []


def test_loading_over_what_is_being_read_is_a_race() -> None:
    first = [UOPS, replace(INP, push_next=1), replace(GEMM, pop_prev=1)]
    (message,) = found(*first, INP)
    assert message.startswith("inp 0 is written by instruction 3 (load) and read by instruction 2 (compute)")
    first[2] = replace(first[2], push_prev=1)
    assert found(*first, replace(INP, pop_next=1)) == []
    assert found(*first, replace(INP, sram_base=1)) == []


def test_storing_needs_tokens_both_ways() -> None:
    alu = Alu(alu_op=isa.ADD, use_imm=1, uop_end=1)
    assert len(found(UOPS, alu, STORE)) == 1
    ordered = [UOPS, replace(alu, push_next=1), replace(STORE, pop_prev=1)]
    assert found(*ordered) == []
    assert len(found(*ordered, alu)) == 1
    ordered[2] = replace(ordered[2], push_prev=1)
    assert found(*ordered, replace(alu, pop_next=1)) == []


def test_order_passes_through_a_third_module() -> None:
    load = Load(memory=isa.INP, x_size=1, dram_base=8)
    unordered = [replace(STORE, push_prev=1), replace(UOPS, pop_next=1), load]
    (race,) = races(isa.to_table([*unordered, Finish()]), PYNQ, DRAM)
    assert (race.first, race.second, race.space, race.index, race.count) == (2, 0, "dram", 128, 16)
    assert found(unordered[0], replace(unordered[1], push_prev=1), replace(load, pop_next=1)) == []


def test_dram_is_compared_in_bytes() -> None:
    assert found(STORE, replace(INP, dram_base=7)) == []
    assert len(found(STORE, replace(INP, dram_base=9))) == 1
    assert found(STORE, replace(INP, dram_base=10)) == []


def test_resets_and_numbers_read_nothing_else() -> None:
    assert found(UOPS, INP, replace(GEMM, reset=1)) == []
    tensor = Alu(alu_op=isa.ADD, uop_end=1, src_out=9)
    assert found(UOPS, tensor, replace(STORE, sram_base=5)) == []


def test_a_chain_of_tokens_orders_everything() -> None:
    for seed in range(15):
        draw = np.random.default_rng(seed)
        stream, dram = random_stream(draw, SMALL, 20)
        assert races(isa.to_table(with_tokens(draw, stream)), SMALL, dram) == []


def test_every_pop_of_a_convolution_is_needed_but_the_first_ones() -> None:
    conv, knobs = Conv2d(8, 8, 32, 64, 3, 1, 1), Knobs(4, 8, 1, 1, 2, 1)
    program = lower(conv, knobs, PYNQ, *operands(conv, np.random.default_rng(0))).program
    assert races(program.table, PYNQ, program.dram) == []
    needless = []
    for flag in ("pop_prev", "pop_next"):
        for index in np.flatnonzero(program.table[:, COLUMN[flag]]).tolist():
            table = program.table.copy()
            table[index, COLUMN[flag]] = 0
            if not races(table, PYNQ, program.dram):
                needless.append(index)
    last = len(program.table)
    assert all(index < 12 or index > last - 20 for index in needless), needless


def test_a_stream_that_cannot_run_is_refused() -> None:
    with pytest.raises(Deadlock):
        found(Gemm(pop_prev=1))
