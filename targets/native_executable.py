"""A network linked to native code for this host: run and timed with no Python between the kernels."""

from __future__ import annotations

import ctypes
import math
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_space.dtypes import numpy_dtype
from targets.arrays import allocate_aligned
from targets.base import Parameter, sizes_in
from targets.calling import Array
from targets.executable import Executable, check_iterations
from targets.extents import extent_at
from targets.manifest import HASHED_FILE, SIZE, ExecutableError, Format, contents
from targets.network_library import KIND, NetworkLibrary


def _linked_files(manifest: Mapping[str, Any]) -> list[Mapping[str, str]]:
    """Returns the shared object of a manifest, or all objects if it has none.

    Raises:
        ExecutableError: the manifest lists neither.
    """
    files: list[Mapping[str, str]] = manifest["files"]
    whole = [item for item in files if item["file"] == f"{manifest['name']}.so"]
    linked = whole or [item for item in files if item["file"].endswith(".o")]
    if not linked:
        names = ", ".join(item["file"] for item in files) or "none"
        raise ExecutableError(f"`files` must have {manifest['name']}.so or objects, but got {names}")
    return linked


FORMAT = Format(
    KIND,
    {"files": [HASHED_FILE], "memory": {"arena_bytes": SIZE, "shared_bytes": SIZE, "scratch_bytes": SIZE}},
    _linked_files,
)


class _Context:
    """Memory of one inference: the table of its arrays and sizes, and the workspace of its kernels.

    Attributes:
        table, workspace: their addresses.
    """

    def __init__(self, arrays: int, sizes: int, weights: Array, workspace_bytes: int) -> None:
        self._addresses = (ctypes.c_uint64 * (arrays + 1 + sizes))()
        self._write = struct.Struct(f"={arrays + 1 + sizes}Q").pack_into
        self._weights = int(weights.ctypes.data)
        self._workspace = allocate_aligned((workspace_bytes,), "uint8")
        self.table, self.workspace = ctypes.addressof(self._addresses), int(self._workspace.ctypes.data)

    def point(self, addresses: Sequence[int], sizes: Iterable[int]) -> None:
        """Has the table name these inputs and outputs, and sizes."""
        self._write(self._addresses, 0, *addresses, self._weights, *sizes)


@dataclass(frozen=True)
class _State:
    """An input whose last rows are an output.

    Attributes:
        input, output: their places.
        parameter, rows: parameters of the input and of the output.
        row_bytes: bytes of a row.
    """

    input: int
    output: int
    parameter: Parameter
    rows: Parameter
    row_bytes: int

    @classmethod
    def of(cls, names: Sequence[str], inputs: Sequence[Parameter], outputs: Sequence[Parameter]) -> _State:
        """Makes the state of an input's and an output's name.

        Raises:
            ExecutableError: a name is unknown, or the two differ in more than their first extents.
        """
        positions = [
            [p.name for p in of].index(n) if n in [p.name for p in of] else -1
            for n, of in zip(names, (inputs, outputs), strict=True)
        ]
        if -1 in positions:
            raise ExecutableError(f"`states` must be names of an input and an output, but got {list(names)!r:.80}")
        full, rows = inputs[positions[0]], outputs[positions[1]]
        if (
            full.shape[1:] != rows.shape[1:]
            or full.dtype != rows.dtype
            or (full.extents or full.shape)[1:] != (rows.extents or rows.shape)[1:]
        ):
            raise ExecutableError(f"`states` must be alike but for their rows, but got {list(names)!r:.80}")
        nbytes = math.prod(full.shape[1:]) * numpy_dtype(full.dtype).itemsize
        return cls(positions[0], positions[1], full, rows, nbytes)

    def rows_in(self, state: Array, rows: Parameter) -> Array:
        """Returns the rows of an array that the output is."""
        found: Array = state[len(state) - rows.shape[0] :]
        return found

    def check(self, addresses: Sequence[int], inputs: int, sizes: Mapping[str, int]) -> None:
        """Holds the output's address against the input's.

        Raises:
            ExecutableError: it is elsewhere.
        """
        first = self._extent(self.parameter, sizes) - self._extent(self.rows, sizes)
        wanted = addresses[self.input] + first * self.row_bytes
        if first < 0 or addresses[inputs + self.output] != wanted:
            raise ExecutableError(
                f"`{self.rows.name}` must lie where row {first} of `{self.parameter.name}` lies, at {wanted:#x}, "
                f"but got {addresses[inputs + self.output]:#x}"
            )

    @staticmethod
    def _extent(parameter: Parameter, sizes: Mapping[str, int]) -> int:
        return extent_at(parameter.extents[0], sizes) if parameter.extents else parameter.shape[0]


