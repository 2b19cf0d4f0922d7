"""Networks in int8 by way of the command line: tuned, checked bit by bit, their accuracy in the summary."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import autotune
from autotune.compiler.options import CompileOptions
from autotune.compiler.prepare import load_network
from autotune.config import ConfigError, check_config
from autotune.graph.evaluate import evaluate
from autotune.graph.frontends.onnx.model import load_model
from autotune.graph.ir import GraphError
from targets import registry
from tests.autotune.compiler.test_network import SHAPE, call, two_layers
from tests.autotune.graph.helpers import save


def test_a_run_in_int8(tmp_path: Path) -> None:
    model = two_layers(tmp_path / "two.onnx")
    config = tmp_path / "two.yaml"
    config.write_text(f"model: {model}\ntrials: 24\noutput: {tmp_path / 'out'}\n")
    done = call(
        "run",
        config,
        "--set",
        "network.quantise=int8",
        "--set",
        "network.check_layers=true",
        "--json",
        tmp_path / "summary.json",
    )
    assert done.exit_code == 0, done.output
    part = json.loads((tmp_path / "summary.json").read_text())["network"]
    assert part["accuracy"]["quantised_layers"] == 3 and part["accuracy"]["decibels"] > 25
    assert len(part["layers"]) >= 2 and not any(part["layers"].values())  # bytes come out as they are
    assert part["max_error"] < 1e-5
    network = load_network(load_model(str(model)), "two", CompileOptions(quantise="int8"))
    image = np.random.default_rng(3).standard_normal(SHAPE).astype(np.float32)
    out = autotune.load(tmp_path / "out" / "network")(image)
    wanted = evaluate(network.graph, {"x": image})[network.graph.outputs[0]]
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-7)


def test_floats_have_no_accuracy(tmp_path: Path) -> None:
    network = load_network(load_model(str(two_layers(tmp_path / "two.onnx"))), "two")
    assert network.accuracy is None
    assert not any(node.type.dtype == "uint8" for node in network.graph.nodes)


def test_bad_input_is_refused(tmp_path: Path) -> None:
    model = load_model(str(two_layers(tmp_path / "two.onnx")))
    rule = "`quantise` must be one of int8, shift8, weights8, weights4, but got quantise='int4'"
    with pytest.raises(ValueError, match=rule):
        load_network(model, "two", CompileOptions(quantise="int4"))
    with pytest.raises(
        ConfigError, match=r"c:network\.quantise: must be 'int8', 'shift8', 'weights8' or 'weights4', but got 'int4'"
    ):
        check_config({"name": "c", "model": "m", "network": {"quantise": "int4"}}, "c")
    nothing = save(tmp_path / "relu.onnx", [onnx.helper.make_node("Relu", ["x"], ["y"])], {"x": (1, 8)}, [])
    with pytest.raises(GraphError, match="must have a layer with constant weights"):
        load_network(load_model(str(nothing)), "relu", CompileOptions(quantise="int8"))


@pytest.mark.skipif("avx512vnni" not in registry.get("cpu").hardware.features, reason="needs avx512vnni")
def test_tuning_finds_the_dot_product_for_fused_layers(tmp_path: Path) -> None:
    network = load_network(load_model(str(two_layers(tmp_path / "two.onnx"))), "two", CompileOptions(quantise="int8"))
    tasks = [task for task in network.tasks if "conv2d" in task.name]
    assert len(tasks) == 2 and tasks[1].name.endswith("_add_widened_requantise")
    for task in tasks:
        result = autotune.tune(task.workload, trials=8)
        assert not result.errors and any(step.name == "tensorize" for step in result.trace.steps)
