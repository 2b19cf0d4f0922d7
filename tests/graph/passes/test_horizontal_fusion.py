"""Layers side by side become one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune.graph.ir import Builder, Graph, TensorType
from autotune.graph.passes import PASSES
from autotune.graph.passes.horizontal_fusion import horizontal_fusion
from tests.graph.random_graphs import assert_equal_outputs, count


class Net:
    """Layers on x (2, 5, 6, 4) and rows (5, 4)."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(7)
        self.b = Builder(
            "net", {"x": TensorType((2, 5, 6, 4)), "rows": TensorType((5, 4)), "w": TensorType((3, 3, 4, 8))}
        )

    def weight(self, *shape: int) -> str:
        return self.b.constant(self.rng.uniform(-1, 1, shape).astype(np.float32))

    def conv(self, channels: int, x: str = "x", kernel: int = 3, **attrs: Any) -> str:
        depth = self.b.type(x).shape[-1] // attrs.get("groups", 1)
        return self.b.add("conv2d", [x, self.weight(kernel, kernel, depth, channels)], **attrs)

    def layer(self, channels: int, activation: str = "relu") -> str:
        y = self.conv(channels, padding=1)
        return self.b.add(activation, [self.b.add("add", [y, self.weight(channels)])])

    def run(self, *outputs: str, most: int | None = None) -> Graph:
        graph = self.b.finish(outputs)
        new = horizontal_fusion(graph, most)
        assert_equal_outputs(new, graph, rtol=1e-5)
        return new


@pytest.fixture
def net() -> Net:
    return Net()


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def test_it_does_not_run_unasked() -> None:
    assert "horizontal_fusion" not in PASSES


def test_layers_with_bias_and_activation_are_one(net: Net) -> None:
    out = net.b.add("concat", [net.layer(3), net.layer(8), net.layer(1)], axis=3)
    assert ops(net.run(out)) == ["conv2d", "add", "relu", "slice", "slice", "slice", "concat"]


def test_products_are_one(net: Net) -> None:
    outputs = [net.b.add("matmul", ["rows", net.weight(4, n)]) for n in (3, 5)]
    assert ops(net.run(*outputs)) == ["matmul", "slice", "slice"]


def test_what_does_not_follow_each_alike_stays_behind(net: Net) -> None:
    new = net.run(net.layer(3), net.layer(4, "tanh"))
    assert ops(new) == ["conv2d", "add", "slice", "relu", "slice", "tanh"]
    net = Net()
    plain = net.conv(3, padding=1)
    assert ops(net.run(plain, net.layer(4))) == ["conv2d", "slice", "slice", "add", "relu"]


def test_what_others_read_ends_the_merged_part(net: Net) -> None:
    first = net.conv(3)
    bias = net.b.add("add", [first, net.weight(3)])
    second = net.b.add("add", [net.conv(4), net.weight(4)])
    assert ops(net.run(bias, net.b.add("tanh", [first]), second)).count("conv2d") == 1
    assert count(net.run(bias, first, second), "add") == 2


@pytest.mark.parametrize("attrs", [{"kernel": 1}, {"stride": 2}, {"padding": 1}, {"dilation": (1, 2)}, {"groups": 2}])
def test_other_layers_are_not_alike(net: Net, attrs: dict[str, Any]) -> None:
    assert count(net.run(net.conv(4), net.conv(4, **attrs)), "conv2d") == 2


def test_weights_must_be_constants(net: Net) -> None:
    assert count(net.run(net.conv(8), net.b.add("conv2d", ["x", "w"])), "conv2d") == 2


def test_other_inputs_are_not_alike(net: Net) -> None:
    assert count(net.run(net.conv(4), net.conv(4, net.b.add("relu", ["x"]))), "conv2d") == 2


def test_a_layer_on_the_result_of_another_is_not_beside_it(net: Net) -> None:
    y = net.conv(4, kernel=1)
    assert count(net.run(net.conv(4, y, kernel=1)), "conv2d") == 2


def test_channels_have_a_limit(net: Net) -> None:
    outputs = [net.conv(n) for n in (4, 4, 4, 9, 2)]
    assert count(net.run(*outputs, most=8), "conv2d") == 4
    assert count(net.run(*outputs, most=11), "conv2d") == 3
    assert count(net.run(*outputs), "conv2d") == 1
