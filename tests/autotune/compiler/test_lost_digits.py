"""Definitions that lose digits, infinities or signs where another form keeps them: kernels against float64."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import autotune
from autotune.graph.ir import Array

ANGLES = np.array([0.5, -3e4, 1e5, 1e6, 1e8, 2e9, -1e12, 3e38], np.float32)
SMALL = np.array([1e-10, -1e-10, -1e-4, -12.3392, -17.0, -20.0, -80.0, 3.0], np.float32)
ROWS = np.array([[0, -104, -200, 3], [1e4, 0, 1, 2], [-3, -3, -3, -3], [-np.inf, 0, 1, 2]], np.float32)
LARGE = np.array([8388609, -8388609, 8388611, 2.5, 0.49999997, -0.5, 1e30, -np.inf], np.float32)
DIVIDEND = np.array([1e8, 2147483648, 1, 5.5, -7, np.inf, 3, 6], np.float32)
DIVISOR = np.array([7, 3, 0.1, np.inf, 0.7, 2, 0, 0.2], np.float32)
EQUAL = np.full((1, 32, 9, 9), 101.3, np.float32)
"""Equal values of which a sum of 16 partial sums is rounded."""


def softplus(x: Array) -> Array:
    return np.logaddexp(0, x)


def elu(x: Array, alpha: float = 1.0) -> Array:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def log_softmax(x: Array) -> Array:
    shifted = x - x.max(1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(1, keepdims=True)))


def network(inputs: Mapping[str, Array], nodes: list[Any], constants: Mapping[str, Array]) -> onnx.ModelProto:
    """A model whose outputs are those of its nodes, which are named after them."""
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, a.shape) for name, a in inputs.items()]
    outputs = [helper.make_empty_tensor_value_info(node.output[0]) for node in nodes]
    fixed = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "digits", values, outputs, fixed)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_onnx_models_keep_their_digits() -> None:
    inputs = {
        "angle": ANGLES,
        "small": SMALL,
        "rows": ROWS,
        "large": LARGE,
        "a": DIVIDEND,
        "b": DIVISOR,
        "equal": EQUAL,
    }
    channels = {"scale": np.ones(32, np.float32), "shift": np.zeros(32, np.float32), "target": np.array([1, 2, 0, 3])}
    wide = {name: array.astype(np.float64) for name, array in inputs.items()}
    x, rows = wide["small"], wide["rows"]
    with np.errstate(all="ignore"):
        wanted = {
            "Sin": np.sin(wide["angle"]),
            "Cos": np.cos(wide["angle"]),
            "Tan": np.tan(wide["angle"]),
            "Softplus": softplus(x),
            "Mish": x * np.tanh(softplus(x)),
            "Elu": elu(x),
            "Selu": 1.0507010221481323 * elu(x, 1.6732631921768188),
            "Celu": elu(x),
            "LogSoftmax": log_softmax(rows),
            "ReduceLogSumExp": np.log(np.exp(rows - rows.max(1, keepdims=True)).sum(1)) + rows.max(1),
            "Loss": -log_softmax(rows)[range(4), channels["target"]],
            "Round": np.rint(LARGE),
            "Mod": np.fmod(DIVIDEND, DIVISOR),
        }
    one = {"Sin": "angle", "Cos": "angle", "Tan": "angle", "LogSoftmax": "rows", "Round": "large"}
    one |= dict.fromkeys(("Softplus", "Mish", "Elu", "Selu", "Celu"), "small")
    nodes = [helper.make_node(op, [name], [op]) for op, name in one.items()]
    nodes += [
        helper.make_node("Mod", ["a", "b"], ["Mod"], fmod=1),
        helper.make_node("ReduceLogSumExp", ["rows", "one"], ["ReduceLogSumExp"], keepdims=0),
        helper.make_node("SoftmaxCrossEntropyLoss", ["rows", "target"], ["Loss"], reduction="none"),
        helper.make_node("InstanceNormalization", ["equal", "scale", "shift"], ["Instance"]),
        helper.make_node("GroupNormalization", ["equal", "scale", "shift"], ["Group"], num_groups=2),
        helper.make_node("LayerNormalization", ["equal", "ones"], ["Layer"], axis=1),
    ]
    channels |= {"one": np.array([1]), "ones": np.ones((32, 9, 9), np.float32)}
    found = autotune.compile(network(inputs, nodes, channels), threads=1)(*inputs.values())
    named = dict(zip([node.output[0] for node in nodes], map(np.asarray, found), strict=True))
    for name, exact in wanted.items():
        np.testing.assert_allclose(named[name], exact, rtol=1e-6, err_msg=name)
    for name in ("Instance", "Group", "Layer"):
        assert np.abs(named[name]).max() <= 1e-4, name  # 316 times an error of the mean


def test_compiled_functions_keep_their_digits() -> None:
    torch = pytest.importorskip("torch")
    functional: Any = torch.nn.functional

    def several(x: Any, angle: Any, a: Any, b: Any, rows: Any, equal: Any) -> list[Any]:
        return [
            *(torch.log1p(x.abs()), functional.logsigmoid(-x), torch.exp2(100 * x.tanh()), torch.round(x, decimals=3)),
            *(torch.sin(angle), a // b, torch.remainder(a, b), torch.fmod(a, b), torch.log_softmax(rows, 1)),
            *(torch.var(equal, 1), functional.group_norm(equal, 2)),
        ]

    arrays = (SMALL, ANGLES, DIVIDEND, DIVISOR, ROWS, EQUAL)
    tensors = [torch.from_numpy(array.copy()) for array in arrays]
    torch._dynamo.reset()
    with torch.no_grad():
        run = torch.compile(several, backend="autotune", options={"threads": 1})
        *found, variance, normal = run(*tensors)
        wanted = several(*tensors)
    for place, (ours, eager) in enumerate(zip(found, wanted, strict=False)):
        np.testing.assert_allclose(ours.numpy(), eager.numpy(), rtol=2e-6, err_msg=str(place))
    assert variance.abs().max() == 0 and normal.abs().max() <= 1e-4


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_divisors_are_rounded_where_pytorch_rounds_them(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    torch._dynamo.reset()

    def several(x: Any) -> list[Any]:
        return [torch.fmod(x, 0.1), torch.remainder(x, 0.1), torch.floor_divide(x, 0.1)]

    x = torch.linspace(-3, 3, 99).to(getattr(torch, dtype))
    run = torch.compile(several, backend="autotune", options={"threads": 1})
    torch.testing.assert_close(run(x), several(x), rtol=0, atol=0)


def test_gradients_of_small_probabilities_are_finite() -> None:
    torch = pytest.importorskip("torch")
    torch._dynamo.reset()

    def loss(x: Any) -> Any:
        return torch.nn.functional.cross_entropy(x, torch.tensor([1, 0]))

    data = np.array([[0, -160, 3], [1, 2, 120]], np.float32)
    gradients = []
    for function in (loss, torch.compile(loss, backend="autotune", options={"training": True, "threads": 1})):
        x = torch.from_numpy(data.copy()).requires_grad_()
        value = function(x)
        value.backward()
        gradients.append((value.item(), x.grad.numpy()))
    assert math.isclose(gradients[1][0], gradients[0][0], rel_tol=1e-6)
    np.testing.assert_allclose(gradients[1][1], gradients[0][1], rtol=1e-5, atol=1e-7)
