"""Places of a network whose numbers may be in 16 bits, and the kernels that activate them."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.graph.ir import Graph
from autotune.graph.precision import is_lowered, moved_together, stored_together


@dataclass(frozen=True)
class RoundingSite:
    """A set of numbers that are in a narrow type if any of some kernels is.

    Attributes:
        name: name of the first value.
        kernels: names of the kernels, see `list_narrow_kernels`.
        values: stored values; empty for an operand.
        operand: a constant, or a value stored in float32, that layers read rounded; "" for stored values.
    """

    name: str
    kernels: tuple[str, ...]
    values: tuple[str, ...] = ()
    operand: str = ""


def list_rounding_sites(graph: Graph) -> list[RoundingSite]:
    """Lists stored values, then operands that are rounded only for layers: weights, and inputs of the network."""
    stored = stored_together(graph)
    same = moved_together(graph)
    values = {same[name] for each in stored for name in each.values}
    operands: dict[str, list[str]] = {}
    for node in graph.nodes:
        for name in dict.fromkeys(node.inputs) if is_lowered(graph, node) else ():
            if same.get(name) not in values and graph.type(name).dtype == "float32":
                operands.setdefault(name, []).append(node.name)
    found = [RoundingSite(each.values[0], each.kernels, each.values) for each in stored]
    return [*found, *(RoundingSite(name, tuple(layers), (), name) for name, layers in operands.items())]
