"""Weights of 4 and 8 bits in groups: what they stand for, and networks that have them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autotune
from autotune.config import ConfigError, Quantisation
from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Graph, GraphBuilder, GraphError, TensorType
from autotune.graph.quantise import measure_accuracy, quantise_weights_only
from autotune.graph.quantise.weights import quantise_weights
from autotune.graph.zoo import bert_base
from search_space.operators.weights_only import dequantise


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 100),
    st.integers(1, 9),
    st.sampled_from([4, 8]),
    st.sampled_from([8, 16, 32, 104]),
    st.booleans(),
    st.floats(-3, 3),
)
def test_no_weight_is_further_off_than_the_clipped_range_says(
    seed: int, depth: int, columns: int, bits: int, group: int, symmetric: bool, offset: float
) -> None:
    weight = (np.random.default_rng(seed).standard_normal((depth, columns)) + offset).astype(np.float32)
    numbers, scales, *zeros = quantise_weights(weight, bits, group, symmetric)
    groups = -(-depth // group)
    assert numbers.shape == (groups, group * bits // 8, columns) and numbers.dtype == np.uint8
    assert scales.shape == (groups, columns) and len(zeros) == (not symmetric)
    found = dequantise({"bits": bits, "k": depth}, numbers, scales, *zeros)
    for g in range(groups):
        part = slice(g * group, (g + 1) * group)
        exact, power = weight[part], ((found[part] - weight[part]) ** 2).sum(0)
        # Rounding the whole range, without clipping, is always among the choices.
        low, high = np.minimum(exact.min(0), 0), np.maximum(exact.max(0), 0)
        top = (1 << bits) - 1
        step = np.maximum(-low / (1 << (bits - 1)), high / (top // 2)) if symmetric else (high - low) / top
        assert (power <= len(exact) * step**2 * (0.26 if symmetric else 1.01) + 1e-9).all()


@pytest.mark.parametrize("symmetric", [True, False])
def test_weights_that_are_multiples_are_exact(symmetric: bool) -> None:
    whole = np.random.default_rng(0).integers(-8, 8, (64, 5)).astype(np.float32)
    whole[::32] = -8
    whole[1::32] = 7
    numbers, scales, *zeros = quantise_weights(whole / 4, 4, 32, symmetric)
    np.testing.assert_array_equal(dequantise({"bits": 4, "k": 64}, numbers, scales, *zeros), whole / 4)
    np.testing.assert_array_equal(scales, np.full((2, 5), 0.25, np.float32))


def test_zeros_stand_for_zero() -> None:
    weight = np.zeros((32, 3), np.float32)
    for symmetric in (True, False):
        assert not dequantise({"bits": 4, "k": 32}, *quantise_weights(weight, 4, 16, symmetric)).any()


def two_products() -> Graph:
    """A product, a relu and a product; another of two computed values; and one with the weight of the second."""
    rng = np.random.default_rng(0)
    builder = GraphBuilder("two", {"x": TensorType((3, 40)), "z": TensorType((3, 50))})
    first, second = (
        builder.constant(rng.standard_normal(shape).astype(np.float32), name)
        for name, shape in (("first", (40, 50)), ("second", (50, 20)))
    )
    hidden = builder.add("relu", [builder.add("matmul", ["x", first], "one")], "hidden")
    out = builder.add("matmul", [hidden, second], "two")
    again = builder.add("matmul", ["z", second], "three")
    turned = builder.add("transpose", [again], "turned", axes=(1, 0))
    return builder.finish([out, builder.add("matmul", [out, turned], "scores")])


def test_products_with_constant_weights_are_quantised() -> None:
    graph = two_products()
    found = quantise_weights_only(graph, "weights8", Quantisation(group=16))
    assert [node.op for node in found.graph.nodes].count("matmul_nbits") == found.layers == 3
    scores = found.graph.node("scores")
    assert scores is not None and scores.op == "matmul"
    assert {str(kind) for kind in found.formats.values()} == {"int8 by 16"}
    # The second and the third product share their weights still.
    assert sum(array.dtype == np.uint8 for array in found.graph.constants.values()) == 2
    feeds = [{n: np.random.default_rng(1).standard_normal(k.shape).astype(np.float32) for n, k in graph.inputs.items()}]
    accuracy = measure_accuracy(graph, found, feeds)
    assert accuracy.decibels > 35 and accuracy.storage == "weights8"
    assert all(layer.decibels > 35 for layer in accuracy.layers) and "3 layers in weights8" in accuracy.table()
    exact, ours = (evaluate(g, feeds[0])[g.outputs[0]] for g in (graph, found.graph))
    assert not np.array_equal(exact, ours)


def test_activations_may_be_rounded() -> None:
    graph = two_products()
    found = quantise_weights_only(graph, "weights8", Quantisation(group=16, activations="bytes"))
    assert [node.op for node in found.graph.nodes].count("dynamic_matmul") == found.layers == 3
    rng = np.random.default_rng(1)
    feeds = {name: rng.standard_normal(kind.shape).astype(np.float32) for name, kind in graph.inputs.items()}
    floats = quantise_weights_only(graph, "weights8", Quantisation(group=16))
    # Of a product: a second one would enlarge what the first loses.
    exact, bytes_, whole = (evaluate(g, feeds)[g.outputs[0]] for g in (graph, found.graph, floats.graph))
    errors = [np.sqrt(np.mean((ours - exact) ** 2) / np.mean(exact**2)) for ours in (whole, bytes_)]
    assert errors[0] < errors[1] < 0.02


def test_options() -> None:
    graph = two_products()
    found = quantise_weights_only(
        graph, "weights4", Quantisation(group=None, symmetric=False, last=False, floats=["one"])
    )
    assert dict(found.left_float) == {"one": "so the options say", "three": "the last layer"}
    assert [str(kind) for kind in found.formats.values()] == ["int4 by 56"]
    node = found.graph.node(found.names["two"])
    assert node is not None and len(node.inputs) == 4


def test_what_is_refused() -> None:
    graph = two_products()
    with pytest.raises(ValueError, match=r"`floats` must be layers of two \(one, two, three\), but got 'scores'"):
        quantise_weights_only(graph, "weights4", Quantisation(floats=["scores"]))
    builder = GraphBuilder("none", {"x": TensorType((2, 3))})
    with pytest.raises(GraphError, match="must have a product with constant weights, but none has none"):
        quantise_weights_only(builder.finish([builder.add("relu", ["x"])]), "weights8")
    model = bert_base.build(layers=1, hidden=16, heads=2, sequence=4, vocabulary=20)
    with pytest.raises(ConfigError, match="quantise"):
        autotune.compile(model, quantise="weights3")
    with pytest.raises(ConfigError, match="group"):
        autotune.compile(model, quantise="weights4", quantisation={"group": 4})
    with pytest.raises(ConfigError, match="activations"):
        autotune.compile(model, quantise="weights4", quantisation={"activations": "words"})
    with pytest.raises(ConfigError, match="must be int8 or None beside mixed precision, but got quantise='weights4'"):
        autotune.compile(model, quantise="weights4", precision="mixed", cache="none")


def test_a_network_is_compiled_saved_and_loaded(tmp_path: Path) -> None:
    model = bert_base.build(layers=1, hidden=32, heads=2, sequence=8, vocabulary=30)
    tokens = np.arange(8)[None]
    exact = autotune.compile(model, cache="none")(tokens)
    for quantise, least in (("weights8", 38.0), ("weights4", 15.0)):
        network = autotune.compile(model, quantise=quantise, cache="none")
        found = network(tokens)
        assert least < 10 * np.log10(np.sum(exact**2) / np.sum((found - exact) ** 2)) < 70
        network.save(tmp_path / quantise)
        np.testing.assert_array_equal(autotune.load(tmp_path / quantise)(tokens), found)


def open_rows() -> onnx.ModelProto:
    """A product with a bias and a relu, of rows that are left open."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((64, 48)), "b": rng.standard_normal(48)}
    constants = [onnx.numpy_helper.from_array(a.astype(np.float32), name) for name, a in weights.items()]
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "w"], ["p"]),
        onnx.helper.make_node("Add", ["p", "b"], ["s"]),
        onnx.helper.make_node("Relu", ["s"], ["y"]),
    ]
    x, y = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", width])
        for name, width in (("x", 64), ("y", 48))
    )
    graph = onnx.helper.make_graph(nodes, "rows", [x], [y], constants)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


