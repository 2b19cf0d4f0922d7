"""Networks on several targets: kernels of the CPU and of an accelerator, run one after the other from Python.

    network = autotune.load("runs/vta_resnet18/network")
    logits = network(image)

Each step is a module that its own target runs, an accelerator's on its simulator. Nothing is shared between steps but
the arrays that they read and write. An executable of the CPU alone is another one, see `autotune.executable.loading`.
"""

from __future__ import annotations

import io
import os
import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.executable.compile import Chosen
from autotune.executable.loading import Array, checked, manifest_digest, restored
from autotune.executable.manifest import (
    STEPWISE_SCHEMA,
    ExecutableError,
    contents,
    digest,
    listed,
    parameters_of,
    read_manifest,
    replace_file,
    write_manifest,
)
from autotune.graph.ir import Graph
from autotune.graph.offload import is_offloaded, tuned_as
from autotune.graph.partition import partition
from autotune.graph.views import locate
from search_space.dtypes import numpy_dtype
from search_space.space import program_of
from targets import registry
from targets.base import Bound, Module, Parameter, RunError

WEIGHTS = "weights.npz"


def compile_stepwise(
    graph: Graph, chosen: Chosen, folder: Path, target: str, device: str, threads: int = 1
) -> StepwiseExecutable:
    """Compiles a graph into `folder`, a file for each kernel.

    Args:
        graph: as `offload` gives it, of which `executable_graph` has been made.
        chosen: workload → its schedule.
        folder: to write.
        target: of what the device does not compute.
        device: target of the offloaded layers.
        threads: that the kernels of the CPU run on.

    Raises:
        BuildError: a kernel that cannot be built.
    """
    folder.mkdir(parents=True, exist_ok=True)
    roots = {name: at.root for name, at in locate(graph, in_place=False).items()}
    modules: dict[str, dict[str, Any]] = {}
    steps, read = [], set()
    for group in partition(graph, in_place=False):
        if group.workload is None:
            continue
        place = device if is_offloaded(group.workload) else target
        key = group.workload.key
        if key not in modules:
            schedule = chosen(group.workload)
            program = program_of(group.workload, schedule.algorithm, schedule.trace)
            data = registry.get(place).build(program, f"kernel{len(modules)}").to_bytes()
            file = f"kernel{len(modules)}.module"
            replace_file(folder / file, data)
            modules[key] = {"file": file, "target": place, "sha256": digest(data)}
        inputs = [roots[name] for name in group.inputs]
        read |= {*inputs}
        steps.append(
            {
                "title": group.title,
                "workload": key,
                "task": tuned_as(group.workload).key,
                "target": place,
                "kernel": modules[key]["file"],
                "inputs": inputs,
                "output": group.output,
            }
        )
    constants = {name: array for name, array in graph.constants.items() if name in read}
    packed = io.BytesIO()
    np.savez(packed, **{f"c{i}": array for i, array in enumerate(constants.values())})  # type: ignore[arg-type]
    replace_file(folder / WEIGHTS, packed.getbuffer())
    values = sum(graph.type(str(step["output"])).nbytes for step in steps)
    nbytes = sum(array.nbytes for array in constants.values())
    manifest = {
        "schema": STEPWISE_SCHEMA,
        "name": graph.name,
        "target": target,
        "device": device,
        "threads": threads,
        "inputs": [listed(Parameter(name, kind.shape, kind.dtype)) for name, kind in graph.inputs.items()],
        "outputs": [
            {**listed(Parameter(n, graph.type(n).shape, graph.type(n).dtype)), "value": roots[n]} for n in graph.outputs
        ],
        "weights": {
            "file": WEIGHTS,
            "names": list(constants),
            "nbytes": nbytes,
            "original_nbytes": nbytes,
            "sha256": digest(packed.getbuffer()),
        },
        "memory": {"arena_bytes": values},
        "modules": list(modules.values()),
        "steps": steps,
    }
    write_manifest(manifest, folder)
    return StepwiseExecutable(folder, threads)


