"""Graphs of operators: immutable, each node giving one value, every value with a known shape and dtype.

A graph holds its constants as arrays. Values are known by name; a node's name is the name of the value that it
gives. Nodes stand in an order in which each reads only what stands before it. Passes are functions from graph to
graph, and `Builder` is how they make one: it infers the type of every node that is added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from autotune.graph.errors import GraphError
from autotune.graph.ops import find
from autotune.graph.types import Array, Attributes, TensorType, type_of

__all__ = [
    "Array",
    "Attributes",
    "Builder",
    "Graph",
    "GraphError",
    "Node",
    "Rewrite",
    "TensorType",
    "rewrite",
    "topological",
    "type_of",
    "without_unread_constants",
]


LARGE = 1 << 16
"""Bytes of a constant from which on it is not copied to have its axes in order."""


def is_transposed(array: Array) -> bool:
    """Whether an array is C-contiguous once its axes are put in another order."""
    order = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
    return bool(array.transpose(order).flags.c_contiguous)


@dataclass(frozen=True, eq=False)
class Node:
    """One operation of a graph.

    Attributes:
        name: of the value it gives, unique in the graph.
        op: a name of `autotune.graph.ops.OPS`.
        inputs: names of values.
        attrs: of the operation, every one, in its one form: numbers, texts, truth values and tuples of them;
            of a loop also its body.
        type: of the value.
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
    """Nodes in topological order.

    Attributes:
        name: of the network.
        inputs: activations that a caller gives, by name, in order.
        constants: weights by name, never written to: C-contiguous, or transpositions of such, see `Builder.constant`.
        nodes: in topological order.
        outputs: names of the values that a caller gets, in order.
        output_names: what a caller knows the outputs by, in order; by default the names of the values. Passes rename
            values, and leave these as they are.
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
            self._define(name, type_of(array))
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
        """Type of a value."""
        return self._types[name]

    def node(self, name: str) -> Node | None:
        """The node that gives a value; None for inputs and constants."""
        return self._by_name.get(name)

    @property
    def _by_name(self) -> dict[str, Node]:
        found = self.__dict__.get("_nodes_by_name")
        if found is None:
            found = {node.name: node for node in self.nodes}
            object.__setattr__(self, "_nodes_by_name", found)
        return found

    def consumers(self) -> Mapping[str, tuple[Node, ...]]:
        """Value → the nodes that read it, each once; values read by none have an empty tuple."""
        found = self.__dict__.get("_consumers")
        if found is None:
            lists: dict[str, list[Node]] = {name: [] for name in self._types}
            for node in self.nodes:
                for name in dict.fromkeys(node.inputs):
                    lists[name].append(node)
            found = MappingProxyType({name: tuple(nodes) for name, nodes in lists.items()})
            object.__setattr__(self, "_consumers", found)
        return found

    def __str__(self) -> str:
        lines = [f"graph {self.name}({', '.join(f'{name}: {kind}' for name, kind in self.inputs.items())})"]
        lines += [f"  {name}: {type_of(array)}" for name, array in self.constants.items()]
        lines += [f"  {node}" for node in self.nodes]
        return "\n".join([*lines, f"  return {', '.join(self.outputs)}"])


class Builder:
    """Makes a graph node by node.

    Args:
        name: of the graph.
        inputs: activations by name, in order.
        output_names: what a caller knows the outputs by, in order; by default the names of the values.
    """

    def __init__(self, name: str, inputs: Mapping[str, TensorType], output_names: Sequence[str] = ()) -> None:
        self.name = name
        self._output_names = tuple(output_names)
        self._inputs = dict(inputs)
        self._constants: dict[str, Array] = {}
        self._nodes: dict[str, Node] = {}
        self._types: dict[str, TensorType] = dict(inputs)
        self._numbers: dict[str, int] = {}  # below which none is free

    def type(self, name: str) -> TensorType:
        """Type of a value so far."""
        return self._types[name]

    def array(self, name: str) -> Array | None:
        """The constant of that name, or None."""
        return self._constants.get(name)

    def node(self, name: str) -> Node | None:
        """The node that gives a value; None for inputs and constants."""
        return self._nodes.get(name)

    def constant(self, array: Array, name: str = "constant") -> str:
        """Adds a weight; the name under which it is known, which is `name` where that is free.

        A large one that is dense in another order of its axes stays where it is: kernels have weights in orders of
        their own, and a copy for each order between here and there takes longer than all else.
        """
        name = self._fresh(name)
        kept = array.nbytes >= LARGE and is_transposed(array)
        self._constants[name] = array if kept else np.ascontiguousarray(array).reshape(array.shape)
        self._types[name] = type_of(array)
        return name

    def add(self, op: str, inputs: Sequence[str], name: str = "", **attrs: Any) -> str:
        """Adds a node; the name of its value, which is `name` where that is free.

        Raises:
            GraphError: an unknown operation, or inputs and attributes that do not go together.
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
        """Adds a node of another graph; it is not inferred anew where it reads values of the same names and types."""
        same = node.name not in self._types and tuple(inputs) == node.inputs
        if not same or any(self._types[name] != graph.type(name) for name in inputs):
            return self.add(node.op, inputs, node.name, **node.attrs)
        self._nodes[node.name], self._types[node.name] = node, node.type
        return node.name

    def finish(self, outputs: Iterable[str]) -> Graph:
        """The graph."""
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


Rewrite = Callable[[Builder, Node, list[str]], str | None]


def rewrite(graph: Graph, visit: Rewrite) -> Graph:
    """A graph in which nodes are replaced.

    Args:
        graph: what to go over, in order.
        visit: is given the builder of the new graph, a node of the old one and the new names of its inputs. It gives
            the new name of the node's value, having added what it takes, or None to leave the node as it is.

    Constants that nothing reads any more are left out; unread nodes stay until `passes.dead_code` removes them.
    """
    builder = Builder(graph.name, graph.inputs, graph.output_names)
    names = {name: name for name in graph.inputs}
    for name, array in graph.constants.items():
        names[name] = builder.constant(array, name)
    for node in graph.nodes:
        inputs = [names[name] for name in node.inputs]
        new = visit(builder, node, inputs)
        names[node.name] = builder.keep(node, graph, inputs) if new is None else new
    return without_unread_constants(builder.finish(names[name] for name in graph.outputs))


def without_unread_constants(graph: Graph) -> Graph:
    """The same graph with the constants that a node or the caller reads."""
    read = {name for node in graph.nodes for name in node.inputs} | set(graph.outputs)
    kept = {name: array for name, array in graph.constants.items() if name in read}
    return replace(graph, constants=kept)


def topological(nodes: Iterable[Node], known: Iterable[str]) -> Iterator[Node]:
    """Nodes in an order in which each reads what stands before it; `known` are inputs and constants.

    Raises:
        GraphError: nodes that wait for each other, or read a value that nothing gives.
    """
    ready, waiting = set(known), list(nodes)
    while waiting:
        held: list[Node] = []
        for node in waiting:
            if all(name in ready for name in node.inputs):
                ready.add(node.name)
                yield node
            else:
                held.append(node)
        if len(held) == len(waiting):
            raise GraphError(f"nodes of a graph must have an order, but {held[0].name!r} waits for a value of its own")
        waiting = held
