"""Tasks of a network: its distinct workloads, named after their computation, weighted by how often they run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from autotune.graph.ir import Graph
from autotune.graph.offload import is_offloaded, tuned_as
from autotune.graph.ops import find
from autotune.graph.partition import Group, partition
from autotune.tuner.task import Task
from search_space.workloads import Workload


def list_tasks(graph: Graph, device: str | None = None, alignment: int = 1) -> list[Task]:
    """Lists the tasks of a graph: each distinct workload, named after its shape, weighted by how often it runs.

    Groups of a loop's body run in each step. Layers of a device that differ only in their shift and limits are one
    task, see `tuned_as`.

    Args:
        graph: graph of the executable.
        device: target of the layers that an accelerator computes.
        alignment: alignment of the target of all other layers, see `Target`.
    """
    tasks: dict[str, Task] = {}
    names: dict[str, int] = {}
    for inner, group, times in list_kernels(graph, device is None, alignment):
        assert group.workload is not None
        workload = tuned_as(group.workload)
        key = workload.key
        if key in tasks:
            task = tasks[key]
            tasks[key] = replace(task, weight=task.weight + times, occurrences=task.occurrences + 1)
            continue
        name = task_name(inner, group)
        names[name] = names.get(name, 0) + 1
        name = name if names[name] == 1 else f"{name}_{names[name]}"
        tasks[key] = Task(name, workload, times, device if is_offloaded(workload) else None, 1)
    return list(tasks.values())


def list_kernels(graph: Graph, in_place: bool = True, alignment: int = 1) -> Iterator[tuple[Graph, Group, int]]:
    """Lists computed groups: the graph, which is a loop's body or `graph`, the group, and its number of runs."""
    for group in partition(graph, in_place, alignment):
        if group.loop is not None:
            trips = group.loop.attrs["trips"]
            for inner, found, times in list_kernels(group.loop.attrs["body"].graph, in_place, alignment):
                yield inner, found, trips * times
        elif group.workload is not None:
            yield graph, group, 1


def task_name(graph: Graph, group: Group) -> str:
    """Names a task by operation, window, extents, and fused nodes: `conv2d3x3_56x56x64_64_add_relu`."""
    first = group.nodes[0]
    window = first.attrs.get("kernel") or (1,)
    weight = graph.type(first.inputs[1]).shape if len(first.inputs) > 1 else ()
    parts = [first.op]
    blocked = find(first.op).offloaded
    if blocked and "conv" in first.op:
        window = weight[2:-2]
    elif "conv" in first.op and "kernel" not in first.attrs:
        window = weight[: len(weight) - (1 if first.op.startswith("depthwise") else 2)]
    if math.prod(_tuple(window)) > 1 or "conv" in first.op:
        parts[0] += "x".join(map(str, _tuple(window)))
    shape = graph.type(group.inputs[0]).shape if group.inputs else first.type.shape
    parts.append("x".join(map(str, shape[1:] if len(shape) in (4, 6) and shape[0] == 1 else shape)))
    if blocked:
        parts.append(str(first.type.shape[1] * first.type.shape[-1]))
    elif "conv" in first.op or "matmul" in first.op:
        parts.append(str(first.type.shape[-1]))
    if first.op.startswith("sparse"):  # outputs and inputs of a block
        parts.append("x".join(map(str, weight[:-3:-1])))
    stride = _tuple(first.attrs.get("stride", 1))
    if "conv" in first.op and max(stride) > 1:
        parts.append("s" + "x".join(map(str, stride if len(set(stride)) > 1 else stride[:1])))
    return "_".join([*parts, *(node.op for node in group.nodes[1:])])


def _tuple(value: Any) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else (int(value),)


def element_types(workload: Workload) -> str:
    """Formats the element types of the factors or first inputs of a task, and of its result if that differs."""
    read = "+".join(dict.fromkeys(spec.dtype for spec in workload.inputs[:2]))
    return read if read == workload.output.dtype else f"{read} → {workload.output.dtype}"
