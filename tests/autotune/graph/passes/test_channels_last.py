"""Transpositions sink and cancel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.graph.ir import GraphBuilder, TensorType
from autotune.graph.partition import partition
from autotune.graph.passes import optimise
from autotune.graph.passes.channels_last import channels_last, count_moves
from autotune.graph.passes.layout import inverse, through_reshape
from tests.autotune.graph.random_graphs import assert_equal_outputs, count, random_graph

LAST, FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


class Net:
    """A graph on x (2, 5, 6, 4), channels-last; importers read it channels-first."""

    def __init__(self, batch: int = 2) -> None:
        self.rng = np.random.default_rng(7)
        self.b = GraphBuilder("net", {"x": TensorType((batch, 5, 6, 4))})
        self.x = self.b.add("transpose", ["x"], axes=FIRST)

    def weight(self, *shape: int) -> str:
        return self.b.constant(self.rng.uniform(-1, 1, shape).astype(np.float32))

    def back(self, y: str) -> str:
        return self.b.add("transpose", [y], axes=LAST)

    def ops(self, *outputs: str) -> list[str]:
        """Operations after the pass, which is checked to keep the outputs."""
        graph = self.b.finish(outputs)
        new = channels_last(graph)
        assert_equal_outputs(new, graph)
        return [node.op for node in new.nodes]


UNDER = [
    ("relu", {}),
    ("clip", {"low": -0.5, "high": 0.25}),
    ("pad", {"before": (0, 1, 2, 0), "after": (0, 0, 1, 3), "value": 1.0}),
    ("slice", {"begin": (0, 1, 4, 2), "size": (2, 2, 2, 3), "step": (1, 1, -2, 1)}),
    ("concat", {"axis": 1}),
]


@pytest.mark.parametrize(("op", "attrs"), UNDER)
def test_transpositions_around_an_operation_cancel(op: str, attrs: dict[str, Any]) -> None:
    net = Net()
    y = net.b.add(op, [net.x, net.x] if op == "concat" else [net.x], **attrs)
    assert net.ops(net.back(y)) == [op]


@pytest.mark.parametrize("shape", [(4, 1, 1), (1, 4, 1, 1), (1,), (6,), (5, 1), (4, 5, 6)])
def test_constants_are_turned(shape: tuple[int, ...]) -> None:
    net = Net()
    y = net.b.add("multiply", [net.x, net.weight(*shape)])
    assert net.ops(net.back(net.b.add("affine", [y, net.weight(*shape), net.weight(4, 1, 1)]))) == [
        "multiply",
        "affine",
    ]


def test_a_constant_a_channel_becomes_one_of_one_axis() -> None:
    net = Net()
    new = channels_last(net.b.finish([net.back(net.b.add("add", [net.x, net.weight(4, 1, 1)]))]))
    assert [array.shape for array in new.constants.values()] == [(4,)]


@pytest.mark.parametrize("axes", [(1,), (2, 3), (0, 1), (-1,), (3, 1)])
def test_reductions_are_done_where_the_axes_lie(axes: tuple[int, ...]) -> None:
    net = Net()
    out = net.b.add("reduce", [net.x], axes=axes, reducer="mean")
    assert net.ops(out)[0] == "reduce"


def test_global_pooling_ends_channels_first() -> None:
    net = Net()
    y = net.b.add("reshape", [net.b.add("reduce", [net.x], axes=(2, 3), reducer="mean")], shape=(2, 4, 1, 1))
    assert net.ops(net.b.add("reshape", [y], shape=(2, 4))) == ["reduce", "reshape", "reshape"]


def test_operands_of_a_sum_agree() -> None:
    net = Net()
    y = net.b.add("add", [net.x, net.b.add("relu", [net.x])])
    assert net.ops(net.back(y)) == ["relu", "add"]


@pytest.mark.parametrize("batch", [1, 2])
def test_flattening_goes_into_the_weights(batch: int) -> None:
    net = Net(batch)
    flat = net.b.add("reshape", [net.b.add("relu", [net.x])], shape=(batch, 120))
    out = net.b.add("matmul", [net.b.add("relu", [flat]), net.weight(120, 3)])
    assert net.ops(out) == ["relu", "reshape", "relu", "matmul"]


def test_flattening_stays_where_another_node_reads_the_rows() -> None:
    net = Net()
    flat = net.b.add("reshape", [net.x], shape=(2, 120))
    assert net.ops(net.b.add("matmul", [flat, net.weight(120, 3)]), net.b.add("tanh", [flat])).count("transpose") == 1


def test_a_matrix_of_activations_is_not_turned() -> None:
    net = Net()
    other = net.b.add("reshape", ["x"], shape=(120, 2))
    flat = net.b.add("reshape", [net.x], shape=(2, 120))
    assert net.ops(net.b.add("matmul", [flat, other])).count("transpose") == 1


def test_a_channel_shuffle_moves_elements_once() -> None:
    """Reshape, transposition, reshape over channels-first groups: one transposition within the channels."""
    net = Net()
    y = net.b.add("reshape", [net.x], shape=(2, 2, 2, 5, 6))
    y = net.b.add("reshape", [net.b.add("transpose", [y], axes=(0, 2, 1, 3, 4))], shape=(2, 4, 5, 6))
    assert net.ops(net.back(y)).count("transpose") == 1


def test_halves_of_shuffled_channels_are_read_where_they_lie() -> None:
    """A batch of one stays in front, so that nothing between layers is seen in another shape."""
    net = Net(batch=1)
    split = net.b.add("reshape", [net.x], shape=(1, 2, 2, 5, 6))
    shuffled = net.b.add("transpose", [split], axes=(0, 2, 1, 3, 4))
    joined = net.b.add("reshape", [shuffled], shape=(1, 4, 5, 6))
    halves = [net.b.add("slice", [joined], begin=(0, c, 0, 0), size=(1, 2, 5, 6)) for c in (0, 2)]
    last = [net.b.add("transpose", [half], axes=LAST) for half in halves]
    layers = [net.b.add("conv2d", [half, net.weight(1, 1, 2, 3)]) for half in last]
    graph = net.b.finish([net.b.add("relu", [name]) for name in layers])
    after = optimise(graph)
    assert_equal_outputs(graph, after)
    assert [node.op for node in after.nodes[:5]] == ["reshape", "transpose", "reshape", "slice", "slice"]
    assert count(after, "reshape") == 2
    assert [g.title for g in partition(after) if g.workload] == ["transpose", "conv2d+relu", "conv2d+relu"]


def test_a_transposition_of_what_the_caller_reads_stays() -> None:
    net = Net()
    assert net.ops(net.b.add("relu", [net.x])).count("transpose") == 1


def test_layers_in_another_layout_get_theirs() -> None:
    net = Net()
    assert net.ops(net.b.add("max_pool2d", [net.x])) == ["transpose", "max_pool2d"]


def test_more_bytes_are_never_moved() -> None:
    for seed in range(40):
        graph = random_graph(seed)
        assert count_moves(channels_last(graph)) <= count_moves(graph)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_transposition_passes_any_reshape(data: st.DataObject) -> None:
    stored = data.draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4))
    axes = data.draw(st.permutations(range(len(stored))))
    size = int(np.prod(stored))
    shape: list[int] = []
    while size > 1 and len(shape) < 5:
        shape.append(data.draw(st.sampled_from([d for d in range(1, size + 1) if size % d == 0])))
        size //= shape[-1]
    shape.append(size)
    array = np.arange(np.prod(stored)).reshape(stored)
    way = through_reshape(stored, axes, shape)
    got = array.transpose(way.inner).reshape(way.shape).transpose(way.axes)
    np.testing.assert_array_equal(got, array.transpose(axes).reshape(shape))
    assert inverse(inverse(way.axes)) == way.axes


def test_a_small_network_holds_the_transposition_of_its_input_alone() -> None:
    rng = np.random.default_rng(0)
    b = GraphBuilder("net", {"x": TensorType((1, 3, 8, 8))})

    def normal(*shape: int) -> str:
        return b.constant(rng.normal(size=shape).astype(np.float32))

    y = b.add("conv2d", [b.add("transpose", ["x"], axes=LAST), normal(3, 3, 3, 4)], padding=1)
    y = b.add("relu", [b.add("transpose", [y], axes=FIRST)])
    y = b.add("max_pool2d", [b.add("transpose", [y], axes=LAST)])
    y = b.add("transpose", [y], axes=FIRST)
    y = b.add("concat", [y, b.add("sigmoid", [y])], axis=1)
    y = b.add("matmul", [b.add("reshape", [y], shape=(1, 128)), normal(128, 10)])
    graph = b.finish([b.add("add", [y, normal(10)])])
    new = optimise(graph)
    assert_equal_outputs(new, graph)
    assert count(new, "transpose") == 1 and new.nodes[0].op == "transpose"
