"""Gradients of graph operations: against autograd in float64, through the graph that reverse mode adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from autotune.graph.errors import GraphError
from autotune.graph.evaluate import evaluate
from autotune.graph.gradient.reverse import add_gradients
from autotune.graph.ir import GraphBuilder, TensorType
from autotune.graph.ops import OPS, find
from search_space.operators.functions import BINARY, UNARY
from tests.search_space.gradient import float64

Attrs = Mapping[str, Any]
SAME = ((3, 4),)
OPERATIONS: list[tuple[str, Attrs, Sequence[tuple[int, ...]]]] = [
    *((name, {}, SAME) for name in UNARY),
    *((name, {}, ((3, 4), (3, 4))) for name in BINARY),
    *((name, {}, ((2, 3, 4), (3, 1))) for name in ("add", "subtract", "multiply", "divide", "maximum")),
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
    ("depthwise_conv2d", {"stride": 2, "padding": 1}, ((2, 6, 6, 3), (3, 3, 3))),
    ("conv2d_transpose", {"stride": 2, "padding": 1}, ((1, 4, 4, 2), (3, 3, 2, 3))),
    ("max_pool2d", {}, ((1, 6, 6, 2),)),
    ("avg_pool2d", {"kernel": 3, "stride": 2, "padding": 1}, ((1, 6, 6, 2),)),
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
    (derivative,) = (node for node in graph.nodes if node.op == "derivative")
    assert limited in derivative.inputs and "x" not in derivative.inputs
    tensor = torch.from_numpy(x).requires_grad_()
    functions = {"relu": torch.relu, "relu6": lambda t: torch.nn.functional.hardtanh(t, 0.0, 6.0)}
    functions.get(op, lambda t: torch.nn.functional.hardtanh(t, -1.0, 2.0))(tensor).sum().backward()
    np.testing.assert_array_equal(evaluate(graph, {"x": x})[gradients["x"]], tensor.grad)
