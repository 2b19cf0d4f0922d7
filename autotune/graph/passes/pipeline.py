"""Passes as values, and pipelines of them, which verify, time and report what each pass does.

A pass is a frozen dataclass whose fields are its options, as in MLIR and xDSL. It gives another graph, or the same one,
and may tell what it learned of the graph. A `PassPipeline` is a pass again, so that pipelines nest.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from autotune.graph.ir import Graph, GraphError
from autotune.graph.loops import over_bodies
from autotune.graph.passes.common_subexpressions import equal_bytes
from autotune.graph.passes.verify import verify


@dataclass(frozen=True)
class Explained:
    """A graph that a pass gave, and what it learned on the way.

    Attributes:
        graph: the new graph.
        fact: accuracies, choices and the like.
    """

    graph: Graph
    fact: Any


class GraphPass(ABC):
    """A rewriting of graphs; subclasses are frozen dataclasses whose fields are options.

    Attributes:
        name: words with underscores, by which listeners and facts know the pass.
    """

    name: str

    @abstractmethod
    def apply(self, graph: Graph) -> Graph | Explained:
        """Rewrites a graph, which stays as it is; returns it where there is nothing to do.

        Raises:
            ValueError: the graph excludes the options of the pass.
        """

    def __call__(self, graph: Graph) -> Graph:
        """Applies the pass alone, without the checks of a pipeline."""
        result = self.apply(graph)
        return result.graph if isinstance(result, Explained) else result


@dataclass(frozen=True)
class FunctionPass(GraphPass):
    """A pass without options, made of a function."""

    name: str
    function: Callable[[Graph], Graph] = field(repr=False)

    def apply(self, graph: Graph) -> Graph:
        return self.function(graph)


@dataclass(frozen=True)
class PassRun:
    """One pass of a pipeline, applied.

    Attributes:
        step: the pass.
        before, after: graphs; the same object where the pass had nothing to do.
        seconds: wall time of the pass, its verification left out.
    """

    step: GraphPass
    before: Graph
    after: Graph
    seconds: float

    def __str__(self) -> str:
        nodes = f"{len(self.before.nodes)} -> {len(self.after.nodes)} nodes"
        return f"{self.step.name}: {nodes}, {1e3 * self.seconds:.1f} ms"


Listener = Callable[[PassRun], None]
"""Called after each pass of a pipeline."""


@dataclass(frozen=True)
class Lowered:
    """The outcome of a pipeline.

    Attributes:
        graph: after the last pass.
        facts: what passes learned, by the name of the pass.
    """

    graph: Graph
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class PassPipeline(GraphPass):
    """Passes one after another.

    Attributes:
        passes: in order.
        listener: called after each pass, to print graphs or to add up times; None: nobody.
    """

    passes: Sequence[GraphPass]
    listener: Listener | None = None
    name: str = "pipeline"

    def apply(self, graph: Graph) -> Explained:
        result = self.run(graph)
        return Explained(result.graph, result.facts)

    def run(self, graph: Graph) -> Lowered:
        """Applies the passes and verifies what each of them changed.

        Raises:
            GraphError: a pass gave a graph that is none, or other outputs.
            ValueError: the graph excludes the options of a pass.
        """
        facts: dict[str, Any] = {}
        for step in self.passes:
            start = time.perf_counter()
            result = step.apply(graph)
            seconds = time.perf_counter() - start
            after = result
            if isinstance(result, Explained):
                after, facts[step.name] = result.graph, result.fact
            assert isinstance(after, Graph)
            if after is not graph:
                check_step(graph, after)
            if self.listener is not None:
                self.listener(PassRun(step, graph, after, seconds))
            graph = after
        return Lowered(graph, MappingProxyType(facts))


@dataclass(frozen=True)
class Repeat(GraphPass):
    """Passes in order, again and again until none changes the graph; bodies of loops go through them, too.

    Attributes:
        passes: in order.
        rounds: how often they run at most.
    """

    passes: Sequence[GraphPass]
    rounds: int
    name: str = "optimise"

    def apply(self, graph: Graph) -> Graph:
        graph = over_bodies(graph, self.apply)
        verify(graph)
        for _ in range(self.rounds):
            before = graph
            for step in self.passes:
                after = step(graph)
                if not same_graph(after, graph):
                    check_step(graph, after)
                    graph = after
            if same_graph(before, graph):
                break
        return graph


def check_step(before: Graph, after: Graph) -> None:
    """Verifies the graph that a pass gave, and holds its outputs against those of the graph before.

    Raises:
        GraphError: it is none, or outputs have other names or types.
    """
    verify(after)
    wanted, got = ([*zip(g.output_names, map(g.type, g.outputs), strict=True)] for g in (before, after))
    if wanted != got:
        kinds = (", ".join(f"{name}: {kind}" for name, kind in each) for each in (wanted, got))
        raise GraphError(f"a pass must leave outputs as they are, {next(kinds)}, but got {next(kinds)}")


def same_graph(first: Graph, second: Graph) -> bool:
    """Tells whether two graphs are the same, node by node and byte by byte, names included."""
    if first is second:
        return True
    nodes = [[(n.name, n.op, n.inputs, dict(n.attrs), n.type) for n in graph.nodes] for graph in (first, second)]
    if nodes[0] != nodes[1] or first.outputs != second.outputs or first.inputs != second.inputs:
        return False
    if set(first.constants) != set(second.constants):
        return False
    pairs = [(array, second.constants[name]) for name, array in first.constants.items()]
    return all(a.shape == b.shape and a.dtype == b.dtype for a, b in pairs) and all(
        (a.ctypes.data, a.strides) == (b.ctypes.data, b.strides) or equal_bytes(a, b) for a, b in pairs
    )
