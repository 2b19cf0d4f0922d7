"""Networks in int8: what the executable computes is what NumPy does, bit by bit, and close to the floats."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from autotune.config import Quantisation
from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Graph, GraphBuilder, GraphError, TensorType
from autotune.graph.partition import partition
from autotune.graph.passes import same_graph, verify
from autotune.graph.quantise import (
    Accuracy,
    QuantisedGraph,
    calibrate,
    measure_accuracy,
    quantise,
    quantise_with_report,
    random_feeds,
)
from tests.autotune.compiler.test_compile import choose_schedule
from tests.autotune.graph.nets import compile_graph, conv, residual, weight
from tests.autotune.graph.quantise.nets import make_mixed_layers


def quantise_graph(graph: Graph, options: Quantisation | None = None) -> tuple[QuantisedGraph, Accuracy]:
    return quantise_with_report(graph, 0, options)


def operations(graph: Graph) -> Counter[str]:
    return Counter(node.op for node in graph.nodes)


@pytest.mark.parametrize("make", [residual, make_mixed_layers])
def test_executables_compute_it_exactly(make: object, tmp_path: Path) -> None:
    graph = make()  # type: ignore[operator]
    quantised, _ = quantise_graph(graph)
    verify(quantised.graph)
    found = quantised.graph
    stored = [node.name for node in found.nodes if node.type.dtype in ("uint8", "int32")]
    stored = [name for name in stored if name in {group.output for group in partition(found)}]
    inexact = (
        set()
    )  # what depends on floats that are computed: a sum in another order may lie on the other side of a tie
    for node in found.nodes:
        computed = node.type.dtype == "float32" and node.op != "transpose"
        if computed or inexact & set(node.inputs):
            inexact.add(node.name)
    tolerance = 1e-5 if make is residual else 1e-2
    assert len(set(stored) - inexact) >= 6
    whole = Graph(found.name, found.inputs, found.constants, found.nodes, (*found.outputs, *stored))
    executable = compile_graph(whole, choose_schedule, tmp_path / "network")
    for feed in random_feeds(graph.inputs, 7, 3):
        values = evaluate(found, feed)
        arrays = executable(*feed.values())
        for name, array in zip(whole.outputs, arrays, strict=True):
            if name in stored and name not in inexact:
                np.testing.assert_array_equal(array, values[name], name)
            elif name in stored:
                assert np.abs(array.astype(int) - values[name]).max() <= 1, name
            else:
                np.testing.assert_allclose(array, values[name], rtol=tolerance, atol=tolerance / 10, err_msg=name)


def test_a_residual_block_is_a_kernel_a_layer() -> None:
    quantised, accuracy = quantise_graph(residual())
    assert quantised.layers == 5 and not quantised.left_float
    assert operations(quantised.graph)["conv2d"] == 4 and operations(quantised.graph)["quantise"] == 1
    titles = [group.title for group in partition(quantised.graph) if "conv2d" in group.title]
    assert sorted(titles) == ["conv2d+add_widened+requantise", *["conv2d+requantise"] * 3]
    between = [g.output for g in partition(quantised.graph)][:-2]
    assert {quantised.graph.type(name).dtype for name in between} == {"uint8"}
    assert accuracy.decibels > 25 and accuracy.rms_error < 0.06 and accuracy.max_error < 0.08


def test_everything_that_is_quantised_is_close() -> None:
    quantised, accuracy = quantise_graph(make_mixed_layers())
    assert quantised.layers == 7 and not quantised.left_float
    found = operations(quantised.graph)
    assert found["sum_pool2d"] == 2 and found["sigmoid"] == 1 and found["pad_with"] >= 1
    assert quantised.graph.type(quantised.names["concat"]).dtype == "uint8"
    assert accuracy.decibels > 20
    assert all(layer.decibels > 20 for layer in accuracy.layers), accuracy.table()


def test_the_ends_may_stay_in_floats() -> None:
    graph = residual()
    quantised, accuracy = quantise_graph(graph, Quantisation(first=False, last=False))
    assert quantised.layers == 3 and list(quantised.left_float.values()) == ["the first layer", "the last layer"]
    nodes = quantised.graph.nodes
    floats = [n for n in nodes if n.op in ("conv2d", "matmul") and n.type.dtype == "float32"]
    assert [n.op for n in floats] == ["conv2d", "matmul"]
    assert accuracy.decibels > quantise_graph(graph)[1].decibels
    assert partition(quantised.graph)[0].title == "conv2d+add+relu+quantise"


def test_a_scale_a_channel_is_better_where_channels_differ() -> None:
    rng = np.random.default_rng(0)
    b = GraphBuilder("b", {"x": TensorType((1, 6, 6, 16))})
    weight = rng.standard_normal((1, 1, 16, 16)) * 2.0 ** rng.integers(-4, 4, 16)
    y = b.add("conv2d", ["x", b.constant(weight.astype(np.float32))])
    y = b.add("conv2d", [y, b.constant((rng.standard_normal((1, 1, 16, 8)) / weight.std()).astype(np.float32))])
    graph = b.finish([y])
    one, each = (quantise_graph(graph, Quantisation(per_channel=flag))[1] for flag in (False, True))
    assert each.decibels >= one.decibels


def test_it_is_the_same_for_the_same_seed() -> None:
    first, second = quantise_graph(make_mixed_layers())[0].graph, quantise_graph(make_mixed_layers())[0].graph
    assert same_graph(first, second)


def test_a_layer_that_int32_does_not_hold_stays_in_floats() -> None:
    b = GraphBuilder("b", {"x": TensorType((1, 70000))})
    weight = np.full((70000, 4), 0.99, np.float32)
    y = b.add("relu", [b.add("matmul", ["x", b.constant(weight)])])
    y = b.add("matmul", [y, b.constant(np.ones((4, 4), np.float32))])
    quantised, _ = quantise_graph(b.finish([y]))
    assert quantised.layers == 1 and "sums must be at most" in quantised.left_float["matmul"]


def test_the_report_as_text_and_json() -> None:
    quantised, accuracy = quantise_graph(residual())
    plain = json.loads(json.dumps(accuracy.to_json()))
    assert plain["quantised_layers"] == 5 and len(plain["layers"]) == len(quantised.names)
    table = accuracy.table()
    assert f"top-1 agreement {accuracy.top1:.1%}" in table and all(layer.name in table for layer in accuracy.layers)


def test_a_graph_without_weights_is_refused() -> None:
    b = GraphBuilder("empty", {"x": TensorType((2, 3)), "y": TensorType((3, 2))})
    graph = b.finish([b.add("matmul", ["x", "y"])])
    calibration = calibrate(graph, random_feeds(graph.inputs, 0, 1))
    with pytest.raises(GraphError, match="must have a layer with constant weights, but empty has none"):
        quantise(graph, calibration)


def test_values_that_stay_in_floats_need_not_be_finite() -> None:
    """The values are those that a mask of attention leaves out: minus infinity before the softmax."""
    rng = np.random.default_rng(0)
    b = GraphBuilder("masked", {"x": TensorType((2, 6, 8))})
    scores = b.add("batch_matmul", ["x", b.add("transpose", ["x"], axes=(0, 2, 1))])
    mask = np.where(np.tri(6) > 0, 0, -np.inf).astype(np.float32)
    masked = b.add("reshape", [b.add("add", [scores, b.constant(mask)])], shape=(12, 6))
    weights = b.add("reshape", [b.add("softmax", [masked])], shape=(2, 6, 6))
    mixed_rows = b.add("reshape", [b.add("batch_matmul", [weights, "x"])], shape=(12, 8))
    graph = b.finish([b.add("matmul", [mixed_rows, weight(b, rng, 8, 5)])])
    feeds = random_feeds(graph.inputs, 0, 3)
    quantised = quantise(graph, calibrate(graph, feeds))
    assert quantised.layers == 1
    (name,) = graph.outputs
    out, wanted = evaluate(quantised.graph, feeds[0])[quantised.graph.outputs[0]], evaluate(graph, feeds[0])[name]
    assert np.isfinite(out).all() and np.abs(out - wanted).max() < 0.05 * np.abs(wanted).max()


def test_bad_calibrations_are_refused() -> None:
    graph = residual()
    with pytest.raises(ValueError, match="at least one set of inputs"):
        calibrate(graph, [])
    with pytest.raises(ValueError, match="values must be finite on the inputs of the calibration, but got 'x' in nan"):
        quantise(graph, calibrate(graph, [{"x": np.full((1, 8, 8, 16), np.nan, np.float32)}]))
    other = make_mixed_layers()
    with pytest.raises(GraphError, match="`calibration` must be of the graph to quantise"):
        quantise(graph, calibrate(other, random_feeds(other.inputs, 0, 1)))
    calibration = calibrate(graph, random_feeds(graph.inputs, 0, 1))
    with pytest.raises(ValueError, match="`method` must be one of"):
        quantise(graph, calibration, Quantisation().model_copy(update={"method": "median"}))
    with pytest.raises(ValueError, match="at least one set of inputs"):
        measure_accuracy(graph, quantise(graph, calibration), [])


def test_products_with_what_is_no_weight_stay_in_floats() -> None:
    rng = np.random.default_rng(0)
    b = GraphBuilder("b", {"x": TensorType((1, 4, 4, 8)), "y": TensorType((8, 8))})
    rows = b.add("reshape", [conv(b, rng, "x", 1, 8)], shape=(16, 8))
    quantised, _ = quantise_graph(b.finish([b.add("matmul", [rows, "y"])]))
    assert quantised.layers == 1
    assert next(n for n in quantised.graph.nodes if n.op == "matmul").type.dtype == "float32"


def alike(blocks: int) -> Graph:
    """Equal blocks of everything that has numbers of its own in bytes, on values of growing size and changing sign."""
    rng = np.random.default_rng(0)
    b = GraphBuilder("alike", {"image": TensorType((1, 6, 6, 16))})
    x, outputs = "image", []
    for _ in range(blocks):
        x = b.add("multiply", [x, b.constant(np.float32([1.7]))])
        x = b.add("add", [x, b.constant(np.float32([-0.9]))])
        signed = conv(b, rng, x, 3, 16, padding=1)  # padded with a zero
        limited = b.add("clip", [conv(b, rng, signed, 3, 16, padding=1)], low=-0.2, high=0.3)  # limits within a format
        joined = b.add("concat", [limited, conv(b, rng, signed, 1, 16)], axis=3)
        last = conv(b, rng, joined, 1, 16)
        x = b.add("sigmoid", [last])
        outputs.append(signed)  # read as floats and as bytes
    return b.finish([*outputs, x])


def test_equal_layers_on_different_scales_are_one_task() -> None:
    few, many = (quantise_graph(alike(blocks), Quantisation(least_decibels=0.0))[0] for blocks in (2, 4))
    found = operations(many.graph)
    assert min(found[op] for op in ("quantise", "dequantise", "limit", "pad_with")) >= 4
    assert len({(f.scale, f.zero) for f in many.formats.values()}) > 8
    keys = [{g.workload.key for g in partition(q.graph) if g.workload is not None} for q in (few, many)]
    assert keys[0] == keys[1]
