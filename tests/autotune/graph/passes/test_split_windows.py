"""Windows split so that taps are computed where they meet their image."""

from __future__ import annotations

from importlib import import_module
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Graph, GraphBuilder, GraphError, TensorType
from autotune.graph.partition import partition
from autotune.graph.passes import optimise
from autotune.graph.passes.split_windows import Axis, split_windows
from tests.autotune.graph.random_graphs import assert_equal_outputs

MODULE = import_module("autotune.graph.passes.split_windows")  # the package gives the name to the function
SIDES = st.tuples(st.integers(0, 9), st.integers(0, 9))
SMALL = st.tuples(st.integers(1, 3), st.integers(1, 3))


def make_convolution(
    op: str,
    extents: tuple[int, int],
    channels: tuple[int, int],
    kernel: tuple[int, int],
    batch: int = 1,
    constant: bool = True,
    dtype: str = "float32",
    **attrs: Any,
) -> Graph:
    """A convolution of some channels to others, with a bias that differs from place to place and a relu."""
    rng = np.random.default_rng(0)
    depth, outputs = channels
    shape = (*kernel, depth // attrs.get("groups", 1), outputs) if op == "conv2d" else (*kernel, depth)
    weights = "int8" if dtype == "uint8" else "float32"
    b = GraphBuilder("convolved", {"x": TensorType((batch, *extents, depth), dtype), "w": TensorType(shape, weights)})
    values = (rng.standard_normal(shape) * (20 if dtype == "uint8" else 1)).astype(weights)
    y = b.add(op, ["x", b.constant(values) if constant else "w"], **attrs)
    _, *places, _ = b.type(y).shape
    if dtype == "float32":
        y = b.add("add", [y, b.constant(rng.standard_normal((*places, 1)).astype(np.float32))])
        y = b.add("relu", [y])
    return b.finish([y])


EXAMPLE = make_convolution("conv2d", (14, 14), (256, 128), (3, 3), padding=12, dilation=12)


def convolutions(graph: Graph) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Taps and places of each."""
    nodes = [n for n in graph.nodes if "conv2d" in n.op]
    return [(graph.type(n.inputs[1]).shape[:2], n.type.shape[1:3]) for n in nodes]


def products(graph: Graph) -> int:
    """Counts the products of a weight and a pixel, for one pair of channels."""
    return sum(prod(taps) * prod(places) for taps, places in convolutions(graph))


def test_each_tap_is_computed_where_it_meets_the_image() -> None:
    graph = make_convolution("conv2d", (14, 14), (256, 128), (3, 3), padding=12, dilation=12)
    new = split_windows(graph)
    assert_equal_outputs(new, graph)
    assert products(graph) == 42**2 and products(new) == (2 + 14 + 2) ** 2
    assert sum(prod(taps) for taps, _ in convolutions(new)) == 9  # no weight is read twice
    titles = [group.title for group in partition(new) if group.workload is not None]
    assert titles.count("conv2d+add+add+add+add+relu") == 4  # corners end with all that reaches them
    assert len(titles) == 9 + 5  # edges and the middle are added up


def test_large_windows_of_depthwise_convolutions_are_split_by_their_outputs() -> None:
    graph = make_convolution("depthwise_conv2d", (14, 14), (512, 512), (27, 27), padding=13)
    new = split_windows(graph)
    assert_equal_outputs(new, graph)
    assert convolutions(new) == [((20, 20), (7, 7))] * 4
    assert {group.title for group in partition(new) if group.workload is not None} == {"depthwise_conv2d+add+relu"}


def test_images_enough_pay_for_reading_weights_again() -> None:
    graph = make_convolution("conv2d", (14, 14), (96, 64), (3, 3), padding=12, dilation=12, batch=8)
    new = split_windows(graph)
    assert_equal_outputs(new, graph)
    assert len(convolutions(new)) == 9 and products(new) == (2 * 2 + 10 + 2 * 2) ** 2
    assert {group.title for group in partition(new) if group.workload is not None} == {"conv2d+add+relu"}


@pytest.mark.parametrize(
    "graph",
    [
        make_convolution("conv2d", (14, 14), (8, 8), (3, 3), padding=12, dilation=12),
        make_convolution("conv2d", (14, 14), (64, 64), (3, 3), padding=1, batch=8),
        make_convolution("conv2d", (14, 14), (256, 128), (3, 3), constant=False, padding=12, dilation=12),
        make_convolution("conv2d", (2, 2), (512, 512), (3, 3), padding=1),
    ],
    ids=["small", "dense", "unknown weight", "weights take longest"],
)
def test_others_stay(graph: Graph) -> None:
    assert [n.op for n in split_windows(graph).nodes] == [n.op for n in graph.nodes]


@settings(deadline=None)
@given(
    op=st.sampled_from(["conv2d", "depthwise_conv2d"]),
    extents=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    kernel=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    padding=st.tuples(SIDES, SIDES),
    stride=SMALL,
    dilation=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    groups=st.sampled_from([1, 2]),
    batch=st.integers(1, 2),
    dtype=st.sampled_from(["float32", "uint8"]),
)
def test_outputs_are_the_same(op: str, groups: int, dtype: str, **attrs: Any) -> None:
    more = {"groups": groups} if op == "conv2d" else {}
    try:
        graph = make_convolution(op, channels=(4, 4), dtype=dtype, **more, **attrs)
    except (GraphError, ValueError):
        return  # the window is larger than the padded image
    with pytest.MonkeyPatch.context() as patch:
        for name in ("BALANCE", "START"):
            patch.setattr(MODULE, name, 0)
        new = split_windows(graph)
    assert products(new) <= products(graph)
    if dtype == "float32":
        assert_equal_outputs(new, graph)
    else:
        data = {name: np.ones(t.shape, t.dtype) for name, t in graph.inputs.items()}
        data["x"] = np.random.default_rng(1).integers(0, 256, graph.inputs["x"].shape).astype(np.uint8)
        got, wanted = (evaluate(g, data)[g.outputs[0]] for g in (new, graph))
        np.testing.assert_array_equal(got, wanted)


@given(
    extent=st.integers(1, 9),
    taps=st.integers(1, 7),
    before=st.integers(0, 9),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 6),
    outputs=st.integers(1, 9),
)
def test_every_pair_of_a_tap_and_an_output_that_meets_the_image_has_one_part(outputs: int, **fields: int) -> None:
    axis = Axis(outputs=outputs, **fields)
    met = [(t, o) for t in range(axis.taps) for o in range(outputs) if 0 <= axis.position(t, o) < axis.extent]
    assert axis.alive == len(met)
    for split in axis.splits():
        having = [(t, o) for part in split for t in part.taps for o in part.outputs]
        assert len(set(having)) == len(having)
        assert set(met) <= set(having)
        assert {o for _, o in having} == set(range(outputs))


def test_a_split_graph_is_at_rest() -> None:
    graph = make_convolution("conv2d", (14, 14), (256, 128), (3, 3), padding=12, dilation=12)
    once = optimise(graph, ["split_windows"])
    assert [n.op for n in split_windows(once).nodes] == [n.op for n in once.nodes]
