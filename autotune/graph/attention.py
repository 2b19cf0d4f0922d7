"""Attention in one kernel: scores that exceed caches are computed and used a block of rows at a time."""

from __future__ import annotations

from autotune.graph.decisions import decide
from autotune.graph.ir import Graph, Node
from autotune.graph.passes.site import Site, orders, sweep
from search_space.hardware import Hardware

FLOAT_BYTES = 4
OVERFLOW = 4
"""Minimum ratio of the scores' bytes to the second-level cache: smaller scores pass through caches cheaply."""


def with_attention(graph: Graph, hardware: Hardware) -> Graph:
    """Fuses products, softmax and products into one node, if that is faster on the machine.

    Attention with few scores stays separate, as each part has more schedules by itself. So does all attention on GPUs
    and on machines whose memories are managed by programs.
    """
    if hardware.kind != "cpu":
        return graph

    def fuse(site: Site, node: Node) -> str | None:
        return _fuse_attention(site, node, hardware)

    return sweep(graph, fuse)


def _fuse_attention(site: Site, node: Node, hardware: Hardware) -> str | None:
    if node.op != "batch_matmul" or node.type.dtype != "float32":
        return None
    weights, values = node.inputs
    scores = site.type(weights)
    overflows = scores.size * FLOAT_BYTES >= OVERFLOW * hardware.l2_bytes
    if not decide("attention", node.name, overflows and scores.shape[-1] >= hardware.float_lanes):
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
    """Returns the producer of a value without other readers, through reshapes, if its operation is one of `ops`."""
    while site.private(name):
        node = site.node(name, "reshape", *ops)
        if node is None or node.op != "reshape":
            return node
        name = node.inputs[0]
    return None


def _addend(site: Site, node: Node, addends: list[str]) -> Node | None:
    """Returns the scores of an addition and records the other operand; None if their shape has changed by then."""
    for scores, other in orders(node):
        found = site.node(scores, "batch_matmul", "add") if site.private(scores) else None
        if found is not None and found.type.shape == node.type.shape and len(node.type.shape) == 3:
            addends.append(other)
            return found
    return None
