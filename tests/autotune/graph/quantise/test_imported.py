"""Models that another quantiser made run on bytes, and give what their floats would."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from autotune.compiler.checking.check import check_network
from autotune.compiler.checking.imported import errors_against_floats
from autotune.compiler.prepare import load_network
from autotune.compiler.schedules import Schedules
from autotune.graph.evaluate import evaluate
from autotune.graph.frontends.onnx.importer import import_model
from autotune.graph.ir import Array, Graph, GraphBuilder, TensorType
from autotune.graph.passes import optimise, verify
from autotune.graph.quantise import ByteGraph, with_byte_layers
from autotune.graph.quantise.multiples import multiples
from tests.autotune.compiler.test_compile import choose_schedule
from tests.autotune.fakes import settings_with
from tests.autotune.graph.nets import compile_graph
from tests.autotune.graph.quantise.qdq_models import (
    Net,
    block,
    branches,
    draw,
    lines,
    quantised_by_peer,
    residual,
    volumes,
)

pytestmark = pytest.mark.usefixtures("kernel_cache")

onnxruntime = pytest.importorskip("onnxruntime")

LAYERS = {residual: 7, branches: 4, block: 6, lines: 3, volumes: 3}
KINDS = [("uint8", True), ("uint8", False), ("int8", True), ("int8", False)]


def lower_model(model: onnx.ModelProto) -> tuple[Graph, ByteGraph]:
    graph = optimise(import_model(model))
    found = with_byte_layers(graph)
    assert found is not None
    verify(found.graph)
    return graph, found


def by_peer(model: onnx.ModelProto, feeds: dict[str, Array]) -> Array:
    """Node by node, in floats."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return np.asarray(session.run(None, feeds)[0])


@pytest.mark.parametrize(("activations", "per_channel"), KINDS)
@pytest.mark.parametrize("make", [residual, branches, block, lines, volumes])
def test_layers_work_on_bytes_and_give_what_the_floats_do(
    make: Callable[[], onnx.ModelProto], activations: str, per_channel: bool, tmp_path: Path
) -> None:
    model = quantised_by_peer(make(), tmp_path, activations, per_channel)
    graph, found = lower_model(model)
    assert found.layers == LAYERS[make]
    assert all(reason == "batch_matmul has no kernel on bytes here" for reason in found.left_float.values())
    assert not any(
        node.op in ("conv2d", "depthwise_conv2d", "matmul")
        for node in found.graph.nodes
        if node.type.dtype == "float32"
    )
    feeds = draw(model, 9)
    assert max(errors_against_floats(graph, found, feeds).values()) < 1e-6
    ours = evaluate(found.graph, feeds)[found.graph.outputs[0]]
    for wanted in (ReferenceEvaluator(model).run(None, feeds)[0], by_peer(model, feeds)):
        step = np.abs(wanted).max() / 100
        np.testing.assert_allclose(ours, wanted, atol=3 * step)  # a tie somewhere is a step there
        assert (ours == wanted).mean() > 0.5


@pytest.mark.parametrize(
    ("make", "activations"), [(residual, "int8"), (branches, "uint8"), (lines, "int8"), (volumes, "uint8")]
)
def test_executables_compute_it_exactly(make: Callable[[], onnx.ModelProto], activations: str, tmp_path: Path) -> None:
    graph = lower_model(quantised_by_peer(make(), tmp_path, activations, True))[1].graph
    stored = [n.name for n in graph.nodes if n.type.dtype == "uint8" and n.op in ("requantise", "quantise_linear")]
    if graph.node("sigmoid4") is not None:
        stored = stored[:1]
    whole = Graph(graph.name, graph.inputs, graph.constants, graph.nodes, (*graph.outputs, *stored))
    executable = compile_graph(whole, choose_schedule, tmp_path / "network")
    feeds = {
        name: np.random.default_rng(5).standard_normal(t.shape).astype(t.dtype) for name, t in graph.inputs.items()
    }
    values, arrays = evaluate(graph, feeds), executable(*feeds.values())
    for name, array in list(zip((*graph.outputs, *stored), arrays, strict=True))[1:]:
        np.testing.assert_array_equal(array, values[name], name)


