"""A compiled network: loaded from its folder, run and timed with no Python between the kernels.

network = autotune.load("runs/resnet50/network")
logits = network(image)

A process that only does this imports NumPy and nothing else that is not Python's own.
"""

from __future__ import annotations

import io
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autotune.manifest import (
    SCHEMAS,
    SEAL,
    STEPWISE_SCHEMA,
    ExecutableError,
    contents,
    digest,
    parameters_of,
    read_manifest,
)
from search_space.dtypes import numpy_dtype
from targets.arrays import aligned
from targets.base import Parameter, as_array
from targets.cuda.driver import NETWORK_SCHEMA as CUDA_SCHEMA
from targets.network_library import SCHEMA, NetworkLibrary

if TYPE_CHECKING:
    from autotune.cuda_executable import CudaExecutable
    from autotune.stepwise import StepwiseExecutable

Loaded: TypeAlias = "Executable | CudaExecutable | StepwiseExecutable"
"""A network that can be called and timed."""

Array = NDArray[Any]


class _Context:
    """Buffers of one inference: inputs, outputs, and what kernels work in.

    Attributes:
        given, made: inputs and outputs, in order.
        table: address of the table of all arrays.
        workspace: address of memory for intermediate results.
    """

    def __init__(
        self, inputs: Sequence[Parameter], outputs: Sequence[Parameter], weights: Array, workspace_bytes: int
    ) -> None:
        self.given = [aligned(p.shape, p.dtype) for p in inputs]
        self.made = [aligned(p.shape, p.dtype) for p in outputs]
        self._kept = aligned((workspace_bytes,), "uint8")
        self._table = np.array([a.ctypes.data for a in (*self.given, *self.made, weights)], np.uint64)
        self.table, self.workspace = int(self._table.ctypes.data), int(self._kept.ctypes.data)


class Executable:
    """A network in memory.

    Threads may call it at the same time: each call has buffers of its own, which later calls use again, so memory for
    activations is that of the most calls there were at a time. With `threads=1` calls run side by side; with more they
    share one pool of native threads, loop by loop, and whoever finds it at work computes its loop alone meanwhile.
    `time` and `profile` are of the inputs of the last call. Pickled, it is its folder and the digest of its manifest.

    Args:
        folder: that `autotune compile` or `autotune run` wrote. It may be written anew meanwhile.
        threads: that kernels run on; by default what the network was tuned for.
        mapped: whether weights are pages of the file, which processes share, or read into memory of this process, on
            large pages where the system has them.

    Raises:
        ExecutableError: files that are missing, torn or of another schema or processor.
    """

    def __init__(self, folder: str | os.PathLike[str], threads: int | None = None, mapped: bool = False) -> None:
        self.folder = Path(folder)
        self.manifest = read_manifest(self.folder, SCHEMA)
        self.name: str = self.manifest["name"]
        self.threads = int(self.manifest["threads"]) if threads is None else threads
        self.mapped = mapped
        if self.threads < 1:
            raise ExecutableError(f"`threads` must be at least 1, but got threads={threads}")
        self.inputs = parameters_of(self.manifest["inputs"])
        self.outputs = parameters_of(self.manifest["outputs"])
        files = {f["file"]: contents(self.folder / f["file"], f["sha256"]) for f in _linked_files(self.manifest)}
        self._weights = weights_of(self.folder, self.manifest, mapped)
        try:
            self._library = NetworkLibrary(self.name, files)
        except OSError as error:
            raise ExecutableError(f"{self.folder}: a network must have its shared object, but: {error}") from None
        self._contexts: list[_Context] = []  # that no call uses; the last one is of the last call
        try:
            self._contexts.append(self._context())
        except MemoryError as error:
            raise ExecutableError(f"{self.folder}: a network must fit into memory, but: {error}") from None

    def __call__(self, *arrays: Any) -> Array | tuple[Array, ...]:
        """One inference: the network's inputs in order → its output, or a tuple of them.

        Inputs are arrays of NumPy, or whatever gives one by `__array__` or DLPack.

        Raises:
            ExecutableError: arrays that the network does not take.
        """
        given = checked(self.name, self.inputs, arrays)
        with self._held() as context:
            for mine, array in zip(context.given, given, strict=True):
                mine[...] = array
            self._library.run(context.table, self.threads, context.workspace)
            outputs = tuple(array.copy() for array in context.made)
        return outputs[0] if len(outputs) == 1 else outputs

    def run(self) -> None:
        """One inference on the inputs of the last call."""
        with self._held() as context:
            self._library.run(context.table, self.threads, context.workspace)

    def time(self, iterations: int) -> NDArray[np.float64]:
        """Seconds of each of `iterations` inferences, measured in native code."""
        ticks = np.zeros(iterations, np.int64)
        with self._held() as context:
            tables = np.array([context.table], np.uint64)
            run, at = self._library.address, ticks.ctypes.data
            self._library.time(run, tables.ctypes.data, 1, iterations, self.threads, context.workspace, at)
        return np.multiply(ticks, 1e-9, dtype=np.float64)

    def profile(self, iterations: int) -> NDArray[np.float64]:
        """Seconds of each step in each of `iterations` inferences: (iterations, steps)."""
        ticks = np.zeros(len(self.manifest["steps"]) + 1, np.int64)
        out = np.empty((iterations, len(ticks) - 1))
        with self._held() as context:
            for row in out:
                self._library.profile(context.table, self.threads, context.workspace, ticks.ctypes.data)
                row[...] = np.diff(ticks) * 1e-9
        return out

    def _context(self) -> _Context:
        memory = self.manifest["memory"]
        size = memory["arena_bytes"] + memory["shared_bytes"] + self.threads * memory["scratch_bytes"] + 64
        return _Context(self.inputs, self.outputs, self._weights, size)

    @contextmanager
    def _held(self) -> Iterator[_Context]:
        """A context that nobody else has meanwhile, the last call's if it is free."""
        try:
            context = self._contexts.pop()
        except IndexError:
            context = self._context()
        try:
            yield context
        finally:
            self._contexts.append(context)

    def __reduce__(self) -> tuple[Any, ...]:
        return restored, (str(self.folder.resolve()), manifest_digest(self.manifest), self.threads, self.mapped)

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


