"""All who judge a stream say the same of it, and what trying it out shows: hypothesis draws the streams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from targets.vta import isa
from targets.vta.functional import FunctionalSimulator
from targets.vta.hardware import VtaHardware
from targets.vta.isa import Alu, Gemm, Instruction, Load, Store
from targets.vta.problems import Deadlock, IllegalStream
from targets.vta.timing import simulate
from tests.properties.running import examples
from tests.targets.vta.checker import check
from tests.targets.vta.races import races
from tests.targets.vta.random_streams import SMALL, append_finish, random_stream, with_tokens
from tests.targets.vta.verdicts import instruction_module, verdict

PIECES: tuple[Instruction, ...] = (
    Load(memory=isa.INP, x_size=1, dram_base=40),
    Load(memory=isa.WGT),
    Load(memory=isa.ACC, x_size=1, dram_base=20),
    Gemm(uop_end=2, iter_in=2, dst_in=1),
    Alu(alu_op=isa.ADD, use_imm=1, imm=1, uop_end=1),
    Store(memory=isa.OUT, x_size=1, dram_base=99),
    Store(memory=isa.OUT),
)
DRAM = np.zeros(4096, np.uint8)
FLAGS = ((0, "push_next", 1, "pop_prev"), (1, "push_prev", 0, "pop_next"), (1, "push_next", 2, "pop_prev"),
         (2, "push_prev", 1, "pop_next"))  # fmt: skip


def judgement(judge: Callable[[], object]) -> tuple[str, str]:
    """`legal`, `deadlock` or `illegal`, and the sentence."""
    try:
        judge()
    except Deadlock as error:
        return "deadlock", str(error)
    except IllegalStream as error:
        return "illegal", str(error)
    return "legal", ""


def judge(stream: list[Instruction], hardware: VtaHardware, dram: NDArray[np.uint8]) -> str:
    """Asserts that all checkers agree, as does the clock without the memory, and returns their verdict."""
    table = isa.to_table(stream)
    found = judgement(lambda: check(table, hardware, dram))
    assert judgement(lambda: races(table, hardware, dram)) == found
    assert judgement(lambda: FunctionalSimulator(hardware).run(table, dram.copy())) == found
    assert judgement(lambda: simulate(table, hardware)) == judgement(lambda: check(table, hardware))
    return found[0]


@st.composite
def streams(draw: st.DrawFn) -> list[Instruction]:
    """A few instructions with tokens between them, in order or not, some of them one too many."""
    stream = append_finish([draw(st.sampled_from(PIECES)) for _ in range(draw(st.integers(0, 7)))])
    for _ in range(draw(st.integers(0, 6))):
        giver, push, taker, pop = draw(st.sampled_from(FLAGS))
        ends = (giver, push), (taker, pop)
        only = draw(st.sampled_from((0, 0, 0, 0, 0, 0, 1, 2)))  # both ends, or one alone
        for number, (module, flag) in enumerate(ends, 1):
            places = [i for i, op in enumerate(stream) if instruction_module(op) == module and not getattr(op, flag)]
            if places and only in (0, number):
                place = draw(st.sampled_from(places))
                stream[place] = replace(stream[place], **{flag: 1})
    for _ in range(draw(st.integers(0, 3))):  # FINISH stays
        place = draw(st.integers(0, len(stream) - 2))
        stream.insert(draw(st.integers(0, len(stream) - 2)), stream.pop(place))
    return stream


@settings(max_examples=examples(150), deadline=None)
@given(streams(), st.sampled_from((1, 2, 512)), st.sampled_from((1, 2, 255)))
def test_tokens_are_judged_as_a_machine_that_is_held_up_behaves(
    stream: list[Instruction], queue_depth: int, token_limit: int
) -> None:
    hardware = replace(SMALL, queue_depth=queue_depth, token_limit=token_limit)
    expected = verdict(stream, queue_depth, token_limit)
    assert judge(stream, hardware, DRAM) == {"legal": "legal", "deadlock": "deadlock"}.get(expected, "illegal")


WRONG = (
    ("sram_base", 60), ("dram_base", 1 << 20), ("x_size", 40), ("x_pad_1", 15), ("memory", 7), ("uop_begin", 9),
    ("uop_end", 40), ("dst_in", 31), ("src_out", 31), ("wgt_in", 15), ("iter_out", 16383), ("alu_op", 7),
    ("imm", 70000), ("pop_prev", 1), ("pop_next", 1), ("push_prev", 1), ("push_next", 1), ("push_next", 2),
    ("opcode", 6),
)  # fmt: skip


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 1 << 32), st.lists(st.tuples(st.integers(0, 20), st.sampled_from(WRONG)), max_size=2))
def test_streams_with_wrong_fields_are_judged_alike(seed: int, wrong: list[tuple[int, tuple[str, int]]]) -> None:
    draw = np.random.default_rng(seed)
    stream, dram = random_stream(draw, SMALL, 8)
    table = isa.to_table(with_tokens(draw, stream) if seed % 2 else stream)
    for place, (name, value) in wrong:
        table[place % len(table), isa.COLUMN[name]] = value
    found = judgement(lambda: check(table, SMALL, dram))
    assert wrong or found[0] == "legal"
    assert judgement(lambda: races(table, SMALL, dram)) == found
    assert judgement(lambda: FunctionalSimulator(SMALL).run(table, dram.copy()))[0] == found[0]
    assert judgement(lambda: simulate(table, SMALL)) == judgement(lambda: check(table, SMALL))
