"""Loaded modules on a GPU: arrays in device memory, constants packed there, launches timed by events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_space.dtypes import numpy_dtype
from targets.base import Bound, Kernel, Module, Parameter
from targets.cuda.device import Device, encoded, first_device
from targets.cuda.stopwatch import Stopwatch


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
        self.launches = self._prepared(facts["launches"])
        self.prologues = [self._prepared(p) for p in facts["prologues"]]

    def _prepared(self, program: Mapping[str, Any]) -> list[tuple[Any, Mapping[str, Any]]]:
        """Kernels of a program, and how each is launched."""
        return [
            (self.device.kernel(self._code, launch["name"], launch["dynamic_shared_bytes"]), launch)
            for launch in program["kernels"]
        ]

    def ready(
        self, launches: Sequence[tuple[Any, Mapping[str, Any]]], memory: Mapping[str, Any]
    ) -> list[tuple[Any, Mapping[str, Any], list[Any]]]:
        """The launches of a program with their arguments: buffers by name, tensor maps of them."""
        out = []
        for kernel, facts in launches:
            arguments = [memory[name] for name in facts["arguments"]]
            out.append((kernel, facts, [*arguments, *encoded(self.device, facts["tensor_maps"], arguments)]))
        return out

    def start(self, ready: Sequence[tuple[Any, Mapping[str, Any], list[Any]]]) -> None:
        """Queues launches."""
        for kernel, facts, arguments in ready:
            self.device.launch(kernel, facts["grid"], facts["block"], facts["dynamic_shared_bytes"], arguments)

    def bind(self, inputs: Sequence[NDArray[Any]], copies: int = 1) -> CudaBound:
        self.check(inputs)
        return CudaBound(self, inputs, copies > 1)


class CudaBound(Bound):
    """Arrays on the device.

    Args:
        cold: whether timed runs find the second-level cache filled with something else.

    Attributes:
        outputs: on the host; what they hold is copied to the device before a run, so that elements which no kernel
            writes are seen to keep it.
    """

    def __init__(self, kernel: CudaKernel, inputs: Sequence[NDArray[Any]], cold: bool) -> None:
        self.kernel, self.device, self.cold = kernel, kernel.device, cold
        module = kernel.module
        given = {p.name: a for p, a in zip(module.sources, inputs, strict=True)}
        by_name = {p.name: p for p in module.parameters}
        self.outputs = [np.zeros(by_name[n].shape, numpy_dtype(by_name[n].dtype)) for n in module.outputs]
        self.memory: dict[str, Any] = {p.name: self.device.allocate(_bytes(p)) for p in module.parameters}
        self.memory |= self._workspace(module.metadata["launches"])
        for parameter in module.parameters:
            if not parameter.packed_from and parameter.name not in module.outputs:
                self.device.upload(self.memory[parameter.name], np.ascontiguousarray(given[parameter.name]))
        self._pack(given)
        self._launches = kernel.ready(kernel.launches, self.memory)
        # nothing it holds leads back here: memory is to be free when nobody uses it any more, not when cycles are found
        self._stopwatch = Stopwatch(self.device, partial(kernel.start, self._launches), len(kernel.launches), cold)

    def _workspace(self, program: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self.device.allocate(size) for name, size in program["workspace"]}

    def _pack(self, given: Mapping[str, NDArray[Any]]) -> None:
        """Makes packed constants of their sources, which are gone from the device afterwards."""
        module = self.kernel.module
        packed = [p for p in module.parameters if p.packed_from]
        for parameter, launches, facts in zip(packed, self.kernel.prologues, module.metadata["prologues"], strict=True):
            memory = {parameter.name: self.memory[parameter.name], **self._workspace(facts)}
            for name in parameter.packed_from:
                memory[name] = self.device.allocate(given[name].nbytes)
                self.device.upload(memory[name], np.ascontiguousarray(given[name]))
            self.kernel.start(self.kernel.ready(launches, memory))
            self.device.sync()

    def start(self) -> None:
        """Queues one execution."""
        self.kernel.start(self._launches)

    def run(self, threads: int | None = None) -> NDArray[Any]:
        names = self.kernel.module.outputs
        for name, output in zip(names, self.outputs, strict=True):
            self.device.upload(self.memory[name], output)
        self.start()
        for name, output in zip(names, self.outputs, strict=True):
            self.device.download(self.memory[name], output)
        return self.outputs[0]

    def time(self, iterations: int, threads: int | None = None) -> NDArray[np.float64]:
        """Seconds by the device's clock; see `Stopwatch`."""
        return self._stopwatch.time(iterations)

    def metrics(self) -> dict[str, float]:
        """What the kernels take, the most of them, and the state of the device after the runs."""
        kernels = self.kernel.module.metadata["launches"]["kernels"]
        keys = ("registers", "shared_bytes", "spill_bytes")
        most = {key: float(max(k[key] for k in kernels)) for key in keys}
        return {**most, "kernels": float(len(kernels)), **self.device.telemetry()}


def _bytes(parameter: Parameter) -> int:
    return int(np.prod(parameter.shape)) * numpy_dtype(parameter.dtype).itemsize
