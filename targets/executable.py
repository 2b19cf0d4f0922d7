"""A compiled network, loaded from its folder: the base class of all targets' executables.

A process that only runs networks imports this, the module `executable` of their target, and no compiler.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from search_space.files import replace_file
from search_space.former_names import former_attributes
from targets.bundle import copy_files, join_weights, read_weights, writable
from targets.calling import Array, check_inputs, handed_back, in_order
from targets.manifest import (
    SEAL,
    ExecutableError,
    Format,
    contents,
    read_manifest,
    read_parameters,
    read_sizes,
    write_manifest,
)
from targets.profile import Profile
from targets.threads import MOST_THREADS, check_threads


class Executable(ABC):
    """A network in memory, as loaded from its folder.

    Threads may call it at the same time. `time` and `profile` repeat the last call, on its inputs. A pickled executable
    contains the path of its folder and the digest of the manifest there.

    Args:
        folder: folder that `autotune compile` or `autotune run` wrote.
        threads: number of threads for kernels of a CPU; by default the one that the network was tuned for.
        mapped: whether weights are pages of the file, which processes share, if the target supports that.
        weights: bytes of the weights in place of the file, if the class `holds_weights`. Parts (n,), one after the
            other, are copied. An array (n,) belongs to the executable from then on; it begins on a 64-byte boundary and
            has at least 64 bytes.
        entry: name of the entry point, where the folder has several.

    Attributes:
        format: format of its manifests.
        inputs, outputs: parameters of the network.
        sizes: least and greatest value of each open size, by name.
        holds_weights: whether it has the weights in this process' memory, so that no file of them is needed.
        on_cores: whether `threads` run on this host's cores, of which there must be as many.

    Raises:
        ExecutableError: files that are missing, torn, of another schema or for another machine.
    """

    format: ClassVar[Format]
    holds_weights: ClassVar[bool] = False
    on_cores: ClassVar[bool] = True

    def __init__(
        self,
        folder: str | os.PathLike[str],
        threads: int | None = None,
        mapped: bool = False,
        weights: Sequence[Array] | Array | None = None,
        entry: str | None = None,
    ) -> None:
        self.folder, self._entry = Path(folder), entry
        self._weight_arrays = weights
        self._in_memory: Array | None = None  # what was given, as one
        self.manifest = read_manifest(self.folder, self.format, entry)
        self.name: str = self.manifest["name"]
        self.threads = int(self.manifest["threads"]) if threads is None else threads
        self.mapped: bool = mapped
        try:
            on_cores = threads is not None and self.on_cores
            check_threads(self.threads, None if on_cores else MOST_THREADS)
        except ValueError as error:
            raise ExecutableError(str(error)) from None
        self.inputs = read_parameters(self.manifest["inputs"])
        self.outputs = read_parameters(self.manifest["outputs"])
        self.sizes = read_sizes(self.manifest)

    def __call__(self, *arguments: Any) -> Any:
        """Runs one inference: the network's inputs in order → its output, or a tuple of outputs.

        A mapping of all inputs by name gives one of the outputs by theirs. Inputs are arrays of NumPy, or objects that
        offer `__array__` or DLPack. If one is a tensor of PyTorch, outputs are tensors too.

        Raises:
            ExecutableError: arrays that the network does not take.
            RunError: the machine failed.
        """
        outputs = self.infer(
            check_inputs(self.name, self.inputs, in_order(self.name, self.inputs, arguments), self.sizes)
        )
        return handed_back(outputs, self.outputs, arguments)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Writes the network to a folder, from which `autotune.load` gives it again; the folder.

        Raises:
            ExecutableError: another network has been written over this one's files meanwhile.
        """
        target_folder = writable(folder)
        if target_folder.resolve() == self.folder.resolve():
            self._write_weights()
            return target_folder
        copy_files(self.manifest, self.folder, target_folder)
        facts = self.manifest["weights"]
        if self._in_memory is None:
            replace_file(target_folder / facts["file"], contents(self.folder / facts["file"], facts["sha256"]))
        else:
            replace_file(target_folder / facts["file"], self._in_memory[: self.weights_bytes].data)
        write_manifest(self.manifest, target_folder)
        return target_folder

    @abstractmethod
    def infer(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        """Runs one inference on checked inputs; returns arrays that the caller owns."""

    @abstractmethod
    def time(self, iterations: int) -> NDArray[np.float64]:
        """Times each of `iterations` inferences on the machine and returns their seconds."""

    def profile(self, iterations: int = 10) -> Profile:
        """Times each step of `iterations` inferences; the result is a table and an array (iterations, steps) of
        seconds.

        Raises:
            ExecutableError: `iterations` is negative, or no whole number.
        """
        check_iterations(iterations)
        return Profile(self.name, self.manifest["steps"], self.step_seconds(iterations))

    @abstractmethod
    def step_seconds(self, iterations: int) -> NDArray[np.float64]:
        """Times each step of `iterations` inferences; returns seconds (iterations, steps).

        The seconds of a step in a loop are the sum over its trips.
        """

    def __repr__(self) -> str:
        """Formats the executable as a few lines, however large the network is."""
        return "\n".join([f"{type(self).__name__} of {self.name}: {self._machine}", *self._lines])

    @property
    def _machine(self) -> str:
        """Target and number of threads."""
        return f"{self.manifest['target']}, {self.threads} thread{'s' * (self.threads != 1)}"

    @property
    def _lines(self) -> list[str]:
        steps = self.manifest["steps"]
        kernels = len({step["kernel"] for step in steps})
        lines = [f"  inputs: {', '.join(p.description for p in self.inputs) or 'none'}"]
        lines += [f"  outputs: {', '.join(p.description for p in self.outputs) or 'none'}"]
        if self.sizes:
            spans = (f"{name} from {low} to {high}" for name, (low, high) in self.sizes.items())
            lines.append(f"  sizes: {', '.join(spans)}")
        lines.append(f"  kernels: {kernels}, called in {len(steps)} step{'s' * (len(steps) != 1)}{_types(steps)}")
        return [*lines, f"  memory: weights {_megabytes(self.weights_bytes)}, values {_megabytes(self.arena_bytes)}"]

    @property
    def weights_bytes(self) -> int:
        """Bytes of all constants in the folder."""
        return int(self.manifest["weights"]["nbytes"])

    @property
    def arena_bytes(self) -> int:
        """Bytes of all activations."""
        return int(self.manifest["memory"]["arena_bytes"])

    def read_weights(self, mapped: bool) -> Array:
        """Reads the bytes of the weights file to a 64-byte boundary; at least 64 of them if they are not mapped.

        Raises:
            ExecutableError: a file that is missing, or another one than the manifest's.
        """
        facts = self.manifest["weights"]
        if self._weight_arrays is not None:
            self._in_memory, self._weight_arrays = join_weights(self._weight_arrays, int(facts["nbytes"])), None
            return self._in_memory
        return read_weights(self.folder / facts["file"], int(facts["nbytes"]), facts["sha256"], mapped)

    def _write_weights(self) -> None:
        """Writes the file of weights that were given, where none has done so yet."""
        path = self.folder / self.manifest["weights"]["file"]
        if self._in_memory is not None and not path.exists():
            replace_file(path, self._in_memory[: self.weights_bytes].data)

    def __reduce__(self) -> tuple[Any, ...]:
        self._write_weights()
        given = type(self), str(self.folder.resolve()), self.manifest[SEAL], self.threads, self.mapped, self._entry
        return _restore_pickled, given


def check_iterations(iterations: int) -> None:
    """Refuses an invalid number of inferences.

    Raises:
        ExecutableError: `iterations` is negative, or no whole number.
    """
    if not isinstance(iterations, int | np.integer) or iterations < 0:
        raise ExecutableError(f"`iterations` must be a whole number from 0, but got iterations={iterations!r}")


def _types(steps: Sequence[Mapping[str, Any]]) -> str:
    """Formats the element types of the steps by their share of operations; empty if the manifest names none."""
    counts: dict[str, float] = {}
    for step in steps:
        if isinstance(kind := step.get("dtype"), str):
            flops = step.get("flops")
            counts[kind] = counts.get(kind, 0.0) + (flops if isinstance(flops, int) else 0) * step.get("trips", 1)
    total = sum(counts.values())
    if not total:
        return f"; operations in {', '.join(counts)}" if counts else ""
    order = sorted(counts, key=lambda kind: -counts[kind])
    shares = [f"{kind} {counts[kind] / total:.1%}" for kind in order if counts[kind] >= 0.0005 * total]
    return f"; operations in {order[0] if len(shares) == 1 else ', '.join(shares)}"


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.2f} MB"


def _restore_pickled(
    kind: type[Executable], folder: str, seal: str, threads: int, mapped: bool, entry: str | None = None
) -> Executable:
    """Loads a pickled executable.

    Raises:
        ExecutableError: the folder is not there any more, or holds another network.
    """
    found = kind(folder, threads, mapped) if entry is None else kind(folder, threads, mapped, entry=entry)
    if found.manifest[SEAL] != seal:
        raise ExecutableError(f"{folder}: a network must be the one that was pickled, but another was written there")
    return found


if not TYPE_CHECKING:
    __getattr__ = former_attributes(__name__, {"_restored": "_restore_pickled"})  # pickles name it
