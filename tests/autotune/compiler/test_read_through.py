"""Convolutions of few channels read a channels-first input where it lies: no kernel turns it round."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from autotune.compiler.checking.check import check_network
from autotune.compiler.prepare import load_network
from autotune.compiler.schedules import Schedules
from autotune.graph.frontends.onnx.model import with_shapes
from autotune.graph.ir import Graph, GraphBuilder, TensorType
from autotune.graph.partition import partition
from tests.autotune.fakes import settings_with
from tests.autotune.graph.onnx_models import model_from

LAYERS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "odd": ((1, 3, 19, 23), (17, 3, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "uneven padding": ((2, 5, 18, 9), (16, 5, 3, 2), {"pads": [0, 2, 1, 0], "strides": [1, 2]}),
    "patches": ((1, 3, 32, 48), (40, 3, 16, 16), {"strides": [16, 16]}),
    "dilated": ((1, 3, 13, 20), (33, 3, 3, 5), {"dilations": [2, 1], "pads": [2, 1, 2, 3]}),
    "one pixel": ((3, 15, 1, 1), (7, 15, 1, 1), {}),
    "one row": ((1, 4, 1, 30), (24, 4, 1, 7), {"pads": [0, 3, 0, 3]}),
    "volume": ((1, 3, 5, 6, 7), (16, 3, 3, 3, 3), {"pads": [1, 1, 1, 1, 1, 1], "strides": [1, 2, 2]}),
    "signal": ((2, 6, 50), (20, 6, 5), {"pads": [2, 1], "strides": [2]}),
    "groups": ((1, 6, 11, 12), (10, 3, 3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),
}


def layer(name: str, relu: bool = True) -> onnx.ModelProto:
    """A convolution and a relu."""
    shape, kernel, attributes = LAYERS[name]
    rng = np.random.default_rng(0)
    weight, bias = rng.standard_normal(kernel).astype(np.float32), rng.standard_normal(kernel[0]).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["y"], **attributes)]
    nodes += [helper.make_node("Relu", ["y"], ["z"])] if relu else []
    return with_shapes(model_from(nodes, {"x": np.zeros(shape, np.float32)}, {"w": weight, "b": bias}))


@pytest.mark.parametrize("name", LAYERS)
def test_the_layer_agrees_with_onnx_runtime(name: str) -> None:
    network = load_network(layer(name), "layer")
    first = next(group for group in partition(network.graph) if group.workload is not None)
    assert (first.through is None) == (name in ("one pixel", "groups"))
    settings = settings_with()
    check = check_network(network, Schedules(None, settings), settings)
    assert check.reference == "onnxruntime"
    assert check.max_error < 1e-5


def read(channels: int = 3, **readers: str) -> Graph:
    """An image turned round, and what reads it."""
    rng = np.random.default_rng(0)
    b = GraphBuilder("image", {"x": TensorType((1, channels, 8, 10))})
    image = b.add("transpose", ["x"], axes=(0, 2, 3, 1))
    weight = b.constant(rng.standard_normal((3, 3, channels, 16)).astype(np.float32), "weight")
    outputs = []
    for name, op in readers.items():
        if op == "given":
            outputs.append(image)
        else:
            inputs = [image, weight] if op == "conv2d" else [image]
            outputs.append(b.add(op, inputs, name, **({"padding": 1} if op == "conv2d" else {})))
    return b.finish(outputs)


@pytest.mark.parametrize(
    ("graph", "titles"),
    [
        (read(first="conv2d"), ["transpose+conv2d"]),
        (read(first="conv2d", second="conv2d"), ["transpose+conv2d"] * 2),
        (read(first="conv2d", second="relu"), ["transpose", "conv2d", "relu"]),
        (read(first="conv2d", second="given"), ["transpose", "conv2d"]),
        (read(15, first="conv2d"), ["transpose+conv2d"]),
        (read(16, first="conv2d"), ["transpose", "conv2d"]),
    ],
    ids=lambda value: "" if isinstance(value, Graph) else "+".join(value),
)
def test_it_is_read_through_where_all_readers_are_convolutions_of_few_channels(graph: Graph, titles: list[str]) -> None:
    # A transposition that something else reads ends in that: relu is done in place of it.
    found = [group.title for group in partition(graph)]
    assert found == titles


def test_what_is_measured_elsewhere_keeps_its_transposition() -> None:
    """Quantisation and accelerators look at layers one by one."""
    assert [group.title for group in partition(read(first="conv2d"), in_place=False)] == ["transpose", "conv2d"]


def test_a_layer_that_nothing_ends_is_known_by_its_shape() -> None:
    network = load_network(layer("odd", relu=False), "layer")
    assert network.tasks[0].name == "conv2d3x3_3x19x23_17_s2_add"