class NativeExecutable(Executable):
    """A network in memory.

    Kernels read inputs and write outputs in place. Each call has a workspace of its own,
    which later calls reuse. So memory for activations is that of the greatest number of simultaneous calls. With
    `threads=1` calls run side by side. With more they share one pool of native threads, loop by loop; a call that finds
    the pool busy computes its loop alone.

    Args:
        folder: may be written anew meanwhile.
        threads: see `Executable`.
        mapped: otherwise weights are read into memory of this process, on large pages where the system has them.
        weights, entry: see `Executable`.

    Attributes:
        weights: bytes (n,) that kernels read.
    """

    format = FORMAT
    holds_weights = True

    def __init__(
        self,
        folder: str | os.PathLike[str],
        threads: int | None = None,
        mapped: bool = False,
        weights: Sequence[Array] | Array | None = None,
        entry: str | None = None,
    ) -> None:
        super().__init__(folder, threads, mapped, weights, entry)
        files = {f["file"]: contents(self.folder / f["file"], f["sha256"]) for f in _linked_files(self.manifest)}
        self.weights = self.read_weights(mapped)
        try:
            self._library = NetworkLibrary(self.name, files)
        except OSError as error:
            raise ExecutableError(f"{self.folder}: a network must have its shared object, but: {error}") from None
        self._arrays = len(self.inputs) + len(self.outputs)
        self._states = [_State.of(names, self.inputs, self.outputs) for names in self.manifest.get("states", ())]
        self._spans = tuple(self.sizes.values())
        self._contexts: list[_Context] = []  # that no call uses
        try:
            self._last: Sequence[Array] = [allocate_aligned(p.shape, p.dtype) for p in self.inputs]
            self._contexts.append(self._context())
        except MemoryError as error:
            raise ExecutableError(f"{self.folder}: a network must fit into memory, but: {error}") from None

    def infer(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        """Runs one inference, and keeps the inputs until the next one for `run`, `time` and `profile`."""
        readable = [_readable(array) for array in arrays]
        for state in self._states:
            readable[state.input] = np.array(readable[state.input])  # the caller's stays as it is
        sizes = self._sizes_in(readable)
        made = self._outputs_for(readable, sizes)
        self.infer_at([*map(_address, readable), *map(_address, made)], tuple(sizes.values()))
        self._last = readable
        return tuple(made)

    def infer_at(self, addresses: Sequence[int], sizes: Sequence[int] = ()) -> None:
        """Runs one inference on memory of the caller.

        Args:
            addresses: addresses of the inputs in order, then of the outputs: dense arrays, row-major, at multiples of
                their elements' size. Outputs overlap with nothing else, except rows of a state, which are the last ones
                of its input. Only the number of addresses and the position of states' rows are checked.
            sizes: values of the network's open sizes, in its order, each within its range.

        Raises:
            ExecutableError: a wrong number of addresses or sizes, an address that is 0, a size out of its range, or
                misplaced rows of a state.
        """
        if len(addresses) != self._arrays or 0 in addresses:
            raise ExecutableError(f"`addresses` must be {self._arrays} and none of them 0, but got {list(addresses)}")
        if len(sizes) != len(self._spans) or not all(a <= n <= b for n, (a, b) in zip(sizes, self._spans, strict=True)):
            ranges = ", ".join(f"{name} from {low} to {high}" for name, (low, high) in self.sizes.items()) or "none"
            raise ExecutableError(f"`sizes` must be {ranges}, but got {list(sizes)}")
        for state in self._states:
            state.check(addresses, len(self.inputs), dict(zip(self.sizes, sizes, strict=True)))
        context = self._take_context()
        try:
            context.point(addresses, sizes)
            self._library.run(context.table, self.threads, context.workspace)
        finally:
            self._contexts.append(context)

    def _outputs_for(self, inputs: Sequence[Array], sizes: Mapping[str, int]) -> list[Array]:
        """Allocates the outputs; rows of a state are a view of the end of its input."""
        places = {state.output: state for state in self._states}
        return [
            places[number].rows_in(inputs[places[number].input], parameter.at(sizes))
            if number in places
            else allocate_aligned(parameter.at(sizes).shape, parameter.dtype, np.empty)
            for number, parameter in enumerate(self.outputs)
        ]

    def run(self) -> None:
        """Runs one inference on the inputs of the last call."""
        with self._lend_context() as context:
            self._library.run(context.table, self.threads, context.workspace)

    def time(self, iterations: int) -> NDArray[np.float64]:
        """Times each of `iterations` inferences in native code and returns their seconds."""
        check_iterations(iterations)
        ticks = np.zeros(iterations, np.int64)
        with self._lend_context() as context:
            tables = np.array([context.table], np.uint64)
            run, at = self._library.address, ticks.ctypes.data
            self._library.time(run, tables.ctypes.data, 1, iterations, self.threads, context.workspace, at)
        return np.multiply(ticks, 1e-9, dtype=np.float64)

    def step_seconds(self, iterations: int) -> NDArray[np.float64]:
        """Times each step of `iterations` inferences; returns seconds (iterations, steps).

        The seconds of a step in a loop are the sum over its trips.
        """
        ticks = np.zeros(len(self.manifest["steps"]) + 1, np.int64)
        out = np.empty((iterations, len(ticks) - 1))
        with self._lend_context() as context:
            for row in out:
                self._library.profile(context.table, self.threads, context.workspace, ticks.ctypes.data)
                row[...] = np.diff(ticks) * 1e-9
        return out

    def _context(self) -> _Context:
        memory = self.manifest["memory"]
        size = memory["arena_bytes"] + memory["shared_bytes"] + self.threads * memory["scratch_bytes"] + 64
        return _Context(self._arrays, len(self.sizes), self.weights, size)

    def _sizes_in(self, arrays: Sequence[Array]) -> dict[str, int]:
        return sizes_in(arrays, self.inputs, self.sizes)

    def _take_context(self) -> _Context:
        """Takes a free context, or makes one; the caller returns it to `_contexts`."""
        try:
            return self._contexts.pop()
        except IndexError:
            return self._context()

    @contextmanager
    def _lend_context(self) -> Iterator[_Context]:
        """Lends a context on the inputs of the last call, and on outputs that are discarded."""
        inputs, sizes = self._last, self._sizes_in(self._last)
        outputs = self._outputs_for(inputs, sizes)
        for array in outputs:
            array.fill(0)  # the system gives memory when it is written to first, which is not to be timed
        context = self._take_context()
        try:
            context.point([*map(_address, inputs), *map(_address, outputs)], sizes.values())
            yield context
        finally:
            self._contexts.append(context)


def _readable(array: Array) -> Array:
    """Returns an array that kernels can read: a copy if it is not dense, or not aligned."""
    flags = array.flags
    return array if flags.c_contiguous and flags.aligned else np.array(array, order="C")


def _address(array: Array) -> int:
    return int(array.ctypes.data)
