"""Layers that only shift: a scalar model of them, how they are planned, and what whole networks lose."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Array, Graph, GraphBuilder, GraphError, TensorType, array_type
from autotune.graph.ops import find
from autotune.graph.passes import verify
from autotune.graph.quantise import (
    calibrate,
    quantise_shift,
    quantise_with_report,
    random_feeds,
    with_dot_products,
)
from autotune.graph.quantise.arithmetic import NotExact
from autotune.graph.quantise.formats import Signed, choose_format
from autotune.graph.quantise.shifting import plan_shift
from search_space.operators import evaluation
from tests.autotune.compiler.test_compile import choose_schedule
from tests.autotune.graph.nets import compile_graph, conv, residual, weight


def scalar_conv(
    data: Array, kernel: Array, bias: Array, stride: tuple[int, int], padding: tuple[int, int], shift: int, relu: bool
) -> Array:
    """One number after the other, in Python's integers."""
    (n, h, w, c), (kh, kw, _, k) = data.shape, kernel.shape
    (down, right), (top, left) = stride, padding
    rows, columns = (h + 2 * top - kh) // down + 1, (w + 2 * left - kw) // right + 1
    out = np.zeros((n, rows, columns, k), np.int8)
    for b, y, x, o in itertools.product(range(n), range(rows), range(columns), range(k)):
        total = 0
        for dy, dx, i in itertools.product(range(kh), range(kw), range(c)):
            row, column = y * down + dy - top, x * right + dx - left
            if 0 <= row < h and 0 <= column < w:
                total += int(data[b, row, column, i]) * int(kernel[dy, dx, i, o])
        value = total // 2**shift + int(bias[o])
        out[b, y, x, o] = max(0 if relu else -128, min(127, value))
    return out


def draw_inputs(rng: np.random.Generator, shape: tuple[int, ...], kernel: tuple[int, ...], shift: int) -> list[Array]:
    data = rng.integers(-128, 128, shape).astype(np.int8)
    weights = rng.integers(-127, 128, kernel).astype(np.int8)
    return [data, weights, rng.integers(-40, 40, kernel[-1]).astype(np.int32)]


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(0, 15),
    st.booleans(),
    st.sampled_from([(1, 1), (2, 1), (2, 2)]),
    st.sampled_from([(0, 0), (1, 0), (1, 1)]),
    st.sampled_from([(1, 1), (3, 3), (2, 3)]),
)
def test_a_convolution_is_the_scalar_one(
    seed: int, shift: int, relu: bool, stride: Any, padding: Any, window: Any
) -> None:
    rng = np.random.default_rng(seed)
    arrays = draw_inputs(rng, (int(rng.integers(1, 3)), 4, 5, 3), (*window, 3, 2), shift)
    operation, types = find("shift_conv2d"), [array_type(a) for a in arrays]
    given_attrs = {"stride": stride, "padding": padding, "shift": shift, "relu": relu}
    attrs = operation.attributes(given_attrs, types)
    wanted = scalar_conv(*arrays, stride, padding, shift, relu)
    np.testing.assert_array_equal(operation.evaluate(attrs, arrays), wanted)
    np.testing.assert_array_equal(evaluation.evaluate(operation.tensors(attrs, types), arrays), wanted)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 15), st.booleans())
def test_a_product_of_matrices_is_a_convolution_of_one_place(seed: int, shift: int, relu: bool) -> None:
    data, weights, bias = draw_inputs(np.random.default_rng(seed), (3, 1, 1, 7), (1, 1, 7, 5), shift)
    arrays = [data.reshape(3, 7), weights.reshape(7, 5), bias]
    operation, types = find("shift_matmul"), [array_type(a) for a in arrays]
    attrs = operation.attributes({"shift": shift, "relu": relu}, types)
    wanted = scalar_conv(data, weights, bias, (1, 1), (0, 0), shift, relu).reshape(3, 5)
    np.testing.assert_array_equal(operation.evaluate(attrs, arrays), wanted)
    np.testing.assert_array_equal(evaluation.evaluate(operation.tensors(attrs, types), arrays), wanted)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(-9, -2), st.integers(-6, 0))
def test_a_planned_layer_is_near_the_floats(seed: int, source: int, output: int) -> None:
    """The error is within the cost of rounding weights, the bias and the result."""
    rng = np.random.default_rng(seed)
    weights, bias = rng.standard_normal((6, 4)) / 3, rng.standard_normal(4)
    data = rng.integers(-128, 128, (50, 6)).astype(np.int8)
    numbers = Signed.of(source).decode(data).astype(np.float64)
    try:
        planned = plan_shift(weights, Signed.of(source), Signed.of(output), bias)
    except NotExact as error:
        assert "must not be finer" in str(error)
        return
    found = (data.astype(np.int64) @ planned.weights >> planned.shift) + planned.bias
    step = 2.0 ** (output - planned.shift - source)  # of the weights
    room = np.abs(numbers).sum(1, keepdims=True) * max(step / 2, np.abs(weights - planned.weights * step).max())
    assert (np.abs(np.ldexp(found, output) - (numbers @ weights + bias)) <= room + 2.0**output * 1.001).all()
    assert 0 <= planned.shift <= 15


