"""Executables of models that have 16-bit floats themselves: checked, given tensors of PyTorch, told about."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

from autotune.compiler.build import compile_network, make_feeds
from autotune.compiler.checking.check import TOLERANCE, check_network
from autotune.compiler.checking.lowered import stored_values
from autotune.compiler.checking.timing import time_network
from autotune.compiler.options import CompileOptions
from autotune.compiler.prepare import Network, load_network
from autotune.compiler.sources import OnnxSource
from autotune.compiler.tasks import element_types
from autotune.graph.copies import executable_graph
from autotune.graph.frontends.onnx.model import load_model, with_shapes
from autotune.graph.ir import GraphBuilder, TensorType
from autotune.graph.passes import optimise
from autotune.graph.passes.early_means import EarlyMeans
from autotune.tracking import facts
from autotune.tracking.launch import Uploads
from search_space.dtypes import NARROW, numpy_dtype
from targets.executable import Executable, ExecutableError
from tests.autotune.compiler.test_network import call, two_layers
from tests.autotune.fakes import settings_with
from tests.autotune.graph.narrow_models import narrow_model, rounded_everywhere
from tests.autotune.graph.random_graphs import random_graph
from tests.autotune.kept import make_untuned
from tests.autotune.tracking.test_tracker import make_world

pytestmark = pytest.mark.usefixtures("kernel_cache")

SETTINGS = settings_with(threads=1)
SCHEDULES = make_untuned(SETTINGS)
"""Schedules of all networks here, so that each workload's space is searched once."""


@pytest.fixture(scope="module", params=NARROW)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> onnx.ModelProto:
    whole = load_model(str(two_layers(tmp_path_factory.mktemp("two") / "two.onnx")))
    return with_shapes(narrow_model(whole, request.param))


def input_dtype(model: onnx.ModelProto) -> str:
    return str(onnx.helper.tensor_dtype_to_np_dtype(model.graph.input[0].type.tensor_type.elem_type))


def test_it_agrees_with_numpy_and_lies_no_further_from_float32_than_the_model(model: onnx.ModelProto) -> None:
    network = load_network(model, "two")
    check = check_network(network, SCHEDULES, SETTINGS)
    assert network.precision == input_dtype(model)
    assert check.max_error < TOLERANCE
    assert {network.graph.type(name).dtype for name in network.graph.outputs} == {network.precision}
    assert check.rounding["y"].decibels > {"float16": 55, "bfloat16": 35}[network.precision]
    assert "with the model as it is lies" in check.note
    assert all(network.precision in element_types(task.workload) for task in network.tasks)


