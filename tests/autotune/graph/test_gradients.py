"""Gradients of graph operations: against autograd in float64, through the graph that reverse mode adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from autotune.graph.errors import GraphError
from autotune.graph.evaluate import evaluate
from autotune.graph.gradient.reverse import add_gradients
from autotune.graph.ir import GraphBuilder, TensorType
from autotune.graph.ops import OPS, find
from autotune.graph.passes import optimise
from search_space.operators.functions import BINARY, UNARY
from tests.search_space.gradient import float64

Attrs = Mapping[str, Any]
SAME = ((3, 4),)
OPERATIONS: list[tuple[str, Attrs, Sequence[tuple[int, ...]]]] = [
    *((name, {}, SAME) for name in UNARY),
    *((name, {}, ((3, 4), (3, 4))) for name in BINARY),
    *((name, {}, ((2, 3, 4), (3, 1))) for name in ("add", "subtract", "multiply", "divide", "maximum")),
    *((name, {}, ((1, 2, 3), (2, 3))) for name in ("add", "subtract", "multiply", "divide")),
    ("affine", {}, ((3, 4), (4,), (4,))),
    ("clip", {"low": -0.5, "high": 0.5}, SAME),
    ("power", {}, ((3, 4), (1,))),
    ("reshape", {"shape": (2, 6)}, SAME),
    ("transpose", {"axes": (2, 0, 1)}, ((2, 3, 4),)),
    ("broadcast_to", {"shape": (2, 3, 4)}, ((3, 1),)),
    ("concat", {"axis": 1}, ((3, 2), (3, 4))),
    ("slice", {"begin": (0, 3), "size": (2, 2), "step": (1, -2)}, ((3, 5),)),
    ("pad", {"before": (1, 0), "after": (0, 2)}, SAME),
    *(("reduce", {"axes": (0, 2), "reducer": r}, ((2, 3, 4),)) for r in ("sum", "mean", "pivoted_mean", "max", "prod")),
    ("softmax", {}, SAME),
    ("log_softmax", {}, SAME),
    ("layer_norm", {}, ((3, 4), (4,), (4,))),
    ("matmul", {}, ((3, 4), (4, 5))),
    ("batch_matmul", {}, ((2, 3, 4), (2, 4, 5))),
    ("conv2d", {"stride": 2, "padding": 1}, ((2, 5, 6, 3), (3, 3, 3, 4))),
    ("conv2d", {"padding": 1, "groups": 2}, ((1, 5, 5, 4), (3, 3, 2, 6))),
    ("conv1d", {"stride": 2, "padding": 1}, ((2, 9, 3), (3, 3, 4))),
    ("conv3d", {"padding": 1, "stride": (1, 2, 1)}, ((1, 3, 5, 4, 17), (3, 3, 3, 17, 3))),
    ("conv2d", {"stride": 2, "padding": ((1, 2), (0, 1))}, ((1, 7, 8, 18), (3, 3, 18, 17))),  # phases of the data
    ("conv2d", {"stride": 2, "padding": ((2, 0), (1, 3)), "dilation": 2}, ((1, 7, 8, 18), (3, 3, 18, 17))),
    ("conv2d", {"stride": 2}, ((2, 6, 6, 3), (2, 2, 3, 40))),  # windows tile the data
    ("conv2d", {"padding": ((0, 1), (2, 0))}, ((1, 4, 4, 18), (3, 3, 18, 40))),  # a product for each tap
    ("conv2d", {}, ((1, 2, 2, 40), (1, 1, 40, 50))),  # weights larger than the data
    ("conv2d", {"padding": 4}, ((1, 10, 10, 2), (9, 9, 2, 3))),  # large windows
    ("conv2d", {"groups": 3, "stride": 2, "dilation": 2, "padding": 3}, ((1, 9, 9, 6), (3, 3, 2, 6))),
    ("conv2d", {"groups": 2, "stride": 2, "dilation": 3, "padding": ((4, 5), (5, 4))}, ((1, 5, 4, 4), (2, 2, 2, 4))),
    ("conv2d", {"groups": 2, "padding": 3}, ((1, 4, 4, 4), (2, 2, 2, 4))),  # windows in the padding alone
    ("depthwise_conv2d", {"padding": 1}, ((2, 5, 5, 3), (3, 3, 3))),
    ("depthwise_conv2d", {"stride": 2, "padding": 1}, ((2, 6, 6, 3), (3, 3, 3))),
    ("conv2d_transpose", {"stride": 2, "padding": 1}, ((1, 4, 4, 2), (3, 3, 2, 3))),
    ("max_pool2d", {}, ((1, 6, 6, 2),)),
    ("max_pool2d", {"kernel": 3, "stride": 2, "padding": ((1, 0), (1, 1))}, ((1, 7, 6, 2),)),
    ("avg_pool2d", {"kernel": 3, "stride": 2, "padding": 1}, ((1, 6, 6, 2),)),
    ("avg_pool2d", {"kernel": 3, "stride": 2, "padding": ((1, 0), (0, 1)), "count_padding": True}, ((1, 7, 6, 2),)),
    ("avg_pool2d", {}, ((1, 6, 6, 2),)),
    ("cumsum", {"axis": 1}, SAME),
    ("rms_norm", {}, ((3, 4), (4,))),
]


CASES = [case for case in OPERATIONS if case[0] in OPS]


@pytest.mark.parametrize(("op", "attrs", "shapes"), CASES, ids=lambda v: str(v)[:40])
def test_a_gradient_is_that_of_autograd(op: str, attrs: Attrs, shapes: Sequence[tuple[int, ...]]) -> None:
    rng = np.random.default_rng(0)
    low = 0.3 if op in ("log", "sqrt", "rsqrt", "power", "log1p") else -1.5
    arrays = {f"x{i}": rng.uniform(low, 2, shape).astype(np.float32) for i, shape in enumerate(shapes)}
    builder = GraphBuilder("g", {name: TensorType(array.shape) for name, array in arrays.items()})
    output = builder.add(op, list(arrays), **attrs)
    kind = builder.type(output)
    weights = rng.uniform(-1, 1, kind.shape).astype(np.float32)
    weighted = builder.add("multiply", [output, builder.constant(weights)])
    row = builder.add("reshape", [weighted], shape=(1, kind.size))
    loss = builder.add("reduce", [row], axes=(1,), reducer="sum")
    graph = builder.finish([loss])
    gradients = add_gradients(builder, graph, loss, list(arrays))
    values = evaluate(builder.finish(gradients.values()), arrays)

    operation, node = find(op), graph.node(output)
    assert node is not None
    *inputs, result = operation.tensors(node.attrs, [graph.type(name) for name in arrays])
    leaves = {t.op: torch.from_numpy(a.astype(np.float64)) for t, a in zip(inputs, arrays.values(), strict=True)}
    wanted = float64.differentiate(result, inputs, torch.from_numpy(weights.astype(np.float64)), leaves)
    for name, right in zip(arrays, wanted, strict=True):
        actual = values[gradients[name]] if name in gradients else np.zeros(right.shape)
        np.testing.assert_allclose(actual, right.numpy(), rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("x", "y"), [([0.0, -2.0, 3.0, 0.0], [2.0, 2.0, 0.0, 0.0]), ([1.0, 4.0, 0.5, 2.0], [0.5, -1.0, 3.0, 1.0])]
)
def test_powers_have_the_gradients_of_pytorch(x: list[float], y: list[float]) -> None:
    leaves = [torch.tensor(values, requires_grad=True) for values in (x, y)]
    wanted = torch.autograd.grad(torch.pow(*leaves).sum(), leaves)
    builder = GraphBuilder("g", {"x": TensorType((4,)), "y": TensorType((4,))})
    row = builder.add("reshape", [builder.add("power", ["x", "y"])], shape=(1, 4))
    loss = builder.add("reduce", [row], axes=(1,), reducer="sum")
    gradients = add_gradients(builder, builder.finish([loss]), loss, ["x", "y"])
    with np.errstate(all="ignore"):
        values = evaluate(builder.finish(gradients.values()), {"x": np.float32(x), "y": np.float32(y)})
    np.testing.assert_allclose(values[gradients["x"]], wanted[0].numpy(), rtol=1e-5)
    if min(x) >= 0:
        np.testing.assert_allclose(values[gradients["y"]], wanted[1].numpy(), rtol=1e-5)


def gradient_of_sum(op: str, x: np.ndarray, **attrs: Any) -> np.ndarray:
    """The gradient of the sum of an operation's elements by its only input."""
    builder = GraphBuilder("g", {"x": TensorType(x.shape)})
    value = builder.add(op, ["x"], **attrs)
    row = builder.add("reshape", [value], shape=(1, builder.type(value).size))
    loss = builder.add("reduce", [row], axes=(1,), reducer="sum")
    gradients = add_gradients(builder, builder.finish([loss]), loss, ["x"])
    return evaluate(builder.finish(gradients.values()), {"x": x})[gradients["x"]]


