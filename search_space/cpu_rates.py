"""Rates at which the cores of a CPU start and feed instructions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

BYTES = frozenset({"uint8", "int8"})
DOT_PRODUCTS = 2
"""Products that a dot of bfloat16 adds to each sum."""
DOT_GAIN = 1.5
"""Least gain in products a cycle for which dots are the only way: the search also measures the others below it."""


@dataclass(frozen=True)
class CpuRates:
    """Rates of a CPU core: instructions started per cycle, and bytes read per cycle.

    The defaults describe a usual server core with vectors as wide as its units: two multiply-adds, two loads and a
    store in a cycle. Intel's cores have these rates since Haswell, AMD's with 256 bits since Zen 2.

    Attributes:
        fma, loads, stores: instructions on whole vectors that are started in a cycle.
        fma_latency: cycles until the result of a multiply-add can be used.
        issue: instructions of all kinds that are started in a cycle.
        one: bytes per cycle that a core alone reads from the L2 cache, the L3 cache, and memory.
        each: bytes per cycle that every core reads from them while all cores read.
        start_seconds: time of a parallel loop beyond its work, while all threads are awake.
        wake_seconds: this time while the threads sleep.
        elements: loads of one element each that are started in a cycle, which may exceed those of full vectors.
        dots: instructions that add two products of bfloat16 to each sum, as `fma`; 0: the rate of multiply-adds.
        dot_latency: cycles until the result of a dot can be used; 0: the latency of a multiply-add.
        byte_dots, byte_dot_latency: such rates of instructions that add four products of bytes to each sum.
    """

    fma: float = 2.0
    fma_latency: float = 4.0
    loads: float = 2.0
    stores: float = 1.0
    issue: float = 6.0
    one: tuple[float, float, float] = (64.0, 10.0, 6.0)
    each: tuple[float, float, float] = (64.0, 10.0, 6.0)
    start_seconds: float = 6e-7
    wake_seconds: float = 5e-5
    elements: float = 2.0
    dots: float = 0.0
    dot_latency: float = 0.0
    byte_dots: float = 0.0
    byte_dot_latency: float = 0.0

    def dot_rates(self, factors: Collection[str]) -> tuple[float, float]:
        """Returns (instructions per cycle, latency in cycles) of the multiply-add of elements of these types.

        For bytes and bfloat16 it is the dot product, if the core has one.
        """
        if set(factors) == {"bfloat16"}:
            return self.dots or self.fma, self.dot_latency or self.fma_latency
        if factors and BYTES.issuperset(factors):
            return self.byte_dots or self.fma, self.byte_dot_latency or self.fma_latency
        return self.fma, self.fma_latency

    @property
    def gains_by_dots(self) -> bool:
        """Tells whether dot products of bfloat16 multiply clearly more in a cycle than multiply-adds of float32."""
        started, _ = self.dot_rates({"bfloat16"})
        return DOT_PRODUCTS * started >= DOT_GAIN * self.fma


USUAL = CpuRates()
"""Rates of a core about which nothing else is known."""
