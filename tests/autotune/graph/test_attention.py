"""Attention as one node: where scores are many and nobody else reads them, with what is added to them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotune.graph.attention import with_attention
from autotune.graph.ir import Graph, GraphBuilder, TensorType
from autotune.graph.ops import find
from search_space import te
from search_space.hardware import Hardware
from targets import registry
from tests.autotune.graph.random_graphs import assert_equal_outputs, count

PARTS = ("batch_matmul", "softmax")


def machine(l2_bytes: int = 1024) -> Hardware:
    return replace(registry.get("cpu").hardware, l2_bytes=l2_bytes)


def add_scores(b: GraphBuilder, bias_shape: tuple[int, ...] | None = None, last: bool = False) -> tuple[str, str]:
    """(scores, their softmax) of queries q and keys k."""
    scores = value = b.add("batch_matmul", ["q", "k"])
    if bias_shape is not None:
        bias = b.constant(np.random.default_rng(0).standard_normal(bias_shape).astype(np.float32))
        value = b.add("add", [bias, value] if last else [value, bias])
    rows = b.add("softmax", [b.add("reshape", [value], shape=(2 * 20, 33))])
    return scores, b.add("reshape", [rows], shape=(2, 20, 33))


def start_builder() -> GraphBuilder:
    shapes = {"q": (2, 20, 8), "k": (2, 8, 33), "v": (2, 33, 5)}
    return GraphBuilder("attention", {name: TensorType(shape) for name, shape in shapes.items()})


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("bias_shape", [None, (20, 33), (2, 20, 33), (2, 1, 33), (1,)])
def test_it_becomes_one_node(bias_shape: tuple[int, ...] | None, last: bool) -> None:
    b = start_builder()
    _, weights = add_scores(b, bias_shape, last)
    graph = b.finish([b.add("batch_matmul", [weights, "v"])])
    new = with_attention(graph, machine())
    assert [n.op for n in new.nodes] == ["attention"]
    assert_equal_outputs(new, graph)


def test_sums_of_several_are_kept_in_order() -> None:
    b = start_builder()
    scores = b.add("batch_matmul", ["q", "k"])
    for shape in ((20, 33), (2, 1, 33)):
        scores = b.add("add", [scores, b.constant(np.random.default_rng(1).standard_normal(shape).astype(np.float32))])
    rows = b.add("softmax", [b.add("reshape", [scores], shape=(40, 33))])
    graph = b.finish([b.add("batch_matmul", [b.add("reshape", [rows], shape=(2, 20, 33)), "v"])])
    new = with_attention(graph, machine())
    assert count(new, "attention") == len(new.nodes) == 1
    assert_equal_outputs(new, graph)


def few() -> tuple[Graph, Hardware]:
    b = start_builder()
    return b.finish([b.add("batch_matmul", [add_scores(b)[1], "v"])]), machine(2 * 20 * 33 + 1)


def of_a_gpu() -> tuple[Graph, Hardware]:
    return few()[0], registry.get("cuda:sm_80").hardware


def read_by_others() -> tuple[Graph, Hardware]:
    b = start_builder()
    _, weights = add_scores(b)
    return b.finish([b.add("batch_matmul", [weights, "v"]), weights]), machine()


def scores_read_by_others() -> tuple[Graph, Hardware]:
    b = start_builder()
    scores, weights = add_scores(b)
    return b.finish([b.add("batch_matmul", [weights, "v"]), b.add("relu", [scores])]), machine()


def of_other_rows() -> tuple[Graph, Hardware]:
    b = GraphBuilder("rows", {"q": TensorType((2, 32, 8)), "k": TensorType((2, 8, 64)), "v": TensorType((2, 64, 5))})
    rows = b.add("softmax", [b.add("reshape", [b.add("batch_matmul", ["q", "k"])], shape=(128, 32))])
    return b.finish([b.add("batch_matmul", [b.add("reshape", [rows], shape=(2, 32, 64)), "v"])]), machine()


def transpose_scores() -> tuple[Graph, Hardware]:
    b = GraphBuilder("turned", {"q": TensorType((2, 33, 8)), "k": TensorType((2, 8, 33)), "v": TensorType((2, 33, 5))})
    other = b.add("transpose", [b.add("batch_matmul", ["q", "k"])], axes=(0, 2, 1))
    rows = b.add("softmax", [b.add("reshape", [other], shape=(66, 33))])
    return b.finish([b.add("batch_matmul", [b.add("reshape", [rows], shape=(2, 33, 33)), "v"])]), machine()


@pytest.mark.parametrize(
    "case", [few, of_a_gpu, read_by_others, scores_read_by_others, of_other_rows, transpose_scores]
)
def test_others_stay(case: Any) -> None:
    graph, hardware = case()
    assert [n.op for n in with_attention(graph, hardware).nodes] == [n.op for n in graph.nodes]


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(2, 4, 3), (2, 3, 5), (5, 6)], "`inputs` must have 3 dimensions each, but got \\[3, 3, 2\\]"),
        ([(2, 4, 3), (2, 2, 5), (2, 5, 6)], "keys must be \\[2, 3, 'n'\\]"),
        ([(2, 4, 3), (2, 3, 5), (2, 4, 6)], "values \\[2, 'n', 'd'\\]"),
        ([(2, 4, 3), (2, 3, 5), (2, 5, 6), (3, 5)], "must broadcast to \\[2, 4, 5\\], but got \\[3, 5\\]"),
    ],
)
def test_shapes_must_go_together(shapes: list[tuple[int, ...]], message: str) -> None:
    inputs = [te.placeholder(shape, "float32", f"x{i}") for i, shape in enumerate(shapes)]
    with pytest.raises(ValueError, match=message):
        find("attention").expression({}, inputs)
