"""`autotune.compile`: models of every kind, called in every way, give what ONNX's evaluator and PyTorch give."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from typer.testing import CliRunner

import autotune
from autotune.cli.app import app
from autotune.config import ConfigError, check_config
from targets.executable import Executable
from targets.manifest import ExecutableError


def small() -> onnx.ModelProto:
    """A convolution, a sum of two inputs and a product of matrices."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((8, 4, 3, 3)) / 6, "f": rng.standard_normal((8, 5))}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["q"]),
        helper.make_node("Add", ["q", "z"], ["s"]),
        helper.make_node("MatMul", ["s", "f"], ["y"]),
    ]
    shapes = {"x": [1, 4, 6, 6], "z": [1, 8]}
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("y", [1, 5]), ("s", [1, 8]))]
    stored = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "small", inputs, outputs, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def feeds(seed: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "x": rng.standard_normal((1, 4, 6, 6)).astype(np.float32),
        "z": rng.standard_normal((1, 8)).astype(np.float32),
    }


def compute_reference(feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    return ReferenceEvaluator(small()).run(None, dict(feeds))


@pytest.fixture(scope="module")
def network() -> Executable:
    return autotune.compile(small(), threads=1)


def test_a_model_is_called_in_order_and_by_name(network: Executable) -> None:
    given = feeds()
    by_name = network(dict(reversed(given.items())))
    assert list(by_name) == ["y", "s"]
    for array, other, reference in zip(
        network(*given.values()), by_name.values(), compute_reference(given), strict=True
    ):
        np.testing.assert_allclose(array, reference, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(array, other)


def test_other_names_are_refused(network: Executable) -> None:
    with pytest.raises(ExecutableError, match="`small` must be given x, z, but got x, w"):
        network({"x": feeds()["x"], "w": feeds()["z"]})


def test_tensors_come_back_for_tensors(network: Executable) -> None:
    torch = pytest.importorskip("torch")
    given = {name: torch.from_numpy(array) for name, array in feeds().items()}
    for tensors in (network(*given.values()), tuple(network(given).values())):
        for tensor, array in zip(tensors, network(*feeds().values()), strict=True):
            assert isinstance(tensor, torch.Tensor)
            np.testing.assert_array_equal(tensor.numpy(), array)


def test_what_is_saved_stays_when_the_executable_goes(tmp_path: Path) -> None:
    network = autotune.compile(small(), threads=1)
    outputs, place = network(*feeds().values()), network.folder
    assert network.save(tmp_path / "deep" / "saved") == tmp_path / "deep" / "saved"
    again = autotune.load(tmp_path / "deep" / "saved")
    del network
    assert not place.exists()
    for array, other in zip(again(*feeds().values()), outputs, strict=True):
        np.testing.assert_array_equal(array, other)
    assert again.save(again.folder) == again.folder


def test_threads_save_one_network_to_one_folder(tmp_path: Path) -> None:
    network = autotune.compile(small(), threads=1)
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: network.save(tmp_path / "saved"), range(40))) == {tmp_path / "saved"}
    assert files_of_folder(tmp_path / "saved") == files_of_folder(network.save(tmp_path / "alone"))


