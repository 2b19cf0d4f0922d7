"""A network linked to native code for this host: run and timed with no Python between the kernels."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from targets.arrays import aligned
from targets.base import Parameter
from targets.calling import Array
from targets.executable import Executable
from targets.manifest import HASHED, SIZE, ExecutableError, Format, contents
from targets.network_library import SCHEMA, NetworkLibrary


def _linked_files(manifest: Mapping[str, Any]) -> list[Mapping[str, str]]:
    """The shared object, or all objects where there is none.

    Raises:
        ExecutableError: there is neither.
    """
    files: list[Mapping[str, str]] = manifest["files"]
    whole = [item for item in files if item["file"] == f"{manifest['name']}.so"]
    found = whole or [item for item in files if item["file"].endswith(".o")]
    if not found:
        names = ", ".join(item["file"] for item in files) or "none"
        raise ExecutableError(f"`files` must have {manifest['name']}.so or objects, but got {names}")
    return found


FORMAT = Format(
    SCHEMA,
    {"files": [HASHED], "memory": {"arena_bytes": SIZE, "shared_bytes": SIZE, "scratch_bytes": SIZE}},
    _linked_files,
)


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


class NativeExecutable(Executable):
    """A network in memory.

    Each call has buffers of its own, which later calls use again, so memory for activations is that of the most calls
    there were at a time. With `threads=1` calls run side by side; with more they share one pool of native threads, loop
    by loop, and whoever finds it at work computes its loop alone meanwhile.

    Args:
        folder: may be written anew meanwhile.
        threads: see `Executable`.
        mapped: otherwise weights are read into memory of this process, on large pages where the system has them.
        weights: see `Executable`; they are copied.
    """

    format = FORMAT
    holds_weights = True

    def __init__(
        self,
        folder: str | os.PathLike[str],
        threads: int | None = None,
        mapped: bool = False,
        weights: Sequence[Array] | None = None,
    ) -> None:
        super().__init__(folder, threads, mapped, weights)
        files = {f["file"]: contents(self.folder / f["file"], f["sha256"]) for f in _linked_files(self.manifest)}
        self._weights = self.read_weights(mapped)
        try:
            self._library = NetworkLibrary(self.name, files)
        except OSError as error:
            raise ExecutableError(f"{self.folder}: a network must have its shared object, but: {error}") from None
        self._contexts: list[_Context] = []  # that no call uses; the last one is of the last call
        try:
            self._contexts.append(self._context())
        except MemoryError as error:
            raise ExecutableError(f"{self.folder}: a network must fit into memory, but: {error}") from None

    def infer(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        with self._held() as context:
            for mine, array in zip(context.given, arrays, strict=True):
                mine[...] = array
            self._library.run(context.table, self.threads, context.workspace)
            return tuple(array.copy() for array in context.made)

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
        """Seconds of each step in each of `iterations` inferences: (iterations, steps).

        A step of a loop has those of all its trips.
        """
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
