"""The check of an executable sees a change of any weight, and holds what is exact to be exact."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import autotune.compiler.checking.check
import autotune.compiler.checking.comparison
import autotune.compiler.checking.probing
from autotune.compiler.build import compile_network, make_feeds
from autotune.compiler.checking.check import TOLERANCE, check_network
from autotune.compiler.checking.comparison import relative_error
from autotune.compiler.checking.integers import compute_error, data_in_bytes, rounded_integers
from autotune.compiler.checking.probing import is_as_near, moved_inputs
from autotune.compiler.options import CompileOptions
from autotune.compiler.prepare import Network, load_network
from autotune.compiler.schedules import Schedules
from autotune.config import Quantisation
from autotune.graph.calls import Call
from autotune.graph.evaluate import evaluate
from autotune.graph.frontends.onnx.importer import HANDLERS
from autotune.graph.frontends.onnx.model import load_model
from autotune.graph.frontends.onnx.nodes import NodeError
from autotune.graph.ir import Array, Graph, GraphBuilder, TensorType
from autotune.graph.quantise import quantise_with_report, random_feeds
from autotune.tuner.settings import Settings
from benchmarks.peers.nbits_peer import chain
from targets.executable import Executable
from tests.autotune.compiler.test_network import two_layers
from tests.autotune.fakes import settings_with
from tests.autotune.graph.nets import conv
from tests.autotune.kept import make_untuned

SETTINGS = settings_with(threads=1)
SCHEDULES = make_untuned(SETTINGS)
"""Schedules of all networks here, so that each workload's space is searched once."""
Change = Callable[[Array], Array]


def check_in_memory(network: Network, layers: bool = False) -> autotune.compiler.checking.comparison.Check:
    return check_network(network, SCHEDULES, SETTINGS, layers=layers)


def with_constant(graph: Graph, name: str, change: Change) -> Graph:
    constants = {**graph.constants, name: change(np.asarray(graph.constants[name]))}
    return Graph(graph.name, graph.inputs, constants, graph.nodes, graph.outputs)


def compile_changed(monkeypatch: pytest.MonkeyPatch, name: str, change: Change) -> None:
    """Gives all executables another constant of that name, those that are compiled to look for a layer, too."""
    compile_network = autotune.compiler.checking.check.compile_network

    def compile_with_change(network: Network, schedules: Schedules, folder: Path, settings: Settings) -> Executable:
        graph = with_constant(network.graph, name, change)
        return compile_network(Network(network.name, network.source, graph, ()), schedules, folder, settings)

    for module in (autotune.compiler.checking.check, autotune.compiler.checking.probing):
        monkeypatch.setattr(module, "compile_network", compile_with_change)


@pytest.fixture(scope="module")
def floats(tmp_path_factory: pytest.TempPathFactory) -> Network:
    return load_network(load_model(str(two_layers(tmp_path_factory.mktemp("two") / "two.onnx"))), "two")


def test_outputs_logits_and_three_values_between_are_compared(floats: Network) -> None:
    check = check_in_memory(floats, layers=True)
    assert check.reference == "onnxruntime"
    assert {*check.errors} == {"y"} and len(check.layers) == 4 and [*check.layers][-1] == "logits"
    assert check.max_error < TOLERANCE / 10