def test_kinks_infinities_and_nan_have_the_gradients_of_pytorch() -> None:
    x = np.float32([-np.inf, -1, 0, 2, 6, 7, np.inf, np.nan])
    cases: list[tuple[str, Attrs, Any]] = [
        ("relu", {}, torch.relu),
        ("relu6", {}, nn.ReLU6()),
        ("clip", {"low": -1.0, "high": 2.0}, nn.Hardtanh(-1.0, 2.0)),
        ("clip", {"low": 0.0, "high": np.inf}, torch.relu),
    ]
    for op, attrs, function in cases:
        leaf = torch.tensor(x, requires_grad=True)
        (wanted,) = torch.autograd.grad(function(leaf).sum(), [leaf])
        np.testing.assert_array_equal(gradient_of_sum(op, x, **attrs), wanted.numpy(), err_msg=op)


def test_maxima_give_gradients_to_the_first_of_equal_elements_or_the_last_nan() -> None:
    x = np.float32([[1, 1, 0, -np.inf], [1, 0, -np.inf, 0], [np.nan, 2, np.inf, 1], [np.nan, 3, np.inf, 1]])
    leaf = torch.tensor(x.reshape(1, 1, 4, 4), requires_grad=True)
    (wanted,) = torch.autograd.grad(nn.functional.max_pool2d(leaf, 3, 1, 1).sum(), [leaf])
    found = gradient_of_sum("max_pool2d", x.reshape(1, 4, 4, 1), kernel=3, stride=1, padding=1)
    np.testing.assert_array_equal(found.reshape(4, 4), wanted.numpy().reshape(4, 4))


