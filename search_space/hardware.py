"""Hardware limits: what legality and the roofline need to know of a machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

COLUMNS = 4
"""Neighbours in an input's row that are read at once: 128 bits of 4-byte elements, within which shuffles are cheap."""


@dataclass(frozen=True)
class GpuLimits:
    """What blocks of threads may take of a GPU; the numbers are those of compute capability 9.0.

    Attributes:
        arch: what code is made for, such as `sm_90`.
        sms: multiprocessors.
        warp: threads that run together.
        threads_block, threads_sm: threads of a block, and of all blocks on one multiprocessor.
        blocks_sm: blocks on one multiprocessor.
        shared_block, shared_sm: bytes of shared memory of a block, and of a multiprocessor.
        registers_thread, registers_sm: 32-bit registers.
        banks: of shared memory, 4 bytes wide.
        sector: bytes of global memory that are fetched together.
        shared_bandwidth: bytes a second from the shared memories, all together.
        l2_bandwidth: bytes a second from the second-level cache.
        tensor_flops: operations a second of the tensor cores, by the dtype of the factors.
        launch_seconds: from one kernel to the next.
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


@dataclass(frozen=True)
class CpuRates:
    """What a core of a CPU does in a cycle, and how fast it is fed.

    The numbers are those of a usual core of a server with vectors as wide as its units: two multiply-adds, two loads
    and a store in a cycle, as Intel's have them since Haswell and AMD's with 256 bits since Zen 2.

    Attributes:
        fma, loads, stores: instructions on whole vectors that are started in a cycle.
        fma_latency: cycles until the result of a multiply-add can be used.
        issue: instructions of all kinds that are started in a cycle.
        one: bytes a cycle that a core alone reads from the second-level cache, the third, and memory.
        each: the same of every core while all of them read.
        start_seconds: of a parallel loop beyond its work, where all threads are awake.
        wake_seconds: the same where they sleep.
        elements: loads of one element each that are started in a cycle, which may be more than of whole vectors.
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


@dataclass(frozen=True)
class Hardware:
    """A machine's limits.

    Of a GPU, `cores` are its multiprocessors, `vector_bytes` what a thread reads at once, `l1_bytes` what caches and
    shared memory of one multiprocessor hold together; `l2_bytes` and `l3_bytes` are both its second-level cache.

    Attributes:
        peak_flops: float32 operations a second, all cores together.
        bandwidth: bytes a second from memory, all cores together.
        l1_bytes, l2_bytes: per core; l3_bytes: shared.
        ways: lines of one set of the first two caches; a third one spreads lines over its sets by a hash.
        features: instruction sets by LLVM's names, or instructions by those of `search_space.intrinsics`.
        memories: of machines whose programs fill them: scope of the buffers in each, and its bytes.
        clock_hz: cycles a second of such machines, whose peak is one instruction a cycle; of a CPU those that go with
            `rates`: `peak_flops` is two operations on every lane of as many multiply-adds.
        fill: bytes a second into a memory on the chip, by its scope, where that is less than `bandwidth`.
        row_seconds: what each contiguous run of a copy takes on them besides its bytes.
        most_nests: innermost nests of loops that a program may run, where each is an instruction; 0: any number.
        gpu: of a GPU, None for other machines.
        rates: of a CPU's cores; other machines have no use for them.
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
    rates: CpuRates = CpuRates()

    @property
    def kind(self) -> str:
        """What programs on it are made of: `gpu` (blocks of threads), `accelerator` (memories they fill) or `cpu`.

        What was measured on machines of one kind says nothing of another.
        """
        return "gpu" if self.gpu is not None else "accelerator" if self.memories else "cpu"

    @property
    def float_lanes(self) -> int:
        """float32 elements a vector register holds."""
        return self.vector_bytes // 4

    def to_json(self) -> dict[str, Any]:
        """Its fields; what only some machines have is left out for others."""
        data = asdict(self)
        if self.gpu is None:
            del data["gpu"]
        if self.rates == CpuRates():
            del data["rates"]
        return data

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Hardware:
        """The hardware that `to_json` wrote."""
        fields = _tuples(data)
        if fields.get("gpu") is not None:
            fields["gpu"] = GpuLimits(**_tuples(fields["gpu"]))
        if "rates" in fields:
            fields["rates"] = CpuRates(**_tuples(fields["rates"]))
        return Hardware(**fields)


def _tuples(data: Mapping[str, Any]) -> dict[str, Any]:
    """The same with lists, and lists in them, as tuples."""
    lists = {name: value for name, value in data.items() if isinstance(value, list)}
    tuples = {name: tuple(tuple(v) if isinstance(v, list) else v for v in value) for name, value in lists.items()}
    return {**data, **tuples}