def test_what_flooring_drops_is_in_the_bias() -> None:
    """The average error of a layer is zero: the bias makes up for the half step that the shift drops."""
    rng = np.random.default_rng(0)
    weights, bias = rng.standard_normal((64, 512)) / 8, rng.standard_normal(512)
    data = rng.integers(-128, 128, (100, 64)).astype(np.int8)
    planned = plan_shift(weights, Signed.of(-6), Signed.of(-4), bias)
    sums = data.astype(np.int64) @ planned.weights
    exact = np.ldexp(sums.astype(float), -planned.shift) + np.ldexp(bias, 4)  # in steps
    off = (sums >> planned.shift) + planned.bias - exact
    assert planned.shift > 4 and abs(off.mean()) < 0.05 and np.abs(off).max() <= 1


def test_layers_that_cannot_be_are_refused() -> None:
    weights = np.full((4, 2), 0.5)
    with pytest.raises(NotExact, match="must not be finer than that of the sums, but it is by"):
        plan_shift(weights, Signed.of(3), Signed.of(-20), np.zeros(()))
    with pytest.raises(NotExact, match="sums must be at most"):
        plan_shift(weights, Signed.of(-6), Signed.of(-4), np.full(2, 2.0**30))
    with pytest.raises(NotExact, match="sums must be at most"):
        plan_shift(np.full((140_000, 1), 0.99), Signed.of(-6), Signed.of(0), np.zeros(()))
    coarse = plan_shift(weights * 2.0**-12, Signed.of(-10), Signed.of(0), np.zeros(()))
    assert coarse.shift == 15


def test_signed_formats_are_symmetric() -> None:
    values = np.array([-3.0, -1.0, 0.0, 1.0, 3.0], np.float32)
    for low in (-3.0, 0.0):
        format = choose_format(values[values >= low], low, 3.0, "max", signed=True)
        assert format == Signed.of(-5) and str(format) == "int8 * 2^-5" and format.dtype == "int8"
    assert Signed.of(-5).encode(values).tolist() == [-96, -32, 0, 32, 96]
    np.testing.assert_array_equal(Signed.of(-5).decode(Signed.of(-5).encode(values)), values)
    assert Signed.of(-8).encode(values).tolist() == [-128, -128, 0, 127, 127]


def test_a_network_on_the_cpu_is_its_evaluation(tmp_path: Path) -> None:
    graph = residual()
    found, accuracy = quantise_with_report(graph, mode="shift8")
    verify(found.graph)
    assert found.layers == 4 and list(found.left_float.values()) == ["the last layer, its output is read as floats"]
    assert not {node.op for node in found.graph.nodes} & {"conv2d"} and accuracy.decibels > 15
    stored = [node.name for node in found.graph.nodes if node.type.dtype == "int8"]
    assert len(stored) >= 6
    whole = Graph(
        "whole", found.graph.inputs, found.graph.constants, found.graph.nodes, (*graph_outputs(found), *stored)
    )
    executable = compile_graph(whole, choose_schedule, tmp_path / "network")
    for feed in random_feeds(graph.inputs, 7, 2):
        values = evaluate(found.graph, feed)
        for name, array in zip(whole.outputs, executable(*feed.values()), strict=True):
            if name in stored:
                np.testing.assert_array_equal(array, values[name], name)
            else:
                np.testing.assert_allclose(array, values[name], rtol=1e-5, atol=1e-6)


def graph_outputs(result: Any) -> tuple[str, ...]:
    outputs: tuple[str, ...] = result.graph.outputs
    return outputs


def test_it_loses_more_than_scales_a_channel_with_exact_biases() -> None:
    _, bytes_of_channels = quantise_with_report(residual(), mode="int8")
    _, shifting = quantise_with_report(residual(), mode="shift8")
    assert shifting.decibels < bytes_of_channels.decibels


def test_limits_inside_the_bytes_are_kept() -> None:
    """relu6 with a scale that reaches further than 6."""
    rng = np.random.default_rng(0)
    b = GraphBuilder("limits", {"x": TensorType((1, 6, 6, 4))})
    first = b.add("relu6", [conv(b, rng, "x", 3, 8)])
    graph = b.finish([conv(b, rng, b.add("relu", [conv(b, rng, first, 1, 8)]), 1, 4)])
    feed = {"x": (rng.standard_normal((1, 6, 6, 4)) * 9).astype(np.float32)}
    found = quantise_shift(graph, calibrate(graph, [feed]))
    (limited,) = [node for node in found.graph.nodes if node.op == "limit"]
    assert [found.graph.constants[name].tolist() for name in limited.inputs[1:]] == [[0], [96]]  # 6 / 2**-4
    assert evaluate(found.graph, feed)[limited.name].max() == 96


