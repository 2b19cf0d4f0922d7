"""Units of quantisation: layers with their ends, operations that work on bytes, and the rest.

Units are parts of the groups of `partition`, so that the integer nodes of a unit become one kernel.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from autotune.graph.ir import Array, Graph, Node
from autotune.graph.partition import partition

LAYERS = ("conv2d", "depthwise_conv2d", "matmul")
LIMITS = {"relu": (0.0, np.inf), "relu6": (0.0, 6.0)}


class UnitRole(StrEnum):
    """A treatment of a unit.

    - `layer` sums products of bytes;
    - `add`, `average` and `rescale` produce bytes on another scale;
    - `move` only moves bytes or compares them;
    - `other` stays in floats.
    """

    layer = "layer"
    add = "add"
    average = "average"
    rescale = "rescale"
    move = "move"
    other = "other"


@dataclass(frozen=True, eq=False)
class Unit:
    """A group of nodes that are quantised together.

    Attributes:
        part: treatment of the nodes.
        nodes: nodes in order.
        data: values that are bytes if the unit works on bytes; for a layer its data, then a residual.
        bias: float64 summand, () or (channels,).
        low, high: limits of the output.
    """

    part: UnitRole
    nodes: tuple[Node, ...]
    data: tuple[str, ...]
    bias: Array
    low: float = -np.inf
    high: float = np.inf

    @property
    def output(self) -> Node:
        """The node of the unit's value."""
        return self.nodes[-1]


def units(graph: Graph, left_float: Collection[str] = (), residuals: bool = True) -> list[Unit]:
    """Splits a graph into units, each behind the units that it reads.

    Args:
        graph: optimised graph in floats.
        left_float: names of layers that stay in floats.
        residuals: whether a layer's unit may include the addition of another value.
    """
    result: list[Unit] = []
    for group in partition(graph, in_place=False):
        nodes = list(group.nodes)
        while nodes:
            unit = _unit(graph, nodes, left_float, residuals)
            if unit.part is UnitRole.other:  # the rest of the same kernel should stay in floats, too
                unit = Unit(UnitRole.other, tuple(nodes), (), np.zeros(()))
            result.append(unit)
            nodes = nodes[len(unit.nodes) :]
    return result


def layers(graph: Graph) -> list[str]:
    """Lists the names of layers with constant weights, in order."""
    return [node.name for node in graph.nodes if _is_layer(graph, node)]


def _is_layer(graph: Graph, node: Node) -> bool:
    return node.op in LAYERS and node.inputs[1] in graph.constants and _floats(graph, node)


def _floats(graph: Graph, node: Node) -> bool:
    return all(graph.type(name).dtype == "float32" for name in (node.name, *node.inputs))


def _unit(graph: Graph, nodes: Sequence[Node], left_float: Collection[str], residuals: bool) -> Unit:
    first = nodes[0]
    nothing = np.zeros(())
    if _is_layer(graph, first) and first.name not in left_float:
        return _with_end(graph, UnitRole.layer, nodes, (first.inputs[0],), residuals)
    if not _floats(graph, first):
        return Unit(UnitRole.other, (first,), (), nothing)
    variable = tuple(name for name in first.inputs if name not in graph.constants)
    same = all(graph.type(name).shape == first.type.shape for name in first.inputs)
    if first.op == "add" and len(variable) == 2 and same:
        return _with_end(graph, UnitRole.add, nodes, variable, False)
    if first.op == "clip" or first.op in LIMITS:
        low, high = value_limits(first)
        return Unit(UnitRole.rescale, (first,), variable, nothing, low, high)
    if window_of_means(graph, first) is not None:
        return Unit(UnitRole.average, (first,), variable, nothing)
    moved = first.op in ("max_pool2d", "reshape", "transpose", "slice", "copy")
    moved = moved or first.op == "concat" or (first.op == "pad" and first.attrs["value"] == 0.0)
    if first.op == "transpose" and first.inputs[0] in graph.inputs:
        moved = False  # `quantise` is fused into it
    if moved and variable:
        return Unit(UnitRole.move, (first,), first.inputs, nothing)
    return Unit(UnitRole.other, (first,), (), nothing)


def value_limits(node: Node) -> tuple[float, float]:
    """Returns the limits of a `clip` or one of `LIMITS`."""
    return (node.attrs["low"], node.attrs["high"]) if node.op == "clip" else LIMITS[node.op]


def window_of_means(graph: Graph, node: Node) -> dict[str, Any] | None:
    """Returns kernel, stride and padding of channels-last means over equally many elements everywhere, or None."""
    if node.op == "avg_pool2d":
        if node.attrs["count_padding"] or not np.any(node.attrs["padding"]):
            return {name: node.attrs[name] for name in ("kernel", "stride", "padding")}
        return None
    shape = graph.type(node.inputs[0]).shape if node.inputs else ()
    if node.op != "reduce" or node.attrs["reducer"] != "mean" or len(shape) != 4:
        return None
    if sorted(np.atleast_1d(node.attrs["axes"]) % len(shape)) != [1, 2]:
        return None
    return {"kernel": shape[1:3], "stride": 1, "padding": 0}


def _with_end(graph: Graph, part: UnitRole, nodes: Sequence[Node], data: tuple[str, ...], room: bool) -> Unit:
    """Builds a unit of the first node and its end: constants, one residual if `room`, then limits."""
    bias: Array = np.zeros(())
    members = [nodes[0]]
    low, high = -np.inf, np.inf
    for node in nodes[1:]:
        value = members[-1].name
        others = [name for name in node.inputs if name != value]
        if node.op == "add" and len(others) == 1 and _floats(graph, node):
            constant = graph.constants.get(others[0])
            channels = node.type.shape[-1]
            if (
                constant is not None
                and constant.size in (1, channels)
                and constant.shape[-1:] in ((), (1,), (channels,))
            ):
                bias = bias + constant.astype(np.float64).reshape(-1 if constant.size > 1 else ())
            elif constant is None and room and graph.type(others[0]).shape == node.type.shape:
                data, room = (*data, others[0]), False
            else:
                break
        elif node.op == "clip" or node.op in LIMITS:
            low, high = value_limits(node)
            members.append(node)
            break
        else:
            break
        members.append(node)
    return Unit(part, tuple(members), data, bias, low, high)
