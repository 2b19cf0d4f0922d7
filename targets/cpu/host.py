"""What this machine can do: caches and vectors from the system, peak speed and bandwidth measured once a process."""

from __future__ import annotations

import os
from pathlib import Path

import llvmlite.binding as llvm

from search_space.hardware import Hardware
from targets.cpu.probe import core_peak_flops
from targets.cpu.processors import features_of, probed_features
from targets.cpu.runtime import blas_library


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


def cache_ways(level: int) -> int:
    """Lines of a set of the data cache of one core at `level`, or a usual number where the system does not say."""
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        if (folder / "level").read_text().strip() == str(level) and (
            folder / "type"
        ).read_text().strip() != "Instruction":
            return max(1, int((folder / "ways_of_associativity").read_text()))
    return {1: 8, 2: 16}[level]


def hardware_of(name: str, cpu: str, features: str, is_host: bool, architecture: str = "") -> Hardware:
    """Limits of a processor, on this host's cores and memory.

    Args:
        name: of the target.
        cpu, features: as LLVM has them; without `features` those are asked for that kernels are written for.
        is_host: whether code for it runs here, so that its peak can be measured; else the peak is this host's, by
            the width of the vectors.
        architecture: of the processor, a name of `processors.TRIPLES`; empty: this host's.

    Raises:
        ValueError: a processor that LLVM does not know.
    """
    if features:
        present = {f[1:] for f in features.split(",") if f.startswith("+")}
    else:
        present = set(probed_features(cpu) if is_host else features_of(cpu, architecture))
    if is_host and blas_library() is not None:
        present.add("cblas")
    vector, registers = _vectors(present)
    cores = host_cores()
    if is_host:
        peak = core_peak_flops(vector // 4, cpu, features)
    else:
        host_cpu, host_features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
        host_vector, _ = _vectors({f[1:] for f in host_features.split(",") if f.startswith("+")})
        peak = core_peak_flops(host_vector // 4, host_cpu, host_features) * vector / host_vector
    return Hardware(
        name,
        cores,
        vector,
        registers,
        cache_bytes(1),
        cache_bytes(2),
        cache_bytes(3),
        peak * cores,
        2.0e10 * cores,
        tuple(sorted(present)),
        ways=(cache_ways(1), cache_ways(2)),
    )


def _vectors(features: set[str]) -> tuple[int, int]:
    """Bytes of a vector register, and how many there are."""
    if "avx512f" in features:
        return 64, 32
    if "avx" in features:
        return 32, 16
    return (16, 32) if features & {"neon", "asimd"} else (16, 16)
