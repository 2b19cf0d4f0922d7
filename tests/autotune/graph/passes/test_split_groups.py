"""Convolutions in wide groups: split with what follows them, left alone where groups are narrow or many."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.graph.ir import Graph, GraphBuilder, TensorType
from autotune.graph.partition import partition
from autotune.graph.passes.split_groups import split_groups
from tests.autotune.graph.random_graphs import assert_equal_outputs


def make_grouped_convolution(
    groups: int, channels: int = 32, filters: int = 64, ended: bool = True, constant: bool = True
) -> Graph:
    rng = np.random.default_rng(0)
    shape = (3, 3, channels // groups, filters)
    b = GraphBuilder("grouped", {"x": TensorType((1, 6, 6, channels)), "w": TensorType(shape)})
    weight = b.constant(rng.standard_normal(shape).astype(np.float32)) if constant else "w"
    y = b.add("conv2d", ["x", weight], padding=1, groups=groups)
    if ended:
        y = b.add("add", [y, b.constant(rng.standard_normal(filters).astype(np.float32))])
        y = b.add("multiply", [b.constant(np.float32([2.0])), y])
        y = b.add("relu", [y])
    return b.finish([y, b.add("sigmoid", [y])])


EXAMPLE = make_grouped_convolution(2)


@pytest.mark.parametrize("ended", [True, False])
def test_each_group_becomes_a_convolution_with_its_ending(ended: bool) -> None:
    graph = make_grouped_convolution(2, ended=ended)
    new = split_groups(graph)
    assert_equal_outputs(new, graph)
    assert [n.op for n in new.nodes].count("conv2d") == 2
    assert all(n.attrs["groups"] == 1 for n in new.nodes if n.op == "conv2d")
    titles = [group.title for group in partition(new) if group.workload is not None]
    ending = "+add+multiply+relu" if ended else ""
    assert titles.count(f"conv2d{ending}") == 2


@pytest.mark.parametrize(
    "graph",
    [
        make_grouped_convolution(1),
        make_grouped_convolution(8),
        make_grouped_convolution(16, 512, 512),
        make_grouped_convolution(2, constant=False),
    ],
    ids=["one", "narrow", "many", "unknown weight"],
)
def test_others_stay(graph: Graph) -> None:
    assert [n.op for n in split_groups(graph).nodes] == [n.op for n in graph.nodes]


def test_an_ending_that_another_node_reads_ends_the_chain() -> None:
    rng = np.random.default_rng(0)
    b = GraphBuilder("read", {"x": TensorType((1, 4, 4, 32))})
    y = b.add("conv2d", ["x", b.constant(rng.standard_normal((1, 1, 16, 32)).astype(np.float32))], groups=2)
    z = b.add("add", [y, b.constant(rng.standard_normal(32).astype(np.float32))])
    graph = b.finish([b.add("relu", [z]), b.add("sigmoid", [z])])
    new = split_groups(graph)
    assert_equal_outputs(new, graph)
    assert [n.op for n in new.nodes].count("add") == 2
    assert [n.op for n in new.nodes].count("relu") == 1
