"""Removal of roundings to 16-bit floats inside kernels, which round once when they write."""

from __future__ import annotations

from itertools import pairwise

from autotune.graph.ir import Graph, GraphBuilder, Node, rewrite
from autotune.graph.partition import group_nodes
from autotune.graph.passes.dead_code import dead_code
from autotune.graph.views import locate
from search_space.dtypes import FLOATS, NARROW


def roundings(graph: Graph) -> Graph:
    """Removes conversions from float32 to 16 bits whose result does not leave a kernel.

    Readers continue with the float32 value if they compute floats. Comparisons and conversions to integers could change
    their results, so they keep the rounding; `simplify.casts` removes conversions back to float32 at their readers.
    """
    inside = {
        node.name
        for nodes, nothing in (group_nodes(graph, locate(graph)) if _is_rounded(graph) else ())
        for node, reader in pairwise(nodes)
        if not nothing and rounds(graph, node) and reader.op != "cast" and reader.type.dtype in FLOATS
    }
    if not inside:
        return graph

    def visit(builder: GraphBuilder, node: Node, inputs: list[str]) -> str | None:
        return inputs[0] if node.name in inside else None

    return dead_code(rewrite(graph, visit))


def rounds(graph: Graph, node: Node) -> bool:
    """Tells whether a node converts float32 to a 16-bit float."""
    return node.op == "cast" and node.type.dtype in NARROW and graph.type(node.inputs[0]).dtype == "float32"


def _is_rounded(graph: Graph) -> bool:
    return any(rounds(graph, node) for node in graph.nodes)
