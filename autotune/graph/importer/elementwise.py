"""Element-wise operators."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np
import onnx

from autotune.graph.importer.call import Call
from autotune.graph.importer.registry import IMPORTERS, imports
from search_space.ir.expr import FLOATS

SAME = {"Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "Exp": "exp", "Log": "log", "Erf": "erf"}
SAME |= {"Sqrt": "sqrt", "Abs": "abs", "Floor": "floor", "Neg": "negative", "Ceil": "ceil", "Round": "round"}
SAME |= {"Reciprocal": "reciprocal", "Softplus": "softplus", "Softsign": "softsign", "Mish": "mish", "Sign": "sign"}
SAME |= {"Not": "not", "IsNaN": "is_nan", "Sinh": "sinh", "Cosh": "cosh"}
"""Operators that are one graph operation with no attributes."""

WITH_ATTRIBUTES: Mapping[str, tuple[str, Mapping[str, tuple[str, float]]]] = {
    "LeakyRelu": ("leaky_relu", {"alpha": ("alpha", 0.01)}),
    "Elu": ("elu", {"alpha": ("alpha", 1.0)}),
    "Celu": ("celu", {"alpha": ("alpha", 1.0)}),
    "Selu": ("selu", {"alpha": ("alpha", 1.67326319217681884765625), "gamma": ("gamma", 1.05070102214813232421875)}),
    "HardSigmoid": ("hard_sigmoid", {"alpha": ("alpha", 0.2), "beta": ("beta", 0.5)}),
    "ThresholdedRelu": ("thresholded_relu", {"alpha": ("alpha", 1.0)}),
    "Shrink": ("shrink", {"bias": ("bias", 0.0), "limit": ("lambd", 0.5)}),
    "Swish": ("swish", {"alpha": ("alpha", 1.0)}),
}
"""Operators that are one graph operation: its name, and its attributes by ONNX name and default."""

BINARY = {"Add": "add", "Sub": "subtract", "Mul": "multiply", "PRelu": "prelu", "Equal": "equal", "Less": "less"}
BINARY |= {"LessOrEqual": "less_equal", "And": "and", "Or": "or", "Xor": "xor"}


def broadcast(call: Call, op: str, *inputs: str, **attrs: Any) -> str:
    """An operation on values; those of no dimensions get one where others have some."""
    values = list(inputs)
    if any(call.type_of(value).shape for value in values):
        values = [call.reshape(v, (1,)) if call.type_of(v).shape == () else v for v in values]
    return call.add(op, *values, **attrs)


def _same(call: Call) -> str:
    return call.add(SAME[call.op], call.value(0))


def _with_attributes(call: Call) -> str:
    op, names = WITH_ATTRIBUTES[call.op]
    return call.add(op, call.value(0), **{name: call.attr(given, default) for name, (given, default) in names.items()})


def _binary(call: Call) -> str:
    return broadcast(call, BINARY[call.op], call.value(0), call.value(1))


for _name in SAME:
    IMPORTERS[_name] = _same
for _name in WITH_ATTRIBUTES:
    IMPORTERS[_name] = _with_attributes
for _name in BINARY:
    IMPORTERS[_name] = _binary


@imports("Div")
def divide(call: Call) -> str:
    """Of whole numbers towards zero."""
    whole = call.type().dtype not in FLOATS
    return broadcast(call, "quotient" if whole else "divide", call.value(0), call.value(1))


@imports("Mod")
def mod(call: Call) -> str:
    """With the sign of the divisor."""
    call.require(not call.attr("fmod", 0), "must take the sign of the divisor", "fmod=1")
    return broadcast(call, "remainder", call.value(0), call.value(1))


@imports("Greater", "GreaterOrEqual")
def greater(call: Call) -> str:
    """The other way round."""
    op = "less" if call.op == "Greater" else "less_equal"
    return broadcast(call, op, call.value(1), call.value(0))


@imports("Where")
def where(call: Call) -> str:
    """The second input where the first holds, else the third."""
    return broadcast(call, "where", *call.values())


@imports("Sum", "Max", "Min", "Mean")
def variadic(call: Call) -> str:
    """One after the other."""
    op = {"Sum": "add", "Max": "maximum", "Min": "minimum", "Mean": "add"}[call.op]
    out = reduce(lambda left, right: broadcast(call, op, left, right), call.values())
    if call.op == "Mean" and call.count > 1:
        out = call.add("multiply", out, call.scalar(1 / call.count, out))
    return out


@imports("Clip")
def clip(call: Call) -> str:
    """Bounds are attributes before opset 11, inputs since then; each may be missing."""
    out = call.value(0)
    bounds: list[Any] = []
    for place, name in ((1, "min"), (2, "max")):
        if call.opset < 11:
            bounds.append(call.attr(name))
        else:
            array = call.known(place)
            bounds.append(call.value(place) if call.has(place) and array is None else array)
    low, high = (b.reshape(-1)[0] if isinstance(b, np.ndarray) else b for b in bounds)
    if call.type().dtype in FLOATS and not any(b is None or isinstance(b, str) for b in (low, high)):
        return call.add("clip", out, low=float(low), high=float(high))
    for bound, op in ((low, "maximum"), (high, "minimum")):
        if bound is not None:
            out = broadcast(call, op, out, bound if isinstance(bound, str) else call.scalar(bound, out))
    return out


@imports("Pow")
def power(call: Call) -> str:
    """A constant exponent of one element is an attribute."""
    call.require(call.type().dtype in FLOATS, "must raise floating-point numbers", str(call.type()))
    exponent = call.known(1)
    if exponent is not None and exponent.size == 1 and exponent.ndim <= len(call.shape()):
        return call.add("power", call.value(0), exponent=float(exponent.reshape(-1)[0]))
    power = call.value(1)
    if call.type(1).dtype != call.type().dtype:
        power = call.add("cast", power, dtype=call.type().dtype)
    return broadcast(call, "pow", call.value(0), power)


@imports("HardSwish")
def hard_swish(call: Call) -> str:
    """x * hard_sigmoid(x) (Howard et al., 2019)."""
    gate = call.add("hard_sigmoid", call.value(0), alpha=1 / 6, beta=0.5)
    return call.add("multiply", call.value(0), gate)


@imports("Gelu")
def gelu(call: Call) -> str:
    """Exact, or by tanh."""
    kind = call.attr("approximate", "none")
    call.require(kind in ("none", "tanh"), "must have approximate=none or tanh", f"approximate={kind!r}")
    return call.add("gelu" if kind == "none" else "gelu_tanh", call.value(0))


@imports("IsInf")
def is_inf(call: Call) -> str:
    """Of one sign, or of both."""
    out, value = call.add("is_infinite", call.value(0)), call.value(0)
    zero = call.scalar(0, value)
    if not call.attr("detect_positive", 1):
        out = call.add("and", out, broadcast(call, "less", value, zero))
    if not call.attr("detect_negative", 1):
        out = call.add("and", out, broadcast(call, "less", zero, value))
    return out


@imports("Cast", "CastLike")
def cast(call: Call) -> str:
    """Floating-point numbers towards zero."""
    if call.op == "CastLike":
        dtype = call.type(1).dtype
    else:
        dtype = str(onnx.helper.tensor_dtype_to_np_dtype(call.attr("to")))
    same = dtype == call.type().dtype
    return call.value(0) if same else call.add("cast", call.value(0), dtype=dtype)