def test_groups_gaps_and_depthwise_layers_stay_in_floats() -> None:
    rng = np.random.default_rng(0)
    b = GraphBuilder("groups", {"x": TensorType((1, 9, 9, 8))})
    x = b.add("relu", [conv(b, rng, "x", 3, 8)])
    x = b.add("relu", [b.add("conv2d", [x, weight(b, rng, 1, 1, 4, 8)], groups=2)])
    x = b.add("relu", [b.add("conv2d", [x, weight(b, rng, 3, 3, 8, 8)], dilation=2)])
    x = b.add("relu", [b.add("depthwise_conv2d", [x, weight(b, rng, 3, 3, 8)])])
    graph = b.finish([conv(b, rng, b.add("relu", [conv(b, rng, x, 1, 8)]), 1, 4)])
    found, _ = quantise_with_report(graph, mode="shift8")
    reasons = list(found.left_float.values())
    assert reasons.count("its channels are in groups, or its window has gaps") == 3
    assert found.layers == 2 and list(found.left_float)[-1] == found.graph.nodes[-2].name


def test_bad_layers_are_refused() -> None:
    b = GraphBuilder("b", {"x": TensorType((1, 4, 4, 8), "int8"), "y": TensorType((1, 4, 4, 8))})
    kernel = b.constant(np.zeros((1, 1, 8, 4), np.int8))
    bias = b.constant(np.zeros(4, np.int32))
    for shift in (-1, 16, 1.0, True):
        with pytest.raises(GraphError, match="`shift` must be a whole number from 0 to 15, but got shift="):
            b.add("shift_conv2d", ["x", kernel, bias], shift=shift)
    with pytest.raises(GraphError, match="inputs must be int8, int8, int32, but got float32"):
        b.add("shift_conv2d", ["y", kernel, bias])
    with pytest.raises(GraphError, match="the bias must have 4 elements"):
        b.add("shift_conv2d", ["x", kernel, b.constant(np.zeros(3, np.int32))])
    with pytest.raises(GraphError, match="must share their channels"):
        b.add("shift_matmul", ["x", kernel, bias])
    with pytest.raises(GraphError, match="must have 6 dimensions"):
        b.add("conv2d_blocked", ["x", kernel, bias])


@pytest.mark.parametrize("channels", [3, 8])
def test_dot_products_of_the_cpu_give_the_same_bytes(channels: int) -> None:
    rng = np.random.default_rng(channels)
    b = GraphBuilder("b", {"x": TensorType((2, 7, 6, channels), "int8"), "rows": TensorType((5, channels), "int8")})
    bias = b.constant(rng.integers(-90, 90, 5).astype(np.int32))
    kernel = b.constant(rng.integers(-127, 128, (3, 2, channels, 5)).astype(np.int8))
    matrix = b.constant(rng.integers(-127, 128, (channels, 5)).astype(np.int8))
    conv = b.add("shift_conv2d", ["x", kernel, bias], stride=(2, 1), padding=((1, 0), (1, 1)), shift=9)
    relu = b.add("shift_conv2d", ["x", kernel, bias], shift=8, relu=True)
    graph = b.finish([conv, relu, b.add("shift_matmul", ["rows", matrix, bias], shift=6)])
    found = with_dot_products(graph)
    assert not [node for node in found.nodes if node.op.startswith("shift_")]
    assert {found.type(n.inputs[0]).shape[-1] % 4 for n in found.nodes if n.op in ("conv2d", "matmul")} == {0}
    feed = {name: rng.integers(-128, 128, kind.shape).astype(np.int8) for name, kind in graph.inputs.items()}
    wanted, values = evaluate(graph, feed), evaluate(found, feed)
    for old, new in zip(graph.outputs, found.outputs, strict=True):
        np.testing.assert_array_equal(values[new], wanted[old])
        assert len(np.unique(wanted[old])) > 3


def test_sums_that_an_offset_would_overflow_stay_as_they_are() -> None:
    b = GraphBuilder("b", {"x": TensorType((1, 4), "int8")})
    matrix = b.constant(np.ones((4, 1), np.int8))
    graph = b.finish([b.add("shift_matmul", ["x", matrix, b.constant(np.full(1, 2**20, np.int32))], shift=12)])
    assert [node.op for node in with_dot_products(graph).nodes] == ["shift_matmul"]