def test_gradients_that_are_equal_along_axes_are_broadcast_and_counted() -> None:
    builder = GraphBuilder("g", {"x": TensorType((2, 3, 4)), "bias": TensorType((3, 1))})
    total = builder.add("add", [builder.add("multiply", ["x", "x"]), "bias"])
    means = builder.add("reduce", [total], axes=(0, 1), reducer="mean")
    weights = np.float32([[1, 2, 3, 4]])
    row = builder.add("multiply", [builder.add("reshape", [means], shape=(1, 4)), builder.constant(weights)])
    loss = builder.add("reduce", [row], axes=(1,), reducer="sum")
    gradients = add_gradients(builder, builder.finish([loss]), loss, ["x", "bias"])
    arrays = {"x": np.arange(24, dtype=np.float32).reshape(2, 3, 4), "bias": np.zeros((3, 1), np.float32)}
    values = evaluate(builder.finish(gradients.values()), arrays)
    np.testing.assert_allclose(values[gradients["x"]], 2 * arrays["x"] * weights[0] / 6, rtol=1e-6)
    np.testing.assert_allclose(values[gradients["bias"]], np.full((3, 1), 10 / 3), rtol=1e-6)


def test_a_normalisation_over_the_batch_takes_two_sums_of_gradients() -> None:
    rng = np.random.default_rng(0)
    arrays = {"x": rng.standard_normal((4, 3, 5)), "scale": rng.standard_normal((3, 1)), "shift": np.zeros((3, 1))}
    arrays = {name: array.astype(np.float32) for name, array in arrays.items()}
    weights = rng.standard_normal((4, 3, 5)).astype(np.float32)
    builder = GraphBuilder("g", {name: TensorType(array.shape) for name, array in arrays.items()})

    def average(value: str, reducer: str) -> str:
        return builder.add("reshape", [builder.add("reduce", [value], axes=(0, 2), reducer=reducer)], shape=(1, 3, 1))

    epsilon = builder.constant(np.float32([1e-5]))
    centred = builder.add("subtract", ["x", average("x", "pivoted_mean")])
    variance = average(builder.add("multiply", [centred, centred]), "mean")
    normalised = builder.add("multiply", [centred, builder.add("rsqrt", [builder.add("add", [variance, epsilon])])])
    out = builder.add("add", [builder.add("multiply", [normalised, "scale"]), "shift"])
    row = builder.add("reshape", [builder.add("multiply", [out, builder.constant(weights)])], shape=(1, 60))
    loss = builder.add("reduce", [row], axes=(1,), reducer="sum")
    forward = builder.finish([loss])
    gradients = add_gradients(builder, forward, loss, list(arrays))
    graph = optimise(builder.finish(gradients.values()))
    assert sum(node.op == "reduce" for node in graph.nodes) == 4  # those of the forward graph, and two more
    leaves = {name: torch.tensor(array.astype(np.float64), requires_grad=True) for name, array in arrays.items()}
    flat = (leaves["scale"].reshape(3), leaves["shift"].reshape(3))
    normal = nn.functional.batch_norm(leaves["x"], None, None, *flat, training=True)
    wanted = torch.autograd.grad((normal * torch.tensor(weights.astype(np.float64))).sum(), list(leaves.values()))
    values = evaluate(graph, arrays)
    for name, value, right in zip(arrays, graph.outputs, wanted, strict=True):
        np.testing.assert_allclose(values[value], right.numpy(), rtol=1e-4, atol=1e-5, err_msg=name)


