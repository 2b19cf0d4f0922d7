"""The integers of a quantised network are those that ONNX Runtime computes from its ONNX form."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Graph, GraphBuilder, GraphError, TensorType
from autotune.graph.quantise import quantise_with_report, random_feeds
from tests.autotune.graph.nets import residual
from tests.autotune.graph.quantise.nets import make_mixed_layers
from tests.autotune.graph.quantise.onnx_export import to_onnx

onnxruntime = pytest.importorskip("onnxruntime")


@pytest.mark.parametrize("make", [residual, make_mixed_layers])
def test_onnx_runtime_gives_the_same_bytes(make: Callable[[], Graph]) -> None:
    quantised, _ = quantise_with_report(make())
    graph = quantised.graph
    stored = [
        node.name for node in graph.nodes if node.type.dtype in ("uint8", "int32") and node.name not in graph.outputs
    ]
    session = onnxruntime.InferenceSession(to_onnx(graph, stored).SerializeToString())
    for feed in random_feeds(graph.inputs, 5, 2):
        values = evaluate(graph, feed)
        found = dict(zip((*graph.outputs, *stored), session.run(None, dict(feed)), strict=True))
        exact = stored
        if graph.node("sigmoid"):  # behind it a tie may fall to the other side
            names = [node.name for node in graph.nodes]
            exact = [name for name in stored if names.index(name) < names.index("sigmoid")]
        assert len(exact) >= 8
        for name in exact:
            np.testing.assert_array_equal(found[name], values[name], name)
        np.testing.assert_allclose(found[graph.outputs[0]], values[graph.outputs[0]], rtol=1e-2, atol=1e-5)


def test_what_has_no_form_is_refused() -> None:
    b = GraphBuilder("b", {"x": TensorType((2, 4))})
    with pytest.raises(GraphError, match="an operation to export must be one of .* but got tanh"):
        to_onnx(b.finish([b.add("tanh", ["x"])]))
