"""The configuration of a VTA: what follows from it, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from targets.vta.hardware import PYNQ, ConfigurationError, VtaHardware


def test_the_default_has_the_published_depths_and_sizes() -> None:
    depths = PYNQ.uop_depth, PYNQ.inp_depth, PYNQ.wgt_depth, PYNQ.acc_depth
    assert depths == (8192, 2048, 1024, 2048)
    sizes = PYNQ.uop_bytes, PYNQ.inp_bytes, PYNQ.wgt_bytes, PYNQ.acc_bytes, PYNQ.out_bytes
    assert sizes == (4, 16, 256, 64, 16)
    assert PYNQ.peak_macs_per_second * 2 == 51.2e9
    assert PYNQ.seconds(100) == 1e-6


@pytest.mark.parametrize("blocks", [(1, 16, 16), (2, 16, 16), (1, 8, 8), (4, 8, 8), (1, 8, 16), (1, 1, 1), (1, 32, 32)])
def test_other_blocks_fit_the_fields(blocks: tuple[int, int, int]) -> None:
    hardware = PYNQ.with_blocks(*blocks)
    assert (hardware.batch, hardware.block_in, hardware.block_out) == blocks
    assert VtaHardware.from_json(hardware.to_json()) == hardware
    assert hardware.key() != PYNQ.key()
    for memory in ("inp", "wgt", "acc"):
        assert getattr(hardware, f"{memory}_depth") >= 64


def test_four_by_eight_needs_no_smaller_buffers() -> None:
    hardware = PYNQ.with_blocks(4, 8, 8)
    assert (hardware.log_inp_buffer, hardware.log_wgt_buffer, hardware.log_acc_buffer) == (15, 18, 17)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"log_block_in": 3, "log_block_out": 3}, "must fit 32 bits, but the buffers need 36: depths are uop=8192"),
        ({"log_acc_buffer": 18}, "must fit .* bits, but the buffers need"),
        ({"log_uop_buffer": 16}, "the head of GEMM and ALU must fit 64 bits, but the buffers need 65"),
        ({"log_inp_width": 4}, "`log_inp_width` must be 3, but got log_inp_width=4"),
        ({"log_batch": -1}, "`log_batch` must be between 0 and 7, but got log_batch=-1"),
        ({"log_wgt_buffer": 7}, "`log_wgt_buffer` must hold at least one element of 256 bytes"),
        ({"log_uop_buffer": 31}, "at most 1 GiB, but got log_uop_buffer=31"),
        ({"clock_hz": 0.0}, "`clock_hz` must be positive, but got clock_hz=0.0"),
        ({"dma_bytes_per_cycle": float("nan")}, "`dma_bytes_per_cycle` must be positive"),
        ({"dma_latency": -1}, "`dma_latency` must be not negative, but got dma_latency=-1"),
        ({"clock_hz": 10**400}, r"`clock_hz` must be at most 1e\+12, but got clock_hz=a number without end"),
        ({"gemm_interval": 10**20}, r"`gemm_interval` must be at most 1.67772e\+07, but got gemm_interval=1e\+20"),
        ({"wgt_bytes_per_cycle": 1e-9}, "`wgt_bytes_per_cycle` must be at least 0.0009765625, but got .*=1e-09"),
        ({"log_acc_buffer": 10**15}, "at most 1 GiB, but got log_acc_buffer=1000000000000000"),
        ({"queue_depth": 1.5}, "`queue_depth` must be int, but got queue_depth=1.5"),
        ({"log_blok": 3}, "`hardware` must have keys among .*, but got 'log_blok'"),
    ],
)
def test_impossible_configurations_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        VtaHardware.from_json(PYNQ.to_json() | changes)


def test_blocks_must_be_powers_of_two() -> None:
    with pytest.raises(ConfigurationError, match="`block_in` must be a power of two, but got block_in=12"):
        PYNQ.with_blocks(1, 12, 16)
