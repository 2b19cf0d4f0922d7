"""A compiled network on an NVIDIA GPU: loaded from its folder, its launches recorded once and replayed at each call.

network = autotune.load("runs/resnet50_cuda/network")
logits = network(image)
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.executable.loading import Array, checked, manifest_digest, restored, weights_of
from autotune.executable.manifest import ExecutableError, contents, parameters_of, read_manifest
from search_space.dtypes import numpy_dtype
from targets.base import RunError
from targets.cuda.device import Device, first_device
from targets.cuda.driver import NETWORK_SCHEMA, runs_on
from targets.cuda.network_runner import NetworkRunner


class CudaExecutable:
    """A network in the memory of a GPU.

    Threads may call it at the same time and take turns: its buffers are there once. Pickled, it is its folder and the
    digest of the manifest there; its device is then the first GPU of the machine.

    Args:
        folder: that `autotune compile` or `autotune run` wrote.
        device: that runs it; by default the first GPU of this machine.

    Raises:
        ExecutableError: files that are missing, torn, of another schema or for another GPU, or a machine without one.
    """

    def __init__(self, folder: str | os.PathLike[str], device: Device | None = None) -> None:
        self.folder = Path(folder)
        self.manifest = read_manifest(self.folder, NETWORK_SCHEMA)
        self.name: str = self.manifest["name"]
        self.inputs = parameters_of(self.manifest["inputs"])
        self.outputs = parameters_of(self.manifest["outputs"])
        modules = self.manifest["modules"]
        cubins = [contents(self.folder / module["file"], module["sha256"]) for module in modules]
        weights = weights_of(self.folder, self.manifest, mapped=True)
        try:
            self.device = device or first_device()
            if not runs_on(self.manifest["arch"], self.device.arch):
                raise RunError(f"its kernels are for {self.manifest['arch']}, and this GPU is {self.device.arch}")
            self._runner = NetworkRunner(self.device, cubins, self.manifest, weights, self.inputs, self.outputs)
        except RunError as error:
            raise ExecutableError(
                f"{self.folder}: a network must be loaded on the GPU it is for, but {error}"
            ) from error
        self._made = [np.zeros(p.shape, numpy_dtype(p.dtype)) for p in self.outputs]
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return restored, (str(self.folder.resolve()), manifest_digest(self.manifest), None)

    def __call__(self, *arrays: Any) -> Array | tuple[Array, ...]:
        """One inference: the network's inputs in order → its output, or a tuple of them.

        Inputs are arrays of NumPy, or whatever gives one by `__array__` or DLPack.

        Raises:
            ExecutableError: arrays that the network does not take.
            RunError: the device failed.
        """
        given = checked(self.name, self.inputs, arrays)
        with self._lock:
            self.device.use()
            self._runner.upload(given)
            self._runner.run()
            self._runner.download(self._made)
            outputs = tuple(array.copy() for array in self._made)
        return outputs[0] if len(outputs) == 1 else outputs

    def time(self, iterations: int) -> NDArray[np.float64]:
        """Seconds of each of `iterations` inferences on the inputs of the last call, by the device's clock.

        Inputs and outputs stay on the device. Where an inference is short, a sample is the mean of a few.
        """
        with self._lock:
            self.device.use()
            return self._runner.time(iterations)

    def profile(self, iterations: int) -> NDArray[np.float64]:
        """Seconds of each step in each of `iterations` inferences, launched one by one: (iterations, steps)."""
        with self._lock:
            self.device.use()
            return self._runner.profile(iterations)

    @property
    def weights_bytes(self) -> int:
        """Of all constants, as they lie in the folder."""
        return int(self.manifest["weights"]["nbytes"])

    @property
    def arena_bytes(self) -> int:
        """Of all activations."""
        return int(self.manifest["memory"]["arena_bytes"])