def files_of_folder(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_file_that_was_exchanged_is_not_saved(tmp_path: Path) -> None:
    network = autotune.load(autotune.compile(small(), threads=1).save(tmp_path / "own"))
    weights = network.folder / network.manifest["weights"]["file"]
    weights.write_bytes(weights.read_bytes()[::-1])
    with pytest.raises(ExecutableError, match="must be that of the manifest"):
        network.save(tmp_path / "other")
    assert not (tmp_path / "other" / "manifest.json").exists()


def test_weights_go_through_a_file_only_where_one_is_asked_for(tmp_path: Path) -> None:
    network, given = autotune.compile(small(), threads=1), feeds()
    own = network.folder / network.manifest["weights"]["file"]
    first = network(given)["y"]
    saved = autotune.load(network.save(tmp_path))
    assert not own.exists()
    again = pickle.loads(pickle.dumps(network))
    assert own.read_bytes() == (tmp_path / own.name).read_bytes()
    assert sha256(own.read_bytes()).hexdigest() == network.manifest["weights"]["sha256"]
    for other in (saved, again):
        assert np.array_equal(other(given)["y"], first)
    own.unlink()
    network.save(network.folder)
    assert own.exists()
    written = autotune.compile(small(), threads=1, output=tmp_path / "run").folder
    assert sorted(path.name for path in written.iterdir()) == sorted(path.name for path in own.parent.iterdir())


def test_a_module_is_compiled_and_left_as_it_is() -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU()).train()
    module[1].eval()
    x = torch.from_numpy(feeds()["x"])
    network = autotune.compile(module, x, threads=1)
    assert [part.training for part in module] == [True, False, True]
    assert network.name == "Sequential"
    np.testing.assert_allclose(network(x), module.eval()(x).detach(), rtol=1e-4, atol=1e-5)


def test_trials_are_measured_and_the_run_is_kept(tmp_path: Path) -> None:
    network = autotune.compile(small(), threads=1, trials=4, output=tmp_path)
    np.testing.assert_allclose(network(*feeds().values())[0], compute_reference(feeds())[0], rtol=1e-4, atol=1e-5)
    assert len((tmp_path / "records.jsonl").read_text().splitlines()) >= 4


def test_trials_need_no_folder() -> None:
    network = autotune.compile(product(), threads=1, trials=1)
    x = np.arange(8, dtype=np.float32).reshape(1, 8)
    np.testing.assert_allclose(network(x), 2 * x)


def product() -> onnx.ModelProto:
    """A product with twice the identity."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in "xy")
    weight = numpy_helper.from_array(2 * np.eye(8, dtype=np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "product", [x], [y], [weight])
    return helper.make_model(graph)


def test_without_trials_a_run_compiles_checks_and_times(tmp_path: Path) -> None:
    onnx.save(small(), tmp_path / "small.onnx")
    (tmp_path / "small.yaml").write_text(f"model: {tmp_path / 'small.onnx'}\nmeasure: {{threads: 1}}\n")
    command = ["run", str(tmp_path / "small.yaml"), "--trials", "0", "--output", str(tmp_path / "run")]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    document = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert document["tasks"] == []
    assert document["network"]["seconds"] > 0
    assert document["network"]["max_error"] < 1e-4
    assert not (tmp_path / "run" / "records.jsonl").exists()


def test_compile_needs_no_records_but_those_that_are_named(tmp_path: Path) -> None:
    onnx.save(small(), tmp_path / "small.onnx")
    (tmp_path / "small.yaml").write_text(f"model: {tmp_path / 'small.onnx'}\noutput: {tmp_path / 'run'}\n")
    done = CliRunner().invoke(app, ["compile", str(tmp_path / "small.yaml")])
    assert done.exit_code == 0, done.output
    assert "without records, chosen without trials: all" in done.stderr
    assert len(autotune.load(tmp_path / "run" / "network", threads=1)(*feeds().values())) == 2
    refused = CliRunner().invoke(app, ["compile", str(tmp_path / "small.yaml"), "--records", str(tmp_path / "none")])
    assert refused.exit_code == 2
    assert "`records` must be an existing file, but got" in refused.output


def test_what_cannot_be_compiled_is_refused() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="`example_inputs` must be given for a module of PyTorch alone"):
        autotune.compile(torch.nn.ReLU())
    with pytest.raises(TypeError, match="`example_inputs` must be given for a module of PyTorch alone"):
        autotune.compile(small(), feeds()["x"])
    with pytest.raises(ConfigError, match="`model` must be one of"):
        autotune.compile("no_such_model")
    with pytest.raises(ConfigError, match="trials"):
        autotune.compile(small(), trials=-1)


def test_an_operator_has_trials() -> None:
    document = {"name": "relu", "workload": {"operator": "relu", "shape": [4]}, "trials": 0}
    with pytest.raises(ConfigError, match="`trials` must be at least 1 beside a `workload`, but got trials=0"):
        check_config(document, "here")
