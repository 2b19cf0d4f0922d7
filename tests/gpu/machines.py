"""The GPU that tests make sketches for: an H200 as its documents have it."""

from __future__ import annotations

from search_space.hardware import GpuLimits, Hardware

H200 = Hardware(
    "h200",
    cores=132,
    vector_bytes=16,
    vector_registers=255,
    l1_bytes=256 * 1024,
    l2_bytes=60 * 1024 * 1024,
    l3_bytes=60 * 1024 * 1024,
    peak_flops=66.9e12,
    bandwidth=4.8e12,
    clock_hz=1.98e9,
    features=("mma",),
    gpu=GpuLimits(),
)
