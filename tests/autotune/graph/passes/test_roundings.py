"""Roundings to 16 bits inside kernels, which go unless a comparison reads them."""

from __future__ import annotations

import numpy as np

from autotune.graph.ir import Graph, GraphBuilder, TensorType
from autotune.graph.passes import same_graph
from autotune.graph.passes.roundings import roundings


def with_rounded_exponential(op: str) -> Graph:
    """An operation on the rounded exponential of the input, and ones."""
    b = GraphBuilder("rounded", {"x": TensorType((4,))})
    rounded = b.add("cast", [b.add("exp", ["x"])], dtype="bfloat16")
    return b.finish([b.add(op, [rounded, b.constant(np.ones(1, np.float32))])])


EXAMPLE = with_rounded_exponential("add")


def test_roundings_inside_a_kernel_go() -> None:
    assert [node.op for node in roundings(EXAMPLE).nodes] == ["exp", "add"]


def test_roundings_before_comparisons_stay() -> None:
    graph = with_rounded_exponential("less")
    assert same_graph(roundings(graph), graph)