@pytest.mark.parametrize("index", range(3))
def test_one_per_cent_more_of_one_weight_tensor_fails(
    floats: Network, index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [name for name, array in floats.graph.constants.items() if array.ndim >= 2 and min(array.shape[-2:]) > 1]
    assert len(names) == 3
    compile_changed(monkeypatch, names[index], lambda weight: weight * np.float32(1.01))
    check = check_in_memory(floats)
    assert check.max_error > 10 * TOLERANCE and check.errors["y"] > TOLERANCE
    wrong = [error > TOLERANCE for error in check.layers.values()]
    assert wrong == sorted(wrong) and any(wrong), "all values from the wrong layer on"


@pytest.fixture(scope="module")
def mixed_network() -> Network:
    """Bytes, a sigmoid in floats between two layers, and bytes again."""
    rng = np.random.default_rng(0)
    b = GraphBuilder("mixed", {"x": TensorType((1, 12, 12, 16))})
    first = b.add("relu", [conv(b, rng, "x", 3, 16, padding=1)])
    middle = b.add("sigmoid", [first])
    second = b.add("relu", [conv(b, rng, middle, 3, 16, padding=1)])
    third = b.add("relu", [conv(b, rng, second, 1, 16)])
    graph = b.finish([b.add("sigmoid", [conv(b, rng, third, 1, 8)])])
    found, accuracy = quantise_with_report(graph)
    assert accuracy.quantised_layers == 4
    return Network("mixed", onnx.ModelProto(), found.graph, (), accuracy)


def test_bytes_made_of_computed_floats_are_known(mixed_network: Network) -> None:
    (name,) = rounded_integers(mixed_network.graph)
    node = mixed_network.graph.node(name)
    assert node is not None and node.op == "quantise"
    behind = mixed_network.graph.node(node.inputs[0])
    assert behind is not None and behind.op == "sigmoid"


def test_integers_are_exact_and_floats_within_rounding(mixed_network: Network) -> None:
    check = check_in_memory(mixed_network, layers=True)
    assert check.errors[mixed_network.graph.outputs[0]] < 1e-5
    assert len(check.layers) >= 3 and not any(check.layers.values())


def test_what_counts_as_an_error(mixed_network: Network) -> None:
    graph = mixed_network.graph
    (name,) = rounded = rounded_integers(graph)
    values = evaluate(graph, random_feeds(graph.inputs, 3, 1)[0])

    def error(value: str, change: float) -> float:
        found = values[value].astype(np.float64)
        found.flat[7] += change if found.flat[7] < 100 else -change
        return compute_error(graph, value, found.astype(values[value].dtype), values, rounded)

    assert [error(name, steps) for steps in (0, 1)] == [0, 0] and error(name, 2) > TOLERANCE
    exact = next(n.name for n in graph.nodes if n.op == "requantise")
    assert [error(exact, steps) for steps in (0, 1, 2)] == [0, 1, 1]
    assert error(graph.outputs[0], 0) == 0 and 0.005 < error(graph.outputs[0], 0.01) < 0.1


def test_a_weight_that_is_one_off_behind_floats_is_seen(
    mixed_network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = [node for node in mixed_network.graph.nodes if node.op == "conv2d"]
    compile_changed(monkeypatch, layers[1].inputs[1], lambda weight: (weight + (weight < 0)).astype(np.int8))
    assert check_in_memory(mixed_network).max_error == 1


def test_layers_left_in_floats_and_data_of_ones_own(tmp_path: Path) -> None:
    model = load_model(str(two_layers(tmp_path / "two.onnx")))
    sets = np.random.default_rng(1).standard_normal((5, 1, 16, 14, 14)).astype(np.float32)
    np.savez(tmp_path / "sets.npz", x=sets)
    plain = load_network(model, "two")
    layer = next(node.name for node in plain.graph.nodes if node.op == "conv2d")
    how = Quantisation(floats=[layer], data=str(tmp_path / "sets.npz"))
    accuracy = load_network(model, "two", CompileOptions(quantise="int8", quantisation=how)).accuracy
    assert accuracy is not None
    assert (accuracy.quantised_layers, accuracy.float_layers, accuracy.inputs) == (2, 1, 2)
    with pytest.raises(ValueError, match=r"`floats` must be layers of .*, but got 'z'"):
        load_network(model, "two", CompileOptions(quantise="int8", quantisation=Quantisation(floats=["z"])))


@pytest.mark.parametrize(
    ("arrays", "rule"),
    [
        ({"y": np.zeros((4, 1, 16, 14, 14), np.float32)}, "`data` must hold x, but got y"),
        ({"x": np.zeros((4, 1, 16, 14), np.float32)}, r"x: float32 \(sets, 1, 16, 14, 14\), but got float32"),
        ({"x": np.zeros((4, 1, 16, 14, 14))}, "but got float64"),
        ({"x": np.zeros((2, 1, 16, 14, 14), np.float32)}, "must hold more than 2 sets of inputs, but got 2"),
    ],
)
def test_bad_data_is_refused(tmp_path: Path, arrays: dict[str, Array], rule: str) -> None:
    np.savez(tmp_path / "sets.npz", **arrays)  # type: ignore[arg-type]
    model = load_model(str(two_layers(tmp_path / "two.onnx")))
    with pytest.raises(ValueError, match=rule):
        load_network(
            model, "two", CompileOptions(quantise="int8", quantisation=Quantisation(data=str(tmp_path / "sets.npz")))
        )
    (tmp_path / "sets.npz").write_bytes(b"PK nothing")
    with pytest.raises(ValueError, match="`data` must be an .npz file of inputs, but got"):
        load_network(
            model, "two", CompileOptions(quantise="int8", quantisation=Quantisation(data=str(tmp_path / "sets.npz")))
        )


def detector(path: Path, bias: float = -14.0) -> Path:
    """Writes a detector of text in images: probabilities near 1e-6, where ONNX Runtime's sigmoid is per cents off."""
    rng = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        array = rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))
        return numpy_helper.from_array(array.astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("ConvTranspose", ["r", "w2", "b2"], ["logits"], strides=[2, 2]),
        helper.make_node("Sigmoid", ["logits"], ["y"]),
    ]
    shifts = numpy_helper.from_array(np.full(2, bias, np.float32), "b2")
    value = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 8, 6, 6))
    output = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (1, 2, 12, 12))
    weights = [weight("w1", 8, 8, 3, 3), weight("w2", 8, 2, 2, 2), shifts]
    graph = helper.make_graph(nodes, "detector", [value], [output], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Network:
    return load_network(load_model(str(detector(tmp_path_factory.mktemp("tiny") / "tiny.onnx"))), "tiny")


def test_tiny_outputs_that_are_right_pass(tiny: Network) -> None:
    assert check_in_memory(tiny).max_error < TOLERANCE / 10


def with_another_judge(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    """Multiplies the first reference by a factor from here on."""
    outputs = autotune.compiler.sources.reference_outputs

    def wrong(*arguments: Any) -> tuple[str, dict[str, Array]]:
        name, found = outputs(*arguments)
        return name, {key: array * np.float32(factor) for key, array in found.items()}

    monkeypatch.setattr(autotune.compiler.sources, "reference_outputs", wrong)


@pytest.mark.parametrize("which", ["floats", "tiny"])
def test_where_the_reference_is_wrong_the_model_in_float64_decides(
    which: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    network: Network = request.getfixturevalue(which)
    with_another_judge(monkeypatch, 1.002)
    said: list[str] = []
    check = check_network(network, SCHEDULES, SETTINGS, say=said.append)
    assert check.reference == "the model in float64" and check.max_error < TOLERANCE / 10
    assert re.search(r"onnxruntime is \S+ off the model in float64", check.note)
    assert said == ["onnxruntime differs: the model in float64 decides"]


@pytest.mark.parametrize("name", ["w1", "w2", "b2"])
def test_one_per_cent_more_of_one_weight_fails_for_tiny_outputs(
    tiny: Network, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shape,) = (tuple(tensor.dims) for tensor in tiny.source.proto.graph.initializer if tensor.name == name)
    (found,) = (key for key, a in tiny.graph.constants.items() if sorted(a.shape) == sorted(shape))
    compile_changed(monkeypatch, found, lambda weight: weight * np.float32(1.01))
    check = check_in_memory(tiny)
    assert check.reference == "the model in float64" and check.max_error > 10 * TOLERANCE


def test_a_mistake_of_the_importer_fails_though_the_graph_is_computed_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(call: Call) -> str:
        x = call.add("sigmoid", [call.value(0)])
        return call.add("multiply", [x, call.scalar(1.01, x)])

    monkeypatch.setitem(HANDLERS, "Sigmoid", wrong)
    check = check_in_memory(load_network(load_model(str(detector(tmp_path / "m.onnx"))), "m"))
    assert check.reference == "the model in float64" and 0.009 < check.errors["y"] < 0.011


def test_without_float64_the_first_reference_stands(tiny: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> dict[str, Array]:
        raise NodeError("Nothing node 'n' cannot be computed by NumPy: no such thing")

    monkeypatch.setattr(autotune.compiler.sources, "evaluate_in_float64", refuse)
    with_another_judge(monkeypatch, 1.002)
    check = check_in_memory(tiny)
    assert check.reference == "onnxruntime" and check.max_error > TOLERANCE
    assert check.note.startswith("nothing decides between the network and onnxruntime: Nothing node 'n' cannot")


def test_relative_error_of_what_is_not_finite() -> None:
    wanted = np.array([np.inf, -np.inf, np.nan, 2.0, 4.0])
    assert relative_error(wanted.copy(), wanted) == 0
    assert relative_error(np.array([np.inf, -np.inf, np.nan, 2.0, 3.0]), wanted) == 0.25
    for place, value in ((0, 1.0), (1, np.inf), (2, 0.0), (3, np.nan)):
        found = wanted.copy()
        found[place] = value
        assert autotune.compiler.checking.comparison.Check("", {"y": relative_error(found, wanted)}).max_error == np.inf
    assert relative_error(np.zeros((2, 1)), np.zeros((1, 2))) == np.inf


@pytest.mark.parametrize("bits", [4, 8])
def test_products_of_data_in_bytes_are_held_to_the_data_that_they_read(
    bits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of them, of which the second would enlarge what the first rounds another way."""
    alone = tmp_path / "alone.onnx"
    onnx.save(chain(3, 64, 96, bits, 32, 1, level=4), alone)
    assert check_in_memory(load_network(load_model(str(alone)), "alone")).max_error <= TOLERANCE
    model = chain(3, 64, 96, bits, 32, 2, level=4)
    path = tmp_path / "chain.onnx"
    onnx.save(model, path)
    network = load_network(load_model(str(path)), "chain")
    assert len(data_in_bytes(network.graph)) == 1
    check = check_in_memory(network)
    assert check.max_error <= TOLERANCE and {"x2", "x2, in floats"} <= {name.split(":")[-1] for name in check.errors}
    scales = next(name for name, array in network.graph.constants.items() if array.dtype == np.float32)
    compile_changed(monkeypatch, scales, lambda array: array * np.float32(1.001))
    assert check_in_memory(network).max_error > TOLERANCE


# ------------------------------------------------------------------ the executable that is shipped
def no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes compiling another executable fail the test."""

    def refuse(*_: object) -> Executable:
        raise AssertionError("another executable was compiled")

    for module in (autotune.compiler.checking.check, autotune.compiler.checking.probing):
        monkeypatch.setattr(module, "compile_network", refuse)


@pytest.mark.parametrize(
    "options",
    [
        CompileOptions(),
        CompileOptions(quantise="int8"),
        CompileOptions(precision="float16"),
        CompileOptions(precision="bfloat16"),
        CompileOptions(quantise="int8", precision="bfloat16"),
    ],
    ids=lambda options: f"{options.quantise}-{options.precision}",
)
def test_an_executable_that_is_right_is_run_once_and_no_other_is_compiled(
    options: CompileOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = load_network(load_model(str(two_layers(tmp_path / "two.onnx"))), "two", options)
    executable = compile_network(network, SCHEDULES, tmp_path / "network", SETTINGS)
    no_other(monkeypatch)
    check = check_network(network, SCHEDULES, SETTINGS, executable=executable)
    assert {*check.errors} >= {"y" if options == CompileOptions() else network.graph.outputs[0]}
    assert check.max_error < TOLERANCE and not check.layers


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_executable_decides_where_one_with_further_outputs_is_right(precision: str, tmp_path: Path) -> None:
    network = load_network(
        load_model(str(two_layers(tmp_path / "two.onnx"))), "two", CompileOptions(precision=precision)
    )
    name = next(name for name, array in network.graph.constants.items() if array.ndim == 4)
    other = with_constant(network.graph, name, lambda weight: (weight * np.float32(1.05)).astype(weight.dtype))
    executable = compile_network(replace(network, graph=other), SCHEDULES, tmp_path / "network", SETTINGS)
    check = check_network(network, SCHEDULES, SETTINGS, executable=executable)
    assert max(check.errors.values()) > 10 * TOLERANCE
    assert check.layers and max(check.layers.values()) < TOLERANCE


def test_another_evaluation_that_rounds_alike_is_as_near(mixed_network: Network) -> None:
    """Every third byte behind the sigmoid is one off, as if it were near a tie."""
    given, (name,), output = (
        make_feeds(mixed_network, 0),
        rounded_integers(mixed_network.graph),
        mixed_network.graph.outputs[0],
    )
    plain = evaluate(mixed_network.graph, given)
    moved = plain[name].copy()
    moved.flat[::3] += 1
    other = evaluate(mixed_network.graph, given, {name: moved})[output]
    near, far = (plain[output] + scale * (other - plain[output]) for scale in (0.9, 1.5))
    assert relative_error(near, plain[output]) > TOLERANCE
    assert is_as_near(near, other, plain[output]) and not is_as_near(far, other, plain[output])
    one = other.copy()
    one.flat[0] += 3 * np.abs(other - plain[output]).max()
    assert not is_as_near(one, other, plain[output]), "a single element that is far off"
    assert not is_as_near(np.full_like(one, np.nan), other, plain[output])


def test_outputs_that_hardly_depend_on_inputs_have_values_in_between_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Probabilities that are 1 whatever the image are right by a wrong layer, too."""
    network = load_network(load_model(str(detector(tmp_path / "sure.onnx", bias=40.0))), "sure")
    check = check_in_memory(network)
    assert check.max_error < TOLERANCE and check.layers
    name = next(name for name, array in network.graph.constants.items() if array.ndim == 4)
    compile_changed(monkeypatch, name, lambda weight: weight * np.float32(1.05))
    check = check_in_memory(network)
    assert check.errors["y"] < TOLERANCE and check.max_error > 10 * TOLERANCE


def test_inputs_are_moved_a_little() -> None:
    given = {"x": np.ones((4, 50), np.float32), "ids": np.arange(200).reshape(2, 100), "n": np.array(3)}
    moved = moved_inputs(given, 0)
    assert {name: (array.shape, array.dtype) for name, array in moved.items()} == {
        name: (array.shape, array.dtype) for name, array in given.items()
    }
    assert 0.005 < np.std(moved["x"]) < 0.02 and moved["n"] == 3
    assert 5 < (moved["ids"] != given["ids"]).sum() < 40 and np.isin(moved["ids"], given["ids"]).all()
