"""Missing tokens are found, whatever order the simulator happens to run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.vta_template.conv import Conv2d, Knobs, lower
from benchmarks.vta_template.resnet18 import operands
from targets.vta import isa
from targets.vta.hardware import PYNQ
from targets.vta.isa import COLUMN, Alu, Gemm, Instruction, Load, Store
from targets.vta.problems import Deadlock
from targets.vta.semantics import modules
from tests.targets.vta.checker import verify
from tests.targets.vta.races import races
from tests.targets.vta.random_streams import SMALL, append_finish, random_stream, with_tokens

DRAM = np.zeros(1 << 14, np.uint8)


def find_races(*stream: Instruction) -> list[str]:
    """Messages about a stream."""
    return [str(race) for race in races(isa.to_table(append_finish(list(stream))), PYNQ, DRAM)]


UOPS = Load(memory=isa.UOP, x_size=1)
INP = Load(memory=isa.INP, x_size=1, dram_base=4)
GEMM = Gemm(uop_end=1)
STORE = Store(memory=isa.OUT, x_size=2, dram_base=8)


def test_reading_what_is_being_loaded_is_a_race() -> None:
    assert find_races(UOPS, INP, GEMM) == [
        "inp 0 is written by instruction 1 (load) and read by instruction 2 (compute), but no tokens order the two"
    ]
    assert find_races(UOPS, replace(INP, push_next=1), replace(GEMM, pop_prev=1)) == []


def test_loading_over_what_is_being_read_is_a_race() -> None:
    first = [UOPS, replace(INP, push_next=1), replace(GEMM, pop_prev=1)]
    (message,) = find_races(*first, INP)
    assert message.startswith("inp 0 is written by instruction 3 (load) and read by instruction 2 (compute)")
    assert find_races(*first, replace(INP, sram_base=1)) == []
    first[2] = replace(first[2], push_prev=1)
    assert find_races(*first, replace(INP, pop_next=1)) == []


def test_storing_needs_tokens_both_ways() -> None:
    alu: Instruction = Alu(alu_op=isa.ADD, use_imm=1, uop_end=1)
    assert len(find_races(UOPS, alu, STORE)) == 1
    ordered = [UOPS, replace(alu, push_next=1), replace(STORE, pop_prev=1)]
    assert find_races(*ordered) == []
    assert len(find_races(*ordered, alu)) == 1
    ordered[2] = replace(ordered[2], push_prev=1)
    assert find_races(*ordered, replace(alu, pop_next=1)) == []


def test_order_passes_through_a_third_module() -> None:
    load = Load(memory=isa.INP, x_size=1, dram_base=8)
    unordered = [replace(STORE, push_prev=1), replace(UOPS, pop_next=1), load]
    (race,) = races(isa.to_table(append_finish(unordered)), PYNQ, DRAM)
    assert (race.first, race.second, race.space, race.index, race.count) == (2, 0, "dram", 128, 16)
    assert find_races(unordered[0], replace(unordered[1], push_prev=1), replace(load, pop_next=1)) == []


def test_dram_is_compared_in_bytes() -> None:
    assert find_races(STORE, replace(INP, dram_base=7)) == []
    assert len(find_races(STORE, replace(INP, dram_base=9))) == 1
    assert find_races(STORE, replace(INP, dram_base=10)) == []


def test_resets_and_numbers_read_nothing_else() -> None:
    assert find_races(UOPS, INP, replace(GEMM, reset=1)) == []
    tensor = Alu(alu_op=isa.ADD, uop_end=1, src_out=9)
    assert find_races(UOPS, tensor, replace(STORE, sram_base=5)) == []


def test_a_chain_of_tokens_orders_everything() -> None:
    for seed in range(15):
        draw = np.random.default_rng(seed)
        stream, dram = random_stream(draw, SMALL, 20)
        assert races(isa.to_table(with_tokens(draw, stream)), SMALL, dram) == []


def test_every_pop_of_a_convolution_is_needed_but_the_first_ones() -> None:
    """A missing pop makes all later ones take the token before theirs; the last push, left without a pop, goes, too."""
    conv, knobs = Conv2d(8, 8, 32, 64, 3, 1, 1), Knobs(4, 8, 1, 1, 2, 1)
    program = lower(conv, knobs, PYNQ, *operands(conv, np.random.default_rng(0))).program
    assert races(program.table, PYNQ, program.dram) == []
    of, needless = modules(program.table), []
    for giver, push, taker, pop in (
        (0, "push_next", 1, "pop_prev"),
        (1, "push_prev", 0, "pop_next"),
        (1, "push_next", 2, "pop_prev"),
        (2, "push_prev", 1, "pop_next"),
    ):
        gives, takes = (
            np.flatnonzero((of == module) & (program.table[:, COLUMN[flag]] == 1)).tolist()
            for module, flag in ((giver, push), (taker, pop))
        )
        for index in takes:
            table = program.table.copy()
            table[gives[-1], COLUMN[push]] = table[index, COLUMN[pop]] = 0
            if not verify(table, PYNQ, program.dram) and not races(table, PYNQ, program.dram):
                needless.append(index)
    last = len(program.table)
    assert all(index < 12 or index > last - 20 for index in needless), needless


def test_loops_of_millions_of_turns_are_followed_at_once() -> None:
    """Indices stay in buffers, so there are few of them, however often they come."""
    uops = Load(memory=isa.UOP, x_size=64, dram_base=64)
    turns = Gemm(uop_end=64, iter_out=1023, iter_in=16383, dst_out=2, src_out=1)
    assert len(find_races(uops, replace(INP, x_size=1000), turns)) == 1
    assert find_races(uops, replace(INP, sram_base=1023), turns) == []


def test_a_loop_that_does_not_turn_touches_nothing() -> None:
    assert find_races(Gemm(uop_end=9000, iter_in=0), INP, STORE) == []


def test_a_stream_that_cannot_run_is_refused() -> None:
    with pytest.raises(Deadlock):
        find_races(Gemm(pop_prev=1))
