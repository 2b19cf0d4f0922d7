"""Activation functions: operations of graphs, and compositions that both importers share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autotune.graph.calls import Call
from autotune.graph.frontends.aten.registry import AtenCall, converts
from autotune.graph.frontends.onnx.importer import activations
from autotune.graph.frontends.onnx.importer.activations import with_number

_Convert = Callable[[Call], str]
_SHARED: dict[str, tuple[_Convert, str, dict[str, str]]] = {
    "leaky_relu.default": (activations.leaky_relu, "LeakyRelu", {"alpha": "negative_slope"}),
    "hardsigmoid.default": (activations.hard_sigmoid, "HardSigmoid", {}),
    "hardswish.default": (activations.hard_sigmoid, "HardSwish", {}),
    "mish.default": (activations.mish, "Mish", {}),
}
"""Overload → the composition, its name in ONNX, and the arguments here for its attributes there."""


@converts(*_SHARED)
def shared(call: AtenCall) -> str:
    """Converts to the compositions of simpler operations that ONNX import uses."""
    convert, op, names = _SHARED[call.op]
    attrs: dict[str, Any] = {name: call[argument] for name, argument in names.items()}
    if op == "HardSigmoid":
        attrs = {"alpha": 1 / 6, "beta": 0.5}
    return convert(call.shared(op, call.inputs[:1], **attrs))


@converts("gelu.default")
def gelu(call: AtenCall) -> str:
    """Computes GELU by the error function, or by tanh if requested."""
    return activations.gelu(call.shared("Gelu", call.inputs[:1], approximate=call["approximate"].encode()))


@converts("silu.default")
def silu(call: AtenCall) -> str:
    """Computes x * sigmoid(x)."""
    return call.add("silu", [call.value(0)])


@converts("elu.default")
def elu(call: AtenCall) -> str:
    """Computes scale * x for positive x, else scale * alpha * (exp(input_scale * x) - 1)."""
    x, alpha, scale, inside = call.value(0), call["alpha"], call["scale"], call["input_scale"]
    low = with_number(call, "minimum", x, 0.0)
    low = low if inside == 1 else with_number(call, "multiply", low, inside)
    low = call.add("expm1", [low])
    out = call.add("add", [call.add("relu", [x]), with_number(call, "multiply", low, alpha)])
    return out if scale == 1 else with_number(call, "multiply", out, scale)


@converts("softplus.default")
def softplus(call: AtenCall) -> str:
    """Computes log(1 + exp(beta * x)) / beta, or x if beta * x exceeds the threshold."""
    x, beta, threshold = call.value(0), call["beta"], call["threshold"]
    inside = x if beta == 1 else with_number(call, "multiply", x, beta)
    out = activations.add_softplus(call, inside)
    out = out if beta == 1 else with_number(call, "divide", out, beta)
    return call.add("where", [call.add("less", [call.scalar(threshold, x), inside]), x, out])


@converts("_prelu_kernel.default")
def parametric_relu(call: AtenCall) -> str:
    """Computes x for positive x, else slope * x; shapes broadcast."""
    return activations.parametric_relu(call.shared("PRelu", call.inputs[:2]))


@converts("log_sigmoid_forward.default", "log_sigmoid.default")
def log_sigmoid(call: AtenCall) -> str | list[str | None]:
    """Computes -softplus(-x)."""
    out = call.add("negative", [activations.add_softplus(call, call.add("negative", [call.value(0)]))])
    return out if call.op == "log_sigmoid.default" else [out, None]


@converts("glu.default")
def glu(call: AtenCall) -> str:
    """Multiplies the first half of an axis by the sigmoid of the second."""
    value, axis = call.value(0), call.axis()
    shape = call.shape(value)
    size = tuple(n // 2 if a == axis else n for a, n in enumerate(shape))
    halves = [
        call.add(
            "slice", [value], begin=tuple(at * size[axis] if a == axis else 0 for a in range(len(shape))), size=size
        )
        for at in (0, 1)
    ]
    return call.add("multiply", [halves[0], call.add("sigmoid", halves[1:])])


@converts("threshold_backward.default")
def gradient_of_relu(call: AtenCall) -> str:
    """Keeps gradients where a value is above a threshold or NaN.

    The value is the output, which the next layer needs, too. Gradients of `hardtanh` read its input and stay
    comparisons: PyTorch's partitioner computes what these read again, and keeps the operands of other operators.
    """
    call.require_same_type(0, 1)
    out = call.add("limited_slope", [call.value(0), call.value(1)], low=call["threshold"])
    return call.cast(out, call.result.dtype)
