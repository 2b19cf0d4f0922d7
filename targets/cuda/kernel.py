"""Loaded modules on a GPU: arrays in device memory, constants packed there, launches timed by events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_space.dtypes import numpy_dtype
from targets.base import Bound, Kernel, Module, Parameter
from targets.cuda.device import Device, encode_maps, first_device
from targets.cuda.stopwatch import Stopwatch

_FENCE = 4096
"""Bytes behind a fenced array."""
_FENCE_BYTE = 0xFF
"""Value of the bytes behind a fenced array: NaN in every type that has it."""


class CudaKernel(Kernel):
    """A module on a device.

    Raises:
        RunError: the device does not take it.
    """

    def __init__(self, module: Module, device: Device | None = None) -> None:
        self.module = module
        self.device: Device = first_device() if device is None else device
        self._code = self.device.load(module.object_code)
        facts = module.metadata
        self.launches = self._load_kernels(facts["launches"])
        self.prologues = [self._load_kernels(p) for p in facts["prologues"]]

    def _load_kernels(self, program: Mapping[str, Any]) -> list[tuple[Any, Mapping[str, Any]]]:
        """Returns the kernels of a program with the facts of their launches."""
        return [
            (self.device.kernel(self._code, launch["name"], launch["dynamic_shared_bytes"]), launch)
            for launch in program["kernels"]
        ]

    def ready(
        self, launches: Sequence[tuple[Any, Mapping[str, Any]]], memory: Mapping[str, Any]
    ) -> list[Callable[[], None]]:
        """Prepares the launches of a program, whose arguments are buffers by name and tensor maps of them."""
        out = []
        for kernel, facts in launches:
            arguments = [memory[name] for name in facts["arguments"]]
            arguments += encode_maps(self.device, facts["tensor_maps"], arguments)
            shape = (facts["grid"], facts["block"], facts["dynamic_shared_bytes"])
            out.append(self.device.prepare_launch(kernel, *shape, arguments))
        return out

    def bind(self, inputs: Sequence[NDArray[Any]], copies: int = 1, fenced: bool = False) -> CudaBound:
        self.check(inputs)
        return CudaBound(self, inputs, copies > 1, _FENCE if fenced else 0)


class CudaBound(Bound):
    """Arrays on the device.

    Args:
        cold: whether timed runs find the second-level cache filled with something else.
        fence: bytes behind inputs, which read as NaN, and behind outputs, which a kernel must not write. Memory in
            front of arrays is not watched.

    Attributes:
        outputs: arrays on the host; they are copied to the device before a run, so that elements that no kernel writes
            keep their value.
    """

    def __init__(self, kernel: CudaKernel, inputs: Sequence[NDArray[Any]], cold: bool, fence: int = 0) -> None:
        self.kernel, self.device, self.cold = kernel, kernel.device, cold
        module = kernel.module
        by_source = {p.name: a for p, a in zip(module.sources, inputs, strict=True)}
        copied = [p for p in module.parameters if not p.packed_from]
        # of every array that is copied: its bytes on the host, the fence behind them
        self._host = {p.name: np.zeros(_bytes(p) + fence, np.uint8) for p in copied if p.name in module.outputs}
        self._fence, self._inputs = fence, [p for p in copied if p.name not in module.outputs]
        by_name = {p.name: p for p in copied}
        self.outputs = [_array(by_name[n], self._host[n]) for n in module.outputs]
        self.memory: dict[str, Any] = {
            p.name: self.device.allocate(_bytes(p) + (0 if p.packed_from else fence)) for p in module.parameters
        }
        self._between = self._workspace(module.metadata["launches"])
        self.memory |= self._between
        self._upload(self._inputs, by_source)
        for name, output in zip(module.outputs, self.outputs, strict=True):
            self._host[name][output.nbytes :] = _FENCE_BYTE
        self._upload_outputs()
        self._pack(by_source)
        self._launches = kernel.ready(kernel.launches, self.memory)
        # nothing it holds leads back here: memory is to be free when nobody uses it any more, not when cycles are found
        self._stopwatch = Stopwatch(self.device, partial(start_all, self._launches), len(kernel.launches), cold)

    def _workspace(self, program: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self.device.allocate(size) for name, size in program["workspace"]}

    def _pack(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Makes packed constants of their sources, which are gone from the device afterwards."""
        module = self.kernel.module
        packed = [p for p in module.parameters if p.packed_from]
        for parameter, launches, facts in zip(packed, self.kernel.prologues, module.metadata["prologues"], strict=True):
            memory = {parameter.name: self.memory[parameter.name], **self._workspace(facts)}
            for name in parameter.packed_from:
                memory[name] = self.device.allocate(arrays[name].nbytes)
                self.device.upload(memory[name], np.ascontiguousarray(arrays[name]))
            start_all(self.kernel.ready(launches, memory))
            self.device.sync()

    def _upload(self, parameters: Sequence[Parameter], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Copies inputs to the device, and the fence behind each."""
        for parameter in parameters:
            array = np.ascontiguousarray(arrays[parameter.name])
            if self._fence:
                fence = np.full(self._fence, _FENCE_BYTE, np.uint8)
                array = np.concatenate([array.reshape(-1).view(np.uint8), fence])
            self.device.upload(self.memory[parameter.name], array)

    def start(self) -> None:
        """Queues one execution."""
        start_all(self._launches)

    def run(self, threads: int | None = None) -> NDArray[Any]:
        self._upload_outputs()
        self.start()
        return self.fetch()

    def _upload_outputs(self) -> None:
        for name, host in self._host.items():
            self.device.upload(self.memory[name], host)

    def feed(self, inputs: Sequence[NDArray[Any]], fill: int) -> None:
        given = {p.name: a for p, a in zip(self.kernel.module.sources, inputs, strict=True)}
        self._upload([p for p in self._inputs if not p.constant], given)
        for memory in self._between.values():
            self.device.fill(memory, fill)
        self._upload_outputs()

    def fetch(self) -> NDArray[Any]:
        for name, host in self._host.items():
            self.device.download(self.memory[name], host)
        return self.outputs[0]

    def damage(self) -> str:
        for name, output in zip(self.kernel.module.outputs, self.outputs, strict=True):
            changed = int(np.count_nonzero(self._host[name][output.nbytes :] != _FENCE_BYTE))
            if changed:
                return f"a kernel must write to its output alone, but it changed {changed} bytes behind `{name}`"
        return ""

    def time(self, iterations: int, threads: int | None = None) -> NDArray[np.float64]:
        """Times executions by the device's clock, see `Stopwatch`; returns seconds."""
        return self._stopwatch.time(iterations)

    def metrics(self) -> dict[str, float]:
        """Returns the greatest use of resources among the kernels, and the state of the device after the runs."""
        kernels = self.kernel.module.metadata["launches"]["kernels"]
        keys = ("registers", "shared_bytes", "spill_bytes")
        most = {key: float(max(k[key] for k in kernels)) for key in keys}
        return {**most, "kernels": float(len(kernels)), **self.device.telemetry()}


def start_all(launches: Sequence[Callable[[], None]]) -> None:
    """Queues launches, one after another."""
    for launch in launches:
        launch()


def _array(parameter: Parameter, data: NDArray[np.uint8]) -> NDArray[Any]:
    """Returns the array at the start of `data`."""
    return data[: _bytes(parameter)].view(numpy_dtype(parameter.dtype)).reshape(parameter.shape)


def _bytes(parameter: Parameter) -> int:
    return int(np.prod(parameter.shape)) * numpy_dtype(parameter.dtype).itemsize
