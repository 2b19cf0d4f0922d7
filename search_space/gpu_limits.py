"""Limits of a GPU on blocks of threads, and its rates."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GpuLimits:
    """Limits and rates of a GPU; the defaults are those of compute capability 9.0.

    Attributes:
        arch: architecture that code is compiled for, such as `sm_90`.
        sms: multiprocessors.
        warp: threads that run together.
        threads_block, threads_sm: threads of a block, and of all blocks on one multiprocessor.
        blocks_sm: blocks on one multiprocessor.
        shared_block, shared_sm: bytes of shared memory of a block, and of a multiprocessor.
        registers_thread, registers_sm: 32-bit registers.
        banks: number of banks of shared memory, 4 bytes wide.
        sector: bytes of global memory that are fetched together.
        shared_bandwidth: bytes a second from the shared memories, all together.
        l2_bandwidth: bytes a second from the second-level cache.
        tensor_flops: operations a second of the tensor cores, by the dtype of the factors.
        launch_seconds: time from one kernel to the next.
    """

    arch: str = "sm_90"
    sms: int = 132
    warp: int = 32
    threads_block: int = 1024
    threads_sm: int = 2048
    blocks_sm: int = 32
    shared_block: int = 227 * 1024
    shared_sm: int = 228 * 1024
    registers_thread: int = 255
    registers_sm: int = 65536
    banks: int = 32
    sector: int = 32
    shared_bandwidth: float = 33e12
    l2_bandwidth: float = 5.5e12
    tensor_flops: tuple[tuple[str, float], ...] = (
        ("float16", 989e12),
        ("bfloat16", 989e12),
        ("tfloat32", 495e12),
        ("int8", 1979e12),
    )
    launch_seconds: float = 2e-6
