"""Where a rewriting rule looks: the graph as it was, who reads what, and the graph that is being made."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from autotune.graph.ir import Array, Builder, Graph, Node, TensorType, rewrite
from autotune.graph.passes.dead_code import dead_code
from search_space.dtypes import is_float_exact, numpy_dtype


class Site:
    """One sweep over a graph. Rules match on the old graph, and add nodes that read new names.

    A rule that replaces a node must give a value equal to it: then any old name may be read under its new name,
    whatever was done to the nodes between.

    Attributes:
        graph: as it was.
        builder: of the graph that is made.
        new: old names of values → new ones, for all that a visited node reads.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.builder = Builder(graph.name, {}, graph.output_names)
        self.new: dict[str, str] = {}
        self._consumers = graph.consumers()
        self._outputs = set(graph.outputs)

    def private(self, name: str) -> bool:
        """Whether one node reads the value, and the caller does not."""
        return len(self._consumers[name]) == 1 and name not in self._outputs

    def readers(self, name: str) -> tuple[Node, ...]:
        """The nodes that read a value, each once."""
        return self._consumers[name]

    def node(self, name: str, *ops: str) -> Node | None:
        """The node that gives a value, where its operation is one of `ops`."""
        node = self.graph.node(name)
        return node if node is not None and node.op in ops else None

    def array(self, name: str) -> Array | None:
        """The value, where it is a constant."""
        return self.graph.constants.get(name)

    def scalar(self, name: str) -> float | None:
        """The number that a constant holds in all its places; None where it holds several or is no constant.

        Nor is there one of an integer that no float is, as rules compute in floats.
        """
        array = self.array(name)
        if array is None or not array.size or not (array == array.flat[0]).all():
            return None
        number = array.flat[0].item()
        return float(number) if is_float_exact(number) else None

    def type(self, name: str) -> TensorType:
        """Type of an old value."""
        return self.graph.type(name)

    def add(self, op: str, inputs: list[str], name: str = "", **attrs: object) -> str:
        """Adds a node that reads new names."""
        return self.builder.add(op, inputs, name, **attrs)

    def constant(self, array: Array, like: str) -> str:
        """Adds a constant of the dtype of the old value `like`."""
        return self.builder.constant(np.asarray(array).astype(numpy_dtype(self.type(like).dtype)))

    def reshaped(self, name: str, shape: tuple[int, ...]) -> str:
        """The new value `name` in that shape."""
        return name if self.builder.type(name).shape == shape else self.add("reshape", [name], shape=shape)


Rule = Callable[[Site, Node], str | None]


def sweep(graph: Graph, *rules: Rule) -> Graph:
    """The graph after the first rule that applies has replaced each node, without what nothing reads any more."""
    # What nothing reads must not count as a reader.
    graph = dead_code(graph)
    site = Site(graph)

    def visit(builder: Builder, node: Node, inputs: list[str]) -> str | None:
        site.builder = builder
        site.new.update(zip(node.inputs, inputs, strict=True))
        return next((new for rule in rules if (new := rule(site, node)) is not None), None)

    return dead_code(rewrite(graph, visit))


def orders(node: Node) -> Iterator[tuple[str, str]]:
    """Both orders of two operands."""
    first, second = node.inputs
    yield first, second
    if first != second:
        yield second, first


def per_axis(value: int | tuple[int, ...], rank: int) -> tuple[int, ...]:
    """One number for all of `rank` axes, or one for each, as a number for each."""
    numbers = (value,) if isinstance(value, int) else value
    return numbers if len(numbers) == rank else numbers * rank


def pair(value: int | tuple[int, ...]) -> tuple[int, int]:
    """One number for height and width, or one for each, as two."""
    height, width = per_axis(value, 2)
    return height, width
