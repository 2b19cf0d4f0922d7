"""Models that another quantiser made, by way of the command line: tuned, compiled, checked, and not quantised again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import autotune
from autotune.compiler.options import CompileOptions
from autotune.compiler.prepare import load_network
from autotune.graph.evaluate import evaluate
from autotune.graph.frontends.onnx.model import load_model
from tests.autotune.compiler.test_network import call
from tests.autotune.graph.quantise.qdq_models import Net, draw, quantised_by_peer

pytest.importorskip("onnxruntime")


def two_layers() -> onnx.ModelProto:
    """A convolution and a classifier."""
    net = Net((1, 3, 5, 5))
    flat = net.add("Flatten", net.add("GlobalAveragePool", net.add("Relu", net.conv("x", 3, 16))))
    return net.model(net.add("Gemm", flat, net.draw_constant(4, 16, fan=16), net.draw_constant(4), transB=1))


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("qdq")
    onnx.save(quantised_by_peer(two_layers(), folder, "uint8", True), folder / "model.onnx")
    path = folder / "model.yaml"
    path.write_text(f"model: {folder / 'model.onnx'}\ntrials: 4\noutput: {folder / 'out'}\n")
    return path


def test_a_run_tunes_its_layers_on_bytes(config: Path) -> None:
    done = call("run", config, "--json", config.parent / "summary.json")
    assert done.exit_code == 0, done.output
    part = json.loads((config.parent / "summary.json").read_text())["network"]
    assert part["imported"]["layers"] == 2 and part["max_error"] < 1e-5
    model = load_model(str(config.parent / "model.onnx"))
    feeds = draw(model, 4)
    graph = load_network(model, "model").graph
    wanted = evaluate(graph, feeds)[graph.outputs[0]]
    found = autotune.load(config.parent / "out" / "network")(*feeds.values())
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)


def test_it_is_compiled_from_nothing_but_the_model(config: Path) -> None:
    folder = config.parent / "compiled"
    done = call("compile", config, "--output", folder)
    assert done.exit_code == 0, done.output
    model = load_model(str(config.parent / "model.onnx"))
    feeds = draw(model, 5)
    graph = load_network(model, "model").graph
    wanted = evaluate(graph, feeds)[graph.outputs[0]]
    np.testing.assert_allclose(autotune.load(folder)(*feeds.values()), wanted, rtol=1e-5, atol=1e-7)


def test_it_is_not_quantised_again(config: Path) -> None:
    done = call("run", config, "--set", "network.quantise=int8")
    assert done.exit_code != 0
    shown = " ".join((done.output + str(done.exception)).split())
    assert "`quantise` must be None for a model that is quantised already, but got quantise='int8'" in shown
    model = load_model(str(config.parent / "model.onnx"))
    with pytest.raises(ValueError, match="for a model that is quantised already, but got quantise='shift8'"):
        load_network(model, "model", CompileOptions(quantise="shift8"))
