"""Gradients of values that many nodes read: slices are joined, and so are products of matrices."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from autotune.graph.evaluate import evaluate
from autotune.graph.gradient.accumulation import add_up
from autotune.graph.gradient.reverse import add_gradients
from autotune.graph.ir import Graph, GraphBuilder, TensorType
from autotune.graph.passes import optimise


def add_loss(builder: GraphBuilder, values: list[str], rng: np.random.Generator) -> tuple[str, list[np.ndarray]]:
    """Adds a weighted sum of all elements of values; returns it and the weights."""
    parts, weights = [], []
    for value in values:
        kind = builder.type(value)
        weights.append(rng.uniform(-1, 1, kind.shape).astype(np.float32))
        weighted = builder.add("multiply", [value, builder.constant(weights[-1])])
        parts.append(builder.add("reshape", [weighted], shape=(1, kind.size)))
    joined = builder.add("concat", parts, axis=1)
    return builder.add("reduce", [joined], axes=(1,), reducer="sum"), weights


def differentiate(builder: GraphBuilder, loss: str, names: list[str]) -> Graph:
    """The graph of the gradients of a loss."""
    gradients = add_gradients(builder, builder.finish([loss]), loss, names)
    return builder.finish([gradients[name] for name in names])


def count_ops(graph: Graph) -> Counter[str]:
    return Counter(node.op for node in optimise(graph).nodes)


SLICES = st.tuples(st.integers(0, 1), st.integers(0, 5), st.integers(1, 6), st.sampled_from([1, 1, 1, 2, -1]))


@given(slices=st.lists(SLICES, min_size=1, max_size=5), reads_all=st.booleans())
def test_slices_of_any_kind_have_the_gradient_of_their_elements(
    slices: list[tuple[int, int, int, int]], reads_all: bool
) -> None:
    shape = (6, 7)
    builder = GraphBuilder("g", {"x": TensorType(shape)})
    places, values = [], ["x"] if reads_all else []
    for axis, begin, size, step in slices:
        indices = np.arange(begin, begin + size * step, step)
        indices = indices[(indices >= 0) & (indices < shape[axis])]
        starts, sizes, steps = [0, 0], list(shape), [1, 1]
        starts[axis], sizes[axis], steps[axis] = begin, len(indices), step
        places.append((slice(None),) * axis + (indices,))
        values.append(builder.add("slice", ["x"], begin=tuple(starts), size=tuple(sizes), step=tuple(steps)))
    loss, weights = add_loss(builder, values, np.random.default_rng(0))
    wanted = np.zeros(shape)
    for place, weight in zip(([slice(None)] if reads_all else []) + places, weights, strict=True):
        np.add.at(wanted, place, weight)
    graph = differentiate(builder, loss, ["x"])
    x = np.ones(shape, np.float32)
    np.testing.assert_allclose(evaluate(graph, {"x": x})[graph.outputs[0]], wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("parts", "concats"),
    [([(0, 2), (2, 3), (5, 1)], 1), ([(3, 3), (0, 2)], 1), ([(1, 2), (4, 1)], 1), ([(0, 3), (2, 4)], 0)],
    ids=["all of it", "a gap between", "gaps around", "overlapping"],
)
def test_parts_that_do_not_overlap_are_joined(parts: list[tuple[int, int]], concats: int) -> None:
    builder = GraphBuilder("g", {"x": TensorType((6, 4))})
    values = [builder.add("exp", [builder.add("slice", ["x"], begin=(b, 0), size=(n, 4))]) for b, n in parts]
    loss, _ = add_loss(builder, values, np.random.default_rng(0))
    ops = count_ops(differentiate(builder, loss, ["x"]))
    assert ops["concat"] == concats and (ops["gradient"] == 0) == bool(concats)


def unroll(x: Tensor, w: Tensor, u: Tensor) -> list[Tensor]:
    """The states of a recurrence h = tanh(x[t] w + h u)."""
    states = [torch.tanh(x[0] @ w)]
    for t in range(1, len(x)):
        states.append(torch.tanh(x[t] @ w + states[-1] @ u))
    return states


def test_steps_of_a_recurrence_share_one_product_for_the_gradient_of_a_weight() -> None:
    steps, rows, width = 5, 2, 16
    rng = np.random.default_rng(1)
    shapes = {"x": (steps, rows, width), "w": (width, width), "u": (width, width)}
    arrays = {name: rng.uniform(-0.5, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}
    builder = GraphBuilder("g", {name: TensorType(shape) for name, shape in shapes.items()})
    states: list[str] = []
    for t in range(steps):
        part = builder.add("slice", ["x"], begin=(t, 0, 0), size=(1, rows, width))
        total = builder.add("matmul", [builder.add("reshape", [part], shape=(rows, width)), "w"])
        if states:
            total = builder.add("add", [total, builder.add("matmul", [states[-1], "u"])])
        states.append(builder.add("tanh", [total]))
    loss, weights = add_loss(builder, states, rng)
    graph = differentiate(builder, loss, list(arrays))
    # forward: a product of x and one of h a step, but none of h in the first; backward: as many; one for each weight
    assert count_ops(graph)["matmul"] == 2 * (2 * steps - 1) + 2
    leaves = [torch.tensor(array.astype(np.float64), requires_grad=True) for array in arrays.values()]
    right = sum((h * torch.from_numpy(k)).sum() for h, k in zip(unroll(*leaves), weights, strict=True))
    assert isinstance(right, Tensor)
    values = evaluate(graph, arrays)
    for name, output, wanted in zip(arrays, graph.outputs, torch.autograd.grad(right, leaves), strict=True):
        np.testing.assert_allclose(values[output], wanted.numpy(), rtol=1e-5, atol=1e-6, err_msg=name)


def test_a_product_that_is_added_twice_counts_twice() -> None:
    builder = GraphBuilder("g", {"a": TensorType((8, 1)), "b": TensorType((1, 8))})
    product = builder.add("matmul", ["a", "b"])
    graph = builder.finish([add_up(builder, [product, product])])
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal(kind.shape).astype(np.float32) for kind in graph.inputs.values())
    np.testing.assert_allclose(evaluate(graph, {"a": a, "b": b})[graph.outputs[0]], 2 * a * b, rtol=1e-6)


@pytest.mark.parametrize("orders", [((0, 1), (0, 1)), ((0, 1), (1, 0)), ((1, 0), (1, 0))])
def test_products_of_factors_in_any_order_of_axes_are_joined(orders: tuple[tuple[int, int], ...]) -> None:
    builder = GraphBuilder("g", {"x": TensorType((8, 8)), "u": TensorType((8, 1)), "v": TensorType((8, 1))})
    products = [
        builder.add("transpose", [builder.add("matmul", ["x", name])], axes=axes)
        for name, axes in zip("uv", orders, strict=True)
    ]
    loss, (a, b) = add_loss(builder, products, np.random.default_rng(3))
    graph = differentiate(builder, loss, ["x"])
    rng = np.random.default_rng(4)
    arrays = {name: rng.standard_normal(kind.shape).astype(np.float32) for name, kind in graph.inputs.items()}
    wanted = a.reshape(8, 1) * arrays["u"].T + b.reshape(8, 1) * arrays["v"].T
    np.testing.assert_allclose(evaluate(graph, arrays)[graph.outputs[0]], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("inner", "is_joined"), [(4, True), (5, False)])
def test_products_are_joined_if_results_are_much_larger_than_factors(inner: int, is_joined: bool) -> None:
    shapes = {"a": (32, inner), "b": (inner, 32)}
    builder = GraphBuilder("g", {name: TensorType(shape) for name, shape in shapes.items()})
    values = [builder.add("matmul", ["a", "b"]) for _ in range(2)]
    graph = builder.finish([add_up(builder, values)])
    assert Counter(node.op for node in graph.nodes)["matmul"] == len(values) + is_joined


def test_a_stopped_value_that_is_a_parameter_stops_the_gradient() -> None:
    builder = GraphBuilder("g", {"x": TensorType((2, 3))})
    stopped = builder.add("stop_gradient", ["x"])
    loss, (a, b) = add_loss(builder, ["x", stopped], np.random.default_rng(5))
    graph = differentiate(builder, loss, ["x", stopped])
    values = evaluate(graph, {"x": np.ones((2, 3), np.float32)})
    for output, wanted in zip(graph.outputs, (a, b), strict=True):
        np.testing.assert_allclose(values[output], wanted, rtol=1e-6)
