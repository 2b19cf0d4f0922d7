"""Pipelines of passes: order, facts, listeners, and what is checked between two passes."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass

import pytest

from autotune.compiler.options import CompileOptions
from autotune.compiler.pipeline import make_pipeline
from autotune.graph.ir import Graph, GraphBuilder, GraphError, TensorType
from autotune.graph.passes import optimiser, same_graph
from autotune.graph.passes.pipeline import FunctionPass, GraphPass, PassPipeline, PassResult, PassRun
from targets import registry
from tests.autotune.graph.random_graphs import assert_equal_outputs, random_graph


@dataclass(frozen=True)
class Rename(GraphPass):
    """A pass that renames a graph; its fact is the old name."""

    to: str
    name = "rename"

    def apply(self, graph: Graph) -> PassResult:
        renamed = Graph(self.to, graph.inputs, graph.constants, graph.nodes, graph.outputs, graph.output_names)
        return PassResult(renamed, graph.name)


def first_output_alone(graph: Graph) -> Graph:
    """Drops the outputs after the first, which no pass may do."""
    return Graph("cut", graph.inputs, graph.constants, graph.nodes, graph.outputs[:1], graph.output_names[:1])


def test_passes_run_in_order_and_tell_what_they_learned() -> None:
    graph, runs = random_graph(1), list[PassRun]()
    result = PassPipeline([Rename("one"), FunctionPass("same", lambda g: g), Rename("two")], runs.append).run(graph)
    assert result.graph.name == "two" and result.facts == {"rename": "one"}
    assert [run.step.name for run in runs] == ["rename", "same", "rename"]
    assert runs[1].before is runs[1].after and runs[2].after is result.graph
    assert all(run.seconds >= 0 and f"{run.step.name}: " in str(run) for run in runs)


def test_a_pipeline_is_a_pass() -> None:
    inner = PassPipeline([Rename("one")], name="inner")
    result = PassPipeline([inner, optimiser()]).run(random_graph(2))
    assert result.facts["inner"]["rename"] == random_graph(2).name
    assert inner(random_graph(2)).name == "one"


def test_the_passes_that_changed_the_graph_are_named() -> None:
    b = GraphBuilder("twice", {"x": TensorType((3,))})
    column = b.add("reshape", ["x"], shape=(3, 1))
    graph, runs = b.finish([b.add("relu", [b.add("reshape", [column], shape=(3,))])]), list[PassRun]()
    PassPipeline([optimiser(["planes", "simplify"]), optimiser(["planes"])], runs.append).run(graph)
    assert str(runs[0]).startswith("optimise: 3 -> 1 nodes, ") and str(runs[0]).endswith(" ms: simplify")
    assert str(runs[1]).endswith(" ms")


def test_a_pass_that_changes_outputs_is_caught() -> None:
    graph = next(g for g in map(random_graph, range(99)) if len(g.outputs) > 1)
    with pytest.raises(GraphError, match="a pass must leave outputs as they are"):
        PassPipeline([FunctionPass("cut", first_output_alone)]).run(graph)


def test_options_of_passes_do_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        Rename("one").to = "two"  # type: ignore[misc]
    assert Rename("one") == Rename("one") != Rename("two")


@pytest.mark.parametrize("seed", range(6))
def test_the_passes_of_a_compilation_keep_outputs(seed: int) -> None:
    graph = random_graph(seed)
    pipeline = make_pipeline(CompileOptions(registry.get("cpu")))
    lowered = pipeline.run(graph).graph
    assert_equal_outputs(lowered, graph)
    assert same_graph(pipeline.run(graph).graph, lowered)
