"""The timing simulator: against a clock that ticks, by formulas, and by what must hold for any stream."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.vta_template.conv import Conv2d, Knobs, lower
from benchmarks.vta_template.resnet18 import LAYERS, operands, program
from targets.vta import isa
from targets.vta.hardware import PYNQ, VtaHardware
from targets.vta.isa import Alu, Finish, Gemm, Instruction, Load, Store
from targets.vta.problems import Deadlock, IllegalStream
from targets.vta.timing import Timing, costs, simulate
from tests.targets.vta.clock import Clock
from tests.targets.vta.random_streams import SMALL, append_finish, make_small, random_stream, with_tokens

QUICK = replace(SMALL, host_cycles=0)


def make_stream(seed: int, hardware: VtaHardware) -> list[Instruction]:
    """A random stream: without tokens, with them everywhere, or with some pushes and pops that match."""
    draw = np.random.default_rng(seed)
    stream, _ = random_stream(draw, hardware, 25)
    if seed % 3 == 0:
        return stream
    if seed % 3 == 1:
        return with_tokens(draw, stream)
    conv, knobs = Conv2d(4, 4, 32, 32, 3, 1, 1), Knobs(2, 4, 1, 1, *((2, 1), (1, 2), (1, 1))[seed // 3 % 3])
    return isa.from_table(lower(conv, knobs, PYNQ, *operands(conv, draw)).program.table)


def run(stream: list[Instruction], hardware: VtaHardware) -> Timing:
    """The timing of a list of instructions."""
    return simulate(isa.to_table(stream), hardware)


@pytest.mark.parametrize(
    "hardware",
    [
        QUICK,
        replace(QUICK, queue_depth=1, fetch_latency=0, fetch_interval=9),
        replace(QUICK, dma_row_latency=0, dma_latency=0, dma_bytes_per_cycle=1.3, wgt_bytes_per_cycle=100.0),
        replace(QUICK, noop_latency=0, gemm_latency=0, alu_latency=0, gemm_interval=3, alu_tensor_interval=5),
        replace(make_small(2, 8, 4), host_cycles=0),
    ],
)
def test_starts_and_ends_are_those_of_a_clock_that_ticks(hardware: VtaHardware) -> None:
    for seed in range(12):
        design = replace(PYNQ, **_times(hardware)) if seed % 3 == 2 else hardware
        stream = make_stream(seed, design)
        clock = Clock(stream, design)
        clock.run()
        found = run(stream, design)
        assert found.start.tolist() == clock.start, seed
        assert found.end.tolist() == clock.end, seed
        assert found.cycles == max(clock.end)


def _times(hardware: VtaHardware) -> dict[str, float]:
    logs = {name: value for name, value in hardware.to_json().items() if not name.startswith("log_")}
    return {name: value for name, value in logs.items() if name != "name"}


@pytest.mark.parametrize(
    ("instruction", "cycles"),
    [
        (Gemm(uop_end=3, iter_out=5, iter_in=7), 6 + 105),
        (Gemm(reset=1, uop_end=3, iter_out=5), 6 + 15),
        (Alu(alu_op=isa.ADD, uop_end=2, iter_in=10), 6 + 2 * 20),
        (Alu(alu_op=isa.ADD, uop_end=2, iter_in=10, use_imm=1), 6 + 20),
        (Load(memory=isa.INP), 2),
        (Load(memory=isa.INP, y_size=3, x_size=5, x_pad_0=4, y_pad_1=2), 22 + 3 * (38 + 10)),
        (Load(memory=isa.WGT, y_size=2, x_size=1), 22 + 2 * (38 + 70)),
        (Load(memory=isa.ACC, x_size=4), 22 + 38 + 32),
        (Load(memory=isa.ACC_8BIT, x_size=4), 22 + 38 + 8),
        (Load(memory=isa.UOP, x_size=5), 22 + 38 + 3),
        (Load(memory=isa.INP, y_size=0, x_size=5, y_pad_0=3), 22),
        (Store(memory=isa.OUT, y_size=2, x_size=8), 22 + 2 * (38 + 16)),
        (Finish(), 2),
    ],
)
def test_an_instruction_alone_takes_what_its_formula_says(instruction: Instruction, cycles: int) -> None:
    stream = [instruction] if isinstance(instruction, Finish) else append_finish([instruction])
    found = run(stream, PYNQ)
    assert found.end[0] - found.start[0] == cycles
    assert found.start[0] == PYNQ.fetch_latency
    assert costs(isa.to_table(stream), PYNQ).total[0] == cycles


def test_what_is_reported_adds_up() -> None:
    layer = LAYERS[5]
    table = program(layer, PYNQ).program.table
    found, each = simulate(table, PYNQ), costs(table, PYNQ)
    assert found.cycles == found.end.max() + PYNQ.host_cycles
    assert found.port_cycles == (each.rows * each.busy).sum()
    assert 0 < found.port_utilisation <= 1
    gemms = table[:, 0] == isa.GEMM
    assert found.gemm_cycles + found.reset_cycles == each.total[gemms].sum()
    assert found.alu_cycles == each.total[table[:, 0] == isa.ALU].sum()
    for number, name in enumerate(("load", "compute", "store")):
        mine = found.module == number
        assert found.busy[name] == (found.end - found.start)[mine].sum()
        assert (found.start[mine][1:] >= found.end[mine][:-1]).all()
        assert found.busy[name] >= each.total[mine].sum()


@pytest.mark.parametrize("seed", range(9))
def test_nothing_is_faster_than_its_bottleneck(seed: int) -> None:
    hardware = PYNQ if seed % 3 == 2 else QUICK
    stream = make_stream(seed, hardware)
    found, each = run(stream, hardware), costs(isa.to_table(stream), hardware)
    assert found.cycles >= found.port_cycles
    assert found.cycles >= len(stream) * hardware.fetch_interval
    for number in range(3):
        assert found.cycles >= each.total[found.module == number].sum()
    again = run(stream, hardware)
    assert np.array_equal(found.start, again.start) and np.array_equal(found.end, again.end)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("dma_latency", [0, 10, 100, 1000]),
        ("dma_row_latency", [0, 10, 100, 1000]),
        ("dma_bytes_per_cycle", [16.0, 4.0, 1.0, 0.1]),
        ("wgt_bytes_per_cycle", [16.0, 4.0, 1.0, 0.1]),
        ("gemm_interval", [1, 2, 4]),
        ("alu_tensor_interval", [1, 2, 9]),
        ("fetch_interval", [1, 2, 1000]),
        ("queue_depth", [512, 40]),
    ],
)
def test_a_slower_machine_is_not_faster(name: str, values: list[float]) -> None:
    """Large steps: with a shared port, tiny changes may swap two rows and gain a few cycles (Graham 1969)."""
    tables = [program(LAYERS[number], PYNQ).program.table for number in (2, 8)]
    tables += [isa.to_table(make_stream(1, PYNQ))]
    for table in tables:
        cycles = [simulate(table, replace(PYNQ, **{name: value})).cycles for value in values]
        assert cycles == sorted(cycles)


def test_two_threads_hide_latency() -> None:
    conv = Conv2d(28, 28, 128, 128, 3, 1, 1)
    data = operands(conv, np.random.default_rng(0))
    cycles = {
        threads: simulate(lower(conv, Knobs(7, 28, 1, 2, threads), PYNQ, *data).program.table, PYNQ).cycles
        for threads in (1, 2)
    }
    assert cycles[2] < 0.9 * cycles[1]


def test_tokens_beyond_the_limit_are_lost() -> None:
    gives = [Load(memory=isa.INP, push_next=1)] * 5
    takes = [Gemm(pop_prev=1)] * 5
    stream = [*gives, Load(memory=isa.UOP, x_size=8), *takes, Finish()]
    assert run(stream, replace(PYNQ, token_limit=5)).cycles > 0
    message = "instruction 3: at most `token_limit`=3 .* or some are lost, but up to 5 are .load to compute."
    with pytest.raises(IllegalStream, match=message):
        run(stream, replace(PYNQ, token_limit=3))


def test_tokens_that_might_be_lost_on_another_machine_are_refused_as_well() -> None:
    """Here the compute module is fast enough to take each before the next is there."""
    stream = [Load(memory=isa.INP, push_next=1), Gemm(pop_prev=1)] * 5
    with pytest.raises(IllegalStream, match="`token_limit`=3 .* but up to 5 are"):
        run([*stream, Finish()], replace(PYNQ, token_limit=3))
    replying = [Load(memory=isa.INP, push_next=1)]
    for _ in range(4):
        replying += [Gemm(pop_prev=1, push_prev=1), Load(memory=isa.INP, push_next=1, pop_next=1)]
    assert run([*replying, Gemm(pop_prev=1), Finish()], replace(PYNQ, token_limit=1)).cycles > 0


def test_a_full_queue_stops_what_comes_behind_it() -> None:
    stream = [Gemm(pop_prev=1), Gemm(), Gemm(), Load(memory=isa.INP, push_next=1), Finish()]
    assert run(stream, replace(PYNQ, queue_depth=3)).cycles > 0
    with pytest.raises(Deadlock, match="a queue of `queue_depth`=2 is full .* the compute module at instruction 0"):
        run(stream, replace(PYNQ, queue_depth=2))


def test_a_deadlock_says_who_waits_for_what() -> None:
    with pytest.raises(Deadlock, match=r"instruction 1: the store module waits for ever .* \(compute to store\)"):
        run([Gemm(), Store(memory=isa.OUT, pop_prev=1), Finish()], PYNQ)
