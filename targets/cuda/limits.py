"""Limits of NVIDIA GPUs that decide whether a kernel can be built at all, by architecture."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DeviceLimits:
    """What one block may take.

    Attributes:
        arch: as NVRTC names it, such as sm_90.
        threads_block: threads of a block.
        shared_block_bytes: shared memory that a block may ask for.
        registers_thread: 32-bit registers of a thread.
    """

    arch: str
    threads_block: int = 1024
    shared_block_bytes: int = 227 * 1024
    registers_thread: int = 255


SHARED_KIB = {
    "sm_75": 64,
    "sm_80": 163,
    "sm_86": 99,
    "sm_87": 163,
    "sm_89": 99,
    "sm_90": 227,
    "sm_90a": 227,
    "sm_100": 227,
    "sm_103": 227,
    "sm_110": 227,
    "sm_120": 99,
    "sm_121": 99,
}
"""Opt-in limit of shared memory for a block, KiB; CUDA C++ Programming Guide, table of compute capabilities."""


def limits_of(arch: str) -> DeviceLimits:
    """Raises ValueError for an architecture that is not known here."""
    if arch not in SHARED_KIB:
        raise ValueError(f"`target` cuda must be followed by one of {', '.join(SHARED_KIB)}, but got cuda:{arch}")
    return DeviceLimits(arch, shared_block_bytes=SHARED_KIB[arch] * 1024)
