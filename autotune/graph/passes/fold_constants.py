"""Evaluation of nodes that depend on constants alone."""

from __future__ import annotations

from autotune.graph.decisions import decide
from autotune.graph.ir import Graph, GraphBuilder, Node, rewrite
from autotune.graph.ops import find

LIMIT = 1 << 20
"""Bytes up to which a folded constant may grow in any case."""

GROWTH = 16
"""Maximum ratio of a larger folded constant's bytes to those of its inputs."""


def fold_constants(graph: Graph) -> Graph:
    """Replaces nodes that read only constants by constants.

    A node stays if its constant would exceed both `LIMIT` and `GROWTH` times the bytes of its inputs. To compute it
    costs less than to read it.
    """

    def visit(builder: GraphBuilder, node: Node, inputs: list[str]) -> str | None:
        arrays = [array for name in inputs if (array := builder.array(name)) is not None]
        if len(arrays) < len(inputs) or not inputs:
            return None
        small = node.type.nbytes <= max(LIMIT, GROWTH * sum(array.nbytes for array in arrays))
        if not decide("fold", node.name, small):
            return None
        return builder.constant(find(node.op).evaluate(node.attrs, arrays), node.name)

    return rewrite(graph, visit)
