"""Graphs of operators: immutable, one value per node, every value with a static shape and dtype.

A graph holds its constants as arrays. Values are identified by name; a node's name is that of its value. Nodes are in
topological order. Passes are functions from graph to graph. They build graphs by `GraphBuilder`, which infers the type
of every node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from autotune.graph.errors import GraphError
from autotune.graph.ops import find
from autotune.graph.types import Array, Attributes, TensorType, array_type

__all__ = [
    "Array",
    "Attributes",
    "GraphBuilder",
    "Graph",
    "GraphError",
    "Node",
    "Rewrite",
    "TensorType",
    "rewrite",
    "topological",
    "array_type",
    "without_unread_constants",
]


LARGE = 1 << 16
"""Minimum bytes of a constant that is not copied to make it C-contiguous."""


def is_transposed(array: Array) -> bool:
    """Tells whether an array is C-contiguous after a permutation of its axes."""
    order = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
    return bool(array.transpose(order).flags.c_contiguous)


@dataclass(frozen=True, eq=False)
class Node:
    """An operation of a graph.

    Attributes:
        name: name of its value, unique in the graph.
        op: a name of `autotune.graph.ops.OPS`.
        inputs: names of values.
        attrs: all attributes of the operation in canonical form: numbers, strings, truth values and tuples of them; for
            a loop also its body.
        type: type of its value.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    attrs: Attributes
    type: TensorType

    def __str__(self) -> str:
        attrs = "".join(f", {name}={value!r}" for name, value in self.attrs.items())
        return f"{self.name}: {self.type} = {self.op}({', '.join(self.inputs)}{attrs})"


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph: nodes in topological order.

    Attributes:
        name: name of the network.
        inputs: activations that a caller passes, by name, in order.
        constants: weights by name, never written to: C-contiguous, or transpositions of such, see
            `GraphBuilder.constant`.
        nodes: nodes in topological order.
        outputs: names of the values that a caller receives, in order.
        output_names: public names of the outputs, in order; by default the names of the values. Passes rename values,
            but not these.
    """

    name: str
    inputs: Mapping[str, TensorType]
    constants: Mapping[str, Array]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    output_names: tuple[str, ...] = ()
    _types: dict[str, TensorType] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", MappingProxyType(dict(self.inputs)))
        object.__setattr__(self, "constants", MappingProxyType(dict(self.constants)))
        self._types.update(self.inputs)
        for name, array in self.constants.items():
            self._define(name, array_type(array))
        for node in self.nodes:
            if missing := [name for name in node.inputs if name not in self._types]:
                raise GraphError(
                    f"{node.op} node {node.name!r} must read values that stand before it, not {missing[0]!r}"
                )
            self._define(node.name, node.type)
        if missing := [name for name in self.outputs if name not in self._types]:
            raise GraphError(f"`outputs` must be values of the graph, but got {missing[0]!r}")
        object.__setattr__(self, "output_names", self.output_names or self.outputs)
        if len(self.output_names) != len(self.outputs):
            raise GraphError(
                f"`output_names` must be of {len(self.outputs)} outputs, but got {len(self.output_names)} names"
            )

    def _define(self, name: str, type: TensorType) -> None:
        if name in self._types:
            raise GraphError(f"values of a graph must have distinct names, but got {name!r} twice")
        self._types[name] = type

    def type(self, name: str) -> TensorType:
        """Returns the type of a value."""
        return self._types[name]

    def node(self, name: str) -> Node | None:
        """Returns the node that computes a value; None for inputs and constants."""
        return self._by_name.get(name)

    @property
    def _by_name(self) -> dict[str, Node]:
        nodes = self.__dict__.get("_nodes_by_name")
        if nodes is None:
            nodes = {node.name: node for node in self.nodes}
            object.__setattr__(self, "_nodes_by_name", nodes)
        return nodes

    def consumers(self) -> Mapping[str, tuple[Node, ...]]:
        """Returns the nodes that read each value, each once; unread values have an empty tuple."""
        readers = self.__dict__.get("_consumers")
        if readers is None:
            lists: dict[str, list[Node]] = {name: [] for name in self._types}
            for node in self.nodes:
                for name in dict.fromkeys(node.inputs):
                    lists[name].append(node)
            readers = MappingProxyType({name: tuple(nodes) for name, nodes in lists.items()})
            object.__setattr__(self, "_consumers", readers)
        return readers

    def __str__(self) -> str:
        lines = [f"graph {self.name}({', '.join(f'{name}: {kind}' for name, kind in self.inputs.items())})"]
        lines += [f"  {name}: {array_type(array)}" for name, array in self.constants.items()]
        lines += [f"  {node}" for node in self.nodes]
        return "\n".join([*lines, f"  return {', '.join(self.outputs)}"])


class GraphBuilder:
    """A builder of graphs, node by node.

    Args:
        name: name of the graph.
        inputs: activations by name, in order.
        output_names: public names of the outputs, in order; by default the names of the values.
    """

    def __init__(self, name: str, inputs: Mapping[str, TensorType], output_names: Sequence[str] = ()) -> None:
        self.name = name
        self._output_names = tuple(output_names)
        self._inputs = dict(inputs)
        self._constants: dict[str, Array] = {}
        self._nodes: dict[str, Node] = {}
        self._types: dict[str, TensorType] = dict(inputs)
        self._numbers: dict[str, int] = {}  # name → lower bound of its free suffixes

    def type(self, name: str) -> TensorType:
        """Returns the type of a value so far."""
        return self._types[name]

    def array(self, name: str) -> Array | None:
        """Returns the constant of that name, or None."""
        return self._constants.get(name)

    def node(self, name: str) -> Node | None:
        """Returns the node that computes a value; None for inputs and constants."""
        return self._nodes.get(name)

    def constant(self, array: Array, name: str = "constant") -> str:
        """Adds a weight and returns its name, which is `name` if that is free.

        A large one that is dense in another order of its axes is not copied. Kernels pack weights in orders of their
        own, and intermediate copies would take longer than all other work.
        """
        name = self._fresh(name)
        kept = array.nbytes >= LARGE and is_transposed(array)
        self._constants[name] = array if kept else np.ascontiguousarray(array).reshape(array.shape)
        self._types[name] = array_type(array)
        return name

    def add(self, op: str, inputs: Sequence[str], name: str = "", **attrs: Any) -> str:
        """Adds a node and returns the name of its value, which is `name` if that is free.

        Raises:
            GraphError: the operation is unknown, or inputs and attributes do not fit together.
        """
        kinds = [self._types[i] for i in inputs]
        name = self._fresh(name or op)
        operation = find(op)
        try:
            checked = operation.attributes(attrs, kinds)
            kind = operation.infer(checked, kinds)
        except (ValueError, TypeError) as error:
            shown = ", ".join(map(str, kinds))
            raise GraphError(f"{op} node {name!r} on ({shown}): {error}") from None
        self._nodes[name] = Node(name, op, tuple(inputs), MappingProxyType(checked), kind)
        self._types[name] = kind
        return name

    def keep(self, node: Node, graph: Graph, inputs: Sequence[str]) -> str:
        """Adds a node of another graph, without inference of its type if its inputs have the same names and types."""
        same = node.name not in self._types and tuple(inputs) == node.inputs
        if not same or any(self._types[name] != graph.type(name) for name in inputs):
            return self.add(node.op, inputs, node.name, **node.attrs)
        self._nodes[node.name], self._types[node.name] = node, node.type
        return node.name

    def finish(self, outputs: Iterable[str]) -> Graph:
        """Makes a graph of all nodes so far; `outputs` are its results, in order."""
        return Graph(
            self.name, self._inputs, self._constants, tuple(self._nodes.values()), tuple(outputs), self._output_names
        )

    def _fresh(self, name: str) -> str:
        if name not in self._types:
            return name
        number = self._numbers.get(name, 1)
        while f"{name}_{number}" in self._types:
            number += 1
        self._numbers[name] = number
        return f"{name}_{number}"


Rewrite = Callable[[GraphBuilder, Node, list[str]], str | None]


def rewrite(graph: Graph, visit: Rewrite) -> Graph:
    """Builds a graph in which nodes are replaced.

    Args:
        graph: graph to rewrite.
        visit: called for each node in order with the builder of the new graph, the node, and the new names of its
            inputs. It adds nodes and returns the new name of the node's value, or None to leave the node unchanged.

    Constants that are no longer read are removed; unread nodes stay until `passes.dead_code` removes them.
    """
    builder = GraphBuilder(graph.name, graph.inputs, graph.output_names)
    names = {name: name for name in graph.inputs}
    for name, array in graph.constants.items():
        names[name] = builder.constant(array, name)
    for node in graph.nodes:
        inputs = [names[name] for name in node.inputs]
        new = visit(builder, node, inputs)
        names[node.name] = builder.keep(node, graph, inputs) if new is None else new
    return without_unread_constants(builder.finish(names[name] for name in graph.outputs))


def without_unread_constants(graph: Graph) -> Graph:
    """Removes constants that neither a node nor an output reads."""
    read = {name for node in graph.nodes for name in node.inputs} | set(graph.outputs)
    kept = {name: array for name, array in graph.constants.items() if name in read}
    return replace(graph, constants=kept)


def topological(nodes: Iterable[Node], sources: Iterable[str]) -> Iterator[Node]:
    """Yields nodes in topological order; `sources` are inputs and constants.

    Raises:
        GraphError: nodes depend on each other, or read a value that does not exist.
    """
    ready, waiting = set(sources), list(nodes)
    while waiting:
        blocked: list[Node] = []
        for node in waiting:
            if all(name in ready for name in node.inputs):
                ready.add(node.name)
                yield node
            else:
                blocked.append(node)
        if len(blocked) == len(waiting):
            raise GraphError(
                f"nodes of a graph must have an order, but {blocked[0].name!r} waits for a value of its own"
            )
        waiting = blocked
