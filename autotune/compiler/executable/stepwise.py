"""Networks on several targets: kernels of a processor and of an accelerator, run one after the other from Python.

    network = autotune.load("runs/vta_resnet18/network")
    logits = network(image)

Each step is a module that its own target runs, an accelerator's on its simulator. Steps share nothing except the arrays
that they read and write. A network on one target has that target's own kind of executable.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_space.dtypes import numpy_dtype
from targets import registry
from targets.base import Bound, Module, Parameter, RunError
from targets.calling import Array
from targets.executable import Executable, check_iterations
from targets.manifest import FILE, HASHED_FILE, SIZE, TENSOR, TEXT, ExecutableError, Format, contents, tensor_bytes

ALIGNMENT = 64
"""Bytes at whose multiples constants begin."""


def _fit(data: Mapping[str, Any]) -> None:
    files = {module["file"] for module in data["modules"]}
    computed = {item["name"] for item in (*data["constants"], *data["inputs"])}
    for item in data["constants"]:
        if item["offset"] % ALIGNMENT or item["offset"] + tensor_bytes(item) > data["weights"]["nbytes"]:
            raise ExecutableError(f"`offset` must be a multiple of {ALIGNMENT} within weights, but got {item!r:.80}")
    for step in data["steps"]:
        if step["kernel"] not in files:
            raise ExecutableError(f"`kernel` must be a file of a module, but got kernel={step['kernel']!r}")
        for name in step["inputs"]:
            if name not in computed:
                raise ExecutableError(f"`inputs` must be there before their step, but got {name!r}")
        computed.add(step["output"])
    for item in data["outputs"]:
        if item["value"] not in computed:
            raise ExecutableError(f"`value` must be what a step computes, but got value={item['value']!r}")


FORMAT = Format(
    "stepwise",
    {
        "name": TEXT,
        "device": TEXT,
        "outputs": [{**TENSOR, "value": TEXT}],
        "constants": [{**TENSOR, "offset": SIZE}],
        "modules": [{**HASHED_FILE, "target": TEXT}],
        "steps": [{"title": TEXT, "workload": TEXT, "kernel": FILE, "target": TEXT, "inputs": [TEXT], "output": TEXT}],
    },
    _fit,
)


class StepwiseExecutable(Executable):
    """A network of steps on several targets.

    Threads may call it at the same time; simulators run one call at a time.

    Args:
        folder: folder that `compile_stepwise` wrote.
        threads: number of threads that kernels of the processor run on.
        mapped: see `Executable`.
    """

    format = FORMAT

    def __init__(self, folder: str | os.PathLike[str], threads: int | None = None, mapped: bool = False) -> None:
        super().__init__(folder, threads, mapped)
        self.steps: Sequence[Mapping[str, Any]] = self.manifest["steps"]
        weights = self.read_weights(mapped)
        self._constants = {
            item["name"]: weights[item["offset"] :][: tensor_bytes(item)]
            .view(numpy_dtype(item["dtype"]))
            .reshape(item["shape"])
            for item in self.manifest["constants"]
        }
        modules = [(m, contents(self.folder / m["file"], m["sha256"])) for m in self.manifest["modules"]]
        try:
            self._kernels = {m["file"]: registry.get(m["target"]).load(Module.from_bytes(data)) for m, data in modules}
        except (KeyError, TypeError, ValueError, RunError, struct.error) as error:
            raise ExecutableError(f"{self.folder}: a network must have kernels, but: {error}") from error
        self._check_steps()
        self._bound: list[Bound] = []

    def _check_steps(self) -> None:
        """Compares the arrays that steps read and write with the parameters of their kernels.

        Raises:
            ExecutableError: an array does not fit.
        """
        kinds = {name: (array.size, array.dtype) for name, array in self._constants.items()}
        kinds |= {p.name: _kind(p) for p in self.inputs}
        for step in self.steps:
            module = self._kernels[step["kernel"]].module
            by_name = {p.name: p for p in module.parameters}
            wanted = [_kind(source) for source in module.sources]
            if [kinds[name] for name in step["inputs"]] != wanted or len(module.outputs) != 1:
                raise ExecutableError(f"{self.folder}: `inputs` must be what {step['kernel']} takes, but are others")
            kinds[step["output"]] = _kind(by_name[module.outputs[0]])
        for item, parameter in zip(self.manifest["outputs"], self.outputs, strict=True):
            if kinds[item["value"]] != _kind(parameter):
                raise ExecutableError(f"{self.folder}: output `{parameter.name}` must be what was computed, but is not")

    @property
    def _machine(self) -> str:
        return f"{super()._machine}, and {self.manifest['device']}"

    def infer(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        values = {**self._constants, **{p.name: a for p, a in zip(self.inputs, arrays, strict=True)}}
        bound_kernels: list[Bound] = []
        for step in self.steps:
            kernel = self._kernels[step["kernel"]]
            sources = zip(kernel.module.sources, step["inputs"], strict=True)
            bound = kernel.bind([values[name].reshape(source.shape) for source, name in sources])
            values[step["output"]] = bound.run(self._threads(step)).copy()
            bound_kernels.append(bound)
        self._bound = bound_kernels
        found = zip(self.manifest["outputs"], self.outputs, strict=True)
        return tuple(values[item["value"]].reshape(parameter.shape) for item, parameter in found)

    def step_seconds(self, iterations: int) -> NDArray[np.float64]:
        """Times each step on the inputs of the last call, (iterations, steps); a simulator reports its own seconds.

        Raises:
            ExecutableError: there was no call before.
        """
        bound_kernels = self._bound
        if not bound_kernels:
            raise ExecutableError(f"`{self.name}` must have been called before it is timed, but it was not")
        steps = zip(bound_kernels, self.steps, strict=True)
        return np.stack([bound.time(iterations, self._threads(step)) for bound, step in steps], axis=1)

    def time(self, iterations: int) -> NDArray[np.float64]:
        """Times `iterations` inferences: sums of their steps' seconds, without the time in between."""
        check_iterations(iterations)
        total: NDArray[np.float64] = self.step_seconds(iterations).sum(axis=1)
        return total

    def seconds_by_target(self, iterations: int) -> dict[str, float]:
        """Sums the median seconds of the steps of each target."""
        sums: dict[str, float] = {}
        for step, seconds in zip(self.steps, np.median(self.step_seconds(iterations), axis=0), strict=True):
            sums[step["target"]] = sums.get(step["target"], 0.0) + float(seconds)
        return sums

    def _threads(self, step: Mapping[str, Any]) -> int:
        return self.threads if step["target"] == self.manifest["target"] else 1


def _kind(parameter: Parameter) -> tuple[int, np.dtype[Any]]:
    """Returns the number of elements, in any shape, and their type."""
    return int(np.prod(parameter.shape)), numpy_dtype(parameter.dtype)
