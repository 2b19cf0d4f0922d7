"""The search for substitutions in a run: what it changes is tuned, checked, and found again by other commands."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from autotune.compiler.options import CompileOptions
from autotune.compiler.prepare import load_network
from autotune.graph.frontends.onnx.model import load_model
from autotune.lab.substitutions.step import Substitute
from tests.autotune.compiler.test_network import call

SWAP = "avg_pool(point(x0,w0)) -> point(avg_pool(x0),w0)"


def pooled_layers(path: Path) -> Path:
    """A 1x1 convolution, a mean that halves rows and columns, and a layer after it, as between blocks of DenseNet."""
    rng = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32) / 8, name)

    nodes = [
        helper.make_node("Relu", ["x"], ["r0"]),
        helper.make_node("Conv", ["r0", "w1"], ["c1"], kernel_shape=[1, 1]),
        helper.make_node("AveragePool", ["c1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p1", "w2"], ["c2"], kernel_shape=[3, 3]),
        helper.make_node("Relu", ["c2"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "pooled",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 64, 28, 28))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 16, 12, 12))],
        [weight("w1", 64, 64, 1, 1), weight("w2", 16, 64, 3, 3)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_a_searched_graph_is_tuned_checked_and_found_again(tmp_path: Path) -> None:
    model, config = pooled_layers(tmp_path / "pooled.onnx"), tmp_path / "pooled.yaml"
    config.write_text(
        f"model: {model}\ntrials: 12\noutput: {tmp_path / 'out'}\nsearch: {{batch: 2}}\n"
        "network: {substitutions: search}\n"
    )
    done = call("run", config, "--json", tmp_path / "summary.json")
    assert done.exit_code == 0, done.output
    document = json.loads((tmp_path / "summary.json").read_text())
    found = document["network"]["substitutions"]
    assert found["rules"] == {SWAP: 1} and found["applied"] == 1
    assert 0 < found["seconds_after"] < found["seconds_before"]
    assert document["network"]["max_error"] < 1e-5
    assert "conv2d1x1_14x14x64_64" in [task["name"] for task in document["tasks"]]
    again = call("compile", config, "--output", tmp_path / "again")
    assert again.exit_code == 0 and "without records" not in again.output, again.output
    manifests = [
        json.loads((p / "manifest.json").read_text()) for p in (tmp_path / "out" / "network", tmp_path / "again")
    ]
    assert manifests[0]["steps"] == manifests[1]["steps"]
    assert "conv2d1x1_14x14x64_64" in call("tasks", config).output
    means = call("tasks", config, "--set", "network.substitutions=means")
    assert means.exit_code == 0 and "conv2d1x1_14x14x64_64" in means.output
    plain = call("tasks", config, "--set", "network.substitutions=null")
    assert plain.exit_code == 0 and "conv2d1x1_28x28x64_64" in plain.output


def test_a_search_for_substitutions_may_come_before_quantisation(tmp_path: Path) -> None:
    model = load_model(str(pooled_layers(tmp_path / "pooled.onnx")))
    network = load_network(model, "pooled", CompileOptions(quantise="int8", substitutions=(Substitute(),)))
    assert network.substitution_result is not None and network.substitution_result.to_json()["rules"] == {SWAP: 1}
    assert network.accuracy is not None and network.accuracy.quantised_layers == 2
    assert load_network(model, "pooled").substitution_result is None
