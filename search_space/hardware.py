"""Hardware limits: the properties of a machine that legality and the roofline need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from search_space.cpu_rates import USUAL, CpuRates
from search_space.dtypes import NARROW
from search_space.gpu_limits import GpuLimits

__all__ = ["COLUMNS", "LINE", "CpuRates", "GpuLimits", "Hardware", "fragment_columns"]

LINE = 64
"""Bytes of a cache line."""
COLUMNS = 4
"""Neighbours in an input's row that are read at once: 128 bits of 4-byte elements, within which shuffles are cheap."""


def fragment_columns(dtype: str) -> int:
    """Returns the neighbours in a row that are read at once: twice `COLUMNS` for floats of 16 bits."""
    return 2 * COLUMNS if dtype in NARROW else COLUMNS


@dataclass(frozen=True)
class Hardware:
    """The limits of a machine.

    For a GPU, `cores` are its multiprocessors and `vector_bytes` the bytes that a thread reads at once. `l1_bytes` is
    the size of caches and shared memory of one multiprocessor; `l2_bytes` and `l3_bytes` are both its second-level
    cache.

    Attributes:
        peak_flops: float32 operations a second, all cores together.
        bandwidth: bytes a second from memory, all cores together.
        l1_bytes, l2_bytes: per core; l3_bytes: shared.
        ways: lines of one set of the first two caches; a third one spreads lines over its sets by a hash.
        features: instruction sets by LLVM's names, or instructions by names of `search_space.intrinsics`.
        memories: memories that programs of an accelerator fill: scope of the buffers in each, and its bytes.
        clock_hz: cycles a second of accelerators, whose peak is one instruction a cycle; for a CPU the clock that goes
            with `rates`, where `peak_flops` counts a multiply-add as two operations on every lane.
        fill: bytes a second into a memory on the chip, by its scope, if less than `bandwidth`.
        row_seconds: time of each contiguous run of a copy on an accelerator, besides that of its bytes.
        most_nests: innermost nests of loops that a program may run, where each is an instruction; 0: any number.
        gpu: limits of a GPU, None for other machines.
        rates: rates of a CPU's cores, unused for other machines.
        machine: the kind of a machine other than `cpu`, `gpu` and `accelerator`: name in
            `search_space.machines.registry`.
    """

    name: str
    cores: int
    vector_bytes: int
    vector_registers: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    peak_flops: float
    bandwidth: float
    features: tuple[str, ...] = ()
    memories: tuple[tuple[str, int], ...] = ()
    clock_hz: float = 0.0
    fill: tuple[tuple[str, float], ...] = ()
    row_seconds: float = 0.0
    most_nests: int = 0
    gpu: GpuLimits | None = None
    ways: tuple[int, int] = (8, 16)
    rates: CpuRates = USUAL
    machine: str = ""

    def on(self, threads: int | None) -> Hardware:
        """Returns the limits for kernels of `threads` threads: a CPU's cores, peak and bandwidth shrink in proportion.

        Other machines are returned unchanged.

        Args:
            threads: number of threads; None: the number of cores.
        """
        if threads is None or threads >= self.cores or self.kind != "cpu":
            return self
        return self.with_cores(threads)

    def with_cores(self, cores: int) -> Hardware:
        """Returns a machine of such cores, as many as are given: peak and bandwidth change in proportion."""
        share = cores / self.cores
        return replace(self, cores=cores, peak_flops=self.peak_flops * share, bandwidth=self.bandwidth * share)

    @property
    def kind(self) -> str:
        """Kind of its programs: `gpu` (blocks of threads), `accelerator` (memories that programs fill) or `cpu`.

        Sketch rules, limits and estimates are selected by it (`search_space.machines.registry`). Measurements of one
        kind do not carry over to another.
        """
        if self.machine:
            return self.machine
        return "gpu" if self.gpu is not None else "accelerator" if self.memories else "cpu"

    @property
    def float_lanes(self) -> int:
        """float32 elements a vector register holds."""
        return self.vector_bytes // 4

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as plain data; a field that only some machines have is left out for others."""
        data = asdict(self)
        if self.gpu is None:
            del data["gpu"]
        if self.rates == USUAL:
            del data["rates"]
        if not self.machine:
            del data["machine"]
        return data

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Hardware:
        """Reads the data that `to_json` wrote."""
        fields = _tuples(data)
        if fields.get("gpu") is not None:
            fields["gpu"] = GpuLimits(**_tuples(fields["gpu"]))
        if "rates" in fields:
            fields["rates"] = CpuRates(**_tuples(fields["rates"]))
        return Hardware(**fields)


def _tuples(data: Mapping[str, Any]) -> dict[str, Any]:
    """Converts the lists in a mapping, and the lists in them, to tuples."""
    lists = {name: value for name, value in data.items() if isinstance(value, list)}
    tuples = {name: tuple(tuple(v) if isinstance(v, list) else v for v in value) for name, value in lists.items()}
    return {**data, **tuples}
