"""Limits of NVIDIA GPUs by architecture, for sketch rules, the roofline and the check of launches."""

from __future__ import annotations

from dataclasses import replace

from search_space.hardware import GpuLimits, Hardware
from search_space.warp_intrinsics import MMA
from search_space.warpgroup_intrinsics import WGMMA

KIB, MIB = 1024, 1024 * 1024
DEFAULT_ARCH = "sm_90"
_AMPERE_TENSOR = (("float16", 312e12), ("bfloat16", 312e12), ("tfloat32", 156e12), ("int8", 624e12))


def _gpu(
    arch: str, model: str, sms: int, clock: float, flops: float, bandwidth: float, l2: int, limits: GpuLimits
) -> Hardware:
    return Hardware(
        name=f"{model} ({arch})",
        cores=sms,
        vector_bytes=16,
        vector_registers=limits.registers_thread,
        l1_bytes=limits.shared_sm,
        l2_bytes=l2,
        l3_bytes=l2,
        peak_flops=flops,
        bandwidth=bandwidth,
        features=(MMA,),
        clock_hz=clock,
        gpu=limits,
    )


def _h200(arch: str) -> Hardware:
    plain = _gpu(arch, "h200", 132, 1.98e9, 66.9e12, 4.8e12, 60 * MIB, GpuLimits(arch=arch))
    return replace(plain, features=(MMA, WGMMA)) if arch.endswith("a") else plain


_A100 = GpuLimits(
    arch="sm_80",
    sms=108,
    shared_block=163 * KIB,
    shared_sm=164 * KIB,
    shared_bandwidth=19.5e12,
    l2_bandwidth=4e12,
    tensor_flops=_AMPERE_TENSOR,
)
_L40S = GpuLimits(
    arch="sm_89",
    sms=142,
    threads_sm=1536,
    blocks_sm=24,
    shared_block=99 * KIB,
    shared_sm=100 * KIB,
    shared_bandwidth=45e12,
    l2_bandwidth=5e12,
    tensor_flops=(("float16", 362e12), ("bfloat16", 362e12), ("tfloat32", 183e12), ("int8", 733e12)),
)
GPUS: dict[str, Hardware] = {
    "sm_80": _gpu("sm_80", "a100", 108, 1.41e9, 19.5e12, 2.04e12, 40 * MIB, _A100),
    "sm_89": _gpu("sm_89", "l40s", 142, 2.52e9, 91.6e12, 0.864e12, 96 * MIB, _L40S),
    "sm_90": _h200("sm_90"),
    "sm_90a": _h200("sm_90a"),
}
"""Representative GPU of each architecture; figures of NVIDIA's data sheets."""


def own_arch(arch: str) -> str:
    """Returns the architecture whose code uses all instructions of a device of `arch`, also those that no later one
    has.
    """
    return f"{arch}a" if f"{arch}a" in GPUS else arch
