"""A network of Python text: functions called one after the other on parts of one memory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_space.dtypes import numpy_dtype
from targets.base import Module
from targets.calling import Array
from targets.executable import Executable
from targets.manifest import HASHED_FILE, SIZE, TEXT, Format, contents

_CALL = {"module": SIZE, "function": TEXT}
FORMAT = Format(
    "pyloops",
    {
        "modules": [HASHED_FILE],
        "packings": [_CALL],
        "calls": [_CALL],
        "memory": {"arena_bytes": SIZE, "packed_bytes": SIZE},
    },
)


def load_functions(module: Module) -> Mapping[str, Callable[..., None]]:
    """Returns a module's functions, by name."""
    dtypes = {dtype: numpy_dtype(dtype) for dtype in ("float32", "int8", "int32", "int64")}
    scope: dict[str, Any] = {"np": np, "inf": np.inf, "nan": np.nan, "dtypes": dtypes}
    exec(compile(module.object_code, module.name, "exec"), scope)
    return scope


class PyExecutable(Executable):
    format = FORMAT

    def __init__(self, folder: str | os.PathLike[str], threads: int | None = None, mapped: bool = False) -> None:
        super().__init__(folder, threads, mapped)
        files = [contents(self.folder / m["file"], m["sha256"]) for m in self.manifest["modules"]]
        self._functions = [load_functions(Module.from_bytes(data)) for data in files]
        memory = self.manifest["memory"]
        self._memory = {
            "weights": self.read_weights(mapped),
            "arena": np.zeros(memory["arena_bytes"], np.uint8),
            "packed": np.zeros(memory["packed_bytes"], np.uint8),
        }
        self._arrays = {
            "input": [np.zeros(p.shape, numpy_dtype(p.dtype)) for p in self.inputs],
            "output": [np.zeros(p.shape, numpy_dtype(p.dtype)) for p in self.outputs],
        }
        for call in self.manifest["packings"]:
            self._call(call)()
        self._steps = [self._call(call) for call in self.manifest["calls"]]

    def _call(self, facts: Mapping[str, Any]) -> Callable[[], None]:
        return partial(self._functions[facts["module"]][facts["function"]], *map(self._array, facts["arguments"]))

    def _array(self, facts: Mapping[str, Any]) -> Array:
        space, number, beyond = facts["place"]
        own = space in self._arrays
        memory: Any = self._arrays[space][number].reshape(-1).view(np.uint8) if own else self._memory[space]
        dtype = numpy_dtype(facts["dtype"])
        strides = [stride * dtype.itemsize for stride in facts["strides"]]
        return np.ndarray(facts["shape"], dtype, memory, beyond if own else number + beyond, strides)

    def infer(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        for mine, array in zip(self._arrays["input"], arrays, strict=True):
            mine[...] = array
        self.step_seconds(1)
        return tuple(array.copy() for array in self._arrays["output"])

    def time(self, iterations: int) -> NDArray[np.float64]:
        total: NDArray[np.float64] = self.step_seconds(iterations).sum(axis=1)
        return total

    def step_seconds(self, iterations: int) -> NDArray[np.float64]:
        seconds = np.empty((iterations, len(self._steps)))
        for row in seconds:
            for number, step in enumerate(self._steps):
                start = time.perf_counter()
                step()
                row[number] = time.perf_counter() - start
        return seconds


EXECUTABLE = PyExecutable
