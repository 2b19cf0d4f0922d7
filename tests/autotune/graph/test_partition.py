"""Fusion: what ends up in one kernel, what must not, and that kernels are known by their structure alone."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Graph, GraphBuilder, TensorType
from autotune.graph.partition import partition
from autotune.graph.views import Location, locate
from tests.autotune.graph.nets import conv, feeds, residual, weight


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
    b = GraphBuilder("two", {"x": TensorType((1, 4, 4, 16))})
    y = conv(b, rng, "x", 1, 16)
    graph = b.finish([b.add("relu", [y]), b.add("sigmoid", [y])])
    assert [group.title for group in partition(graph)] == ["conv2d+add", "relu", "sigmoid"]


def test_an_output_of_the_graph_is_written_out() -> None:
    rng = np.random.default_rng(0)
    b = GraphBuilder("given", {"x": TensorType((1, 4, 4, 16))})
    y = conv(b, rng, "x", 1, 16)
    graph = b.finish([y, b.add("relu", [y])])
    assert [group.title for group in partition(graph)] == ["conv2d+add", "relu"]


def test_what_grows_by_broadcasting_begins_a_kernel() -> None:
    rng = np.random.default_rng(0)
    b = GraphBuilder("grown", {"x": TensorType((1, 16)), "z": TensorType((4, 16))})
    y = b.add("matmul", ["x", weight(b, rng, 16, 16)])
    graph = b.finish([b.add("add", [y, "z"])])
    assert [group.title for group in partition(graph)] == ["matmul", "add"]


def test_the_same_structure_elsewhere_is_the_same_workload() -> None:
    first, second = partition(residual(0)), partition(residual(1))
    assert [g.workload and g.workload.key for g in first] == [g.workload and g.workload.key for g in second]
    keys = {g.workload.key for g in first if g.workload}
    assert len(keys) == len(first)


def test_views_compute_nothing() -> None:
    b = GraphBuilder("view", {"x": TensorType((2, 8))})
    graph = b.finish([b.add("relu", [b.add("reshape", ["x"], shape=(16,))])])
    view, relu = partition(graph)
    assert view.workload is None
    assert relu.workload is not None


def make_gated_layers(
    kernel: int = 1, stride: int = 1, groups: int = 1, again: bool = False, front_output: bool = False
) -> Graph:
    """Channels times their gates, a curve, and the layer that reads them; or one more layer, or the caller."""
    rng = np.random.default_rng(0)
    b = GraphBuilder("gated", {"x": TensorType((1, 6, 6, 16)), "g": TensorType((1, 1, 1, 16))})
    front = b.add("relu", [b.add("multiply", ["x", "g"])])
    padding = kernel // 2
    w = b.constant(rng.standard_normal((kernel, kernel, 16 // groups, 24), np.float32))
    found = [b.add("conv2d", [front, w], stride=stride, padding=padding, groups=groups)]
    found += [b.add("conv2d", [front, w], padding=padding)] if again else []
    return b.finish([*found, *([front] if front_output else [])])


@pytest.mark.parametrize(
    ("graph", "titles"),
    [
        (make_gated_layers(), ["multiply+relu+conv2d"]),
        (make_gated_layers(kernel=3), ["multiply+relu", "conv2d"]),  # each would be computed nine times
        (make_gated_layers(stride=2), ["multiply+relu", "conv2d"]),  # some are not read at all
        (make_gated_layers(groups=2), ["multiply+relu", "conv2d"]),
        (make_gated_layers(again=True), ["multiply+relu", "conv2d", "conv2d"]),
        (make_gated_layers(front_output=True), ["multiply+relu", "conv2d"]),
    ],
    ids=["", "kernel", "stride", "groups", "again", "given"],
)
def test_what_a_layer_of_single_pixels_alone_reads_begins_its_kernel(graph: Graph, titles: list[str]) -> None:
    groups = partition(graph)
    assert [group.title for group in groups] == titles
    values = evaluate(graph, feeds(graph))
    for group in groups:
        assert group.workload is not None
        found = group.workload.reference(*(values[name] for name in group.inputs))
        np.testing.assert_allclose(found, values[group.output], rtol=1e-4, atol=1e-5)


def test_a_front_of_two_such_values_or_of_a_product_that_ends_in_it_is_none() -> None:
    rng = np.random.default_rng(0)
    b = GraphBuilder("sum", {"x": TensorType((4, 16)), "y": TensorType((4, 16))})
    both = b.add("matmul", [b.add("add", ["x", "y"]), weight(b, rng, 16, 16)])
    graph = b.finish([b.add("matmul", [b.add("relu", [both]), weight(b, rng, 16, 16)])])
    assert [group.title for group in partition(graph)] == ["add", "matmul+relu", "matmul"]


def test_what_is_measured_elsewhere_keeps_what_stands_in_front() -> None:
    assert [group.title for group in partition(make_gated_layers(), in_place=False)] == ["multiply+relu", "conv2d"]


@pytest.mark.parametrize(
    ("begin", "size", "read_in_place"),
    [
        ((16,), (32,), True),
        ((8,), (32,), False),
        ((1, 0), (1, 32), True),
        ((1, 0), (2, 32), True),
        ((0, 0), (2, 16), False),
    ],
)
def test_a_slice_of_neighbours_is_reshaped_where_it_lies(
    begin: tuple[int, ...], size: tuple[int, ...], read_in_place: bool
) -> None:
    builder = GraphBuilder("net", {"x": TensorType((64,) if len(size) == 1 else (4, 32))})
    part = builder.add("slice", ["x"], begin=begin, size=size)
    flat = builder.add("reshape", [part], shape=(int(np.prod(size)),))
    graph = builder.finish([builder.add("negative", [flat])])
    titles = [group.title for group in partition(graph, alignment=64) if group.workload]
    assert titles == (["negative"] if read_in_place else ["slice", "negative"])
    location = locate(graph, alignment=64)[flat]
    first = begin[0] if len(begin) == 1 else 32 * begin[0] + begin[1]
    assert location == (Location("x", first) if read_in_place else Location(part))