def test_sizes_may_be_open() -> None:
    model = open_rows()
    rows = {"shapes": {"x": ["n", 64]}, "sizes": {"n": (1, 40)}}
    network = autotune.compile(model, quantise="weights4", quantisation={"group": 16}, cache="none", **rows)
    exact = autotune.compile(model, cache="none", **rows)
    for count in (1, 7, 40):
        x = np.random.default_rng(count).standard_normal((count, 64)).astype(np.float32)
        wanted, found = exact(x), network(x)
        assert 15 < 10 * np.log10(np.sum(wanted**2) / np.sum((found - wanted) ** 2)) < 40


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(
    ("size", "bits", "dtype"),
    [(1.0, 4, "float16"), (1.0, 8, "float32"), (1e-5, 4, "float32"), (1e6, 4, "float32"), (0.0, 4, "float16")],
)
def test_scales_of_few_bits_are_halves_where_these_hold_them(
    size: float, bits: int, dtype: str, symmetric: bool
) -> None:
    weight = (np.random.default_rng(0).standard_normal((64, 7)) * size).astype(np.float32)
    numbers, scales, *zeros = quantise_weights(weight, bits, 32, symmetric)
    assert scales.dtype == dtype
    assert (scales > 0).all() and np.isfinite(scales).all()
    found = dequantise({"bits": bits, "k": 64}, numbers, scales, *zeros)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, weight, atol=0.5 * size)
