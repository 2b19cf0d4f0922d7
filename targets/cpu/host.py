"""Abilities of processors: this host's from the system and a probe, others' from their descriptions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from search_space.hardware import CpuRates, Hardware
from targets.blas import blas_library
from targets.cpu.caches import host_caches
from targets.cpu.descriptions import BANDWIDTH, CLOCK_HZ, get_description
from targets.cpu.figures import load_or_probe
from targets.cpu.probe import ProbeFigures
from targets.cpu.processors import probed_features, read_features
from targets.threads import allowed_cores, host_cores


@dataclass(frozen=True)
class Limits:
    """Limits of code for a processor: all that is needed to build and run it, known without a measurement.

    Attributes:
        cpu: LLVM's name.
        is_host: whether code for it runs here.
        features: instruction sets by LLVM's names.
        vector_bytes: bytes of a vector register.
        vector_registers: number of vector registers.
        cores: number of cores that this process may use.
    """

    cpu: str
    is_host: bool
    features: tuple[str, ...]
    vector_bytes: int
    vector_registers: int
    cores: int

    @cached_property
    def caches(self) -> tuple[int, int, int]:
        """Bytes of the caches by level. Names of kernels depend on them, so they are read from the system once."""
        return host_caches().sizes if self.is_host else get_description(self.cpu).sizes


def make_limits(cpu: str, features: str, is_host: bool, architecture: str = "") -> Limits:
    """Returns the limits of code for a processor.

    Args:
        cpu, features: LLVM's names; without `features`, the features that kernels use are queried.
        is_host: whether code for it runs here.
        architecture: architecture of the processor, a name of `processors.TRIPLES`; empty: this host's.

    Raises:
        ValueError: a processor that LLVM does not know.
    """
    if features:
        present = {f[1:] for f in features.split(",") if f.startswith("+")}
    else:
        present = set(probed_features(cpu) if is_host else read_features(cpu, architecture))
    if is_host and blas_library() is not None:
        present.add("cblas")
    return Limits(cpu, is_host, tuple(sorted(present)), *_vectors(present), host_cores())


def make_hardware(name: str, limits: Limits) -> Hardware:
    """Describes a processor for sketches and the estimate, on as many cores as this process may use.

    This host is probed the first time; see `figures.py`.
    """
    if limits.is_host:
        caches = host_caches()
        found = probe_host(limits)
        sizes, ways, rates = caches.sizes, caches.ways[:2], cycle_rates(found)
        clock, peak, bandwidth = found.clock_hz, found.peak_flops, found.each[2] * limits.cores
    else:
        described = get_description(limits.cpu)
        sizes, ways, rates = described.sizes, described.ways, described.rates
        clock, bandwidth = CLOCK_HZ, BANDWIDTH * limits.cores
        peak = clock * rates.fma * 2 * (limits.vector_bytes // 4) * limits.cores
    return Hardware(
        name,
        limits.cores,
        limits.vector_bytes,
        limits.vector_registers,
        *sizes,
        peak,
        bandwidth,
        limits.features,
        clock_hz=clock,
        ways=ways,
        rates=rates,
    )


def probe_host(limits: Limits) -> ProbeFigures:
    """Returns the figures of this host, and measures them if they are not known yet."""
    return load_or_probe(limits.vector_bytes // 4, limits.vector_registers, allowed_cores())


def cycle_rates(figures: ProbeFigures) -> CpuRates:
    """Converts figures by the second to figures by the cycle."""

    def a_cycle(rates: tuple[float, float, float]) -> tuple[float, float, float]:
        second, third, memory = (float(f"{rate / figures.clock_hz:.1e}") for rate in rates)
        return second, third, memory

    return CpuRates(
        figures.fma,
        figures.fma_latency,
        figures.loads,
        figures.stores,
        figures.issue,
        a_cycle(figures.one),
        a_cycle(figures.each),
        figures.start_seconds,
        figures.wake_seconds,
        figures.elements,
        figures.dots,
        figures.dot_latency,
        figures.byte_dots,
        figures.byte_dot_latency,
    )


def _vectors(features: set[str]) -> tuple[int, int]:
    """Returns the bytes of a vector register, and the number of registers."""
    if "avx512f" in features:
        return 64, 32
    if "avx" in features:
        return 32, 16
    return (16, 32) if features & {"neon", "asimd"} else (16, 16)