def one_layer(seed: int, zeros: tuple[int, int], exponents: tuple[int, int, int], powers: bool, dtype: str) -> Graph:
    """A convolution of bytes with padding, and relu, as a model's floats have it."""
    rng = np.random.default_rng(seed)
    scales = [np.float32(2.0**e * (1 if powers else rng.uniform(1, 2))) for e in exponents]
    low = 0 if dtype == "uint8" else -128
    b = GraphBuilder("one", {"x": TensorType((1, 5, 5, 8), dtype)})

    def ends(scale: np.float32, zero: int) -> list[str]:
        return [b.constant(np.full(1, scale, np.float32)), b.constant(np.full(1, zero + low, dtype))]

    weight = (rng.integers(-127, 128, (3, 3, 8, 12)) * scales[1]).astype(np.float32)
    bias = (rng.integers(-9000, 9000, 12) * np.float32(scales[0] * scales[1])).astype(np.float32)
    data = b.add("dequantise", ["x", *ends(scales[0], zeros[0])])
    value = b.add("conv2d", [data, b.constant(weight)], padding=1)
    value = b.add("relu", [b.add("add", [value, b.constant(bias)])])
    return b.finish([b.add("quantise_linear", [value, *ends(scales[2], zeros[1])], dtype=dtype)])


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**16),
    st.tuples(st.integers(0, 255), st.integers(0, 255)),
    st.tuples(st.integers(-9, 2), st.integers(-12, -4), st.integers(-3, 3)),
    st.booleans(),
    st.sampled_from(["uint8", "int8"]),
)
def test_one_layer_is_exact_but_beside_ties(
    seed: int, zeros: tuple[int, int], exponents: tuple[int, int, int], powers: bool, dtype: str
) -> None:
    graph = one_layer(seed, zeros, exponents, powers, dtype)
    found = with_byte_layers(graph)
    assert found is not None and found.layers == 1
    assert [n.op for n in found.graph.nodes if n.op.startswith("dequantise")] == []
    least, most = (0, 256) if dtype == "uint8" else (-128, 128)
    x = np.random.default_rng(seed + 1).integers(least, most, (1, 5, 5, 8)).astype(dtype)
    ours = evaluate(found.graph, {"x": x})[found.graph.outputs[0]].astype(int)
    floats = evaluate(graph, {"x": x})
    theirs = floats[graph.outputs[0]].astype(int)
    if powers:  # nothing is rounded but at the end: ties, too, are the same
        np.testing.assert_array_equal(ours, theirs)
        return
    assert np.abs(ours - theirs).max() <= 1
    last = graph.nodes[-1]
    steps = floats[last.inputs[0]] / graph.constants[last.inputs[1]]
    beside = np.abs(np.abs(steps - np.floor(steps)) - 0.5)
    assert (beside[ours != theirs] < 1e-2).all()


@given(st.integers(0, 2**16), st.floats(1e-6, 1e3), st.integers(1, 128))
@settings(max_examples=25, deadline=None)
def test_multiples_give_the_floats_again(seed: int, scale: float, most: int) -> None:
    rng = np.random.default_rng(seed)
    scales = (scale * rng.uniform(0.5, 2, 6)).astype(np.float32)
    weight = (rng.integers(-most, most, (3, 3, 5, 6)) * scales).astype(np.float32)
    found = multiples(weight)
    assert found is not None
    np.testing.assert_array_equal(found.values * found.scales.astype(np.float32), weight)


def test_other_weights_are_no_multiples() -> None:
    rng = np.random.default_rng(0)
    assert multiples(rng.standard_normal((16, 8)).astype(np.float32)) is None
    wide = (np.arange(-255, 256, dtype=np.float32) * np.float32(0.1)).reshape(-1, 1)  # bytes with a zero at an end
    assert multiples(wide) is None
    assert multiples(np.full((4, 2), np.inf, np.float32)) is None


def test_layers_that_stay_in_floats_say_why(tmp_path: Path) -> None:
    net = Net((2, 16))
    rounded = net.add("QuantizeLinear", "x", net.constant(0.05), net.constant(7, "uint8"))
    data = net.add("DequantizeLinear", rounded, net.constant(0.05), net.constant(7, "uint8"))
    first = net.add("MatMul", data, net.draw_constant(16, 8))
    model = onnx.shape_inference.infer_shapes(net.model(net.add("MatMul", first, net.draw_constant(8, 4))))
    _, found = lower_model(model)
    assert found.layers == 0
    reasons = list(found.left_float.values())
    assert reasons[0].startswith("its weights are not multiples") and reasons[1].startswith("its data are no bytes")
    assert all(reason in str(found) for reason in reasons)
    assert found.to_json()["layers"] == 0


def test_networks_are_checked_against_their_model(tmp_path: Path) -> None:
    model = quantised_by_peer(residual(), tmp_path, "uint8", True)
    network = load_network(model, "residual")
    assert network.imported_layers is not None and network.imported_layers.layers == LAYERS[residual]
    assert check_network(network, Schedules(None, settings_with()), settings_with()).max_error < 1e-5
    graph, found = lower_model(model)
    wrong = {**found.graph.constants}
    layer = next(n for n in found.graph.nodes if n.op == "conv2d")
    wrong[layer.inputs[1]] = np.roll(wrong[layer.inputs[1]], 1)
    broken = Graph("broken", found.graph.inputs, wrong, found.graph.nodes, found.graph.outputs)
    changed = ByteGraph(broken, found.layers, found.left_float, found.names, found.signed)
    assert max(errors_against_floats(graph, changed, draw(model, 3)).values()) > 0.01


def test_floats_alone_have_nothing_of_another_quantiser() -> None:
    assert with_byte_layers(optimise(import_model(residual()))) is None


def test_constants_of_old_operator_sets_are_folded() -> None:
    net = Net((1, 8))
    weight = net.constant(np.arange(-16, 16).reshape(8, 4), "int8")
    wide = net.add("DequantizeLinear", weight, net.constant(0.5), net.constant(0, "int8"))
    graph = optimise(import_model(net.model(net.add("MatMul", "x", wide), opset=13)))
    assert [node.op for node in graph.nodes] == ["matmul"]
