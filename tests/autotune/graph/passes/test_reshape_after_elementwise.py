"""A reshape after a product gives way to the bias, so that the bias ends the product's kernel."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Graph, GraphBuilder, TensorType
from autotune.graph.partition import partition
from autotune.graph.passes import optimise
from autotune.graph.passes.simplify import simplify
from tests.autotune.graph.nets import feeds


def product(other: tuple[int, ...] | None, final: tuple[int, ...] = (2, 3, 5)) -> Graph:
    """A product of matrices, reshaped, plus something of the shape `other` (an input), or itself twice."""
    inputs = {"x": TensorType((6, 4))} | ({"other": TensorType(other)} if other is not None else {})
    b = GraphBuilder("product", inputs)
    weight = b.constant(np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32))
    out = b.add("reshape", [b.add("matmul", ["x", weight])], shape=final)
    return b.finish([b.add("relu", [b.add("add", [out, "other" if other is not None else out])])])


@pytest.mark.parametrize("other", [(5,), (1,), (1, 1, 5), (2, 3, 5), (1, 1, 1), (), None])
def test_one_kernel(other: tuple[int, ...] | None) -> None:
    graph = product(other)
    after = optimise(graph)
    assert [group.title for group in partition(after) if group.workload is not None] == ["matmul+add+relu"]
    _same(graph, after)


@pytest.mark.parametrize("other", [(3, 5), (2, 1, 5), (3, 1), (4, 1, 3, 5)])
def test_what_differs_along_the_axis_that_is_split_stays(other: tuple[int, ...]) -> None:
    graph = product(other)
    after = simplify(graph)
    assert [node.op for node in after.nodes][:2] == ["matmul", "reshape"]
    _same(graph, after)


def test_another_reshape_stays() -> None:
    graph = product((10,), (3, 10))
    assert [node.op for node in simplify(graph).nodes][:2] == ["matmul", "reshape"]
    _same(graph, simplify(graph))


def _same(graph: Graph, after: Graph) -> None:
    given = feeds(graph)
    old, new = (evaluate(g, given)[g.outputs[0]] for g in (graph, after))
    assert old.shape == new.shape
    np.testing.assert_allclose(new, old, rtol=1e-6)
