"""Concatenations: nothing is computed where kernels can write in place, and parts that lie elsewhere are copied."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autotune.graph.copies import LEAST_BYTES, executable_graph
from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Graph, GraphBuilder, TensorType
from autotune.graph.partition import partition
from autotune.graph.views import locate
from tests.autotune.compiler.test_compile import compile_into
from tests.autotune.graph.nets import feeds

EDGE = 24  # so that what is concatenated is large


def dense_block(layers: int, first: int = 1) -> Graph:
    """Each layer reads all that came before it, from the one called `first` on."""
    rng = np.random.default_rng(0)
    b = GraphBuilder("dense_block", {"x": TensorType((1, EDGE, EDGE, 16))})
    known = [b.add("relu", ["x"])]
    for _ in range(layers):
        joined = known[0] if len(known) == 1 else b.add("concat", known, axis=3)
        depth = b.type(joined).shape[3]
        weight = b.constant(rng.standard_normal((1, 1, depth, 16)).astype(np.float32) / depth)
        known.append(b.add("conv2d", [joined, weight]))
    outputs = [b.add("relu", [b.add("concat", known, axis=3)])]
    if first:
        outputs.append(b.add("tanh", [b.add("concat", known[first:-1], axis=3)]))
    return b.finish(outputs)


def joins(graph: Graph) -> list[str]:
    """Titles of the kernels that put arrays together."""
    return [g.title for g in partition(graph) if g.workload is not None and g.nodes[0].op == "concat"]


@pytest.mark.parametrize("first", [0, 2])
def test_what_is_a_stretch_of_another_concatenation_is_not_computed(first: int, tmp_path: Path) -> None:
    graph = dense_block(5, first)
    assert not joins(graph)
    assert executable_graph(graph) is graph
    given = feeds(graph)
    found = compile_into(graph, tmp_path)(given["x"])
    outputs = found if isinstance(found, tuple) else (found,)
    for array, name in zip(outputs, graph.outputs, strict=True):
        np.testing.assert_allclose(array, evaluate(graph, given)[name], rtol=1e-4, atol=1e-5)


def test_a_stretch_lies_where_its_first_part_lies() -> None:
    graph = dense_block(3, 2)
    locations = locate(graph)
    whole, stretch = [n for n in graph.nodes if n.op == "concat"][-2:]
    assert locations[stretch.name].root == whole.name
    assert locations[stretch.name].offset == 2 * 16
    assert locations[stretch.name].strides == locations[whole.inputs[0]].strides


def test_a_stretch_that_is_an_output_or_is_not_side_by_side_is_computed() -> None:
    b = GraphBuilder("apart", {"x": TensorType((1, 4, 4, 16))})
    parts = [b.add(op, ["x"]) for op in ("relu", "tanh", "sigmoid")]
    whole = b.add("concat", parts, axis=3)
    skipping = b.add("concat", [parts[0], parts[2]], axis=3)
    begun = b.add("concat", parts[:2], axis=3)
    graph = b.finish([b.add("relu", [whole]), b.add("relu", [skipping]), begun])
    assert len(joins(graph)) == 2


def make_scattered_parts() -> Graph:
    """Parts that no kernel can write in place: an input, a constant, a part of another whole, a view, one twice."""
    rng = np.random.default_rng(0)
    shape = (1, EDGE, EDGE, 16)
    b = GraphBuilder("scattered", {"x": TensorType(shape), "y": TensorType((EDGE, EDGE, 16))})
    a, c = b.add("relu", ["x"]), b.add("tanh", ["x"])
    constant = b.constant(rng.standard_normal(shape).astype(np.float32))
    view = b.add("reshape", ["y"], shape=shape)
    joined = b.add("concat", ["x", a, constant, view, c, c], axis=3)
    other = b.add("concat", [c, a], axis=3)
    return b.finish([b.add("relu", [joined]), b.add("sigmoid", [other])])


def test_parts_that_lie_elsewhere_are_copied_each_by_itself(tmp_path: Path) -> None:
    graph = make_scattered_parts()
    assert joins(graph)
    ready = executable_graph(graph)
    assert not joins(ready)
    assert executable_graph(ready) is ready
    given = feeds(graph)
    found = compile_into(graph, tmp_path)(given["x"], given["y"])
    for array, name in zip(found, graph.outputs, strict=True):
        np.testing.assert_allclose(array, evaluate(graph, given)[name], rtol=1e-5, atol=1e-6)


def test_small_concatenations_are_one_kernel() -> None:
    b = GraphBuilder("small", {"x": TensorType((1, 8)), "y": TensorType((1, 8))})
    graph = b.finish([b.add("relu", [b.add("concat", ["x", "y"], axis=1)])])
    assert LEAST_BYTES > 64
    assert len(joins(executable_graph(graph))) == 1


def test_places_that_would_not_be_aligned_are_not_copied_to() -> None:
    b = GraphBuilder("odd", {"x": TensorType((128, 128, 3)), "y": TensorType((128, 128, 5))})
    graph = b.finish([b.add("relu", [b.add("concat", ["x", "y"], axis=2)])])
    assert executable_graph(graph, alignment=16) is graph
    assert not joins(executable_graph(graph))
