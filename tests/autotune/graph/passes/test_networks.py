"""Networks of the ONNX package: what the passes leave of them."""

from __future__ import annotations

from collections import Counter

import pytest

from autotune.graph.frontends.onnx.importer import import_model
from autotune.graph.frontends.onnx.model import load_model
from autotune.graph.ir import Graph
from autotune.graph.passes import optimise, same_graph
from tests.autotune.graph.random_graphs import assert_equal_outputs


def ops(graph: Graph) -> Counter[str]:
    return Counter(node.op for node in graph.nodes)


def test_resnet50_is_convolutions_with_their_ends() -> None:
    new = optimise(import_model(load_model("resnet50")))
    found = ops(new)
    assert found["transpose"] == 1 and new.nodes[0].op == "transpose", "that of the input"
    assert found["affine"] == found["multiply"] == 0
    assert (found["conv2d"], found["matmul"], found["relu"]) == (53, 1, 49)
    assert same_graph(optimise(new), new)


@pytest.mark.parametrize("name", ["squeezenet", "inception_v2"])
def test_outputs_stay(name: str) -> None:
    graph = import_model(load_model(name))
    new = optimise(graph)
    assert ops(new)["transpose"] == 1 and ops(new)["affine"] == 0
    assert_equal_outputs(*map(_with_logits, (new, graph)), rtol=1e-4)


def _with_logits(graph: Graph) -> Graph:
    """A softmax may hide what comes before it."""
    (softmax,) = [node for node in graph.nodes if node.op == "softmax"]
    return Graph(graph.name, graph.inputs, graph.constants, graph.nodes, (*graph.outputs, *softmax.inputs))


@pytest.mark.parametrize(("name", "transpositions"), [("densenet121", 1), ("shufflenet", 17)])
def test_activations_stay_channels_last(name: str, transpositions: int) -> None:
    """A channel shuffle moves elements once; each of ShuffleNet's sixteen stays as one transposition."""
    assert ops(optimise(import_model(load_model(name))))["transpose"] == transpositions
