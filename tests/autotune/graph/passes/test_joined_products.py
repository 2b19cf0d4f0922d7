"""Products of one row by several constants: which are joined, and that every value stays what it was."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.graph.decisions import Decisions
from autotune.graph.ir import Graph, GraphBuilder, TensorType
from autotune.graph.passes.joined_products import joined_products
from autotune.graph.quantise.weights import quantise_weights
from tests.autotune.graph.random_graphs import assert_equal_outputs

RNG = np.random.default_rng(0)


def draw(*shape: int) -> NDArray[np.float32]:
    """Weights or biases."""
    return RNG.standard_normal(shape, np.float32)


def make_layer(*widths: int, rows: int = 1, biases: tuple[bool, ...] = (), bits: int = 0, flat: bool = True) -> Graph:
    """Products of some rows of 64 with as many weights as there are widths; an exponential ends each."""
    b = GraphBuilder("layer", {"x": TensorType((rows, 64))})
    outs = []
    for i, width in enumerate(widths):
        weight = draw(64, width)
        if bits:
            constants = [b.constant(array) for array in quantise_weights(weight, bits, 32)]
            y = b.add("matmul_nbits", ["x", *constants], bits=bits)
        else:
            y = b.add("matmul", ["x", b.constant(weight)])
        if biases and biases[i]:
            bias = b.constant(draw(width) if flat else draw(1, width))
            y = b.add("add", [bias, y] if i % 2 else [y, bias])
        outs.append(b.add("exp", [y]))
    return b.finish(outs)


EXAMPLE = make_layer(16, 32)


def list_products(graph: Graph) -> list[int]:
    """Widths of the products."""
    return [node.type.shape[1] for node in graph.nodes if "matmul" in node.op]


@pytest.mark.parametrize("bits", [0, 4, 8])
def test_a_row_is_multiplied_once(bits: int) -> None:
    graph = make_layer(16, 48, 32, bits=bits)
    new = joined_products(graph, 64)
    assert list_products(new) == [96] and [n.op for n in new.nodes].count("slice") == 3
    assert_equal_outputs(new, graph)


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("biases", [(True, True, True), (True, False, True)], ids=["all", "some"])
def test_biases_of_all_are_joined(biases: tuple[bool, ...], flat: bool) -> None:
    graph = make_layer(16, 48, 32, biases=biases, flat=flat)
    new = joined_products(graph, 64)
    assert list_products(new) == [96]
    assert [n.op for n in new.nodes].count("add") == (1 if all(biases) else sum(biases))
    assert_equal_outputs(new, graph)


def test_many_rows_stay_apart() -> None:
    graph = make_layer(16, 32, rows=2)
    assert joined_products(graph) is graph


def test_graphs_of_one_network_are_alike_at_all_numbers_of_rows() -> None:
    for order in ((1, 5), (5, 1)):
        with Decisions().hold():
            news = {rows: joined_products(make_layer(16, 32, rows=rows, biases=(True, True))) for rows in order}
        assert list_products(news[1]) == list_products(news[5]) == ([48] if order[0] == 1 else [16, 32])
        for rows, new in news.items():
            assert new.inputs["x"].shape == (rows, 64) and all(new.type(name).shape[0] == rows for name in new.outputs)


def test_a_joined_product_of_several_rows_is_right() -> None:
    graph = make_layer(16, 32, rows=3, biases=(True, True))
    with Decisions().hold():
        joined_products(make_layer(16, 32, biases=(True, True)))
        new = joined_products(graph)
    assert list_products(new) == [48]
    assert_equal_outputs(new, graph)


def test_large_constants_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("autotune.graph.passes.joined_products"), "LARGEST", 64 * 48 * 4 - 1)
    graph = make_layer(16, 32)
    assert joined_products(graph) is graph


def test_unaligned_results_stay_apart() -> None:
    graph = make_layer(16, 17, 32, 20)
    assert list_products(joined_products(graph, 64)) == [48, 17, 20]
    assert list_products(joined_products(graph)) == [85]


def test_other_groups_other_inputs_and_computed_weights_stay_apart() -> None:
    b = GraphBuilder("g", {"x": TensorType((1, 64)), "y": TensorType((1, 64)), "w": TensorType((64, 16))})
    by_32, by_64 = ([b.constant(a) for a in quantise_weights(draw(64, 16), 4, group)] for group in (32, 64))
    outs = [b.add("matmul_nbits", ["x", *arrays], bits=4) for arrays in (by_32, by_64)]
    outs += [b.add("matmul", [name, b.constant(draw(64, 16))]) for name in ("x", "y")]
    outs.append(b.add("matmul", ["x", "w"]))
    graph = b.finish([b.add("exp", [name]) for name in outs])
    assert joined_products(graph).nodes == graph.nodes


def test_a_product_that_is_an_output_stays_one() -> None:
    b = GraphBuilder("g", {"x": TensorType((1, 64))})
    first, second, third = (b.add("matmul", ["x", b.constant(draw(64, 16))]) for _ in range(3))
    graph = b.finish([first, b.add("exp", [second]), b.add("exp", [third])])
    assert list_products(joined_products(graph)) == [16, 32]
    assert_equal_outputs(joined_products(graph), graph)


def test_a_product_that_is_added_to_itself_or_to_a_table() -> None:
    b = GraphBuilder("g", {"x": TensorType((1, 64))})
    first, second = (b.add("matmul", ["x", b.constant(draw(64, 16))]) for _ in range(2))
    graph = b.finish([b.add("add", [first, first]), b.add("add", [second, b.constant(draw(3, 16))])])
    assert list_products(joined_products(graph)) == [32]
    assert_equal_outputs(joined_products(graph), graph)


@pytest.mark.parametrize("quantise", [None, "weights8"])
def test_executables_compute_one_product(quantise: str | None) -> None:
    names = ("query", "key", "value")
    weights = {name: draw(64, 32) for name in names} | {f"{name}_bias": draw(32) for name in names}
    nodes = [helper.make_node("MatMul", ["x", name], [f"{name}_row"]) for name in names]
    nodes += [helper.make_node("Add", [f"{name}_row", f"{name}_bias"], [f"{name}_sum"]) for name in names]
    nodes += [helper.make_node("Softmax", [f"{name}_sum"], [f"{name}_out"]) for name in names]
    outputs = [helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, [1, 32]) for name in names]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64])]
    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    model = helper.make_model(
        helper.make_graph(nodes, "rows", inputs, outputs, initializers), opset_imports=[helper.make_opsetid("", 18)]
    )
    network = autotune.compile(model, threads=1, quantise=quantise)
    assert sum("matmul" in step["title"] for step in network.manifest["steps"]) == 1
    x = draw(1, 64)
    for name, found in network({"x": x}).items():
        sums = x @ weights[name.removesuffix("_out")] + weights[name.replace("_out", "_bias")]
        powers = np.exp(sums - sums.max())
        np.testing.assert_allclose(found, powers / powers.sum(), rtol=1e-5 if quantise is None else 0.2, atol=1e-5)
