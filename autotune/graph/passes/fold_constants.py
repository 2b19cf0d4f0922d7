"""Computes what depends on constants alone."""

from __future__ import annotations

from autotune.graph.decisions import decided
from autotune.graph.ir import Builder, Graph, Node, rewrite
from autotune.graph.ops import find

LIMIT = 1 << 20
"""Bytes up to which a constant may grow in any case."""

GROWTH = 16
"""How many times the bytes of its inputs a larger one may have."""


def fold_constants(graph: Graph) -> Graph:
    """The graph in which a node that reads constants alone is a constant.

    A node that would make a large constant of a small one (more than `GROWTH` times the bytes, and more than `LIMIT`)
    stays: it costs less to compute than to read.
    """

    def visit(builder: Builder, node: Node, inputs: list[str]) -> str | None:
        arrays = [array for name in inputs if (array := builder.array(name)) is not None]
        if len(arrays) < len(inputs) or not inputs:
            return None
        small = node.type.nbytes <= max(LIMIT, GROWTH * sum(array.nbytes for array in arrays))
        if not decided("fold", node.name, small):
            return None
        return builder.constant(find(node.op).evaluate(node.attrs, arrays), node.name)

    return rewrite(graph, visit)
