"""Attention in one kernel: scores that would not stay in cache are made and used a block of rows at a time."""

from __future__ import annotations

from autotune.graph.decisions import decided
from autotune.graph.ir import Graph, Node
from autotune.graph.passes.site import Site, orders, sweep
from search_space.hardware import Hardware

FLOAT_BYTES = 4
OVERFLOW = 4
"""Second-level caches that scores fill at least: fewer go through the caches from part to part at hardly a cost."""


def with_attention(graph: Graph, hardware: Hardware) -> Graph:
    """The graph with products, softmax and products as one node, where the machine gains by it.

    Those of few scores remain as they are, as each part has more schedules by itself; so do all on GPUs and on machines
    whose memories programs fill.
    """
    if hardware.kind != "cpu":
        return graph

    def joined(site: Site, node: Node) -> str | None:
        return _joined(site, node, hardware)

    return sweep(graph, joined)


def _joined(site: Site, node: Node, hardware: Hardware) -> str | None:
    if node.op != "batch_matmul" or node.type.dtype != "float32":
        return None
    weights, values = node.inputs
    scores = site.type(weights)
    overflows = scores.size * FLOAT_BYTES >= OVERFLOW * hardware.l2_bytes
    if not decided("attention", node.name, overflows and scores.shape[-1] >= hardware.float_lanes):
        return None
    softmax = _through_reshapes(site, weights, "softmax")
    if softmax is None or softmax.type.shape[-1] != scores.shape[-1]:
        return None
    added: list[str] = []
    before = _through_reshapes(site, softmax.inputs[0], "batch_matmul", "add")
    while before is not None and before.op == "add":
        before = _addend(site, before, added)
    if before is None or before.type.shape != scores.shape:
        return None
    inputs = [*before.inputs, values, *reversed(added)]
    return site.add("attention", [site.new[name] for name in inputs], node.name)


def _through_reshapes(site: Site, name: str, *ops: str) -> Node | None:
    """The node that gives a value which nobody else reads, in whatever shape, where its operation is one of `ops`."""
    while site.private(name):
        node = site.node(name, "reshape", *ops)
        if node is None or node.op != "reshape":
            return node
        name = node.inputs[0]
    return None


def _addend(site: Site, node: Node, added: list[str]) -> Node | None:
    """The scores that something is added to, which is noted; None where they have another shape by then."""
    for scores, other in orders(node):
        found = site.node(scores, "batch_matmul", "add") if site.private(scores) else None
        if found is not None and found.type.shape == node.type.shape and len(node.type.shape) == 3:
            added.append(other)
            return found
    return None
