"""Tasks of a network: its distinct workloads, named after what they compute, weighted by how often they occur."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from autotune.graph.ir import Graph
from autotune.graph.offload import is_offloaded, tuned_as
from autotune.graph.ops import find
from autotune.graph.partition import Group, partition
from autotune.tuning.task import Task
from search_space.workloads import Workload


def tasks_of(graph: Graph, device: str | None = None, alignment: int = 1) -> list[Task]:
    """Tasks of a graph: each distinct workload, named after its shape, weighted by how often it occurs.

    Layers of a device that differ in their shift and limits alone are one task, see `tuned_as`.

    Args:
        graph: of the executable.
        device: target of the layers that an accelerator computes.
        alignment: of the target of all else, see `Target`.
    """
    found: dict[str, Task] = {}
    names: dict[str, int] = {}
    for group in partition(graph, device is None, alignment):
        if group.workload is None:
            continue
        workload = tuned_as(group.workload)
        key = workload.key
        if key in found:
            found[key] = replace(found[key], weight=found[key].weight + 1)
            continue
        name = task_name(graph, group)
        names[name] = names.get(name, 0) + 1
        name = name if names[name] == 1 else f"{name}_{names[name]}"
        found[key] = Task(name, workload, target=device if is_offloaded(workload) else None)
    return list(found.values())


def task_name(graph: Graph, group: Group) -> str:
    """Operation, window, input and output extents, then what is fused: `conv2d3x3_56x56x64_64_add_relu`."""
    first = group.nodes[0]
    window = first.attrs.get("kernel") or (1,)
    weight = graph.type(first.inputs[1]).shape if len(first.inputs) > 1 else ()
    parts = [first.op]
    blocked = find(first.op).offloaded
    if blocked and "conv" in first.op:
        window = weight[2:-2]
    elif "conv" in first.op:
        window = weight[: len(weight) - (1 if first.op.startswith("depthwise") else 2)]
    if math.prod(_tuple(window)) > 1 or "conv" in first.op:
        parts[0] += "x".join(map(str, _tuple(window)))
    shape = graph.type(group.inputs[0]).shape if group.inputs else first.type.shape
    parts.append("x".join(map(str, shape[1:] if len(shape) in (4, 6) and shape[0] == 1 else shape)))
    if blocked:
        parts.append(str(first.type.shape[1] * first.type.shape[-1]))
    elif "conv" in first.op or "matmul" in first.op:
        parts.append(str(first.type.shape[-1]))
    stride = _tuple(first.attrs.get("stride", 1))
    if "conv" in first.op and max(stride) > 1:
        parts.append("s" + "x".join(map(str, stride if len(set(stride)) > 1 else stride[:1])))
    return "_".join([*parts, *(node.op for node in group.nodes[1:])])


def _tuple(value: Any) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else (int(value),)


def types_of(workload: Workload) -> str:
    """Element types of what a task multiplies or reads first, and of its result where that is another one."""
    read = "+".join(dict.fromkeys(spec.dtype for spec in workload.inputs[:2]))
    return read if read == workload.output.dtype else f"{read} → {workload.output.dtype}"
