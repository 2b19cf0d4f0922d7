"""Compilation of a network for an accelerator and its host: a file for each kernel, which `stepwise` runs in turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from autotune.compiler.executable.compile import ChooseSchedule, identifier
from autotune.compiler.executable.scopes import listed_step
from autotune.compiler.executable.stepwise import ALIGNMENT, FORMAT
from autotune.compiler.executable.weights import Weights
from autotune.graph.ir import Graph
from autotune.graph.loops import list_loops
from autotune.graph.offload import is_offloaded, tuned_as
from autotune.graph.partition import partition
from autotune.graph.views import locate
from search_space.files import replace_file
from search_space.space import make_program
from targets import registry
from targets.base import BuildError, Parameter
from targets.manifest import describe_parameter, digest, write_manifest


def compile_stepwise(
    graph: Graph, choose_schedule: ChooseSchedule, folder: Path, target: str, device: str, threads: int = 1
) -> None:
    """Compiles a graph into `folder`, a file for each kernel.

    Args:
        graph: result of `executable_graph` on a graph of `offload`.
        choose_schedule: function workload → its schedule.
        folder: folder to write.
        target: target of all that the device does not compute.
        device: target of the offloaded layers.
        threads: number of threads that the kernels of `target` run on.

    Raises:
        BuildError: a kernel cannot be built, or the graph has a loop.
    """
    if loops := list_loops(graph):
        raise BuildError(f"`graph` must have no loop for an executable of steps, but got {loops[0].name!r}")
    folder.mkdir(parents=True, exist_ok=True)
    roots = {name: at.root for name, at in locate(graph, in_place=False).items()}
    modules: dict[str, dict[str, Any]] = {}
    steps, read = [], set()
    for group in partition(graph, in_place=False):
        if group.workload is None:
            continue
        step_target = device if is_offloaded(group.workload) else target
        key = group.workload.key
        if key not in modules:
            schedule = choose_schedule(group.workload)
            program = make_program(group.workload, schedule.algorithm, schedule.trace)
            data = registry.get(step_target).build(program, f"kernel{len(modules)}").to_bytes()
            file = f"kernel{len(modules)}.module"
            replace_file(folder / file, data)
            modules[key] = {"file": file, "target": step_target, "sha256": digest(data)}
        inputs = [roots[name] for name in group.inputs]
        read |= {*inputs}
        steps.append(
            {
                **listed_step(group.title, group.workload, modules[key]["file"]),
                "task": tuned_as(group.workload).key,
                "target": step_target,
                "inputs": inputs,
                "output": group.output,
            }
        )
    name, weights = identifier(graph.name), Weights(ALIGNMENT)
    constants = [
        {**describe_parameter(_parameter(graph, each, each)), "offset": weights.add(np.asarray(array))}
        for each, array in graph.constants.items()
        if each in read
    ]
    values = sum(graph.type(str(step["output"])).nbytes for step in steps)
    original = sum(graph.constants[str(each["name"])].nbytes for each in constants)
    manifest = {
        "kind": FORMAT.kind,
        "name": name,
        "target": target,
        "device": device,
        "threads": threads,
        "inputs": [describe_parameter(_parameter(graph, each, each)) for each in graph.inputs],
        "outputs": [
            {**describe_parameter(_parameter(graph, value, each)), "value": roots[value]}
            for value, each in zip(graph.outputs, graph.output_names, strict=True)
        ],
        "weights": weights.write(folder / f"{name}.weights", original),
        "constants": constants,
        "memory": {"arena_bytes": values},
        "modules": list(modules.values()),
        "steps": steps,
    }
    write_manifest(manifest, folder)


def _parameter(graph: Graph, value: str, name: str) -> Parameter:
    """Makes the parameter of a value, by the name that a caller uses."""
    return Parameter(name, graph.type(value).shape, graph.type(value).dtype)