class StepwiseExecutable:
    """A network of steps on several targets.

    Threads may call it at the same time; what is simulated takes turns. `time` and `profile` are of the inputs of the
    last call. Pickled, it is its folder and the digest of the manifest there.

    Args:
        folder: that `compile_stepwise` wrote.
        threads: that kernels of the CPU run on; by default what the network was tuned for.

    Raises:
        ExecutableError: files that are missing, torn or of another schema.
    """

    def __init__(self, folder: str | os.PathLike[str], threads: int | None = None) -> None:
        self.folder = Path(folder)
        self.manifest = read_manifest(self.folder, STEPWISE_SCHEMA)
        self.name: str = self.manifest["name"]
        self.threads = threads or int(self.manifest["threads"])
        self.inputs = parameters_of(self.manifest["inputs"])
        self.outputs = parameters_of(self.manifest["outputs"])
        self.steps: Sequence[Mapping[str, Any]] = self.manifest["steps"]
        facts = self.manifest["weights"]
        weights = contents(self.folder / facts["file"], facts["sha256"])
        modules = [(m, contents(self.folder / m["file"], m["sha256"])) for m in self.manifest["modules"]]
        try:
            with np.load(io.BytesIO(weights), allow_pickle=False) as data:
                self._constants = {name: data[f"c{i}"] for i, name in enumerate(facts["names"])}
            self._kernels = {m["file"]: registry.get(m["target"]).load(Module.from_bytes(data)) for m, data in modules}
        except (KeyError, TypeError, ValueError, RunError, struct.error, zipfile.BadZipFile) as error:
            raise ExecutableError(f"{self.folder}: a network must have weights and kernels, but: {error}") from error
        self._check_steps()
        self._bound: list[Bound] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return restored, (str(self.folder.resolve()), manifest_digest(self.manifest), self.threads)

    def _check_steps(self) -> None:
        """Holds the arrays that steps read and leave against those that their kernels take.

        Raises:
            ExecutableError: some do not fit.
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

    def __call__(self, *arrays: Any) -> Array | tuple[Array, ...]:
        """One inference: the network's inputs in order → its output, or a tuple of them.

        Inputs are arrays of NumPy, or whatever gives one by `__array__` or DLPack.

        Raises:
            ExecutableError: arrays that the network does not take.
        """
        given = checked(self.name, self.inputs, arrays)
        values = {**self._constants, **{p.name: a for p, a in zip(self.inputs, given, strict=True)}}
        kept: list[Bound] = []
        for step in self.steps:
            kernel = self._kernels[step["kernel"]]
            sources = zip(kernel.module.sources, step["inputs"], strict=True)
            bound = kernel.bind([values[name].reshape(source.shape) for source, name in sources])
            values[step["output"]] = bound.run(self._threads(step)).copy()
            kept.append(bound)
        self._bound = kept
        found = zip(self.manifest["outputs"], self.outputs, strict=True)
        outputs = tuple(values[item["value"]].reshape(parameter.shape) for item, parameter in found)
        return outputs[0] if len(outputs) == 1 else outputs

    def profile(self, iterations: int) -> NDArray[np.float64]:
        """Seconds of each step, (iterations, steps), on the inputs of the last call; of a simulator what it says.

        Raises:
            ExecutableError: there was no call.
        """
        kept = self._bound
        if not kept:
            raise ExecutableError(f"`{self.name}` must have been called before it is timed, but it was not")
        steps = zip(kept, self.steps, strict=True)
        return np.stack([bound.time(iterations, self._threads(step)) for bound, step in steps], axis=1)

    def time(self, iterations: int) -> NDArray[np.float64]:
        """Seconds of each of `iterations` inferences: the sums of their steps, nothing in between counted."""
        total: NDArray[np.float64] = self.profile(iterations).sum(axis=1)
        return total

    def seconds_by_target(self, iterations: int) -> dict[str, float]:
        """Target → the median seconds of its steps, added up."""
        found: dict[str, float] = {}
        for step, seconds in zip(self.steps, np.median(self.profile(iterations), axis=0), strict=True):
            found[step["target"]] = found.get(step["target"], 0.0) + float(seconds)
        return found

    @property
    def weights_bytes(self) -> int:
        """Of all constants."""
        return int(self.manifest["weights"]["nbytes"])

    @property
    def arena_bytes(self) -> int:
        """Of all activations: no two share memory."""
        return int(self.manifest["memory"]["arena_bytes"])

    def _threads(self, step: Mapping[str, Any]) -> int:
        return self.threads if step["target"] == self.manifest["target"] else 1


def _kind(parameter: Parameter) -> tuple[int, np.dtype[Any]]:
    """Elements, however they are arranged, and their type."""
    return int(np.prod(parameter.shape)), numpy_dtype(parameter.dtype)
