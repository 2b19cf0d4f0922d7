"""Context of rewriting rules: the old graph, the readers of its values, and the graph under construction."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from autotune.graph.ir import Array, Graph, GraphBuilder, Node, TensorType, rewrite
from autotune.graph.passes.dead_code import dead_code
from search_space.dtypes import is_float_exact, numpy_dtype


class Site:
    """A sweep over a graph. Rules match on the old graph, and add nodes that read new names.

    A rule must replace a node by an equal value. Then any old value may be read under its new name, however the nodes
    between were rewritten.

    Attributes:
        graph: the old graph.
        builder: builder of the new graph.
        new: new names of the old values that a visited node reads.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.builder = GraphBuilder(graph.name, {}, graph.output_names)
        self.new: dict[str, str] = {}
        self._consumers = graph.consumers()
        self._outputs = set(graph.outputs)

    def private(self, name: str) -> bool:
        """Tells whether one node reads the value, and it is not an output."""
        return len(self._consumers[name]) == 1 and name not in self._outputs

    def readers(self, name: str) -> tuple[Node, ...]:
        """Returns the nodes that read a value, each once."""
        return self._consumers[name]

    def node(self, name: str, *ops: str) -> Node | None:
        """Returns the node of a value if its operation is one of `ops`, otherwise None."""
        node = self.graph.node(name)
        return node if node is not None and node.op in ops else None

    def array(self, name: str) -> Array | None:
        """Returns the array of a constant; None for other values."""
        return self.graph.constants.get(name)

    def scalar(self, name: str) -> float | None:
        """Returns the number that all elements of a constant have; None if they differ or the value is no constant.

        Integers that no float represents give None, too, as rules compute in floats.
        """
        array = self.array(name)
        if array is None or not array.size or not (array == array.flat[0]).all():
            return None
        number = array.flat[0].item()
        return float(number) if is_float_exact(number) else None

    def type(self, name: str) -> TensorType:
        """Returns the type of an old value."""
        return self.graph.type(name)

    def add(self, op: str, inputs: list[str], name: str = "", **attrs: object) -> str:
        """Adds a node that reads new names."""
        return self.builder.add(op, inputs, name, **attrs)

    def constant(self, array: Array, like: str) -> str:
        """Adds a constant of the dtype of the old value `like`."""
        return self.builder.constant(np.asarray(array).astype(numpy_dtype(self.type(like).dtype)))

    def reshape(self, name: str, shape: tuple[int, ...]) -> str:
        """Reshapes a new value, if it has another shape."""
        return name if self.builder.type(name).shape == shape else self.add("reshape", [name], shape=shape)


Rule = Callable[[Site, Node], str | None]


def sweep(graph: Graph, *rules: Rule) -> Graph:
    """Replaces each node by the first rule that applies, and removes dead code."""
    # Dead nodes must not count as readers.
    graph = dead_code(graph)
    site = Site(graph)

    def visit(builder: GraphBuilder, node: Node, inputs: list[str]) -> str | None:
        site.builder = builder
        site.new.update(zip(node.inputs, inputs, strict=True))
        return next((new for rule in rules if (new := rule(site, node)) is not None), None)

    return dead_code(rewrite(graph, visit))


def orders(node: Node) -> Iterator[tuple[str, str]]:
    """Yields both orders of two operands; equal operands once."""
    first, second = node.inputs
    yield first, second
    if first != second:
        yield second, first


def per_axis(value: int | tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Expands a number, or a number for each axis, to a number for each of `rank` axes."""
    numbers = (value,) if isinstance(value, int) else value
    return numbers if len(numbers) == rank else numbers * rank


def pair(value: int | tuple[int, ...]) -> tuple[int, int]:
    """Expands a number, or one for height and one for width, to both."""
    height, width = per_axis(value, 2)
    return height, width
