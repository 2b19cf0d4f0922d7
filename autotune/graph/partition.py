"""Fusion: grouping of nodes into kernels, and the workload that each kernel computes.

A group is a node that begins a kernel and the element-wise nodes that end it. Each of these reads the group's value so
far, at its own index, and is its only reader. If an element-wise node could end several groups (both sides of a
residual addition), it ends the last one, as the others exist by then. Nothing is fused into kernels of an accelerator.

Element-wise nodes that only one product or 1x1 convolution reads, as its data, begin its kernel: a normalisation's, or
the gates of channels. Larger convolutions would compute them more than once.

A transposition of few channels that only convolutions read, as of a channels-first image, has no kernel either. These
convolutions read single elements in any order.

Workloads are independent of a graph's names: equal structures in different networks are the same workload.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from autotune.graph.ir import Graph, Node
from autotune.graph.ops import Kind, find
from autotune.graph.views import Location, free, locate
from search_space import te, te_json
from search_space.dtypes import numpy_dtype
from search_space.workloads import Workload

READ_BY_ELEMENT = frozenset({"conv1d", "conv2d", "conv3d"})
"""Operations that read their first input one element at a time, for all of their output channels."""

LINE = 64
"""Bytes of a cache line. Pixels of at least that size are read in whole lines, which justifies a transposition."""

COMMUTATIVE = frozenset({"add", "multiply", "maximum", "minimum"})


@dataclass(frozen=True, eq=False)
class Group:
    """The nodes that one kernel computes.

    Attributes:
        nodes: node that begins the kernel, then the nodes fused into it, in order.
        inputs: values that the workload reads, in its order, possibly with repetitions.
        workload: computation of the kernel; None for groups without computation, see `views`, and for loops.
        through: transposition through which the first node reads its first input.
        front: nodes before the first one that compute its first input.
    """

    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    workload: Workload | None
    through: Node | None = None
    front: tuple[Node, ...] = ()

    @property
    def output(self) -> str:
        """Name of the value that the kernel writes."""
        return self.nodes[-1].name

    @property
    def loop(self) -> Node | None:
        """The loop of a group, whose body has kernels of its own, or None."""
        return self.nodes[0] if self.nodes[0].op == "loop" else None

    @cached_property
    def title(self) -> str:
        """The operations, as a label for people."""
        through = () if self.through is None else (self.through,)
        return "+".join(node.op for node in (*through, *self.front, *self.nodes))


def partition(graph: Graph, in_place: bool = True, alignment: int = 1) -> list[Group]:
    """Partitions a graph into groups in topological order.

    Args:
        graph: graph to partition.
        in_place: whether concatenations are written and slices read in place, see `views`, and transpositions of few
            channels are read without a copy.
        alignment: bytes to which values must be aligned, see `locate`.
    """
    known = _PARTITIONED.setdefault(graph, {})
    if (in_place, alignment) not in known:
        known[in_place, alignment] = tuple(_partition(graph, in_place, alignment))
    return list(known[in_place, alignment])


_PARTITIONED: WeakKeyDictionary[Graph, dict[tuple[bool, int], tuple[Group, ...]]] = WeakKeyDictionary()
"""Partitions of graphs in use: a graph's tasks are requested first, then its kernels."""


def partitioned_as(graph: Graph, other: Graph) -> Graph:
    """Copies the partition of a graph that differs in its constants alone, and returns the first graph."""
    _PARTITIONED.setdefault(graph, {}).update(_PARTITIONED.get(other, {}))
    return graph


def _partition(graph: Graph, in_place: bool, alignment: int) -> list[Group]:
    locations = locate(graph, in_place, alignment=alignment)
    through = _read_through(graph) if in_place else {}
    groups = [(nodes, nothing) for nodes, nothing in group_nodes(graph, locations) if nodes[0].name not in through]
    fronts = _fronts(graph, groups) if in_place else {}
    result = []
    for nodes, nothing in groups:
        if nodes[-1].name in fronts:
            continue
        data = nodes[0].inputs[0] if nodes[0].inputs else ""
        result.append(_group(graph, nodes, nothing, through.get(data), fronts.get(data, ())))
    return result


