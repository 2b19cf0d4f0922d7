"""Activation functions composed of simpler operations."""

from __future__ import annotations

import numpy as np

from autotune.graph.calls import Call
from autotune.graph.frontends.onnx.importer.registry import imports


def with_number(call: Call, op: str, value: str, number: int | float) -> str:
    """Adds a binary operation on a value and a constant."""
    return call.add(op, [value, call.scalar(number, value)])


def _above(call: Call, value: str) -> str:
    return call.add("relu", [value])


def _below(call: Call, value: str) -> str:
    return with_number(call, "minimum", value, 0.0)


@imports("LeakyRelu")
def leaky_relu(call: Call) -> str:
    """Computes x for positive x, else alpha * x."""
    x = call.value(0)
    slope = with_number(call, "multiply", _below(call, x), float(call.attrs.get("alpha", 0.01)))
    return call.add("add", [_above(call, x), slope])


@imports("PRelu")
def parametric_relu(call: Call) -> str:
    """Computes x for positive x, else slope * x."""
    x, slope, known, rank = call.value(0), call.value(1), call.array(1), len(call.type(0).shape)
    if set(call.shape(slope)[:-rank] if rank else call.shape(slope)) == {1}:  # it broadcasts to the data's shape
        slope = call.reshape(slope, call.shape(slope)[-rank:] if rank else ())
    if known is not None and np.isfinite(known).all():
        return call.add("add", [_above(call, x), call.add("multiply", [_below(call, x), slope])])
    # For an infinite or NaN slope, a product with 0 would be NaN.
    return call.add("where", [call.add("less", [call.scalar(0.0, x), x]), x, call.add("multiply", [x, slope])])


@imports("Elu", "Selu", "Celu")
def exponential(call: Call) -> str:
    """Computes gamma * x for positive x, else gamma * alpha * (exp(x / reach) - 1)."""
    x = call.value(0)
    alpha = float(call.attrs.get("alpha", 1.6732631921768188 if call.op == "Selu" else 1.0))
    low = _below(call, x)
    if call.op == "Celu":
        low = with_number(call, "divide", low, alpha)
    low = call.add("expm1", [low])
    out = call.add("add", [_above(call, x), with_number(call, "multiply", low, alpha)])
    gamma = float(call.attrs.get("gamma", 1.0507010221481323)) if call.op == "Selu" else 1.0
    return out if gamma == 1.0 else with_number(call, "multiply", out, gamma)


@imports("HardSigmoid", "HardSwish")
def hard_sigmoid(call: Call) -> str:
    """Computes alpha * x + beta clipped to [0, 1]; HardSwish multiplies that by x."""
    x = call.value(0)
    swish = call.op == "HardSwish"
    alpha, beta = (1 / 6, 0.5) if swish else (float(call.attrs.get("alpha", 0.2)), float(call.attrs.get("beta", 0.5)))
    gate = with_number(call, "add", with_number(call, "multiply", x, alpha), beta)
    gate = call.add("clip", [gate], low=0.0, high=1.0)
    return call.add("multiply", [x, gate]) if swish else gate


def add_softplus(call: Call, x: str) -> str:
    """Computes log(1 + exp(x)) without overflow, and without cancellation for small results."""
    small = call.add("exp", [call.add("negative", [call.add("abs", [x])])])
    return call.add("add", [_above(call, x), call.add("log1p", [small])])


@imports("Softplus")
def softplus(call: Call) -> str:
    """Computes log(1 + exp(x))."""
    return add_softplus(call, call.value(0))


@imports("Mish")
def mish(call: Call) -> str:
    """Computes x * tanh(softplus(x))."""
    x = call.value(0)
    return call.add("multiply", [x, call.add("tanh", [add_softplus(call, x)])])


@imports("Softsign")
def softsign(call: Call) -> str:
    """Computes x / (1 + |x|)."""
    x = call.value(0)
    return call.add("divide", [x, with_number(call, "add", call.add("abs", [x]), 1.0)])


@imports("Gelu")
def gelu(call: Call) -> str:
    """Computes GELU by the error function, or by tanh if requested."""
    x = call.value(0)
    return call.add("gelu" if call.attrs.get("approximate", b"none") == b"none" else "gelu_tanh", [x])


@imports("ThresholdedRelu")
def thresholded_relu(call: Call) -> str:
    """Computes x where it exceeds alpha, else 0."""
    x = call.value(0)
    chosen = call.add("less", [call.scalar(float(call.attrs.get("alpha", 1.0)), x), x])
    return call.add("where", [chosen, x, call.scalar(0.0, x)])
