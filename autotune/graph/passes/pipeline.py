"""Passes as values, and pipelines of passes, which verify, time and report each step.

A pass is a frozen dataclass whose fields are its options, as in MLIR and xDSL. It returns another graph, or the same
one, and may report a fact about it. A `PassPipeline` is a pass itself, so pipelines nest.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from autotune.graph.ir import Graph, GraphError
from autotune.graph.loops import over_bodies
from autotune.graph.passes.common_subexpressions import equal_bytes
from autotune.graph.passes.verify import verify


@dataclass(frozen=True)
class PassResult:
    """The result of a pass that reports a fact.

    Attributes:
        graph: the new graph.
        fact: accuracies, choices and the like that the pass reports.
    """

    graph: Graph
    fact: Any


class GraphPass(ABC):
    """A rewrite of graphs; subclasses are frozen dataclasses whose fields are options.

    Attributes:
        name: words joined by underscores that identify the pass for listeners and facts.
    """

    name: str

    @abstractmethod
    def apply(self, graph: Graph) -> Graph | PassResult:
        """Rewrites a graph, which is not modified; returns the same object if there is nothing to do.

        Raises:
            ValueError: the graph does not admit the options of the pass.
        """

    def __call__(self, graph: Graph) -> Graph:
        """Applies the pass alone, without the checks of a pipeline."""
        result = self.apply(graph)
        return result.graph if isinstance(result, PassResult) else result


@dataclass(frozen=True)
class FunctionPass(GraphPass):
    """A pass without options that calls a function."""

    name: str
    function: Callable[[Graph], Graph] = field(repr=False)

    def apply(self, graph: Graph) -> Graph:
        return self.function(graph)


@dataclass(frozen=True)
class Changes:
    """The fact that `Repeat` reports: which of its passes changed the graph.

    Attributes:
        counts: number of changes by the name of the pass, in the order of the first change.
    """

    counts: Mapping[str, int]

    def __str__(self) -> str:
        return ", ".join(name if count == 1 else f"{name} {count} times" for name, count in self.counts.items())


@dataclass(frozen=True)
class PassRun:
    """A record of one pass run by a pipeline.

    Attributes:
        step: the pass.
        before, after: graphs; the same object if the pass had nothing to do.
        seconds: wall time of the pass without its verification.
        fact: fact that the pass reported; None: no fact.
    """

    step: GraphPass
    before: Graph
    after: Graph
    seconds: float
    fact: Any = None

    def __str__(self) -> str:
        nodes = f"{len(self.before.nodes)} -> {len(self.after.nodes)} nodes"
        changes = f": {self.fact}" if isinstance(self.fact, Changes) and self.fact.counts else ""
        return f"{self.step.name}: {nodes}, {1e3 * self.seconds:.1f} ms{changes}"


Listener = Callable[[PassRun], None]
"""A callback after each pass of a pipeline."""


@dataclass(frozen=True)
class PipelineOutcome:
    """The outcome of a pipeline.

    Attributes:
        graph: graph after the last pass.
        facts: facts that passes reported, by the name of the pass.
    """

    graph: Graph
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class PassPipeline(GraphPass):
    """A sequence of passes that is a pass itself.

    Attributes:
        passes: passes in order.
        listener: callback after each pass, to print graphs or to add up times; None: no callback.
    """

    passes: Sequence[GraphPass]
    listener: Listener | None = None
    name: str = "pipeline"

    def apply(self, graph: Graph) -> PassResult:
        result = self.run(graph)
        return PassResult(result.graph, result.facts)

    def run(self, graph: Graph) -> PipelineOutcome:
        """Applies the passes and verifies each graph that changed.

        Raises:
            GraphError: a pass returned an invalid graph, or other outputs.
            ValueError: the graph does not admit the options of a pass.
        """
        facts: dict[str, Any] = {}
        for step in self.passes:
            start = time.perf_counter()
            result = step.apply(graph)
            seconds = time.perf_counter() - start
            after, fact = (result.graph, result.fact) if isinstance(result, PassResult) else (result, None)
            if isinstance(result, PassResult):
                facts[step.name] = fact
            assert isinstance(after, Graph)
            if after is not graph:
                check_step(graph, after)
            if self.listener is not None:
                self.listener(PassRun(step, graph, after, seconds, fact))
            graph = after
        return PipelineOutcome(graph, MappingProxyType(facts))


@dataclass(frozen=True)
class Repeat(GraphPass):
    """A sequence of passes repeated until none changes the graph; bodies of loops go through it, too.

    Attributes:
        passes: passes in order.
        rounds: maximum number of repetitions.
    """

    passes: Sequence[GraphPass]
    rounds: int
    name: str = "optimise"

    def apply(self, graph: Graph) -> PassResult:
        counts: Counter[str] = Counter()
        return PassResult(self._repeat(graph, counts), Changes(MappingProxyType(counts)))

    def _repeat(self, graph: Graph, counts: Counter[str]) -> Graph:
        """Applies the passes to the bodies of loops, then to the graph; adds the number of changes to `counts`."""
        graph = over_bodies(graph, lambda body: self._repeat(body, counts))
        verify(graph)
        for _ in range(self.rounds):
            before = graph
            for step in self.passes:
                after = step(graph)
                if not same_graph(after, graph):
                    check_step(graph, after)
                    graph = after
                    counts[step.name] += 1
            if same_graph(before, graph):
                break
        return graph


def check_step(before: Graph, after: Graph) -> None:
    """Verifies the graph that a pass returned, and compares its outputs with those of the graph before.

    Raises:
        GraphError: the graph is invalid, or its outputs have other names or types.
    """
    verify(after)
    wanted, got = ([*zip(g.output_names, map(g.type, g.outputs), strict=True)] for g in (before, after))
    if wanted != got:
        kinds = (", ".join(f"{name}: {kind}" for name, kind in each) for each in (wanted, got))
        raise GraphError(f"a pass must leave outputs as they are, {next(kinds)}, but got {next(kinds)}")


def same_graph(first: Graph, second: Graph) -> bool:
    """Tells whether two graphs are equal, node by node and byte by byte, names included."""
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