def _fronts(graph: Graph, groups: Sequence[tuple[Sequence[Node], bool]]) -> dict[str, tuple[Node, ...]]:
    """Collects groups of element-wise nodes before the one layer that reads them, by the name of their output."""
    consumers, kept = graph.consumers(), set(graph.outputs)
    begins = {nodes[0].name for nodes, _ in groups}

    def in_front(nodes: Sequence[Node]) -> bool:
        last = nodes[-1]
        if find(nodes[0].op).kind is not Kind.elementwise or last.name in kept or len(consumers[last.name]) != 1:
            return False
        (reader,) = consumers[last.name]
        if reader.name not in begins or reader.inputs.count(last.name) != 1 or reader.inputs[0] != last.name:
            return False
        if not _is_pointwise(graph, reader):
            return False
        kinds = {graph.type(name).dtype for name in (last.name, *(name for node in nodes for name in node.inputs))}
        return kinds == {"float32"} and _data_input(graph, nodes) is not None

    return {nodes[-1].name: tuple(nodes) for nodes, nothing in groups if not nothing and in_front(nodes)}


def _is_pointwise(graph: Graph, node: Node) -> bool:
    """Tells whether each output pixel is a product of the channels of the same pixel of the first input."""
    if node.op not in READ_BY_ELEMENT:
        return node.op == "matmul"
    same = graph.type(node.inputs[0]).shape[:-1] == node.type.shape[:-1]
    return same and node.attrs["groups"] == 1 and set(graph.type(node.inputs[1]).shape[:-2]) == {1}


def _data_input(graph: Graph, nodes: Sequence[Node]) -> str | None:
    """Returns the input of element-wise nodes that has the shape of their output, if exactly one has."""
    inside = {node.name for node in nodes}
    names = dict.fromkeys(name for node in nodes for name in node.inputs if name not in inside)
    found = [name for name in names if graph.type(name).shape == nodes[-1].type.shape and name not in graph.constants]
    return found[0] if len(found) == 1 else None


def _read_through(graph: Graph) -> dict[str, Node]:
    """Collects transpositions, by name, that the convolutions which read them perform themselves."""
    consumers = graph.consumers()

    def read_by_element(name: str, reader: Node) -> bool:
        plain = reader.op in READ_BY_ELEMENT and reader.attrs["groups"] == 1 and reader.inputs.count(name) == 1
        return plain and reader.inputs[0] == name and reader.type.dtype == "float32"

    return {
        node.name: node
        for node in graph.nodes
        if node.op == "transpose"
        and node.name not in graph.outputs
        and node.type.shape[-1] * numpy_dtype(node.type.dtype).itemsize < LINE
        and consumers[node.name]
        and all(read_by_element(node.name, reader) for reader in consumers[node.name])
    }


def group_nodes(
    graph: Graph, locations: Mapping[str, Location], computed_nodes: Collection[str] = ()
) -> list[tuple[list[Node], bool]]:
    """Lists the nodes of each group, and whether the group has no computation, in the order of `partition`.

    Args:
        graph: graph to partition.
        locations: result of `locate`.
        computed_nodes: nodes that are computed before the graph runs; no group contains them.
    """
    nothing = free(graph, locations)
    consumers = graph.consumers()
    outputs = set(graph.outputs)
    members: dict[str, list[Node]] = {}  # output of a group so far -> its nodes
    position = {node.name: i for i, node in enumerate(graph.nodes)}
    begun: dict[str, int] = {}
    for node in graph.nodes:
        if node.name in computed_nodes:
            continue
        producers = [
            name
            for name in node.inputs
            if name in members
            and members[name][0].name not in nothing
            and not find(members[name][0].op).offloaded
            and name not in outputs
            and len(consumers[name]) == 1
            and graph.type(name).shape == node.type.shape
        ]
        if find(node.op).kind is Kind.elementwise and producers:
            chosen = max(producers, key=lambda name: begun[name])
            members[node.name] = [*members.pop(chosen), node]
            begun[node.name] = begun[chosen]
        else:
            members[node.name] = [node]
            begun[node.name] = position[node.name]
    order = sorted(members, key=lambda name: position[name])
    return [(members[name], members[name][0].name in nothing) for name in order]


