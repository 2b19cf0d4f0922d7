"""A device for tests: memory is host arrays, kernels run in the emulator, the clock is a counter."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_space.dtypes import numpy_dtype
from search_space.ir.stmt import LoopProgram
from targets.base import Module
from targets.buffers import elements
from targets.cuda.device import DeviceLost, DeviceMemoryError
from targets.cuda.emit import dynamic_shared_bytes as needed_bytes
from targets.cuda.hardware import DEFAULT_ARCH
from targets.cuda.program import ALIGNMENT, DeviceKernel, DeviceProgram, TensorMap
from targets.cuda.target import CudaTarget
from tests.targets.cuda.emulator.emulator import launch

COMPUTED_RUNS = 2
"""Runs of a launch on the same arrays that are computed until something is uploaded; those after them are timed."""
Kernels = Mapping[str, DeviceKernel]
"""Kernels by name."""


def collect_kernels(program: DeviceProgram) -> Kernels:
    """Kernels of a program and of its prologues."""
    return {k.name: k for p in (*program.prologues, program) for k in p.kernels}


class RecordingTarget(CudaTarget):
    """A target that keeps what it builds.

    Attributes:
        kernels_by_digest: digest of the machine code → its kernels.
    """

    def __init__(self, arch: str = DEFAULT_ARCH, name: str = "cuda") -> None:
        super().__init__(arch, name)
        self.kernels_by_digest: dict[str, Kernels] = {}

    def device_program(self, program: LoopProgram, name: str = "kernel") -> DeviceProgram:
        self._last_program = super().device_program(program, name)
        return self._last_program

    def build(self, program: LoopProgram, name: str = "kernel") -> Module:
        module = super().build(program, name)
        self.kernels_by_digest[hashlib.sha256(module.object_code).hexdigest()] = collect_kernels(self._last_program)
        return module


def _freeze(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class FakeDevice:
    """Runs kernels of device programs.

    Args:
        program: the program whose kernels all modules have, or what modules have by the digest of their machine code.
        arch: architecture of the GPU that it represents.

    Attributes:
        queue: names of what was queued, in order.
        live: bytes allocated.
        fails: whether the next `sync` finds that a kernel failed.
        kernel_seconds: seconds that every kernel takes by its clock.
    """

    l2_bytes = 1 << 10
    kernel_seconds = 1e-6

    def __init__(self, program: DeviceProgram | Mapping[str, Kernels], arch: str = "sm_90") -> None:
        self.arch = arch
        self._program = program
        self._recording: list[Callable[[], None]] | None = None
        self.queue: list[str] = []
        self.live = 0
        self.fails = False
        self._clock = 0.0
        self._runs: Counter[tuple[int, ...]] = Counter()

    def use(self) -> None:
        pass

    def allocate(self, size: int) -> NDArray[np.uint8]:
        if size > 1 << 40:
            raise DeviceMemoryError("too much")
        assert self._recording is None
        self.live += size
        size = min(size, 1 << 22)
        raw = np.full(size + 256, 0xFF, np.uint8)
        start = -raw.ctypes.data % 256
        return raw[start : start + size]

    def part(self, memory: NDArray[np.uint8], start: int) -> NDArray[np.uint8]:
        assert 0 <= start <= memory.size
        return memory[start:]

    def upload(self, memory: NDArray[np.uint8], array: NDArray[Any]) -> None:
        assert memory.size == array.nbytes and array.flags.c_contiguous
        self.sync()
        self._runs.clear()
        memory[...] = np.ascontiguousarray(array).view(np.uint8).reshape(-1)

    def download(self, memory: NDArray[np.uint8], array: NDArray[Any]) -> None:
        self.sync()
        array[...] = memory.view(array.dtype).reshape(array.shape)

    def fill(self, memory: NDArray[np.uint8], value: int) -> None:
        assert self._recording is None
        self.queue.append("fill")
        memory[...] = value

    def load(self, cubin: bytes) -> bytes:
        assert cubin[1:4] == b"ELF"
        return cubin

    def kernel(self, module: bytes, name: str, dynamic_shared_bytes: int) -> DeviceKernel:
        assert name.encode() in module
        if isinstance(self._program, DeviceProgram):
            return collect_kernels(self._program)[name]
        return self._program[hashlib.sha256(module).hexdigest()][name]

    def tensor_map(self, memory: NDArray[np.uint8], facts: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        """The array's address, and what is told of it, of which `cuTensorMapEncodeTiled` asks as much."""
        assert memory.ctypes.data % 16 == 0 and all(s % 16 == 0 and 0 < s < 1 << 40 for s in facts["strides"])
        assert len(facts["shape"]) == len(facts["strides"]) + 1 == len(facts["box"]) <= 5
        assert all(0 < n <= 1 << 32 for n in facts["shape"]) and all(0 < n <= 256 for n in facts["box"])
        assert facts["box"][-1] * 2 <= facts["swizzle"] == 128
        return memory.ctypes.data, facts

    def prepare_launch(self, *launch: Any) -> Callable[[], None]:
        return partial(self.launch, *launch)

    def launch(
        self,
        kernel: DeviceKernel,
        grid: Sequence[int],
        block: Sequence[int],
        dynamic_shared_bytes: int,
        arguments: Sequence[NDArray[np.uint8]],
    ) -> None:
        assert (tuple(grid), tuple(block)) == (kernel.grid, kernel.block)
        assert dynamic_shared_bytes == needed_bytes(kernel)
        arrays = {}
        made = arguments[len(kernel.params) :]
        places = {b.name: memory.ctypes.data for b, memory in zip(kernel.params, arguments, strict=False)}
        for wanted, (address, facts) in zip(kernel.maps, made, strict=True):
            assert address == places[wanted.buffer]
            assert TensorMap(wanted.buffer, *(_freeze(facts[f.name]) for f in fields(TensorMap)[1:])) == wanted
        for buffer, memory in zip(kernel.params, arguments[: len(kernel.params)], strict=True):
            assert memory.ctypes.data % ALIGNMENT == 0, buffer.name  # accesses in vectors would fault
            dtype = numpy_dtype(buffer.dtype)
            arrays[buffer.name] = memory[: elements(buffer) * dtype.itemsize].view(dtype)
            assert arrays[buffer.name].size == elements(buffer), buffer.name

        key = (id(kernel), *places.values())

        def run() -> None:
            self._runs[key] += 1
            if self._runs[key] <= COMPUTED_RUNS:
                with np.errstate(all="ignore"):
                    launch(kernel, arrays, np.random.default_rng(0))
            self.queue.append(kernel.name)
            self._clock += self.kernel_seconds

        if self._recording is None:
            run()
        else:
            self._recording.append(run)

    def capture(self, start: Callable[[], None]) -> Callable[[], None]:
        self.sync()
        self._recording = launches = []
        start()
        self._recording = None

        def replay() -> None:
            self.queue.append("replay")
            for run in launches:
                run()

        return replay

    def record(self) -> float:
        assert self._recording is None
        self.queue.append("mark")
        return self._clock

    def seconds(self, first: float, second: float) -> float:
        return second - first

    def sync(self) -> None:
        assert self._recording is None
        if self.fails:
            raise DeviceLost("a kernel must run to its end, but the driver says: illegal address")

    def telemetry(self) -> dict[str, float]:
        return {"sm_mhz": 1980.0}
