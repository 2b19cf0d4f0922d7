"""Processors that kernels are built for elsewhere, as their makers and public measurements describe them.

A target with a processor's name takes its figures from here, on any build machine, so that the same schedules are
chosen everywhere. The host's own are probed (`figures.py`). Sources: Intel's and AMD's optimisation manuals and Arm's
software optimisation guides; uops.info for latencies. These are assumptions, except for the rates that
`Description.probe_rates` names.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType

from search_space.hardware import CpuRates

CLOCK_HZ = 3.0e9
"""Clock of a server with all cores at work. Only expected seconds depend on it, not the choice of schedules."""

BANDWIDTH = 2.0e10
"""Bytes a second from memory, for each core."""


@dataclass(frozen=True)
class Description:
    """Figures of a processor besides its instructions.

    Attributes:
        sizes: bytes of the caches: a core's own two, and its share of the third.
        ways: lines of a set of the first two.
        rates: instructions on the widest vectors that kernels are written with.
        probe_rates: names of the rates that the probe measured on such a processor; all others are assumed.
    """

    sizes: tuple[int, int, int]
    ways: tuple[int, int]
    rates: CpuRates
    probe_rates: tuple[str, ...] = ()


PRODUCTS = ("fma", "fma_latency", "dots", "dot_latency")
"""Rates of products of floats."""


def _describe(
    kib: tuple[int, int, int],
    ways: tuple[int, int],
    fma: float = 2.0,
    latency: float = 4.0,
    loads: float = 2.0,
    stores: float = 1.0,
    issue: float = 6.0,
    dots: float = 0.0,
    dot_latency: float = 6.0,
    byte_latency: float = 0.0,
    probe_rates: tuple[str, ...] = (),
) -> Description:
    sizes = kib[0] << 10, kib[1] << 10, kib[2] << 10
    elements = max(2.0, loads)  # units that halve vectors load whole elements in each half
    rates = CpuRates(
        fma,
        latency,
        loads,
        stores,
        issue,
        elements=elements,
        dots=dots,
        dot_latency=dot_latency if dots else 0.0,
        byte_dots=fma if byte_latency else 0.0,  # products of bytes have the units of multiply-adds
        byte_dot_latency=byte_latency,
    )
    return Description(sizes, ways, rates, probe_rates)


_USUAL = _describe((32, 1024, 32 << 10), (8, 16))
_HASWELL = _describe((32, 256, 20 << 10), (8, 8), latency=5.0, issue=4.0)
_SKYLAKE = _describe((32, 256, 8 << 10), (8, 4), issue=4.0)
_SKYLAKE_SERVER = _describe((32, 1024, 22 << 10), (8, 16), issue=4.0)
_CASCADELAKE = _describe((32, 1024, 22 << 10), (8, 16), issue=4.0, byte_latency=5.0)
_ICELAKE_SERVER = _describe((48, 1280, 36 << 10), (12, 20), issue=5.0, byte_latency=5.0)
# A dot of 512 bits starts in every second cycle: half as many products as multiply-adds of float32.
_EMERALD_RAPIDS = _describe(
    (48, 2048, 60 << 10), (12, 16), dots=0.5, dot_latency=8.0, byte_latency=6.0, probe_rates=PRODUCTS
)
_SAPPHIRE_RAPIDS = replace(_EMERALD_RAPIDS, probe_rates=())
_ALDER_LAKE = _describe((48, 1280, 24 << 10), (12, 10), loads=3.0, stores=2.0)
_ZEN2 = _describe((32, 512, 16 << 10), (8, 8), latency=5.0)

DESCRIPTIONS = MappingProxyType(
    {
        "haswell": _HASWELL,
        "broadwell": _HASWELL,
        "skylake": _SKYLAKE,
        "skylake-avx512": _SKYLAKE_SERVER,
        "cascadelake": _CASCADELAKE,
        "cooperlake": _describe((32, 1024, 22 << 10), (8, 16), issue=4.0, dots=1.0, byte_latency=5.0),
        "icelake-client": _describe((48, 512, 8 << 10), (12, 8), fma=1.0, issue=5.0, byte_latency=5.0),
        "tigerlake": _describe((48, 1280, 12 << 10), (12, 20), fma=1.0, issue=5.0, byte_latency=5.0),
        "icelake-server": _ICELAKE_SERVER,
        "alderlake": _ALDER_LAKE,
        "raptorlake": _describe((48, 2048, 36 << 10), (12, 16), loads=3.0, stores=2.0),
        "sapphirerapids": _SAPPHIRE_RAPIDS,
        "emeraldrapids": _EMERALD_RAPIDS,
        "graniterapids": _SAPPHIRE_RAPIDS,
        "znver1": _describe((32, 512, 8 << 10), (8, 8), fma=1.0, latency=5.0, loads=1.0, stores=0.5, issue=5.0),
        "znver2": _ZEN2,
        "znver3": _describe((32, 512, 32 << 10), (8, 8)),
        # units of 256 bits: half as many instructions on vectors of 512
        "znver4": _describe(
            (32, 1024, 32 << 10),
            (8, 8),
            fma=1.0,
            loads=1.0,
            stores=0.5,
            dots=1.0,
            byte_latency=4.0,
            probe_rates=PRODUCTS,
        ),
        "znver5": _describe(
            (48, 1024, 32 << 10), (12, 16), issue=8.0, dots=2.0, byte_latency=4.0, probe_rates=PRODUCTS
        ),
        "neoverse-n1": _describe((64, 1024, 32 << 10), (4, 8), issue=4.0),
        "neoverse-n2": _describe((64, 1024, 32 << 10), (4, 8), issue=5.0),
        "neoverse-v1": _describe((64, 1024, 32 << 10), (4, 8), fma=4.0, loads=3.0, stores=2.0, issue=8.0),
        "neoverse-v2": _describe((64, 2048, 64 << 10), (4, 8), fma=4.0, loads=3.0, stores=2.0, issue=8.0),
        "apple-m1": _describe((128, 3072, 8 << 10), (8, 12), fma=4.0, loads=3.0, stores=2.0, issue=8.0),
    }
)


def get_description(cpu: str) -> Description:
    """Returns a processor's description by LLVM's name of it; a usual one for unknown names."""
    return DESCRIPTIONS.get(cpu, _USUAL)
