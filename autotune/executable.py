"""A compiled network: loaded from its folder, run and timed with no Python between the kernels.

network = autotune.load("runs/resnet50/network")
logits = network(image)

A process that only does this imports NumPy and nothing else that is not Python's own.
"""

from __future__ import annotations

import hashlib
import io
import json
import mmap
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from search_space.dtypes import numpy_dtype
from targets.base import Parameter
from targets.cpu.arrays import aligned
from targets.cpu.network_library import SCHEMA, NetworkLibrary
from targets.cuda.driver import NETWORK_SCHEMA as CUDA_SCHEMA

if TYPE_CHECKING:
    from autotune.cuda_executable import CudaExecutable
    from autotune.stepwise import StepwiseExecutable

Loaded: TypeAlias = "Executable | CudaExecutable | StepwiseExecutable"
"""A network that can be called and timed."""
STEPWISE_SCHEMA = "autotune.stepwise/1"
SCHEMAS = (SCHEMA, CUDA_SCHEMA, STEPWISE_SCHEMA)
MANIFEST = "manifest.json"

Array = NDArray[Any]


class ExecutableError(ValueError):
    """A folder that holds no network, or not a whole one, or arrays that it does not take."""


class Executable:
    """A network in memory.

    Args:
        folder: that `autotune compile` or `autotune run` wrote.
        threads: that kernels run on; by default what the network was tuned for.
        mapped: whether weights are pages of the file, which processes share and which must stay as it is meanwhile,
            or read into memory of this process, on large pages where the system has them.

    Raises:
        ExecutableError: files that are missing, torn or of another schema or processor.
    """

    def __init__(self, folder: str | os.PathLike[str], threads: int | None = None, mapped: bool = False) -> None:
        self.folder = Path(folder)
        self.manifest = read_manifest(self.folder, SCHEMA)
        self.name: str = self.manifest["name"]
        self.threads = threads or int(self.manifest["threads"])
        if self.threads < 1:
            raise ExecutableError(f"`threads` must be at least 1, but got threads={threads}")
        self.inputs = parameters_of(self.manifest["inputs"])
        self.outputs = parameters_of(self.manifest["outputs"])
        self._weights = weights_of(self.folder, self.manifest, mapped)
        try:
            self._library = NetworkLibrary(self.folder, self.name, self.manifest["files"])
        except OSError as error:
            raise ExecutableError(f"{self.folder}: a network must have its shared object, but: {error}") from None
        memory = self.manifest["memory"]
        self._workspace = aligned(
            (memory["arena_bytes"] + memory["shared_bytes"] + self.threads * memory["scratch_bytes"] + 64,), "uint8"
        )
        self._given = [aligned(p.shape, p.dtype) for p in self.inputs]
        self._made = [aligned(p.shape, p.dtype) for p in self.outputs]
        arrays = [*self._given, *self._made, self._weights]
        self._table = np.array([a.ctypes.data for a in arrays], np.uint64)

    def __call__(self, *arrays: Array) -> Array | tuple[Array, ...]:
        """One inference: the network's inputs in order → its output, or a tuple of them."""
        checked(self.name, self.inputs, arrays)
        for mine, array in zip(self._given, arrays, strict=True):
            mine[...] = array
        self.run()
        outputs = tuple(array.copy() for array in self._made)
        return outputs[0] if len(outputs) == 1 else outputs

    def run(self) -> None:
        """One inference on the inputs of the last call."""
        self._library.run(self._table.ctypes.data, self.threads, self._workspace.ctypes.data)

    def time(self, iterations: int) -> NDArray[np.float64]:
        """Seconds of each of `iterations` inferences, measured in native code."""
        ticks = np.zeros(iterations, np.int64)
        pointers = np.array([self._table.ctypes.data], np.uint64)
        self._library.time(
            self._library.address,
            pointers.ctypes.data,
            1,
            iterations,
            self.threads,
            self._workspace.ctypes.data,
            ticks.ctypes.data,
        )
        return np.multiply(ticks, 1e-9, dtype=np.float64)

    def profile(self, iterations: int) -> NDArray[np.float64]:
        """Seconds of each step in each of `iterations` inferences: (iterations, steps)."""
        ticks = np.zeros(len(self.manifest["steps"]) + 1, np.int64)
        out = np.empty((iterations, len(ticks) - 1))
        for row in out:
            self._library.profile(self._table.ctypes.data, self.threads, self._workspace.ctypes.data, ticks.ctypes.data)
            row[...] = np.diff(ticks) * 1e-9
        return out

    @property
    def weights_bytes(self) -> int:
        """Of all constants, as the kernels take them."""
        return int(self._weights.nbytes)

    @property
    def arena_bytes(self) -> int:
        """Of all activations."""
        return int(self.manifest["memory"]["arena_bytes"])


