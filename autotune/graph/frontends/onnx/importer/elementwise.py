"""Element-wise operators and reductions."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from autotune.graph.calls import Call, Result
from autotune.graph.frontends.onnx.importer.activations import with_number
from autotune.graph.frontends.onnx.importer.registry import imports
from search_space.dtypes import is_float_exact, numpy_dtype
from search_space.ir.expr import FLOATS

_SAME = {
    "Relu": "relu",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "Exp": "exp",
    "Log": "log",
    "Sin": "sin",
    "Cos": "cos",
    "Round": "rint",
    "Erf": "erf",
    "Sqrt": "sqrt",
    "Abs": "abs",
    "Floor": "floor",
    "Neg": "negative",
    "Sub": "subtract",
    "Equal": "equal",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "And": "logical_and",
    "Or": "logical_or",
    "Xor": "logical_xor",
    "Not": "logical_not",
    "Where": "where",
}
_COMBINING_OPS = {"Add": "add", "Sum": "add", "Mul": "multiply", "Max": "maximum", "Min": "minimum"}


@imports(*_SAME)
def same(call: Call) -> str:
    """Converts operators that graphs have under another name."""
    return call.add(_SAME[call.op], [call.value(i) for i in range(len(call.inputs))])


@imports(*_COMBINING_OPS)
def combine(call: Call) -> str:
    """Combines two or more operands, from the left."""
    values = [call.value(i) for i in range(len(call.inputs))]
    return functools.reduce(lambda a, b: call.add(_COMBINING_OPS[call.op], [a, b]), values)


@imports("Identity", "Dropout")
def identity(call: Call) -> Sequence[Result]:
    """Returns its input; the mask of a Dropout is all true."""
    if call.op == "Dropout" and call.has(2):
        training = bool(call.require_array(2, "training_mode").reshape(-1)[0])
        call.require(not training, "must not be in training mode", "training_mode=1")
    # Before opset 10 the mask has the data's dtype.
    dtype = numpy_dtype(call.type(0).dtype) if call.context.opset < 10 else bool
    results: list[Result] = [call.value(0), np.ones(call.type(0).shape, dtype)]
    return results[: len(call.outputs)]


@imports("Clip")
def clip(call: Call) -> str:
    """Clips between two constants, which are attributes in old opsets."""
    ends: list[int | float] = []
    for place, name in ((1, "min"), (2, "max")):
        if call.has(place):
            ends.append(call.require_array(place, name).reshape(-1)[0].item())
        else:
            ends.append(call.attrs.get(name, -np.inf if name == "min" else np.inf))
    return clip_between(call, call.value(0), *ends)


def clip_between(call: Call, value: str, low: int | float, high: int | float) -> str:
    """Clips a value between two numbers of its dtype."""
    dtype = call.context.builder.type(value).dtype
    if dtype in FLOATS:
        return call.add("clip", [value], low=float(low), high=float(high))
    limits = np.iinfo(dtype)
    low, high = (min(max(end, int(limits.min)), int(limits.max)) for end in (low, high))
    if is_float_exact(low) and is_float_exact(high):
        return call.add("clip", [value], low=float(low), high=float(high))
    for op, end, unneeded in (("maximum", low, limits.min), ("minimum", high, limits.max)):
        if end != unneeded:
            value = with_number(call, op, value, end)
    return value
