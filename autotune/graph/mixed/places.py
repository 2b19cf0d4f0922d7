"""Where numbers of a network may be in 16 bits, and which kernels put them there."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.graph.ir import Graph
from autotune.graph.precision import is_lowered, moved_together, stored_together


@dataclass(frozen=True)
class Place:
    """Numbers that are in a narrow type where one of some kernels is.

    Attributes:
        name: of the first value.
        kernels: by name, see `kernels_of`.
        values: that are stored; those of an operand are none.
        operand: a constant, or a value that is stored in float32, which layers read rounded; "" for stored values.
    """

    name: str
    kernels: tuple[str, ...]
    values: tuple[str, ...] = ()
    operand: str = ""


def places_of(graph: Graph) -> list[Place]:
    """Stored values, then operands of layers that are rounded for these alone: weights, and inputs of the network."""
    stored = stored_together(graph)
    same = moved_together(graph)
    held = {same[name] for each in stored for name in each.values}
    operands: dict[str, list[str]] = {}
    for node in graph.nodes:
        for name in dict.fromkeys(node.inputs) if is_lowered(graph, node) else ():
            if same.get(name) not in held and graph.type(name).dtype == "float32":
                operands.setdefault(name, []).append(node.name)
    found = [Place(each.values[0], each.kernels, each.values) for each in stored]
    return [*found, *(Place(name, tuple(layers), (), name) for name, layers in operands.items())]
