"""Constants after and before layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune.graph.evaluate import evaluate
from autotune.graph.ir import GraphBuilder, TensorType
from autotune.graph.passes import optimise
from autotune.graph.passes.fold_batch_norm import fold_batch_norm
from tests.autotune.graph.random_graphs import assert_equal_outputs


class Net:
    """A graph of one layer on x (2, 5, 6, 4), or on its rows."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(7)
        self.b = GraphBuilder(
            "net", {"x": TensorType((2, 5, 6, 4)), "rows": TensorType((5, 4)), "w": TensorType((1, 1, 4, 8))}
        )

    def weight(self, *shape: int) -> str:
        return self.b.constant(self.rng.uniform(0.5, 1.5, shape).astype(np.float32))

    def layer(self, op: str, x: str = "", **attrs: Any) -> str:
        if op == "matmul":
            return self.b.add(op, [x or "rows", self.weight(4, 8)], **attrs)
        shape = (3, 3, 4, 8) if op == "conv2d" else (3, 3, 4)
        if attrs.get("groups", 1) == 2:
            shape = (3, 3, 2, 8)
        return self.b.add(op, [x or "x", self.weight(*shape)], **attrs)

    def ops(self, *outputs: str) -> list[str]:
        """Operations after the pass, which is checked to keep the outputs."""
        graph = self.b.finish(outputs)
        new = fold_batch_norm(graph)
        assert_equal_outputs(new, graph, rtol=1e-5)
        return [node.op for node in new.nodes]


LAYERS = [("conv2d", {"padding": 1}), ("conv2d", {"groups": 2}), ("depthwise_conv2d", {}), ("matmul", {})]


@pytest.mark.parametrize(("op", "attrs"), LAYERS)
def test_batch_normalisation_goes_into_the_layer(op: str, attrs: dict[str, Any]) -> None:
    net = Net()
    y = net.layer(op, **attrs)
    k = net.b.type(y).shape[-1]
    y = net.b.add("affine", [net.b.add("add", [y, net.weight(k)]), net.weight(k), net.weight(k)])
    assert net.ops(net.b.add("relu", [y])) == [op, "add", "relu"]


@pytest.mark.parametrize(("op", "attrs"), LAYERS)
def test_products_sums_and_their_like_go_into_the_layer(op: str, attrs: dict[str, Any]) -> None:
    net = Net()
    y = net.layer(op, **attrs)
    k = net.b.type(y).shape[-1]
    y = net.b.add("multiply", [net.weight(k), y])
    y = net.b.add("subtract", [net.weight(1, 1), y])
    y = net.b.add("divide", [y, net.weight(1)])
    assert net.ops(net.b.add("negative", [y])) == [op, "add"]


def test_a_bias_is_what_stays() -> None:
    net = Net()
    y = net.b.add("add", [net.layer("matmul"), net.weight(8)])
    graph = net.b.finish([y])
    assert fold_batch_norm(graph).constants.keys() == graph.constants.keys()


def test_a_factor_that_is_not_one_a_channel_stays() -> None:
    net = Net()
    y = net.layer("conv2d", padding=1)
    assert net.ops(net.b.add("multiply", [y, net.weight(6, 8)])) == ["conv2d", "multiply"]


def test_a_sum_that_broadcasts_the_layer_stays() -> None:
    net = Net()
    y = net.layer("matmul")
    assert net.ops(net.b.add("add", [y, net.weight(3, 1, 8)])) == ["matmul", "add"]


def test_what_others_read_stays() -> None:
    net = Net()
    y = net.layer("matmul")
    z = net.b.add("multiply", [y, net.weight(8)])
    assert net.ops(net.b.add("relu", [y]), net.b.add("relu", [z])) == ["matmul", "multiply", "relu", "relu"]


def test_what_the_caller_reads_stays() -> None:
    net = Net()
    y = net.layer("matmul")
    z = net.b.add("multiply", [y, net.weight(8)])
    assert net.ops(y, z) == ["matmul", "multiply"]


def test_weights_that_are_no_constants_stay() -> None:
    net = Net()
    y = net.b.add("conv2d", ["x", "w"])
    assert net.ops(net.b.add("multiply", [y, net.weight(8)])) == ["conv2d", "multiply"]


def test_what_is_exact_is_one_operation() -> None:
    net = Net()
    two = net.b.constant(np.full(1, 2, np.float32))
    assert net.ops(net.b.add("multiply", [net.b.add("negative", ["x"]), net.weight(1)])) == ["multiply"]
    assert net.ops(net.b.add("negative", [net.b.add("affine", ["x", net.weight(4), net.weight(4)])])) == ["affine"]
    assert net.ops(net.b.add("add", [net.b.add("multiply", ["x", net.weight(4)]), net.weight(6, 1)])) == ["affine"]
    assert net.ops(net.b.add("add", [net.b.add("divide", ["x", two]), net.weight(4)])) == ["affine"]


