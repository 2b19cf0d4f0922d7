"""Memory layout of a graph's values as callers see it: views among outputs, and views by strides."""

from __future__ import annotations

import copy
import operator
from collections import Counter
from collections.abc import Mapping, Set

import torch
from torch.fx import Graph, GraphModule, Node

from autotune.graph.frontends.aten import ConstantValues

_LAID_OUT_ANEW = tuple(
    f"aten.{name}.default" for name in ("roll", "replication_pad3d", "reflection_pad3d", "channel_shuffle")
)
"""Operators that lay out dense tensors and those in channels-last order in their own ways."""


def is_view(node: Node) -> bool:
    """Tells whether a node is a view of its first argument, or takes one of several such views."""
    return node.target is operator.getitem or bool(getattr(node.target, "is_view", False))


def with_views_apart(module: GraphModule) -> tuple[GraphModule, Set[Node]]:
    """Gives nodes of their own to views that only callers read.

    PyTorch makes these of the value that they look at. So outputs share memory as they do without compiling. No kernel
    writes a value in the order or as often as its view shows it. Other views are computed with the rest: those that are
    dense and look at a value that no other output does.

    Args:
        module: stays as it is.

    Returns:
        The graph, and those nodes.
    """
    outputs = module.graph.output_node().all_input_nodes
    bases = Counter(map(find_base, outputs))
    if not any(_is_apart(node, bases) for node in outputs):
        return module, set()
    copied = GraphModule(module, copy.deepcopy(module.graph))
    graph, output = copied.graph, copied.graph.output_node()
    bases = Counter(map(find_base, output.all_input_nodes))
    apart: dict[Node, Node] = {}  # a view that others may read → the one that callers read
    for end in [node for node in output.all_input_nodes if _is_apart(node, bases)]:
        chain = [end]
        while _looks(_first(chain[-1])):
            chain.append(_first(chain[-1]))
        with graph.inserting_before(output):
            for node in reversed(chain):
                if node not in apart:
                    apart[node] = graph.node_copy(node, lambda given: apart.get(given, given))
        output.replace_input_with(end, apart[end])
    graph.eliminate_dead_code()
    return copied, set(apart.values())


def _is_apart(node: Node, bases: Mapping[Node, int]) -> bool:
    """Tells whether PyTorch makes a view among the outputs; `bases` counts the outputs that view each value."""
    if not _looks(node):
        return False
    base, value = find_base(node), node.meta["val"]
    dense = value.layout is torch.strided and value.is_contiguous()
    return bases[base] > 1 or base.op != "call_function" or not dense


def find_base(node: Node) -> Node:
    """Returns the node whose memory a view shows; the node itself if it is not a view."""
    while _looks(node):
        node = _first(node)
    return node


def laid_out_before(graph: Graph, constants: ConstantValues) -> Set[Node]:
    """Lists nodes that PyTorch must compute so that callers see the layout of its kernels.

    These are nodes of `as_strided` with everything they read that decides where elements lie. Outputs of operators
    whose trace states other strides than their kernels give are among them, too. An `as_strided` that leaves every
    element in its place, as pooling of channels-last images ends, needs PyTorch for the latter alone.
    """
    nodes = {node for node in map(find_base, graph.output_node().all_input_nodes) if _is_laid_out_anew(node)}
    for node in graph.nodes:
        if str(node.target).startswith("aten.as_strided") and node.name not in constants.arrays:
            base = find_base(_first(node))
            deciding = _list_deciding(base, constants)
            if _leaves_in_place(node) and not any(map(_is_laid_out_anew, deciding)):
                continue
            nodes |= deciding | ({node} if base.op == "call_function" else set())
    return nodes


def _list_deciding(base: Node, constants: ConstantValues) -> Set[Node]:
    """Lists a node and those that it reads, which decide where its elements lie."""
    nodes: set[Node] = set()
    ahead = [base]
    while ahead:
        other = ahead.pop()
        if other.op == "call_function" and other not in nodes and other.name not in constants.arrays:
            nodes.add(other)
            ahead += other.all_input_nodes
    return nodes


def _leaves_in_place(node: Node) -> bool:
    """Tells whether `as_strided` gives each element of its input at its own index, by the strides of the trace."""
    given, result = _first(node).meta["val"], node.meta["val"]
    same = given.storage_offset() == result.storage_offset() and given.shape == result.shape
    steps = zip(given.shape, given.stride(), result.stride(), strict=False)
    return same and all(before == after for extent, before, after in steps if extent != 1)


def _is_laid_out_anew(node: Node) -> bool:
    """Tells whether a trace may state other strides of a value than PyTorch's kernel gives it."""
    return str(node.target) in _LAID_OUT_ANEW and not _first(node).meta["val"].is_contiguous()


def _looks(node: Node) -> bool:
    """Tells whether a node is a view of a tensor, or one of several."""
    if node.target is operator.getitem:
        return _looks(_first(node))
    return node.op == "call_function" and is_view(node)


def _first(node: Node) -> Node:
    given = node.args[0]
    assert isinstance(given, Node)
    return given
