"""Hardware limits: what legality and the roofline need to know of a machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Hardware:
    """A machine's limits.

    Attributes:
        peak_flops: float32 operations a second, all cores together.
        bandwidth: bytes a second from memory, all cores together.
        l1_bytes, l2_bytes: per core; l3_bytes: shared.
        features: instruction sets by LLVM's names, or instructions by those of `search_space.intrinsics`.
        memories: of machines whose programs fill them: scope of the buffers in each, and its bytes.
        clock_hz: cycles a second of such machines, whose peak is one instruction a cycle.
        fill: bytes a second into a memory on the chip, by its scope, where that is less than `bandwidth`.
        row_seconds: what each contiguous run of a copy takes on them besides its bytes.
        most_nests: innermost nests of loops that a program may run, where each is an instruction; 0: any number.
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

    @property
    def float_lanes(self) -> int:
        """float32 elements a vector register holds."""
        return self.vector_bytes // 4