def test_rows_that_are_gathered_twice_have_both_gradients() -> None:
    table, indices = torch.randn(5, 3, requires_grad=True), torch.tensor([[4, 0], [4, -1]])
    weights = torch.randn(2, 2, 3)
    (table[indices] * weights).sum().backward()
    builder = GraphBuilder("g", {"table": TensorType((5, 3)), "at": TensorType((2, 2), "int64")})
    rows = builder.add("gather", ["table", "at"])
    weighted = builder.add("multiply", [rows, builder.constant(weights.numpy())])
    loss = builder.add("reduce", [builder.add("reshape", [weighted], shape=(1, 12))], axes=(1,), reducer="sum")
    gradients = add_gradients(builder, builder.finish([loss]), loss, ["table"])
    arrays = {"table": table.detach().numpy(), "at": indices.numpy()}
    values = evaluate(builder.finish(gradients.values()), arrays)
    assert table.grad is not None
    np.testing.assert_allclose(values[gradients["table"]], table.grad.numpy(), rtol=1e-6)


def test_what_has_no_gradient_is_named() -> None:
    builder = GraphBuilder("g", {"x": TensorType((4,)), "n": TensorType((2,), "int32")})
    ranks = builder.add("cast", [builder.add("ranks", ["x"], largest=True)], dtype="float32")
    loss = builder.add("reduce", [builder.add("reshape", [ranks], shape=(1, 4))], axes=(1,), reducer="sum")
    assert add_gradients(builder, builder.finish([loss]), loss, ["x"]) == {}
    with pytest.raises(GraphError, match=r"^`loss` must be a floating-point value of one .*, but got x: float32\[4\]$"):
        add_gradients(builder, builder.finish(["x"]), "x", ["x"])


@pytest.mark.parametrize(("op", "attrs"), [("relu", {}), ("relu6", {}), ("clip", {"low": -1.0, "high": 2.0})])
def test_the_gradient_of_a_limit_reads_the_limited_value(op: str, attrs: Attrs) -> None:
    x = np.array([[np.nan, -1.0, 0.0, 0.5, 2.0, 6.0, 7.0, np.inf, -np.inf]], np.float32)
    builder = GraphBuilder("net", {"x": TensorType(x.shape)})
    limited = builder.add(op, ["x"], **attrs)
    total = builder.add("reduce", [limited], axes=(1,), reducer="sum")
    gradients = add_gradients(builder, builder.finish([total]), total, ["x"])
    graph = builder.finish([gradients["x"]])
    (slope,) = (node for node in graph.nodes if node.op == "limited_slope")
    assert limited in slope.inputs and "x" not in slope.inputs
    tensor = torch.from_numpy(x).requires_grad_()
    functions = {"relu": torch.relu, "relu6": lambda t: torch.nn.functional.hardtanh(t, 0.0, 6.0)}
    functions.get(op, lambda t: torch.nn.functional.hardtanh(t, -1.0, 2.0))(tensor).sum().backward()
    np.testing.assert_array_equal(evaluate(graph, {"x": x})[gradients["x"]], tensor.grad)
