"""A network on an NVIDIA GPU: its launches recorded once and replayed at each call."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_space.dtypes import numpy_dtype
from targets.base import RunError
from targets.calling import Array
from targets.cuda.device import Device, first_device
from targets.cuda.driver import runs_on
from targets.cuda.network_runner import NetworkRunner
from targets.executable import Executable, check_iterations
from targets.manifest import HASHED_FILE, SHAPE, SIZE, TEXT, ExecutableError, Format, Rule, contents, tensor_bytes

_SPACES = ("input", "output", "weights", "packed", "arena", "workspace")
_REF_RULE = Rule(
    "be a space, a number and an offset",
    lambda value: (
        isinstance(value, list) and len(value) == 3 and value[0] in _SPACES and all(map(SIZE.keeps, value[1:]))
    ),
)
_GRID = Rule("be three extents", lambda value: SHAPE.keeps(value) and len(value) == 3)
_LAUNCH = {
    "module": SIZE,
    "name": TEXT,
    "grid": _GRID,
    "block": _GRID,
    "dynamic_shared_bytes": SIZE,
    "tensor_maps": [{"argument": SIZE}],
    "arguments": [_REF_RULE],
}


def _fit(data: Mapping[str, Any]) -> None:
    if len(data["launches"]) != len(data["steps"]):
        steps, launches = len(data["steps"]), len(data["launches"])
        raise ExecutableError(f"`launches` must be of {steps} steps, but got those of {launches}")
    for launch in [*data["packing"], *(launch for step in data["launches"] for launch in step)]:
        _fit_launch(launch, data)


def _fit_launch(launch: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    memory = data["memory"]
    most = {"weights": data["weights"]["nbytes"]}
    most |= {space: memory[f"{space}_bytes"] for space in ("packed", "arena", "workspace")}
    tensors = {"input": data["inputs"], "output": data["outputs"]}
    if launch["module"] >= len(data["modules"]):
        raise ExecutableError(f"`module` must be one of {len(data['modules'])}, but got module={launch['module']}")
    if any(facts["argument"] >= len(launch["arguments"]) for facts in launch["tensor_maps"]):
        raise ExecutableError(f"`tensor_maps` must be of arguments of {launch['name']}, but got others")
    for space, number, beyond in launch["arguments"]:
        if space in tensors:
            right = number < len(tensors[space]) and beyond <= tensor_bytes(tensors[space][number])
        else:
            right = number + beyond <= most[space]
        if not right:
            raise ExecutableError(f"arguments must lie in the network, but got {[space, number, beyond]}")


FORMAT = Format(
    "cuda",
    {
        "arch": TEXT,
        "modules": [HASHED_FILE],
        "packing": [_LAUNCH],
        "launches": [[_LAUNCH]],
        "memory": {"arena_bytes": SIZE, "packed_bytes": SIZE, "workspace_bytes": SIZE},
    },
    _fit,
)


class CudaExecutable(Executable):
    """A network in the memory of a GPU.

    Threads that call it at the same time take turns: its buffers are there once. Unpickled, it is on the first GPU.

    Args:
        folder: see `Executable`.
        threads, mapped: ignored.
        device: device that runs it; by default the first GPU of this machine.

    Raises:
        ExecutableError: also where there is no GPU, or another one than kernels are for.
    """

    format = FORMAT
    on_cores = False

    def __init__(
        self,
        folder: str | os.PathLike[str],
        threads: int | None = None,
        mapped: bool = False,
        device: Device | None = None,
    ) -> None:
        super().__init__(folder, threads, mapped)
        modules = self.manifest["modules"]
        cubins = [contents(self.folder / module["file"], module["sha256"]) for module in modules]
        weights = self.read_weights(mapped=True)
        try:
            self.device = device or first_device()
            if not runs_on(self.manifest["arch"], self.device.arch):
                raise RunError(f"its kernels are for {self.manifest['arch']}, and this GPU is {self.device.arch}")
            self._runner = NetworkRunner(self.device, cubins, self.manifest, weights, self.inputs, self.outputs)
        except RunError as error:
            raise ExecutableError(
                f"{self.folder}: a network must be loaded on the GPU it is for, but {error}"
            ) from error
        self._outputs = [np.zeros(p.shape, numpy_dtype(p.dtype)) for p in self.outputs]
        self._lock = threading.Lock()

    @property
    def _machine(self) -> str:
        return f"{self.manifest['target']}, a GPU of {self.device.arch}"

    def infer(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        with self._lock:
            self.device.use()
            self._runner.upload(arrays)
            self._runner.run()
            self._runner.download(self._outputs)
            return tuple(array.copy() for array in self._outputs)

    def time(self, iterations: int) -> NDArray[np.float64]:
        """Times each of `iterations` inferences on the inputs of the last call by the device's clock; returns seconds.

        Inputs and outputs stay on the device. Where an inference is short, a sample is the mean of a few.
        """
        check_iterations(iterations)
        with self._lock:
            self.device.use()
            return self._runner.time(iterations)

    def step_seconds(self, iterations: int) -> NDArray[np.float64]:
        """Times each step of `iterations` inferences, launched one by one; returns seconds (iterations, steps)."""
        with self._lock:
            self.device.use()
            return self._runner.profile(iterations)


EXECUTABLE = CudaExecutable
