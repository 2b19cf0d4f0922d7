"""A device for tests: memory is host arrays, kernels run in the emulator, the clock is a counter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_space.dtypes import numpy_dtype
from targets.base import RunError
from targets.cuda.device import DeviceLost
from targets.cuda.emulator.emulator import launch
from targets.cuda.program import DeviceKernel, DeviceProgram, elements


class FakeDevice:
    """Runs the kernels of one device program.

    Attributes:
        queue: names of what was queued, in order.
        live: bytes allocated.
        broken: whether the next `sync` finds that a kernel failed.
    """

    arch, l2_bytes = "sm_90", 1 << 10

    def __init__(self, program: DeviceProgram) -> None:
        programs = [*program.prologues, program]
        self.kernels: dict[str, DeviceKernel] = {k.name: k for p in programs for k in p.kernels}
        self.queue: list[str] = []
        self.live = 0
        self.broken = False
        self._clock = 0.0

    def allocate(self, size: int) -> NDArray[np.uint8]:
        if size > 1 << 40:
            raise RunError("too much")
        self.live += size
        return np.full(min(size, 1 << 22), 0xFF, np.uint8)

    def upload(self, memory: NDArray[np.uint8], array: NDArray[Any]) -> None:
        assert memory.size == array.nbytes
        memory[...] = np.ascontiguousarray(array).view(np.uint8).reshape(-1)

    def download(self, memory: NDArray[np.uint8], array: NDArray[Any]) -> None:
        self.sync()
        array[...] = memory.view(array.dtype).reshape(array.shape)

    def fill(self, memory: NDArray[np.uint8], value: int) -> None:
        self.queue.append("fill")
        memory[...] = value

    def load(self, cubin: bytes) -> bytes:
        assert cubin[1:4] == b"ELF"
        return cubin

    def kernel(self, module: bytes, name: str, dynamic_shared_bytes: int) -> DeviceKernel:
        assert name.encode() in module
        return self.kernels[name]

    def launch(
        self,
        kernel: DeviceKernel,
        grid: Sequence[int],
        block: Sequence[int],
        dynamic_shared_bytes: int,
        arguments: Sequence[NDArray[np.uint8]],
    ) -> None:
        assert (tuple(grid), tuple(block)) == (kernel.grid, kernel.block)
        arrays = {}
        for buffer, memory in zip(kernel.params, arguments, strict=True):
            arrays[buffer.name] = memory.view(numpy_dtype(buffer.dtype))[: elements(buffer)]
        with np.errstate(all="ignore"):
            launch(kernel, arrays, np.random.default_rng(0))
        self.queue.append(kernel.name)
        self._clock += 1e-6

    def record(self) -> float:
        self.queue.append("mark")
        return self._clock

    def seconds(self, first: float, second: float) -> float:
        return second - first

    def sync(self) -> None:
        if self.broken:
            raise DeviceLost("a kernel must run to its end, but the driver says: illegal address")

    def telemetry(self) -> dict[str, float]:
        return {"sm_mhz": 1980.0}
