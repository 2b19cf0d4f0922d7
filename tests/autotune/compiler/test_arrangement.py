"""Order of calls: outputs over inputs, what is legal there, and values that are computed where they are read."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.compiler.executable.arrangement import check_stores, check_updates, order
from autotune.compiler.executable.scopes import Scope, make_scope
from autotune.compiler.executable.update_copies import separate_updates
from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Graph, GraphBuilder, TensorType
from autotune.graph.passes.repeated_scales import repeat_scales
from search_space.schedule.loop_steps import Split
from search_space.schedule.trace import Trace
from targets.base import BuildError

UPDATES = {"state": "new"}


def make_test_scope(builder: GraphBuilder, outputs: list[str]) -> Scope:
    graph = builder.finish(outputs)
    names = ("new", *graph.outputs[1:])
    return make_scope(Graph(graph.name, graph.inputs, graph.constants, graph.nodes, graph.outputs, names), 64)


def start_builder() -> GraphBuilder:
    return GraphBuilder("net", {"state": TensorType((64, 64)), "x": TensorType((64, 64))})


def test_readers_of_old_elements_run_before_their_replacement() -> None:
    builder = start_builder()
    new = builder.add("add", ["state", "x"])
    product = builder.add("matmul", ["state", "x"])
    scope = make_test_scope(builder, [new, product])
    with pytest.raises(BuildError, match="state state must be read before it is replaced, but matmul reads it"):
        check_updates(scope, UPDATES)
    ordered = order(scope, UPDATES)
    assert [group.title for group in ordered.groups] == ["matmul", "add"]
    assert [group.title for group in check_updates(ordered, UPDATES)] == ["add"]


def check_separated(graph: Graph, updates: dict[str, str]) -> list[str]:
    """Checks the order of a graph's calls with copies and returns their titles."""
    ordered = order(make_scope(separate_updates(graph, updates, 64), 64), updates)
    check_updates(ordered, updates)
    return [group.title for group in ordered.groups]


def test_a_new_value_is_copied_if_a_value_depends_on_both() -> None:
    builder = start_builder()
    new = builder.add("add", ["state", "x"])
    both = builder.add("matmul", [new, "state"])
    scope = make_test_scope(builder, [new, both])
    with pytest.raises(BuildError, match="state state must be replaced after all its readers"):
        order(scope, UPDATES)
    assert check_separated(scope.graph, UPDATES) == ["add", "matmul", "copy"]


def test_copies_take_few_bytes_and_break_every_cycle() -> None:
    """Copying `wide` breaks three cycles, whose other states take fewer bytes each and more together."""
    names = [f"part{number}" for number in range(3)]
    inputs = {"wide": TensorType((32, 64)), **{name: TensorType((24, 64)) for name in names}}
    builder = GraphBuilder("net", inputs)

    def read_row(name: str) -> str:
        return builder.add("slice", [name], begin=(1, 0), size=(1, 64))

    wide = "wide"
    for name in names:
        wide = builder.add("add", [wide, read_row(name)])
    graph = builder.finish([wide, *(builder.add("add", [name, read_row("wide")]) for name in names)])
    updates = dict(zip(inputs, graph.output_names, strict=True))
    separated = separate_updates(graph, updates, 64)
    assert [node.type.shape for node in separated.nodes if node.op == "copy"] == [(32, 64)]
    assert check_separated(graph, updates)[-1] == "copy"
    assert separate_updates(separated, updates, 64) is separated


def test_an_element_is_replaced_by_one_that_reads_no_other() -> None:
    builder = start_builder()
    turned = builder.add("transpose", ["state"], axes=(1, 0))
    scope = make_test_scope(builder, [builder.add("add", [turned, "x"])])
    with pytest.raises(BuildError, match="state state must be replaced element by element, but transpose"):
        check_updates(scope, UPDATES)
    separated = make_scope(separate_updates(scope.graph, UPDATES, 64), 64)
    assert [group.title for group in order(separated, UPDATES).groups][-1] == "copy"
    check_updates(order(separated, UPDATES), UPDATES)
    (group,) = scope.groups
    check_stores(group, Trace((Split("add", "i0", (8,), "guard"),)))
    with pytest.raises(BuildError, match="without clamped tiles"):
        check_stores(group, Trace((Split("add", "i0", (8,), "clamp"),)))


def test_calls_that_free_memory_run_early() -> None:
    builder = start_builder()
    wide = [builder.add("matmul", ["x", "x"], f"wide{number}") for number in range(3)]
    small = [builder.add("reduce", [name], axes=(1,), reducer="sum") for name in wide]
    new = builder.add("add", ["state", builder.add("add", [builder.add("add", small[:2]), small[2]])])
    scope = make_test_scope(builder, [new])
    ordered = order(scope, UPDATES)
    assert [g.title.split("+")[0] for g in ordered.groups][:4] == ["matmul", "reduce", "matmul", "reduce"]
    assert ordered.plan(64).nbytes < scope.plan(64).nbytes


def test_scales_are_repeated_in_late_readers_only_where_the_scaled_value_lives() -> None:
    builder = GraphBuilder("net", {"x": TensorType((64, 512)), "scale": TensorType((512,))})
    centred = builder.add("exp", ["x"])
    scaled = builder.add("multiply", [centred, "scale"])
    first = builder.add("relu", [scaled])
    late = builder.add("multiply", [scaled, first])
    again = builder.add("multiply", [centred, first])
    graph = builder.finish([late, again])
    repeated = repeat_scales(graph)
    titles = [group.title for group in make_scope(repeated, 64).groups]
    assert titles == ["exp", "multiply+relu", "multiply+multiply", "multiply"]
    feeds = {"x": np.linspace(-1, 1, 64 * 512, dtype=np.float32).reshape(64, 512), "scale": np.ones(512, np.float32)}
    for old, new in zip(graph.outputs, repeated.outputs, strict=True):
        np.testing.assert_array_equal(evaluate(repeated, feeds)[new], evaluate(graph, feeds)[old])
    ended = GraphBuilder("net", {"x": TensorType((64, 512)), "scale": TensorType((512,))})
    centred = ended.add("exp", ["x"])
    scaled = ended.add("multiply", [centred, "scale"])
    only = ended.finish([ended.add("multiply", [scaled, ended.add("relu", [scaled])])])
    assert repeat_scales(only) is only