def load(folder: str | os.PathLike[str], threads: int | None = None, mapped: bool = False) -> Loaded:
    """The network in a folder: an `Executable` for the CPU, on a GPU one of `autotune.cuda_executable`, on several
    targets one of `autotune.stepwise`.

    Args:
        folder: that `autotune compile` or `autotune run` wrote.
        threads: that kernels of the CPU run on; by default what the network was tuned for.
        mapped: of a network on the CPU, see `Executable`.
    """
    schema = read_manifest(Path(folder), *SCHEMAS)["schema"]
    if schema == STEPWISE_SCHEMA:
        from autotune.stepwise import StepwiseExecutable

        return StepwiseExecutable(folder, threads)
    if schema == CUDA_SCHEMA:
        from autotune.cuda_executable import CudaExecutable

        return CudaExecutable(folder)
    return Executable(folder, threads, mapped)


def checked(name: str, inputs: Sequence[Parameter], arrays: Sequence[Array]) -> None:
    """Refuses arrays that a network does not take.

    Raises:
        ExecutableError: states which and why.
    """
    if len(arrays) != len(inputs):
        names = ", ".join(p.name for p in inputs)
        raise ExecutableError(f"`{name}` must be given {names}, but got {len(arrays)} arrays")
    for array, parameter in zip(arrays, inputs, strict=True):
        if array.shape != parameter.shape or array.dtype != numpy_dtype(parameter.dtype):
            raise ExecutableError(
                f"input `{parameter.name}` must be {parameter.dtype} of shape {parameter.shape}, "
                f"but got {array.dtype} of shape {array.shape}"
            )


def listed(parameter: Parameter) -> dict[str, Any]:
    """A parameter as manifests have it."""
    return {"name": parameter.name, "shape": list(parameter.shape), "dtype": parameter.dtype}


def digest(data: bytes | memoryview) -> str:
    """By which a manifest knows its weights."""
    return hashlib.sha256(data).hexdigest()


def contents(path: Path, sha256: str) -> bytes:
    """A file of a network.

    Raises:
        ExecutableError: it is missing, or another one than the manifest's.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ExecutableError(f"{path}: a network must have all of its files, but: {error.strerror}") from None
    if digest(data) != sha256:
        raise ExecutableError(f"{path}: a file of a network must be that of the manifest, but it differs from it")
    return data


def read_manifest(folder: Path, *schemas: str) -> dict[str, Any]:
    """The manifest of a network.

    Raises:
        ExecutableError: there is none, or none of these schemas.
    """
    path = folder / MANIFEST
    try:
        data = json.loads(path.read_text())
    except OSError as error:
        raise ExecutableError(f"{path}: a network must have a manifest, but: {error.strerror}") from None
    except ValueError:
        raise ExecutableError(f"{path}: a manifest must be JSON, but it is not") from None
    if not isinstance(data, dict) or data.get("schema") not in schemas:
        got = data.get("schema") if isinstance(data, dict) else type(data).__name__
        raise ExecutableError(f"{path}: a manifest must be of schema {' or '.join(schemas)}, but got {got}")
    return data


def parameters_of(items: Sequence[Mapping[str, Any]]) -> tuple[Parameter, ...]:
    """What a manifest lists."""
    return tuple(Parameter(item["name"], tuple(item["shape"]), item["dtype"]) for item in items)


def weights_of(folder: Path, manifest: Mapping[str, Any], mapped: bool) -> Array:
    """Bytes of a network's weights file, at least 64 of them where they are not mapped.

    Raises:
        ExecutableError: a file that is missing, or another one than the manifest's.
    """
    facts = manifest["weights"]
    path, size = folder / facts["file"], int(facts["nbytes"])
    try:
        with path.open("rb", buffering=0) as file:
            whole = os.fstat(file.fileno()).st_size == size
            data = _contents(file, size, mapped) if whole else np.zeros(0, np.uint8)
    except OSError as error:
        raise ExecutableError(f"{path}: a network must have its weights, but: {error.strerror}") from None
    if not whole or digest(data[:size].data) != facts["sha256"]:
        raise ExecutableError(f"{path}: weights must be those of the manifest, but they differ from it")
    return data


def _contents(file: io.FileIO, size: int, mapped: bool) -> Array:
    """The bytes of a file, once in memory, from a 64-byte boundary on."""
    if mapped and size:
        return np.frombuffer(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ), np.uint8)
    data = aligned((max(64, size),), "uint8")
    rest = data[:size].data
    while got := file.readinto(rest):  # at most 2 GiB at a time
        rest = rest[got:]
    return data
