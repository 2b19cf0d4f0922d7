"""A network on a GPU: everything it needs in device memory, its launches recorded once and replayed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_space.dtypes import numpy_dtype
from targets.base import Parameter
from targets.cuda.device import Device, encode_maps
from targets.cuda.kernel import start_all
from targets.cuda.stopwatch import Stopwatch

Launches = Sequence[Mapping[str, Any]]


class NetworkRunner:
    """The kernels of a network, their constants and their memory on a device.

    Args:
        device: device that runs the network.
        cubins: cubins of the modules, by number.
        manifest: `launches`, `packing` and `memory` as `targets.cuda.network.link` gives them.
        weights: all constants.
        inputs, outputs: parameters of the network.

    Raises:
        RunError: the device does not take a module, or has too little memory.
    """

    def __init__(
        self,
        device: Device,
        cubins: Sequence[bytes],
        manifest: Mapping[str, Any],
        weights: NDArray[np.uint8],
        inputs: Sequence[Parameter],
        outputs: Sequence[Parameter],
    ) -> None:
        self.device = device
        self._modules = [device.load(cubin) for cubin in cubins]
        self._kernels: dict[tuple[int, str], Any] = {}
        memory = manifest["memory"]
        self._memory: dict[str, Any] = {
            "weights": device.allocate(weights.nbytes),
            "packed": device.allocate(memory["packed_bytes"]),
            "arena": device.allocate(memory["arena_bytes"]),
            "workspace": device.allocate(memory["workspace_bytes"]),
        }
        self._inputs = [device.allocate(_bytes(p)) for p in inputs]
        self._outputs = [device.allocate(_bytes(p)) for p in outputs]
        device.upload(self._memory["weights"], weights)
        start_all(self._prepare_launches(manifest["packing"]))
        self._steps = [self._prepare_launches(launches) for launches in manifest["launches"]]
        for given in self._inputs:
            device.fill(given, 0)  # what is looked up by an input that nobody gave is there
        self._replay: Callable[[], None] | None = None
        self._stopwatch: Stopwatch | None = None

    def upload(self, arrays: Sequence[NDArray[Any]]) -> None:
        """Puts the network's inputs in place."""
        for memory, array in zip(self._inputs, arrays, strict=True):
            self.device.upload(memory, np.ascontiguousarray(array))

    def download(self, arrays: Sequence[NDArray[Any]]) -> None:
        """Fetches the network's outputs, when all work before is done."""
        for memory, array in zip(self._outputs, arrays, strict=True):
            self.device.download(memory, array)

    def run(self) -> None:
        """Queues one inference: the first launch by launch, which loads the kernels, all others as recorded then."""
        if self._replay is not None:
            self._replay()
            return
        self._start()
        self._replay = self.device.capture(self._start)

    def time(self, iterations: int) -> NDArray[np.float64]:
        """Times each inference by the device's clock, without transfers, see `Stopwatch`; returns seconds."""
        return self._watch().time(iterations)

    def profile(self, iterations: int) -> NDArray[np.float64]:
        """Times each step, launched one by one; returns seconds (iterations, steps)."""
        parts = [partial(start_all, launches) for launches in self._steps]
        watch = self._watch()
        laps = [watch.laps(parts) for _ in range(iterations)]
        return np.array(laps).reshape(iterations, len(parts))

    def _watch(self) -> Stopwatch:
        """Returns the timer of a recorded inference.

        It has no reference to this runner, so memory is free once the runner is unused.
        """
        if self._replay is None:
            self.run()
        if self._stopwatch is None:
            assert self._replay is not None
            self._stopwatch = Stopwatch(self.device, self._replay, sum(map(len, self._steps)), cold=False)
        return self._stopwatch

    def _start(self) -> None:
        for launches in self._steps:
            start_all(launches)

    def _prepare_launches(self, launches: Launches) -> list[Callable[[], None]]:
        return [self._launch(facts) for facts in launches]

    def _launch(self, facts: Mapping[str, Any]) -> Callable[[], None]:
        key, shared = (facts["module"], facts["name"]), facts["dynamic_shared_bytes"]
        if key not in self._kernels:
            self._kernels[key] = self.device.kernel(self._modules[facts["module"]], facts["name"], shared)
        kernel, arguments = self._kernels[key], [self._pointer(*place) for place in facts["arguments"]]
        arguments += encode_maps(self.device, facts.get("tensor_maps", ()), arguments)
        return self.device.prepare_launch(kernel, facts["grid"], facts["block"], shared, arguments)

    def _pointer(self, space: str, number: int, beyond: int) -> Any:
        if space in ("input", "output"):
            return self.device.part((self._inputs if space == "input" else self._outputs)[number], beyond)
        return self.device.part(self._memory[space], number + beyond)


def _bytes(parameter: Parameter) -> int:
    return int(np.prod(parameter.shape)) * numpy_dtype(parameter.dtype).itemsize
