"""Networks in 16-bit floats: kernels give what the graph gives in NumPy, rounded at the same places."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import autotune.compiler.checking.check
import autotune.compiler.checking.probing
import autotune.graph.precision
from autotune.compiler.checking.check import TOLERANCE, check_network
from autotune.compiler.checking.lowered import error_beyond_a_step, rounding_of_kernels, stored_values
from autotune.compiler.options import CompileOptions
from autotune.compiler.prepare import Network, load_network
from autotune.compiler.schedules import Schedules
from autotune.compiler.selection import Limits
from autotune.graph.attention import with_attention
from autotune.graph.copies import executable_graph
from autotune.graph.evaluate import evaluate
from autotune.graph.frontends.onnx.model import load_model
from autotune.graph.ir import Graph, GraphBuilder, TensorType
from autotune.graph.ops import find
from autotune.graph.passes import optimise
from autotune.graph.precision import lower_precision
from search_space.dtypes import NARROW
from search_space.operators import winograd
from targets import registry
from tests.autotune.compiler.test_network import two_layers
from tests.autotune.fakes import settings_with
from tests.autotune.graph.random_graphs import draw_inputs, random_graph
from tests.autotune.kept import make_untuned

SETTINGS = settings_with(threads=1)
SCHEDULES = make_untuned(SETTINGS)
"""Schedules of all networks here, so that each workload's space is searched once."""
ROUNDING = make_untuned(SETTINGS, Limits(["winograd2_dot"]))
"""Schedules by which the 3x3 layer has its tiles rounded."""
PAIRS = pytest.mark.skipif(
    "avx512bf16" not in registry.get("cpu").hardware.features, reason="this processor has no bfloat16 dot product"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> onnx.ModelProto:
    return load_model(str(two_layers(tmp_path_factory.mktemp("two") / "two.onnx")))


@pytest.mark.parametrize("dtype", NARROW)
def test_a_network_in_16_bits_agrees_with_numpy_kernel_by_kernel(model: onnx.ModelProto, dtype: str) -> None:
    network = load_network(model, "two", CompileOptions(precision=dtype))
    check = check_network(network, SCHEDULES, SETTINGS, layers=True)
    assert check.max_error < TOLERANCE
    assert sum(network.graph.node(name) is not None for name in check.layers) >= 4
    assert 40 < check.rounding["y"].decibels < {"float16": 120, "bfloat16": 80}[dtype]


@pytest.mark.parametrize("schedules", [SCHEDULES, pytest.param(ROUNDING, marks=PAIRS)])
def test_five_per_cent_more_of_one_weight_tensor_fails(
    model: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch, schedules: Schedules
) -> None:
    network = load_network(model, "two", CompileOptions(precision="bfloat16"))
    compiled = autotune.compiler.checking.check.compile_network

    def compile_other(network: Network, *rest: object) -> object:
        g = network.graph
        name, old = next((n, a) for n, a in g.constants.items() if a.ndim == 4 and a.shape[0] == 3)
        constants = {**g.constants, name: (old * np.float32(1.05)).astype(old.dtype)}
        other = Graph(g.name, g.inputs, constants, g.nodes, g.outputs)
        return compiled(Network("two", network.source, other, ()), *rest)

    for module in (autotune.compiler.checking.check, autotune.compiler.checking.probing):
        monkeypatch.setattr(module, "compile_network", compile_other)
    assert check_network(network, schedules, SETTINGS).max_error > 10 * TOLERANCE


@PAIRS
def test_what_an_algorithm_rounds_is_allowed_its_kernel_alone(model: onnx.ModelProto) -> None:
    network = load_network(model, "two", CompileOptions(precision="bfloat16"))
    assert check_network(network, ROUNDING, SETTINGS).max_error < TOLERANCE
    rounds = rounding_of_kernels(network.graph, ROUNDING, 1)
    convolutions = [node for node in network.graph.nodes if node.op == "conv2d"]
    assert [node.name in rounds for node in convolutions] == [True, False]
    assert set(rounds.values()) == {winograd.RELATIVE_ERROR["winograd2_dot"]}
    assert rounding_of_kernels(network.graph, make_untuned(SETTINGS, Limits(["direct"])), 1) == {}


def test_an_allowance_is_of_the_largest_element() -> None:
    wanted = np.array([1.0, 100.0], np.float32)
    assert error_beyond_a_step(np.array([1.7, 100.0], np.float32), wanted, "bfloat16", 8e-3) == 0
    assert error_beyond_a_step(np.array([2.0, 100.0], np.float32), wanted, "bfloat16", 8e-3) == pytest.approx(0.01)


@pytest.mark.parametrize("keys", [32, 33])
def test_attention_as_one_kernel(keys: int, tmp_path: Path) -> None:
    shapes = {"q": (2, 20, 8), "k": (2, 8, keys), "v": (2, keys, 5), "mask": (20, keys)}
    b = GraphBuilder("attention", {name: TensorType(shape) for name, shape in shapes.items()})
    scores = b.add("add", [b.add("batch_matmul", ["q", "k"]), "mask"])
    rows = b.add("softmax", [b.add("reshape", [scores], shape=(40, keys))])
    graph = b.finish([b.add("batch_matmul", [b.add("reshape", [rows], shape=(2, 20, keys)), "v"])])
    joined = lower_precision(with_attention(graph, replace(SETTINGS.target.hardware, l2_bytes=1024)), "bfloat16")
    (node,) = (n for n in joined.nodes if n.op == "attention")
    assert [joined.type(name).dtype for name in node.inputs] == ["bfloat16"] * 3 + ["float32"]
    assert (node.attrs["weights"], node.type.dtype) == ("bfloat16", "float32")
    rng = np.random.default_rng(keys)
    feeds = {name: rng.uniform(-1, 1, shape).astype(np.float32) for name, shape in shapes.items()}
    network = Network("attention", onnx.ModelProto(), executable_graph(joined), (), precision="bfloat16")
    found, errors = stored_values(network, SCHEDULES, SETTINGS, feeds, tmp_path)
    assert max(errors.values()) < TOLERANCE
    exact = evaluate(graph, feeds)[graph.outputs[0]]
    np.testing.assert_allclose(found[joined.outputs[0]], exact, atol=2**-7 * np.abs(exact).max())


def test_one_step_is_no_error_and_two_are() -> None:
    ones = np.ones(4, np.float32)
    assert error_beyond_a_step(ones * (1 + 2**-7), ones, "bfloat16") == 0
    assert error_beyond_a_step(ones * (1 + 2**-6), ones, "bfloat16") > 2**-7
    assert error_beyond_a_step(np.array([np.inf]), np.array([np.inf]), "bfloat16") == 0
    assert not error_beyond_a_step(np.array([np.nan]), np.array([1.0]), "bfloat16") <= TOLERANCE


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("seed", range(6))
def test_random_graphs(seed: int, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autotune.graph.precision, "FEW_CHANNELS", 0)
    graph = optimise(random_graph(seed))
    lowered = executable_graph(lower_precision(graph, dtype))
    feeds = draw_inputs(graph)
    assert [lowered.type(n) for n in lowered.outputs] == [graph.type(n) for n in graph.outputs]
    network = Network("random", onnx.ModelProto(), lowered, (), precision=dtype)
    _, errors = stored_values(network, SCHEDULES, SETTINGS, feeds, tmp_path)
    assert max(errors.values(), default=0.0) < TOLERANCE, errors


@pytest.mark.parametrize(
    ("channels", "groups", "lowered"),
    [(3, 1, False), (4, 1, False), (5, 1, True), (16, 4, True), (8, 4, True), (12, 4, False), (20, 4, True)],
)
def test_convolutions_of_few_channels_are_lowered_where_groups_have_pairs_of_them(
    channels: int, groups: int, lowered: bool
) -> None:
    b = GraphBuilder("layer", {"x": TensorType((1, 6, 6, channels))})
    weight = b.constant(np.ones((3, 3, channels // groups, 16), np.float32))
    attrs = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": groups}
    graph = lower_precision(b.finish([b.add("conv2d", ["x", weight], **attrs)]), "bfloat16")
    (layer,) = (node for node in graph.nodes if node.op == "conv2d")
    assert {graph.type(name).dtype for name in layer.inputs} == {"bfloat16" if lowered else "float32"}


def test_copies_keep_their_type_and_what_computes_gives_float32() -> None:
    kind = TensorType((4,), "bfloat16")
    assert find("copy").infer({}, [kind]) == kind
    assert find("relu").infer({}, [kind]) == TensorType((4,))


@pytest.mark.parametrize("post", [False, True])
def test_what_a_transformer_carries_from_layer_to_layer_is_not_rounded(post: bool) -> None:
    rng = np.random.default_rng(0)
    b = GraphBuilder("block", {"x": TensorType((8, 32))})

    def layer(value: str, columns: int = 32) -> str:
        rows = b.type(value).shape[-1]
        return b.add("matmul", [value, b.constant(rng.standard_normal((rows, columns)).astype(np.float32))])

    def normalise(value: str) -> str:
        ones = np.ones(32, np.float32)
        return b.add("layer_norm", [value, b.constant(ones), b.constant(ones * 0)])

    stream = normalise(layer("x")) if post else layer("x")
    carried = [stream] if post else []
    for _ in range(2):
        inner = b.add("relu", [layer(stream if post else normalise(stream), 64)])
        total = b.add("add", [layer(inner), stream])
        stream = normalise(total) if post else total
        carried += [total, stream]
    graph = b.finish([layer(stream if post else normalise(stream))])
    lowered = lower_precision(graph, "bfloat16")
    rounded = {node.inputs[0] for node in lowered.nodes if node.op == "cast"}
    readers = lowered.consumers()
    for name in carried[:-1] if post else carried:  # the last rows are normalised for a layer alone
        assert lowered.type(name).dtype == "float32"
        assert any(reader.op in ("add", "layer_norm") for reader in readers[name])
    assert any(node.op == "relu" and node.name in rounded for node in lowered.nodes)
    layers = [node for node in lowered.nodes if node.op == "matmul"]
    assert all({lowered.type(name).dtype for name in node.inputs} == {"bfloat16"} for node in layers)
