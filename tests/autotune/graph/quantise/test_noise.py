"""Noise of quantised networks, beside the float ones: transformer blocks, outliers, layers that stay in floats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.config import Quantisation
from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Graph, GraphBuilder, TensorType
from autotune.graph.partition import partition
from autotune.graph.quantise import calibrate, quantise, quantise_with_report, random_feeds
from autotune.graph.quantise.formats import decibels
from autotune.graph.quantise.noise import layer_decibels
from autotune.graph.quantise.units import layers
from search_space.workloads import Workload
from tests.autotune.compiler.test_compile import choose_schedule
from tests.autotune.graph.nets import compile_graph, residual
from tests.autotune.graph.quantise.nets import transformer


def measure_decibels(graph: Graph, options: Quantisation | None = None) -> float:
    return quantise_with_report(graph, options=options)[1].decibels


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([1.0, 4.0, 50.0, 1000.0]))
def test_a_transformer_block_keeps_its_outputs_whatever_its_outliers(seed: int, outliers: float) -> None:
    graph = transformer(seed, outliers=outliers)
    kept, everything = (
        measure_decibels(graph),
        measure_decibels(graph, Quantisation().model_copy(update={"least_decibels": -100.0})),
    )
    assert kept > 27 and kept >= everything - 1 and (outliers < 50 or kept > everything + 5)


def test_the_residual_stream_and_the_attention_stay_in_floats() -> None:
    found, _ = quantise_with_report(transformer())
    assert found.layers == 6 and not found.left_float
    assert [node.op for node in found.graph.nodes].count("quantise") == 4  # three layers read one normalisation
    stored = {node.name for node in found.graph.nodes if node.type.dtype == "uint8"}
    readers = {node.op for node in found.graph.nodes if stored.intersection(node.inputs)}
    assert readers == {"matmul", "transpose", "reshape"}  # the two that bring the attention's heads together


def test_layers_behind_outliers_stay_in_floats() -> None:
    graph = transformer(outliers=1000.0)
    found, _ = quantise_with_report(graph)
    assert len(found.left_float) == 4 and found.layers == 2
    assert all(reason.startswith("its output would have") for reason in found.left_float.values())
    everything = Quantisation().model_copy(update={"least_decibels": -100.0})
    assert quantise_with_report(graph, options=everything)[0].layers == 6
    assert measure_decibels(graph, everything) < measure_decibels(graph) - 10


def test_a_limit_of_what_no_layer_keeps_leaves_all_in_floats() -> None:
    found, accuracy = quantise_with_report(transformer(), options=Quantisation(least_decibels=150.0))
    assert found.layers == 0 and len(found.left_float) == 6 and accuracy.decibels > 100


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_a_limit_that_is_no_number_is_refused(number: float) -> None:
    with pytest.raises(ValueError, match="`least_decibels` must be a finite number, but got"):
        Quantisation(least_decibels=number)


@pytest.mark.parametrize("graph", [residual(), transformer(1), transformer(2, outliers=30.0)], ids=lambda g: g.name)
def test_what_is_expected_of_a_layer_is_what_is_measured(graph: Graph) -> None:
    """Each layer alone, its data the float network's: the oracle is the layer on what the bytes stand for."""
    feeds = random_feeds(graph.inputs, 0, 4)
    calibration = calibrate(graph, feeds)
    values = evaluate(graph, feeds[0])
    for name in layers(graph):
        node = graph.node(name)
        assert node is not None
        source, weight = node.inputs
        data = values[source]
        b = GraphBuilder("one", {"x": TensorType(data.shape)})
        attrs = dict(node.attrs)
        one = b.finish([b.add(node.op, ["x", b.constant(graph.constants[weight])], **attrs)])
        options = Quantisation().model_copy(update={"least_decibels": -100.0})
        observed = calibrate(one, [{"x": evaluate(graph, feed)[source]} for feed in feeds])
        bytes_ = quantise(one, observed, options)
        exact, found = (evaluate(g, {"x": data})[g.outputs[0]].astype(np.float64) for g in (one, bytes_.graph))
        wanted = decibels(float((exact**2).sum()), float(((exact - found) ** 2).sum()))
        assert abs(layer_decibels(graph, node, calibration, "mse", True) - wanted) < 3


def test_an_executable_of_a_block_computes_it(tmp_path: Path) -> None:
    graph = transformer(3)
    found, accuracy = quantise_with_report(graph)
    executable = compile_graph(found.graph, choose_schedule, tmp_path / "network")
    (feed,) = random_feeds(graph.inputs, 9, 1)
    exact, wanted = (evaluate(g, feed)[g.outputs[0]] for g in (graph, found.graph))
    ours = executable(*feed.values())
    np.testing.assert_allclose(ours, wanted, atol=0.02 * np.abs(wanted).max())  # bytes at ties
    noise = float(((ours - exact).astype(np.float64) ** 2).sum())
    assert accuracy.decibels > 35 and decibels(float((exact.astype(np.float64) ** 2).sum()), noise) > 35


def test_a_byte_of_computed_floats_may_be_one_step_off_and_no_other() -> None:
    """A normalisation that ends in bytes: a float may lie on either side of a tie. Sums of bytes are exact."""
    groups = partition(quantise_with_report(transformer())[0].graph)
    rounded = [g for g in groups if g.workload is not None and g.workload.output.dtype == "uint8"]
    computed = [g for g in rounded if "layer_norm" in g.title or "gelu" in g.title or "batch_matmul" in g.title]
    assert len(computed) >= 3 and all(_tolerance(g.workload) == (0.0, 1.0) for g in computed)
    exact = [g for g in partition(quantise_with_report(residual())[0].graph) if "requantise" in g.title]
    assert exact and all(_tolerance(g.workload) == (0.0, 0.0) for g in exact)


def _tolerance(workload: Workload | None) -> tuple[float, float]:
    assert workload is not None
    return workload.tolerance