def test_what_was_read_wrong_is_told(model: onnx.ModelProto) -> None:
    """The kernels agree with the graph, but the graph is not the model."""
    network = load_network(model, "two")
    other = onnx.ModelProto()
    other.CopyFrom(model)
    weight = max(other.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    array = onnx.numpy_helper.to_array(weight)
    weight.CopyFrom(onnx.numpy_helper.from_array(array[::-1].copy(), weight.name))
    wrong = Network("two", OnnxSource(other), network.graph, network.tasks, precision=network.precision)
    assert check_network(wrong, SCHEDULES, SETTINGS).max_error > 10 * TOLERANCE


@pytest.mark.parametrize(
    ("keys", "rule"),
    [
        ({"precision": "other"}, "`precision` must be float32 or {0} for a model with values in {0}, but got"),
        ({"quantise": "int8"}, "`quantise` must be None for a model with values in {0}, but got quantise='int8'"),
        ({"substitutions": (EarlyMeans(),)}, "`substitutions` must be None for a model with values in {0}, but got"),
    ],
)
def test_what_excludes_it_is_told(model: onnx.ModelProto, keys: dict[str, Any], rule: str) -> None:
    dtype = input_dtype(model)
    given = {key: NARROW[dtype == NARROW[0]] if value == "other" else value for key, value in keys.items()}
    with pytest.raises(ValueError, match=rule.format(dtype)):
        load_network(model, "two", CompileOptions(**given))


@pytest.fixture(scope="module")
def executable(model: onnx.ModelProto, tmp_path_factory: pytest.TempPathFactory) -> tuple[Executable, Network]:
    network = load_network(model, "two")
    return compile_network(network, SCHEDULES, tmp_path_factory.mktemp("out") / "two", SETTINGS), network


def test_arrays_and_tensors_of_the_type_are_taken(executable: tuple[Executable, Network]) -> None:
    run, network = executable
    (feed,) = make_feeds(network, 0).values()
    out = run(feed)
    assert isinstance(out, np.ndarray) and str(out.dtype) == network.precision
    torch = pytest.importorskip("torch")
    if network.precision == "float16":
        given = torch.from_numpy(feed)
    else:
        given = torch.from_numpy(feed.view(np.int16)).view(torch.bfloat16).requires_grad_()
    found = run(given)
    assert found.dtype is given.dtype
    np.testing.assert_array_equal(found.view(torch.int16).numpy(), out.view(np.int16))


def test_other_types_are_one_clear_sentence(executable: tuple[Executable, Network]) -> None:
    run, network = executable
    (feed,) = make_feeds(network, 0).values()
    with pytest.raises(ExecutableError, match=rf"input `.*` must be {network.precision} of shape .* but got float32"):
        run(feed.astype(np.float32))


def test_the_header_names_the_bits(executable: tuple[Executable, Network]) -> None:
    run, network = executable
    (header,) = run.folder.glob("*.h")
    text = header.read_text()
    assert f"uint16_t holds the bits of 16-bit floats: x {network.precision}" in text
    assert "const uint16_t *x" in text


def test_runtimes_that_refuse_it_are_missing(executable: tuple[Executable, Network]) -> None:
    run, network = executable
    timing = time_network(network, run.folder, SETTINGS, ["onnxruntime"], turns=1)
    assert timing.seconds["autotune"] > 0
    assert ("onnxruntime" in timing.missing) == (network.precision == "bfloat16")


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("seed", range(4))
def test_random_graphs(seed: int, dtype: str, tmp_path: Path) -> None:
    graph = executable_graph(optimise(rounded_everywhere(random_graph(seed), dtype)))
    rng = np.random.default_rng(seed)
    feeds = {name: rng.uniform(-1, 1, kind.shape).astype(numpy_dtype(dtype)) for name, kind in graph.inputs.items()}
    network = Network("random", onnx.ModelProto(), graph, (), precision=dtype)
    _, errors = stored_values(network, SCHEDULES, SETTINGS, feeds, tmp_path)
    assert errors and max(errors.values()) < TOLERANCE, errors


def test_conversions_keep_infinity_and_nan_and_round_to_even(tmp_path: Path) -> None:
    numbers = np.array(
        [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, 7e4, 65519.0, 65520.0, 1e-8, 6e-5, 1.00390625, 3.3], "f4"
    )
    b = GraphBuilder("conversions", {"x": TensorType(numbers.shape), "h": TensorType(numbers.shape, "float16")})
    outputs = [b.add("cast", [name], dtype=dtype) for name, dtype in (("x", "bfloat16"), ("x", "float16"))]
    outputs += [b.add("cast", ["h"], dtype="bfloat16"), b.add("cast", ["h"], dtype="float32")]
    outputs.append(b.add("cast", [b.add("less", ["x", "h"])], dtype="bfloat16"))
    graph = executable_graph(b.finish(outputs))
    with np.errstate(over="ignore"):
        half = numbers.astype(np.float16)
    network = Network("conversions", onnx.ModelProto(), graph, ())
    run = compile_network(network, SCHEDULES, tmp_path / "c", SETTINGS)
    wanted = [numbers.astype(ml_dtypes.bfloat16), half, half.astype(ml_dtypes.bfloat16), half.astype(np.float32)]
    wanted.append((numbers < half.astype(np.float32)).astype(ml_dtypes.bfloat16))
    for found, array in zip(run(numbers, half), wanted, strict=True):
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found.astype(np.float32), array.astype(np.float32))
        signs = ~np.isnan(found.astype(np.float32))
        assert (np.signbit(found.astype(np.float32)) == np.signbit(array.astype(np.float32)))[signs].all()


def test_a_model_of_float32_is_no_narrow_one(tmp_path: Path) -> None:
    network = load_network(load_model(str(two_layers(tmp_path / "two.onnx"))), "two")
    assert network.precision == "float32"
    assert {element_types(task.workload) for task in network.tasks} == {"float32"}


def test_a_run_tells_precision_and_decibels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Uploads, "prepare", lambda self: None)  # the spool is what is looked at
    monkeypatch.delenv(facts.URI_VARIABLE, raising=False)
    whole = narrow_model(load_model(str(two_layers(tmp_path / "wide.onnx"))), "bfloat16")
    onnx.save(whole, tmp_path / "two.onnx")
    config = tmp_path / "two.yaml"
    config.write_text(
        f"model: {tmp_path / 'two.onnx'}\ntrials: 6\noutput: {tmp_path / 'out'}\nsearch: {{batch: 2}}\n"
        "tracking: {backend: mlflow}\n"
    )
    listed = call("tasks", config)
    assert listed.exit_code == 0 and "bfloat16 → " not in listed.output, listed.output
    assert re.search(r"types .*\n.*\n.*conv2d3x3_14x14x16_16_add_relu_cast +│? *bfloat16 ", listed.output), (
        listed.output
    )
    done = call("run", config, "--json", tmp_path / "summary.json")
    assert done.exit_code == 0, done.output
    assert "bfloat16, " in done.output and "dB beside float32" in done.output
    network = json.loads((tmp_path / "summary.json").read_text())["network"]
    assert network["precision"] == "bfloat16" and network["reference"] is None
    assert 30 < network["rounding"]["y"]["decibels"] < 90
    assert facts.network_metrics(network)["network.rounding.y.decibels"] == network["rounding"]["y"]["decibels"]
    (tracked, *_) = make_world(tmp_path / "out").runs.values()
    assert tracked["tags"]["precision"] == "bfloat16"
    assert "network.rounding.y.decibels" in {point.name for point in tracked["points"]}
    assert call("report", tmp_path / "out").exit_code == 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert "beside float32" in page and f"{network['rounding']['y']['decibels']:.1f} dB" in page
