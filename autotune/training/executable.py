"""A training step in memory: an executable, and the states that its calls replace."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autotune.graph.ir import Array
from autotune.training.c_header import write_header
from autotune.training.losses import NO_CLASS
from autotune.training.optimisers import LEARNING_RATE, STEP, Optimiser
from autotune.training.step import GRADIENTS, PARAMETERS, Slot
from search_space.files import replace_file
from targets.arrays import allocate_aligned
from targets.base import Parameter
from targets.bundle import writable
from targets.calling import check_inputs, in_order
from targets.executable import Executable
from targets.manifest import SEAL, ExecutableError, contents, digest
from targets.native_executable import NativeExecutable

FORMAT = "autotune.training/2"
"""Version of the folders that `save` writes."""
FILE, NETWORK, HEADER = "training.json", "network", "{}_training.h"
"""File of the states' description, folder of the executable, and header for C beside it."""


class TrainingExecutable:
    """A training step: takes a batch, gives the loss, and replaces its own parameters.

    One call runs at a time. Batches are checked before a step. It then runs in native code, which replaces the states
    where they lie and counts the step. Python handles a signal only after that. So after an exception, including
    `KeyboardInterrupt`, the states are those before the step or after it, and `steps` says which.

    Args:
        executable: executable of a `TrainingGraph`.
        optimiser: optimiser of the graph.
        slots: parameter → its slot among all.
        states: first values of the states by name, those of `STEP` and `PARAMETERS` included; they are copied.
        classes: number of classes, of which each target is one; None: targets are no classes.

    Attributes:
        inputs: parameters of the batch, in order.

    Raises:
        ExecutableError: the states are not those of the executable, or it does not replace them where they lie.
    """

    def __init__(
        self,
        executable: Executable,
        optimiser: Optimiser,
        slots: Mapping[str, Slot],
        states: Mapping[str, Array],
        classes: int | None = None,
    ) -> None:
        self.executable, self.optimiser, self.slots, self.classes = executable, optimiser, slots, classes
        self.inputs, self._states = _split_inputs(executable)
        outputs = [parameter.name for parameter in executable.outputs[1:]]
        updates = [[state.name, name] for state, name in zip(self._states, outputs, strict=True)]
        if isinstance(executable, NativeExecutable) and executable.manifest.get("updates") != updates:
            raise ExecutableError(
                f"`updates` must be {updates!r:.80}, but got {executable.manifest.get('updates')!r:.80}"
            )
        if {state.name for state in self._states} != states.keys():
            expected = ", ".join(state.name for state in self._states)
            raise ExecutableError(f"`states` must be {expected}, but got {', '.join(states)}")
        self._arrays = {state.name: allocate_aligned(state.shape, state.dtype) for state in self._states}
        for name, array in self._arrays.items():
            array[...] = states[name]
        self._rate, self._loss = (allocate_aligned((1,), "float32") for _ in range(2))

    @property
    def steps(self) -> int:
        """Number of steps so far, each one batch."""
        return int(self._arrays[STEP][0])

    def step(self, *batch: Any, learning_rate: float | None = None) -> float:
        """Runs one step.

        Args:
            batch: inputs in order, or a mapping of all by name: arrays of NumPy, or objects with `__array__` or DLPack.
            learning_rate: rate of this step; None: the optimiser's.

        Returns:
            The loss before the step.

        Raises:
            ExecutableError: arrays that the step does not take.
        """
        name = self.executable.name
        arrays = [np.ascontiguousarray(a) for a in check_inputs(name, self.inputs, in_order(name, self.inputs, batch))]
        self._check_labels(arrays[0])
        self._rate[0] = self.optimiser.learning_rate if learning_rate is None else learning_rate
        states = [*self._arrays.values()]
        inputs = [*arrays, self._rate, *states]
        if isinstance(self.executable, NativeExecutable):
            self.executable.infer_at([int(array.ctypes.data) for array in (*inputs, self._loss, *states)])
            return float(self._loss[0])
        loss, *new = self.executable.infer(inputs)  # states pass through this machine's memory in each step
        self._arrays = dict(zip(self._arrays, new, strict=True))  # all at once, so that a signal finds all or none
        return float(loss[0])

    def _check_labels(self, labels: Array) -> None:
        """Checks the classes of a batch.

        Raises:
            ExecutableError: a target is outside of the classes.
        """
        if self.classes is None:
            return
        low, high = int(labels.min(initial=0, where=labels != NO_CLASS)), int(labels.max())
        if low < 0 or high >= self.classes:
            wrong = low if low < 0 else high
            raise ExecutableError(
                f"targets must be classes from 0 to {self.classes - 1}, or {NO_CLASS}, but got {wrong}"
            )

    @property
    def states(self) -> dict[str, Array]:
        """Copies of the states by name."""
        return {name: array.copy() for name, array in self._arrays.items()}

    @property
    def parameters(self) -> dict[str, Array]:
        """Copies of the parameters by name, in the model's own shapes."""
        flat = self._arrays[PARAMETERS]
        return {name: np.array(slot.of(flat), order="C") for name, slot in self.slots.items()}

    @property
    def buffers(self) -> dict[str, Array]:
        """Copies of the model's other states that a step replaces, such as running means."""
        known = {STEP, PARAMETERS, GRADIENTS, *self.optimiser.moments}
        return {name: array for name, array in self.states.items() if name not in known}

    @property
    def state_bytes(self) -> int:
        """Memory that parameters, moments and buffers take together."""
        return sum(array.nbytes for array in self._arrays.values())

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Writes executable and states to a folder, from which `autotune.load_training` continues bit for bit.

        A step on a CPU also has a C header there. An interruption leaves the folder as it was saved before; once the
        description is replaced, the header may still name the states before, which are there as well.

        Raises:
            ExecutableError: the folder cannot be written.
        """
        root = writable(folder)
        if not (root / NETWORK).exists() or self.executable.folder.resolve() != (root / NETWORK).resolve():
            self.executable.save(root / NETWORK)
        data = b"".join(array.tobytes() for array in self._arrays.values())
        file = f"states-{self.steps}"
        replace_file(root / file, data)
        document = {
            "format": FORMAT,
            "network": self.executable.manifest[SEAL],
            "optimiser": self.optimiser.describe(),
            "steps": self.steps,
            "classes": self.classes,
            "states": {"file": file, "sha256": digest(data)},
            "slots": {name: [s.offset, list(s.shape), list(s.axes)] for name, s in self.slots.items()},
        }
        replace_file(root / FILE, (json.dumps(document, indent=1) + "\n").encode())
        if isinstance(self.executable, NativeExecutable):
            header = write_header(self, NETWORK, file)
            replace_file(root / HEADER.format(self.executable.name), header.encode())
        for old in root.glob("states-*"):
            if old.name != file:
                old.unlink()
        return root


def load_training(folder: str | os.PathLike[str], threads: int | None = None) -> TrainingExecutable:
    """Loads a training step and its states from the folder that `save` wrote.

    Raises:
        ExecutableError: a file is missing or torn, the folder is of another version, or of another network.
    """
    from autotune.compiler.executable.loading import load
    from autotune.training.optimisers import OPTIMISERS

    root = Path(folder)
    try:
        document = json.loads((root / FILE).read_text())
        version = document["format"]
    except OSError as error:
        raise ExecutableError(f"{root}: a training step must have {FILE}, but: {error.strerror}") from None
    except (ValueError, TypeError, KeyError):
        raise ExecutableError(f"{root / FILE}: a training step must be described as JSON, but it is not") from None
    if version != FORMAT:
        raise ExecutableError(f"{root / FILE}: `format` must be {FORMAT}, but got {version!s:.80}")
    executable = load(root / NETWORK, threads)
    if executable.manifest[SEAL] != document["network"]:
        raise ExecutableError(f"{root}: {FILE} must be of the network beside it, but is of another one")
    try:
        optimiser = OPTIMISERS[document["optimiser"].pop("name")](**document["optimiser"])
        slots = {name: Slot(at, tuple(shape), tuple(axes)) for name, (at, shape, axes) in document["slots"].items()}
        data = contents(root / Path(document["states"]["file"]).name, document["states"]["sha256"])
        classes = document["classes"]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ExecutableError(f"{root / FILE}: a training step must be described in full, but: {error}") from None
    return TrainingExecutable(executable, optimiser, slots, _split(executable, data, root), classes)


def _split_inputs(executable: Executable) -> tuple[Sequence[Parameter], Sequence[Parameter]]:
    """Splits the inputs of a training graph into the batch and the states, with the learning rate between them."""
    names = [parameter.name for parameter in executable.inputs]
    at = names.index(LEARNING_RATE)
    return executable.inputs[:at], executable.inputs[at + 1 :]


def _split(executable: Executable, data: bytes, root: Path) -> dict[str, Array]:
    """Splits the bytes of the states by the executable's inputs."""
    _, states = _split_inputs(executable)
    arrays: dict[str, Array] = {}
    sizes = [int(np.prod(state.shape)) * np.dtype(state.dtype).itemsize for state in states]
    if len(data) != sum(sizes):
        raise ExecutableError(f"{root}: states must be of {sum(sizes)} bytes, but got {len(data)}")
    offset = 0
    for state, size in zip(states, sizes, strict=True):
        arrays[state.name] = np.frombuffer(data[offset : offset + size], state.dtype).reshape(state.shape)
        offset += size
    return arrays
