"""The functional simulator computes what the specification says, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from targets.vta import isa
from targets.vta.functional import FunctionalSimulator
from targets.vta.hardware import PYNQ, VtaHardware
from targets.vta.isa import Alu, Finish, Gemm, Load, Store
from targets.vta.problems import Deadlock, IllegalStream
from targets.vta.semantics import OPERATIONS
from tests.targets.vta.accesses import decode_uops
from tests.targets.vta.random_streams import SMALL, make_small, random_stream, with_tokens
from tests.targets.vta.reference import Interpreter, operate

DESIGNS = [
    SMALL,
    make_small(2, 16, 16),
    make_small(1, 8, 8),
    make_small(4, 8, 8),
    make_small(1, 1, 1),
    make_small(2, 2, 4),
    make_small(1, 8, 16),
    make_small(1, 32, 32),
]


@pytest.mark.parametrize("hardware", DESIGNS, ids=lambda h: h.name)
def test_random_streams_give_what_the_interpreter_gives(hardware: VtaHardware) -> None:
    simulator = FunctionalSimulator(hardware)
    interpreter = Interpreter(hardware)
    totals = dict.fromkeys(interpreter.counts, 0)
    for seed in range(20):
        draw = np.random.default_rng([seed, hardware.log_batch])
        stream, dram = random_stream(draw, hardware, 25)
        if seed % 2:
            stream = with_tokens(draw, stream)
        expected, found = dram.copy(), dram.copy()
        interpreter.run(stream, expected)
        counts = simulator.run(isa.decode_table(isa.encode(stream, hardware), hardware), found)
        assert np.array_equal(found, expected), seed
        for name in ("inp", "wgt", "acc"):
            assert np.array_equal(getattr(simulator, name), getattr(interpreter, name)), (seed, name)
        assert np.array_equal(decode_uops(simulator.uop, hardware), interpreter.uop)
        for name in totals:
            totals[name] += getattr(counts, name if name in ("gemm", "alu") else f"{name}_bytes")
    assert totals == interpreter.counts
    assert min(totals.values()) > 0


@pytest.mark.parametrize("number", range(5))
def test_operations_of_the_alu_are_one_definition_for_numpy_and_scalars(number: int) -> None:
    edges = [0, 1, -1, 2, 31, 32, 33, -31, -32, -33, 2**31 - 1, -(2**31), 12345, -54321]
    x, y = (a.reshape(-1).astype(np.int32) for a in np.meshgrid(edges, edges))
    with np.errstate(over="ignore"):
        found = OPERATIONS[number].compute(x, y)
    assert found.dtype == np.int32
    assert found.tolist() == [operate(number, a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)]


def test_sums_wrap_around() -> None:
    h = SMALL
    dram = np.zeros(1 << 12, np.uint8)
    dram[64:128].view(np.int32)[:] = 2**31 - 1
    stream = [
        Load(memory=isa.UOP, x_size=1),
        Load(memory=isa.ACC, dram_base=1, x_size=1),
        Alu(alu_op=isa.ADD, use_imm=1, imm=1, uop_end=1),
        Finish(),
    ]
    simulator = FunctionalSimulator(h)
    simulator.run(isa.to_table(stream), dram)
    assert (simulator.acc[0] == -(2**31)).all()


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        ([Gemm(uop_end=1, dst_in=31, iter_in=3), Finish()], "instruction 1: `dst` must stay within the 32 .* dst=62"),
        ([Gemm(reset=1, uop_end=1, dst_in=31, iter_in=3), Finish()], "instruction 1: `dst` must stay .* dst=62"),
        ([Gemm(uop_end=1, src_out=31, iter_out=3), Finish()], "`src` must stay within the 32 .* inp, .* src=62"),
        ([Gemm(uop_end=1, wgt_out=15, iter_out=3), Finish()], "`wgt` must stay within the 16 .* wgt, .* wgt=30"),
        (
            [Alu(alu_op=isa.ADD, use_imm=1, uop_end=1, src_out=31, iter_out=3), Finish()],
            "`src` must stay within the 32 elements of acc, but got src=62",
        ),
        ([Store(memory=isa.OUT, x_size=33), Finish()], "must end within the 32 elements of acc, but got end=33"),
        ([Load(memory=isa.ACC_8BIT, x_size=1, dram_base=256), Finish()], "within the 4096 bytes of DRAM, .* end=4112"),
    ],
)  # fmt: skip
def test_accesses_outside_of_buffers_and_memory_are_refused(stream: list[isa.Instruction], message: str) -> None:
    simulator = FunctionalSimulator(SMALL)
    table = isa.to_table([Load(memory=isa.UOP, x_size=1), *stream])
    with pytest.raises(IllegalStream, match=message):
        simulator.run(table, np.zeros(4096, np.uint8))


def test_a_reset_reads_nothing() -> None:
    stream = [Gemm(reset=1, uop_end=1, src_out=31, iter_out=3, wgt_out=15), Finish()]
    FunctionalSimulator(SMALL).run(isa.to_table(stream), np.zeros(64, np.uint8))


def test_a_deadlock_names_module_token_and_instruction() -> None:
    stream = [Load(memory=isa.INP, pop_next=1, push_next=1), Gemm(pop_prev=1, push_prev=1), Finish()]
    message = (
        r"instruction 0: the load module waits for ever for the token of `pop_next` \(compute to load\) \(deadlock\); "
        r"instruction 1: the compute module waits for ever for the token of `pop_prev` \(load to compute\)"
    )
    with pytest.raises(Deadlock, match=message):
        FunctionalSimulator(PYNQ).run(isa.to_table(stream), np.zeros(64, np.uint8))


def test_memory_must_be_plain_bytes() -> None:
    with pytest.raises(ValueError, match="`dram` must be a contiguous array of bytes, but got int8"):
        FunctionalSimulator(PYNQ).run(isa.to_table([Finish()]), np.zeros(4, np.int8))  # type: ignore[arg-type]
