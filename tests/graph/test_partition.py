"""Fusion: what ends up in one kernel, what must not, and that kernels are known by their structure alone."""

from __future__ import annotations

import numpy as np

from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Builder, TensorType
from autotune.graph.partition import partition
from tests.graph.nets import conv, feeds, residual, weight


def test_a_residual_addition_ends_the_kernel_that_runs_last() -> None:
    groups = partition(residual())
    titles = [group.title for group in groups]
    assert titles == [
        "conv2d+add+relu",
        "conv2d+add",
        "conv2d+add+relu",
        "conv2d+add+add+relu",
        "max_pool2d",
        "reduce",
        "matmul+add",
        "softmax",
    ]
    assert groups[1].output in groups[3].inputs


def test_workloads_compute_what_the_graph_says() -> None:
    graph = residual()
    given = feeds(graph)
    values = evaluate(graph, given)
    for group in partition(graph):
        assert group.workload is not None
        found = group.workload.reference(*(values[name] for name in group.inputs))
        np.testing.assert_allclose(found, values[group.output], rtol=1e-4, atol=1e-5)


def test_a_value_with_two_readers_is_written_out() -> None:
    rng = np.random.default_rng(0)
    b = Builder("two", {"x": TensorType((1, 4, 4, 16))})
    y = conv(b, rng, "x", 1, 16)
    graph = b.finish([b.add("relu", [y]), b.add("sigmoid", [y])])
    assert [group.title for group in partition(graph)] == ["conv2d+add", "relu", "sigmoid"]


def test_an_output_of_the_graph_is_written_out() -> None:
    rng = np.random.default_rng(0)
    b = Builder("given", {"x": TensorType((1, 4, 4, 16))})
    y = conv(b, rng, "x", 1, 16)
    graph = b.finish([y, b.add("relu", [y])])
    assert [group.title for group in partition(graph)] == ["conv2d+add", "relu"]


def test_what_grows_by_broadcasting_begins_a_kernel() -> None:
    rng = np.random.default_rng(0)
    b = Builder("grown", {"x": TensorType((1, 16)), "z": TensorType((4, 16))})
    y = b.add("matmul", ["x", weight(b, rng, 16, 16)])
    graph = b.finish([b.add("add", [y, "z"])])
    assert [group.title for group in partition(graph)] == ["matmul", "add"]


def test_the_same_structure_elsewhere_is_the_same_workload() -> None:
    first, second = partition(residual(0)), partition(residual(1))
    assert [g.workload and g.workload.key for g in first] == [g.workload and g.workload.key for g in second]
    keys = {g.workload.key for g in first if g.workload}
    assert len(keys) == len(first)


def test_views_compute_nothing() -> None:
    b = Builder("view", {"x": TensorType((2, 8))})
    graph = b.finish([b.add("relu", [b.add("reshape", ["x"], shape=(16,))])])
    view, relu = partition(graph)
    assert view.workload is None
    assert relu.workload is not None
