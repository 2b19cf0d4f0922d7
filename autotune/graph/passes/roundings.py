"""Removes the roundings to 16-bit floats inside of kernels, which round once as they write."""

from __future__ import annotations

from itertools import pairwise

from autotune.graph.ir import Builder, Graph, Node, rewrite
from autotune.graph.partition import grouped
from autotune.graph.passes.dead_code import dead_code
from autotune.graph.views import locate
from search_space.dtypes import FLOATS, NARROW


def roundings(graph: Graph) -> Graph:
    """The graph without conversions from float32 to 16 bits whose result does not leave a kernel.

    What reads one goes on with the float32, as long as that computes with floats: a comparison or a whole number might
    come out as another one, and a conversion back to float32 goes where it is read, see `simplify.casts`.
    """
    inside = {
        node.name
        for nodes, nothing in (grouped(graph, locate(graph)) if _is_rounded(graph) else ())
        for node, reader in pairwise(nodes)
        if not nothing and rounds(graph, node) and reader.op != "cast" and reader.type.dtype in FLOATS
    }
    if not inside:
        return graph

    def visit(builder: Builder, node: Node, inputs: list[str]) -> str | None:
        return inputs[0] if node.name in inside else None

    return dead_code(rewrite(graph, visit))


def rounds(graph: Graph, node: Node) -> bool:
    """Whether a node converts float32 to a 16-bit float."""
    return node.op == "cast" and node.type.dtype in NARROW and graph.type(node.inputs[0]).dtype == "float32"


def _is_rounded(graph: Graph) -> bool:
    return any(rounds(graph, node) for node in graph.nodes)