def _group(
    graph: Graph,
    nodes: Sequence[Node],
    nothing: bool,
    through: Node | None = None,
    front: Sequence[Node] = (),
) -> Group:
    first, *rest = nodes
    operation = find(first.op)
    if nothing or first.op == "loop":
        return Group(tuple(nodes), first.inputs, None)
    constants = [name in graph.constants for name in first.inputs]
    types = [graph.type(name) for name in first.inputs]
    if operation.workload is None:
        distinct = list(dict.fromkeys(first.inputs))
        given = _placeholders(graph, distinct, "x")
        output = operation.expression(first.attrs, [given[name] for name in first.inputs])
        names, output, more = _epilogue(graph, rest, first.name, output, given)
        return Group(tuple(nodes), (*distinct, *names), Workload.of([*given.values(), *more, output]))
    anchor, stored = operation.anchor(first.attrs, types, constants), operation.list_stored_dtypes(types)
    if not rest and through is None and not front and not any(stored):
        return Group(tuple(nodes), first.inputs, anchor)
    layer = te.placeholder(anchor.output.shape, anchor.output.dtype, "layer")
    names, output, more = _epilogue(graph, rest, first.name, layer, {})
    if not rest:
        output = te.compute(layer.shape, lambda *index: layer[index], name="copy")
    definition = te_json.to_json([layer, *more, output])
    args = {"anchor": anchor.to_json(), "epilogue": definition, "stored": stored if any(stored) else ()}
    data = list(first.inputs[:1])
    if front:
        data, args["prologue"] = _prologue(graph, front)
    if through is not None:
        data, args["axes"] = list(through.inputs), through.attrs["axes"]
    inputs = (*data, *first.inputs[1:], *names)
    return Group(tuple(nodes), inputs, Workload("fused", args), through, tuple(front))


def _prologue(graph: Graph, nodes: Sequence[Node]) -> tuple[list[str], dict[str, Any]]:
    """Returns the inputs of nodes before a layer, the one of its data's shape first, and their computation."""
    data = _data_input(graph, nodes)
    assert data is not None
    given = _placeholders(graph, [data], "x")
    names, output, more = _epilogue(graph, nodes, data, given[data], given, "z")
    return [data, *names], te_json.to_json([given[data], *more, output])


def _epilogue(
    graph: Graph,
    nodes: Sequence[Node],
    start: str,
    value: te.Tensor,
    available: dict[str, te.Tensor],
    letter: str = "y",
) -> tuple[list[str], te.Tensor, list[te.Tensor]]:
    """Returns names of the further inputs, the last node's expression, and the further inputs as tensors."""
    values = {start: value}
    wanted = [name for node in nodes for name in node.inputs]
    inside = {start, *(node.name for node in nodes)}
    names = [name for name in dict.fromkeys(wanted) if name not in inside and name not in available]
    more = _placeholders(graph, names, letter)
    tensors = {**available, **more}
    for node in nodes:
        inputs = node.inputs
        if node.op in COMMUTATIVE:  # a canonical order of operands
            inputs = tuple(sorted(inputs, key=lambda name: name not in values))
        values[node.name] = find(node.op).expression(node.attrs, [values.get(n) or tensors[n] for n in inputs])
    return names, values[nodes[-1].name] if nodes else value, list(more.values())


def _placeholders(graph: Graph, names: Sequence[str], letter: str) -> dict[str, te.Tensor]:
    result = {}
    for place, name in enumerate(names):
        kind = graph.type(name)
        result[name] = te.placeholder(kind.shape, kind.dtype, f"{letter}{place}", name in graph.constants)
    return result