def restored(folder: str, sha256: str, threads: int | None, mapped: bool = False) -> Loaded:
    """What was pickled, loaded again.

    Raises:
        ExecutableError: the folder is not there any more, or holds another network.
    """
    found = load(folder, threads, mapped)
    if manifest_digest(found.manifest) != sha256:
        raise ExecutableError(f"{folder}: a network must be the one that was pickled, but another was written there")
    return found


def manifest_digest(manifest: Mapping[str, Any]) -> str:
    """By which a pickled network knows itself."""
    return str(manifest[SEAL])


def checked(name: str, inputs: Sequence[Parameter], arrays: Sequence[Any]) -> list[Array]:
    """Inputs as arrays of NumPy, if the network takes them.

    Raises:
        ExecutableError: states which it does not take and why.
    """
    if len(arrays) != len(inputs):
        names = ", ".join(p.name for p in inputs)
        raise ExecutableError(f"`{name}` must be given {names}, but got {len(arrays)} arrays")
    found = []
    for given, parameter in zip(arrays, inputs, strict=True):
        try:
            array = as_array(given)
        except (TypeError, ValueError, RuntimeError, BufferError) as error:
            raise ExecutableError(f"input `{parameter.name}` must be an array, but {error}") from error
        if array.shape != parameter.shape or array.dtype != numpy_dtype(parameter.dtype):
            raise ExecutableError(
                f"input `{parameter.name}` must be {parameter.dtype} of shape {parameter.shape}, "
                f"but got {array.dtype} of shape {array.shape}"
            )
        found.append(array)
    return found


def _linked_files(manifest: Mapping[str, Any]) -> list[Mapping[str, str]]:
    """The shared object, or all objects where there is none."""
    files: list[Mapping[str, str]] = manifest["files"]
    whole = [item for item in files if item["file"] == f"{manifest['name']}.so"]
    return whole or [item for item in files if item["file"].endswith(".o")]


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