@pytest.mark.parametrize(
    ("steps", "x"),
    [
        ([("add", 12582912.0), ("subtract", 12582912.0)], (0.3, 1.7, -2.5, 3.5)),
        ([("subtract", 12582912.0), ("add", 12582912.0)], (0.3, 1.7, -2.5, 3.5)),
        ([("add", 1e8), ("add", -1e8)], (0.3, 1.7, -2.5, 3.5)),
        ([("multiply", 1e38), ("multiply", 1e-38)], (300.0, -2500.0, 1.0, 0.0)),
        ([("divide", 1e-30), ("multiply", 1e-30)], (1e10, -1.0, 1e-30, 0.0)),
        ([("add", 3.0), ("multiply", 1e10), ("subtract", 3e10)], (1e-7, -1e-7, 1e-3, 0.0)),
        ([("add", 12582912.0), ("subtract", 12582912.0), ("multiply", 0.1)], (0.3, 1.7, -2.5, 3.5)),
        ([("divide", 41.0), ("subtract", 1.0)], (41.0, 82.0, 3.0, 123.0)),
        ([("add", 0.0)], (-0.0, 0.0, 1.0, -1.0)),
    ],
    ids=str,
)
def test_values_stay_where_constants_round_or_overflow(steps: list[tuple[str, float]], x: tuple[float, ...]) -> None:
    b = GraphBuilder("steps", {"x": TensorType((4,))})
    name, wanted = "x", np.array(x, np.float32)
    for op, number in steps:
        name = b.add(op, [name, b.constant(np.full(1, number, np.float32))])
        with np.errstate(over="ignore"):
            wanted = getattr(np, op)(wanted, np.float32(number))
    graph = optimise(b.finish([name]))
    with np.errstate(over="ignore"):
        found = evaluate(graph, {"x": np.array(x, np.float32)})[graph.outputs[0]]
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))


@pytest.mark.parametrize(
    ("steps", "left"),
    [
        ([("add", 12582912.0), ("subtract", 12582912.0)], ["matmul", "add", "subtract"]),
        ([("multiply", 1e38), ("multiply", 1e-38)], ["matmul", "multiply", "multiply"]),
        ([("multiply", 1e18), ("multiply", 1e-18)], ["matmul", "multiply", "multiply"]),
        ([("multiply", 1e9), ("multiply", 1e9)], ["matmul", "multiply"]),
        ([("add", 0.5), ("multiply", 3.0), ("add", -0.4)], ["matmul", "add"]),
        ([("add", 0.0)], ["matmul"]),
    ],
    ids=str,
)
def test_a_layer_takes_moderate_constants(steps: list[tuple[str, float]], left: list[str]) -> None:
    net = Net()
    y = net.layer("matmul")
    for op, number in steps:
        y = net.b.add(op, [y, net.b.constant(np.full(1, number, np.float32))])
    assert [node.op for node in optimise(net.b.finish([y])).nodes] == left


def test_a_division_by_zero_stays() -> None:
    net = Net()
    zeros = net.b.constant(np.array([1, 0, 1, 1], np.float32))
    graph = net.b.finish([net.b.add("divide", [net.b.add("multiply", ["x", net.weight(4)]), zeros])])
    assert [node.op for node in fold_batch_norm(graph).nodes] == ["multiply", "divide"]


def test_products_before_a_layer_go_into_its_weights() -> None:
    net = Net()
    assert net.ops(net.layer("conv2d", net.b.add("multiply", ["x", net.weight(4)]), padding=1)) == ["conv2d"]
    assert net.ops(net.layer("matmul", net.b.add("divide", ["rows", net.weight(1)]))) == ["matmul"]


def test_sums_before_a_layer_stay() -> None:
    net = Net()
    x = net.b.add("affine", ["x", net.weight(4), net.weight(4)])
    assert net.ops(net.layer("conv2d", x)) == ["affine", "conv2d"]


def test_between_two_layers_the_first_is_folded_into() -> None:
    net = Net()
    y = net.b.add("multiply", [net.layer("conv2d", padding=1), net.weight(8)])
    y = net.b.add("conv2d", [y, net.weight(1, 1, 8, 3)])
    graph = net.b.finish([y])
    new = fold_batch_norm(graph)
    assert_equal_outputs(new, graph, rtol=1e-5)
    assert [node.op for node in new.nodes] == ["conv2d", "conv2d"]
    np.testing.assert_array_equal(new.constants[new.nodes[1].inputs[1]], graph.constants[graph.nodes[2].inputs[1]])


def test_integers_stay() -> None:
    b = GraphBuilder("g", {"x": TensorType((4,), "int32")})
    two = b.constant(np.full(4, 2, np.int32))
    graph = b.finish([b.add("multiply", [b.add("multiply", ["x", two]), two])])
    assert len(fold_batch_norm(graph).nodes) == 2
