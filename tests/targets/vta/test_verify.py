"""Errors of streams that the specification calls illegal: each names the instruction, the rule and the value."""

from __future__ import annotations

import numpy as np
import pytest

from targets.vta import isa
from targets.vta.functional import FunctionalSimulator
from targets.vta.hardware import PYNQ
from targets.vta.isa import Alu, Finish, Gemm, Instruction, Load, Store
from targets.vta.problems import Deadlock, IllegalStream
from targets.vta.timing import simulate
from targets.vta.tokens import execution_order
from tests.targets.vta.checker import check, verify
from tests.targets.vta.races import races
from tests.targets.vta.random_streams import SMALL, random_stream, with_tokens

DRAM = np.zeros(4096, np.uint8)

ILLEGAL: list[tuple[list[Instruction], str]] = [
    ([], "a stream must end with FINISH, but got 0 instructions without one"),
    ([Gemm()], "a stream must end with FINISH, but got 1 instructions without one"),
    ([Finish(), Gemm()], "instruction 1: FINISH must be the last instruction, but got 1 after it"),
    ([Finish(), Finish()], "instruction 1: FINISH must be the last instruction, but got 1 after it"),
    (
        [Load(memory=isa.INP, pop_prev=1), Finish()],
        "instruction 0: `pop_prev` must be 0 as no module is before the load module, but got pop_prev=1",
    ),
    ([Load(memory=isa.WGT, push_prev=1), Finish()], "instruction 0: `push_prev` must be 0 as no module is before"),
    ([Store(memory=isa.OUT, pop_next=1), Finish()], "`pop_next` must be 0 as no module is after the store module"),
    ([Store(memory=isa.OUT, push_next=1), Finish()], "`push_next` must be 0 as no module is after the store module"),
    (
        [Load(memory=isa.OUT, x_size=1), Finish()],
        "`memory` of LOAD must be one of UOP, WGT, INP, ACC, ACC_8BIT, but got memory=OUT",
    ),
    ([Load(memory=7, x_size=1), Finish()], "`memory` of LOAD must be one of .*, but got memory=7"),
    ([Store(memory=isa.ACC, x_size=1), Finish()], "`memory` of STORE must be one of OUT, but got memory=ACC"),
    ([Store(memory=isa.OUT, x_size=1, x_pad_1=2), Finish()], "`x_pad_1` of STORE must be 0, but got x_pad_1=2"),
    ([Store(memory=isa.OUT, x_size=1, y_pad_0=2), Finish()], "`y_pad_0` of STORE must be 0, but got y_pad_0=2"),
    (
        [Load(memory=isa.INP, sram_base=31, x_size=1, x_pad_0=1), Finish()],
        "the transfer must end within the 32 elements of inp, but got end=33",
    ),
    ([Load(memory=isa.WGT, y_size=0, x_size=1, y_pad_1=15, sram_base=2), Finish()], "elements of wgt, but got end=17"),
    ([Load(memory=isa.UOP, y_size=2, x_size=65, x_stride=0), Finish()], "the 32 elements of uop, but got end=130"),
    ([Store(memory=isa.OUT, sram_base=32, x_size=1), Finish()], "the 32 elements of acc, but got end=33"),
    ([Load(memory=isa.INP, y_size=3, x_stride=127, x_size=3), Finish()], "4096 bytes of DRAM, but got end=4112"),
    ([Store(memory=isa.OUT, dram_base=256, x_size=1), Finish()], "within the 4096 bytes of DRAM, but got end=4112"),
    ([Alu(alu_op=5), Finish()], "`alu_op` must be one of 0 to 4, but got alu_op=5"),
    ([Gemm(uop_begin=2, uop_end=1), Finish()], "`uop_end` must be at least uop_begin=2, but got uop_end=1"),
    ([Alu(alu_op=isa.ADD, uop_end=33), Finish()], "`uop_end` must be at most 32, but got uop_end=33"),
    ([Gemm(uop_end=1, iter_in=3, dst_in=20), Finish()], "`dst` must stay within the 32 .* acc, but got dst=40"),
    ([Gemm(uop_end=1, iter_out=4, src_out=31), Finish()], "`src` must stay within the 32 .* inp, but got src=93"),
    ([Gemm(pop_prev=1), Finish()], r"instruction 0: the compute module waits .* `pop_prev` \(load to compute\)"),
    ([Store(memory=isa.OUT, pop_prev=1), Finish()], r"the store module waits .* `pop_prev` \(compute to store\)"),
    (
        [Store(memory=isa.OUT, x_size=1), Finish()],
        "instruction 1: FINISH must wait for the last STORE of the store module, but no token leads from instruction 0",
    ),
    (
        [Store(memory=isa.OUT, push_prev=1), Store(memory=isa.OUT, x_size=1), Finish(pop_next=1)],
        "instruction 2: FINISH must wait for the last STORE of the store module, but no token leads from instruction 1",
    ),
    (
        [Load(memory=isa.INP, x_size=1), Finish()],
        "instruction 1: FINISH must wait for the last LOAD of the load module, but no token leads from instruction 0",
    ),
    (
        [Load(memory=isa.INP, push_next=1), Load(memory=isa.INP, push_next=1), Finish(pop_prev=1)],
        r"instruction 1: every token of `push_next` \(load to compute\) must be taken, or the next stream takes it, "
        "but got 2 given and 1 taken",
    ),
    ([Gemm(push_prev=1), Finish()], r"instruction 0: every token of `push_prev` \(compute to load\) must be taken"),
    ([Finish(push_next=1)], r"instruction 0: every token of `push_next` \(compute to store\) must be taken"),
    (
        [Gemm(uop_end=32, iter_out=16383, iter_in=4096)] * 2 + [Gemm(reset=1, uop_end=32, iter_out=8193), Finish()],
        "instruction 2: a stream must execute at most 4294967296 micro-operations, but got 4294967328",
    ),
    (
        [Gemm(pop_prev=1, pop_next=1), Finish()],
        r"`pop_prev` \(load to compute\) and `pop_next` \(store to compute\) \(deadlock\)",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("stream", "message"), ILLEGAL)
def test_illegal_streams_are_refused(stream: list[Instruction], message: str) -> None:
    with pytest.raises(IllegalStream, match=message):
        check(isa.to_table(stream), SMALL, DRAM)


def test_an_unknown_opcode_is_refused() -> None:
    table = isa.decode_table(np.array([[5, 0], [3, 0]], np.uint64), PYNQ)
    with pytest.raises(IllegalStream, match="instruction 0: `opcode` must be one of 0 to 4, but got opcode=5"):
        check(table, PYNQ)


def test_values_that_no_field_holds_are_refused_before_anything_else() -> None:
    table = isa.to_table([Load(memory=isa.INP, x_size=1), Gemm(), Finish()])
    table[0, isa.COLUMN["dram_base"]], table[1, isa.COLUMN["imm"]] = -1, 3
    with pytest.raises(IllegalStream) as caught:
        check(table, PYNQ, DRAM)
    assert [str(problem) for problem in caught.value.problems] == [
        "instruction 0: `dram_base` of LOAD must be between 0 and 4294967295, but got dram_base=-1",
        "instruction 1: `imm` of GEMM must be between 0 and 0, but got imm=3",
    ]


def test_all_problems_are_named_in_order() -> None:
    stream = [Store(memory=isa.OUT, x_size=1, x_pad_0=1, pop_next=1), Alu(alu_op=7), Load(memory=isa.INP, pop_prev=1)]
    found = verify(isa.to_table(stream), PYNQ)
    assert [problem.index for problem in found] == [0, 0, 1, 2, -1]
    with pytest.raises(IllegalStream) as caught:
        check(isa.to_table(stream * 4), PYNQ)
    assert len(caught.value.problems) == 17
    assert str(caught.value).endswith("and 7 more")


@pytest.mark.parametrize(
    "instruction",
    [
        Load(memory=7, x_size=0, sram_base=65535, y_pad_0=15),  # nothing in a row: does nothing
        Store(memory=isa.ACC, x_size=0, x_pad_0=3),
        Gemm(uop_begin=5, uop_end=5, iter_out=3, dst_out=2047),  # no micro-operations
        Gemm(uop_end=9000, iter_in=0),  # no turns
        Load(memory=isa.INP, y_size=0, x_size=1, dram_base=1 << 31),  # no rows: reads nothing
        Gemm(reset=1, uop_end=1, iter_in=2, src_in=2047),  # reads nothing
    ],
)
def test_what_does_nothing_may_say_anything(instruction: Instruction) -> None:
    check(isa.to_table([instruction, Finish()]), PYNQ, DRAM)


def test_random_streams_are_legal_and_their_order_is_complete() -> None:
    for seed in range(20):
        draw = np.random.default_rng(seed)
        stream, dram = random_stream(draw, SMALL, 20)
        chained = isa.to_table(with_tokens(draw, stream))
        assert verify(isa.to_table(stream), SMALL, dram) == []
        assert verify(chained, SMALL, dram) == []
        assert execution_order(chained).tolist() == list(range(len(chained)))


def test_a_deadlock_is_one_whatever_the_order_of_who_waits() -> None:
    stream = [Store(memory=isa.OUT, pop_prev=1), Gemm(pop_prev=1), Load(memory=isa.INP, pop_next=1), Finish()]
    with pytest.raises(Deadlock) as caught:
        check(isa.to_table(stream), PYNQ)
    assert [problem.index for problem in caught.value.problems] == [0, 1, 2]


def test_the_longest_loops_are_refused_before_they_run() -> None:
    endless = Gemm(uop_end=8192, iter_out=16383, iter_in=16383)
    table = isa.to_table([Load(memory=isa.UOP, x_size=8192), endless, Finish()])
    message = "instruction 1: a stream must execute at most 4294967296 micro-operations, but got 2198754828288"
    for judge in (check, races, lambda table, hardware, dram: FunctionalSimulator(hardware).run(table, dram)):
        with pytest.raises(IllegalStream, match=message):
            judge(table, PYNQ, np.zeros(1 << 16, np.uint8))
    with pytest.raises(IllegalStream, match=message):
        simulate(table, PYNQ)
    wide = PYNQ.with_blocks(1, 128, 128)
    with pytest.raises(IllegalStream, match="at most 67108864 micro-operations, but got 67108865"):
        check(isa.to_table(_times(67_108_865)), wide)


def _times(count: int) -> list[Instruction]:
    """Returns a stream of `count` micro-operations."""
    return [Gemm(uop_end=1, iter_out=16383, iter_in=count // 16383), Gemm(uop_end=1, iter_in=count % 16383), Finish()]


def test_a_deadlock_alone_is_a_deadlock() -> None:
    with pytest.raises(Deadlock):
        check(isa.to_table([Gemm(pop_prev=1), Finish()]), PYNQ)
    with pytest.raises(IllegalStream) as caught:
        check(isa.to_table([Gemm(pop_prev=1), Alu(alu_op=6), Finish()]), PYNQ)
    assert not isinstance(caught.value, Deadlock)
