"""Models in float64, against ONNX Runtime and against the graphs that are made of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from onnx import helper

from autotune.graph.evaluate import evaluate
from autotune.graph.frontends.onnx import float64
from autotune.graph.frontends.onnx.float64 import evaluate_in_float64
from autotune.graph.frontends.onnx.importer import import_model, with_weights
from autotune.graph.frontends.onnx.model import load_model, shapes, with_shapes
from autotune.graph.frontends.onnx.nodes import NodeError
from autotune.graph.ops import find
from autotune.graph.zoo import bert_base
from tests.autotune.graph.onnx_models import Array, model_from, runtime


@pytest.mark.parametrize("name", ["squeezenet", "bert"])
def test_networks_agree_with_runtime_and_graph(name: str) -> None:
    rng = np.random.default_rng(0)
    if name == "bert":
        model = with_shapes(bert_base.build(layers=1, hidden=16, heads=2, sequence=4, vocabulary=20))
        feeds: dict[str, Array] = {"tokens": rng.integers(0, 20, (1, 4))}
    else:
        model = with_weights(load_model(name))
        weights = {tensor.name for tensor in model.graph.initializer}
        (given,) = (value.name for value in model.graph.input if value.name not in weights)
        feeds = {given: rng.standard_normal(shapes(model)[given]).astype(np.float32)}
    (exact,) = evaluate_in_float64(model, feeds).values()
    (theirs,) = runtime(model, feeds)
    graph = import_model(model)
    ours = evaluate(graph, feeds)[graph.outputs[0]]
    assert exact.dtype == np.float64
    for found in (theirs, ours):
        np.testing.assert_allclose(found, exact, rtol=0, atol=1e-5 * np.abs(exact).max())


def test_values_are_dropped_after_they_were_read(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(9)]
    nodes += [helper.make_node("Add", ["v2", "v9"], ["y"])]
    inputs = {"v0": np.ones((2, 3), np.float32)}
    run, most = float64.run_node, 0

    def count_values(node: object, values: dict[str, Array], opset: int) -> dict[str, Array]:
        nonlocal most
        most = max(most, len(values))
        return run(node, values, opset)  # type: ignore[arg-type]

    monkeypatch.setattr(float64, "run_node", count_values)
    (found,) = evaluate_in_float64(model_from(nodes, inputs), inputs).values()
    assert (found == 2).all() and most <= 3


def test_what_has_no_definition_is_named() -> None:
    node = helper.make_node("Erf", ["x"], ["y"], name="mine", domain="private")
    model = model_from([helper.make_node("Relu", ["x"], ["y"])], {"x": np.ones(3, np.float32)})
    model.graph.node[0].CopyFrom(node)
    with pytest.raises(NodeError, match="Erf node 'mine' cannot be computed by NumPy: "):
        evaluate_in_float64(model, {"x": np.ones(3, np.float32)})


@pytest.mark.parametrize("x", [-80.0, -40.0, -14.0, -1e-9, 0.0, 3.0, 80.0, 800.0, -800.0])
def test_small_values_of_the_sigmoid_keep_their_digits(x: float) -> None:
    found = find("sigmoid").evaluate({}, [np.array([x], np.float32)])
    x = float(np.float32(x))
    wanted = 1 / (1 + math.exp(-x)) if x > -700 else 0.0
    np.testing.assert_allclose(found, [np.float32(wanted)], rtol=1e-5)
