"""What this machine can do: caches and vectors from the system, peak speed and bandwidth measured once a process."""

from __future__ import annotations

import os
from pathlib import Path

from search_space.hardware import Hardware
from targets.cpu.probe import core_peak_flops


def host_cores() -> int:
    """Processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cache_bytes(level: int) -> int:
    """Size of the data cache of one core at `level`, or a usual size where the system does not say."""
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        if (folder / "level").read_text().strip() == str(level) and (
            folder / "type"
        ).read_text().strip() != "Instruction":
            text = (folder / "size").read_text().strip()
            return int(text[:-1]) * {"K": 1 << 10, "M": 1 << 20}[text[-1]]
    return {1: 32 << 10, 2: 1 << 20, 3: 32 << 20}[level]


def host_hardware(name: str, features: str, cpu: str) -> Hardware:
    """Limits of a processor with LLVM's `features`, on this host's memory."""
    present = {f[1:] for f in features.split(",") if f.startswith("+")}
    if "avx512f" in present or "avx512" in cpu or cpu == "x86-64-v4":
        vector, registers = 64, 32
    elif "avx" in present or cpu in ("x86-64-v3", "haswell", "skylake"):
        vector, registers = 32, 16
    elif "neon" in present or "asimd" in present:
        vector, registers = 16, 32
    else:
        vector, registers = 16, 16
    cores = host_cores()
    peak = core_peak_flops(vector // 4, cpu, features) * cores
    return Hardware(
        name,
        cores,
        vector,
        registers,
        cache_bytes(1),
        cache_bytes(2),
        cache_bytes(3),
        peak,
        2.0e10 * cores,
        tuple(sorted(present)),
    )
