"""The convolution lowered by hand: right, free of races, refused where it cannot fit, as fast as the hardware was."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import vta_calibration
from benchmarks.vta_template.conv import Conv2d, KnobError, Knobs, check_knobs, lower, reference
from benchmarks.vta_template.resnet18 import LAYERS, operands, program
from targets.vta import isa
from targets.vta.assembly import print_stream
from targets.vta.builder import BuilderError, StreamBuilder
from targets.vta.functional import FunctionalSimulator
from targets.vta.hardware import PYNQ, VtaHardware
from targets.vta.isa import COLUMN
from targets.vta.timing import simulate
from tests.golden.compare import Golden
from tests.targets.vta.assembly import parse_stream
from tests.targets.vta.checker import verify
from tests.targets.vta.races import races
from tests.targets.vta.subset import outside_common_subset

SMALL = Conv2d(8, 8, 32, 64, 3, 1, 1)
TILED_KNOBS = Knobs(4, 8, 1, 2, 2, 1)


def check(conv: Conv2d, knobs: Knobs, hardware: VtaHardware, seed: int = 0) -> None:
    """Lowers, holds the stream against every rule, runs it and compares."""
    data = operands(conv, np.random.default_rng(seed))
    lowered = lower(conv, knobs, hardware, *data)
    table, dram = lowered.program.table, lowered.program.dram
    assert verify(table, hardware, dram) == []
    assert races(table, hardware, dram) == []
    if knobs.tile_h > 2:
        assert outside_common_subset(table, hardware, dram) == []
    words = isa.encode_table(table, hardware)
    assert np.array_equal(isa.decode_table(words, hardware), table)
    counts = FunctionalSimulator(hardware).run(table, dram)
    expected = reference(conv, *data)
    assert np.array_equal(lowered.output(dram), expected)
    assert (expected > 0).mean() > 0.05 and expected.max() > 20
    macs = expected.size * conv.in_channels * conv.kernel**2
    assert counts.gemm == macs // (hardware.batch * hardware.block_in * hardware.block_out)
    assert counts.out_bytes == expected.size
    assert counts.alu == 4 * counts.reset == 4 * expected.size // hardware.out_bytes


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name)
def test_layers_of_resnet_are_computed_exactly(layer) -> None:
    check(layer.conv, layer.knobs, PYNQ)
    table = program(layer, PYNQ).program.table
    instructions = ((table[:, 0] == isa.GEMM) & (table[:, COLUMN["reset"]] == 0)).sum()
    published = {(3, 1): 451_584, (3, 2): 225_792, (1, 2): 25_088}[layer.conv.kernel, layer.conv.stride]
    assert simulate(table, PYNQ).gemm_cycles == published + PYNQ.gemm_latency * instructions


@pytest.mark.parametrize(
    ("conv", "knobs"),
    [
        (SMALL, Knobs(4, 8, 1, 2)),
        (SMALL, Knobs(2, 4, 2, 1, 1, 2)),  # columns are split: one store for each block of channels
        (SMALL, Knobs(8, 2, 2, 4)),
        (Conv2d(7, 9, 16, 32, 3, 2, 1), Knobs(2, 5, 1, 1, 2)),
        (Conv2d(9, 9, 32, 32, 5, 2, 2, batch=3), Knobs(5, 5, 2, 1)),
        (Conv2d(6, 6, 64, 16, 1, 1, 0, batch=2), Knobs(3, 2, 4, 1, 1, 2)),
        (Conv2d(4, 4, 16, 16, 1, 1, 0), Knobs(1, 1, 1, 1)),
    ],
)
def test_other_shapes_and_tiles(conv: Conv2d, knobs: Knobs) -> None:
    check(conv, knobs, PYNQ)


@pytest.mark.parametrize("blocks", [(1, 8, 8), (4, 8, 8), (2, 16, 16), (1, 8, 16), (2, 32, 4)])
def test_other_blocks(blocks: tuple[int, int, int]) -> None:
    hardware = PYNQ.with_blocks(*blocks)
    check(Conv2d(6, 6, 64, 64, 3, 1, 1, batch=4), Knobs(2, 6, 2, 2, 2), hardware)


def test_micro_kernels_that_do_not_all_fit_are_fetched_again() -> None:
    tight = replace(PYNQ, log_uop_buffer=5)
    conv, knobs = Conv2d(4, 4, 32, 32, 3, 1, 1), Knobs(2, 4, 1, 1, 1, 2)
    check(conv, knobs, tight)
    data = operands(conv, np.random.default_rng(0))

    def fetches(hardware: VtaHardware) -> int:
        table = lower(conv, knobs, hardware, *data).program.table
        moved = (table[:, 0] == isa.LOAD) & (table[:, COLUMN["memory"]] == isa.UOP) & (table[:, COLUMN["x_size"]] > 0)
        return int(moved.sum())

    assert fetches(tight) > fetches(PYNQ)
    with pytest.raises(BuilderError, match="a micro-kernel must have at most 8 micro-operations, but got 40"):
        StreamBuilder(tight).gemm(np.zeros((40, 3), np.int64))


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        (Knobs(3, 8, 1, 1), "tiles must divide `out_height`, but got out_height=8 and tiles of 3"),
        (Knobs(8, 8, 1, 1, 1, 2), "tiles must divide `out_height`, but got out_height=8 and tiles of 16"),
        (Knobs(8, 8, 3, 1), "tiles must divide `in_channels`, but got in_channels=32 and tiles of 48"),
        (Knobs(8, 8, 1, 4, 2), "tiles must divide `out_channels`, but got out_channels=64 and tiles of 128"),
        (Knobs(8, 0, 1, 1), "tiles must divide `out_width`, but got out_width=8 and tiles of 0"),
        (Knobs(4, 8, 1, 1, 2, 2), "at most one of the numbers of threads must be 2"),
    ],
)
def test_knobs_must_divide(knobs: Knobs, message: str) -> None:
    with pytest.raises(KnobError, match=message):
        check_knobs(SMALL, knobs, PYNQ)


@pytest.mark.parametrize(
    ("conv", "knobs", "message"),
    [
        (Conv2d(56, 56, 64, 64, 3, 1, 1), Knobs(28, 56, 1, 1, 2), "must fit the 2048 elements of inp, but need 3480"),
        (Conv2d(7, 7, 512, 512, 3, 1, 1), Knobs(7, 7, 4, 32), "must fit the 1024 elements of wgt, but need 1152"),
        (Conv2d(14, 14, 256, 256, 1, 1, 0), Knobs(14, 14, 1, 16), "must fit the 2048 elements of acc, but need 3152"),
    ],
)
def test_tiles_must_fit_the_buffers(conv: Conv2d, knobs: Knobs, message: str) -> None:
    with pytest.raises(KnobError, match=message):
        check_knobs(conv, knobs, PYNQ)


def test_the_stream_is_the_golden_one(golden: Golden) -> None:
    data = operands(SMALL, np.random.default_rng(0))
    stream = isa.from_table(lower(SMALL, TILED_KNOBS, PYNQ, *data).program.table)
    text = print_stream(stream)
    assert parse_stream(text) == stream
    golden.check("vta_conv2d.txt", text)


def test_calibration_holds_the_measured_layers() -> None:
    errors = np.array(
        [simulate(program(layer, PYNQ).program.table, PYNQ).cycles / layer.cycles - 1 for layer in LAYERS]
    )
    assert np.abs(errors).max() < 0.05
    assert np.abs(errors).mean() < 0.01


def test_the_fit_finds_the_constants_that_made_its_data() -> None:
    i, j = 10, 5
    draw = np.random.default_rng(0)
    shape = (len(vta_calibration.RATES), len(vta_calibration.ROWS), len(LAYERS))
    cycles = vta_calibration.MEASURED_CYCLES * draw.uniform(0.7, 1.3, shape)
    cycles[i, j] = vta_calibration.MEASURED_CYCLES - 7_000
    found = vta_calibration.fit(cycles, [0, 2, 5, 7])
    assert (found.wgt_bytes_per_cycle, found.dma_row_latency) == (vta_calibration.RATES[i], vta_calibration.ROWS[j])
    assert found.host_cycles == 7_000
    assert np.abs(found.errors).max() < 1e-9
