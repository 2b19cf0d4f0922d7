"""Windows cut to the taps that meet their image."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.graph.ir import Graph, GraphBuilder, GraphError, TensorType
from autotune.graph.passes import optimise
from autotune.graph.passes.dead_taps import dead_taps
from tests.autotune.graph.random_graphs import assert_equal_outputs


def make_convolution(
    op: str, extents: tuple[int, int], kernel: tuple[int, int], constant: bool = True, **attrs: object
) -> Graph:
    """A convolution of 3 channels."""
    shape = (*kernel, 3, 5) if op == "conv2d" else (*kernel, 3)
    builder = GraphBuilder("convolved", {"x": TensorType((2, *extents, 3)), "w": TensorType(shape)})
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    weight = builder.constant(values) if constant else "w"
    return builder.finish([builder.add("relu", [builder.add(op, ["x", weight], **attrs)])])


def window(graph: Graph) -> tuple[tuple[int, ...], tuple[object, ...]]:
    """Taps, and padding with dilation, of a graph's convolution."""
    (node,) = [n for n in graph.nodes if "conv2d" in n.op]
    return graph.type(node.inputs[1]).shape[:2], (node.attrs["padding"], node.attrs["dilation"])


@pytest.mark.parametrize("op", ["conv2d", "depthwise_conv2d"])
def test_a_window_that_meets_its_image_with_its_middle_is_a_pixel(op: str) -> None:
    graph = make_convolution(op, (14, 14), (3, 3), padding=24, dilation=24)
    new = optimise(graph)
    assert_equal_outputs(new, graph)
    assert window(new) == ((1, 1), ((0, 0), (1, 1)))


def test_each_axis_by_itself() -> None:
    graph = make_convolution("conv2d", (5, 14), (5, 3), padding=(12, 6), dilation=6)
    new = dead_taps(graph)
    assert_equal_outputs(new, graph)
    assert window(new) == ((1, 3), ((0, 6), (1, 6)))


@pytest.mark.parametrize(
    "graph",
    [
        make_convolution("conv2d", (14, 14), (3, 3), padding=12, dilation=12),  # the last two rows are met
        make_convolution("conv2d", (14, 14), (3, 3), padding=1),
        make_convolution("conv2d", (14, 14), (3, 3), constant=False, padding=24, dilation=24),
        make_convolution("conv2d", (3, 3), (4, 4), padding=1),
    ],
    ids=["met at the edge", "near", "unknown weight", "small"],
)
def test_others_stay(graph: Graph) -> None:
    assert window(dead_taps(graph)) == window(graph)


@given(
    op=st.sampled_from(["conv2d", "depthwise_conv2d"]),
    extents=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    kernel=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    padding=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilation=st.tuples(st.integers(1, 6), st.integers(1, 6)),
)
def test_outputs_are_the_same(
    op: str, extents: tuple[int, int], kernel: tuple[int, int], **attrs: tuple[int, int]
) -> None:
    try:
        graph = make_convolution(op, extents, kernel, **attrs)
    except (GraphError, ValueError):
        return  # the window is larger than the padded image
    new = dead_taps(graph)
    assert_equal_outputs(new, graph)
    taps, before = window(new)[0], window(graph)[0]
    assert all(1 <= n <= m for n, m in zip(taps, before, strict=True))
