"""Element-wise operators: arithmetic, functions, comparisons, conversions."""

from __future__ import annotations

import math

import torch
from torch.fx import Node

from autotune.graph.frontends.aten.registry import AtenCall, AtenContext, converts
from autotune.graph.frontends.aten.tensors import dtype_name
from autotune.graph.frontends.onnx.importer import trigonometry
from autotune.graph.frontends.onnx.importer.integers import combine_bits
from autotune.graph.frontends.onnx.importer.selection import ceil, is_nan, power, sign_of_numbers
from autotune.graph.ops.base import STOP_GRADIENT
from search_space.dtypes import FLOATS, numpy_dtype
from search_space.ir.expr import BOOL, DTYPES

_UNARY = {
    "relu.default": "relu",
    "sigmoid.default": "sigmoid",
    "tanh.default": "tanh",
    "exp.default": "exp",
    "exp2.default": "exp2",
    "expm1.default": "expm1",
    "log.default": "log",
    "log1p.default": "log1p",
    "sin.default": "sin",
    "cos.default": "cos",
    "erf.default": "erf",
    "sqrt.default": "sqrt",
    "rsqrt.default": "rsqrt",
    "abs.default": "abs",
    "floor.default": "floor",
    "neg.default": "negative",
}
_BINARY = {
    "mul.Tensor": "multiply",
    "mul.Scalar": "multiply",
    "div.Tensor": "divide",
    "div.Scalar": "divide",
    "maximum.default": "maximum",
    "minimum.default": "minimum",
    "fmod.Tensor": "fmod",
    "fmod.Scalar": "fmod",
    "remainder.Tensor": "floor_mod",
    "remainder.Scalar": "floor_mod",
}
_OF_FLOATS = ("fmod", "floor_mod")
"""Operations on floats only: for integers PyTorch raises an error on zero divisors, and a kernel cannot."""
_SUM_OPS = {"add.Tensor": "add", "add.Scalar": "add", "sub.Tensor": "subtract", "sub.Scalar": "subtract"}
_COMPARISONS = {"eq": ("equal", False), "lt": ("less", False), "le": ("less_equal", False)}
_COMPARISONS |= {"gt": ("less", True), "ge": ("less_equal", True)}
_LOGIC = {"and": "logical_and", "or": "logical_or", "xor": "logical_xor"}


@converts(*_UNARY)
def unary(call: AtenCall) -> str:
    """Converts functions that graphs have under another name; integers are converted to floats."""
    return call.add(_UNARY[call.op], [call.operand(0, call.compute_dtype)])


@converts(*_BINARY)
def binary(call: AtenCall) -> str:
    """Converts operations with two operands, of which the second may be a number."""
    if call.compute_dtype == BOOL:
        call.require(_BINARY[call.op] == "multiply", "must compute numbers", call.result)
        return call.add("logical_and", [call.operand(0, BOOL), call.operand(1, BOOL)])
    divides = _BINARY[call.op] in _OF_FLOATS
    call.require(not divides or call.compute_dtype in FLOATS, "must divide floating-point values", call.result)
    operands = [call.operand(place, call.compute_dtype) for place in (0, 1)]
    if call.op == "fmod.Scalar":  # PyTorch rounds its number to the tensor's dtype, unlike that of `remainder`
        operands[1] = call.number(numpy_dtype(call.result.dtype).type(call["other"]), call.compute_dtype)
    return call.add(_BINARY[call.op], operands)


@converts(*_SUM_OPS)
def add_scaled(call: AtenCall) -> str:
    """Adds, or subtracts, the second operand times `alpha`."""
    call.require(call.compute_dtype != BOOL, "must compute numbers", call.result)
    left, right = call.operand(0, call.compute_dtype), call.operand(1, call.compute_dtype)
    if call["alpha"] != 1:
        right = call.add("multiply", [right, call.number(call["alpha"], call.compute_dtype)])
    return call.add(_SUM_OPS[call.op], [left, right])


@converts("rsub.Tensor", "rsub.Scalar")
def reversed_difference(call: AtenCall) -> str:
    """Subtracts `alpha` times the first operand from the second."""
    left, right = call.operand(0, call.compute_dtype), call.operand(1, call.compute_dtype)
    if call["alpha"] != 1:
        left = call.add("multiply", [left, call.number(call["alpha"], call.compute_dtype)])
    return call.add("subtract", [right, left])


@converts("div.Tensor_mode", "floor_divide.default")
def rounded_quotient(call: AtenCall) -> str:
    """Divides floats and rounds the quotient down or towards zero."""
    mode = "floor" if call.op == "floor_divide.default" else call["rounding_mode"]
    call.require(call.compute_dtype in FLOATS, "must divide floating-point values", call.result)
    operands = [call.operand(place, call.compute_dtype) for place in (0, 1)]
    if mode == "floor":
        return call.add("floor_divide", operands)
    out = call.add("divide", operands)
    if mode is None:
        return out
    up = call.add("negative", [call.add("floor", [call.add("negative", [out])])])
    down = call.add("floor", [out])
    return call.add("where", [call.add("less", [out, call.number(0.0, call.compute_dtype)]), up, down])


@converts(*(f"{name}.{kind}" for name in _COMPARISONS for kind in ("Tensor", "Scalar")), "ne.Tensor", "ne.Scalar")
def compare(call: AtenCall) -> str:
    """Compares two operands in their common dtype."""
    name = call.op.partition(".")[0]
    dtype = _common(call)
    sides = [call.operand(place, dtype) for place in (0, 1)]
    if name == "ne":
        return call.add("logical_not", [call.add("equal", sides)])
    op, swapped = _COMPARISONS[name]
    return call.add(op, sides[::-1] if swapped else sides)


def _common(call: AtenCall) -> str:
    """Returns the dtype to which PyTorch promotes two operands."""
    given = [v.meta["val"] if isinstance(v, Node) else v for v in list(call.arguments.values())[:2]]
    dtype = dtype_name(torch.result_type(*given))
    call.require(dtype in DTYPES, f"must compare {', '.join(DTYPES)}", dtype)
    return "int32" if dtype == BOOL else dtype


@converts(
    *(f"logical_{name}.default" for name in _LOGIC),
    *(f"bitwise_{name}.{kind}" for name in _LOGIC for kind in ("Tensor", "Scalar")),
)
def logic(call: AtenCall) -> str:
    """Combines truth values, or the bits of integers."""
    name, dtype = call.op.partition(".")[0].partition("_")[2], call.result.dtype
    operands = [call.operand(place, dtype) for place in (0, 1)]
    return call.add(_LOGIC[name], operands) if dtype == BOOL else combine_bits(call, f"Bitwise{name.title()}", operands)


@converts("logical_not.default", "bitwise_not.default")
def negation(call: AtenCall) -> str:
    """Negates truth values, or the bits of integers."""
    value, dtype = call.operand(0, call.result.dtype), call.result.dtype
    return call.add("logical_not", [value]) if dtype == BOOL else combine_bits(call, "BitwiseNot", [value])


@converts("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def where(call: AtenCall) -> str:
    """Selects one of two operands for each element."""
    return call.add("where", [call.operand(0, BOOL), *(call.operand(place, call.compute_dtype) for place in (1, 2))])


@converts("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(call: AtenCall) -> str:
    """Fills elements with a number wherever the mask is true."""
    return call.add("where", [call.value(1), call.operand(2, call.compute_dtype), call.operand(0, call.compute_dtype)])


@converts("clamp.default", "clamp_min.default", "clamp_max.default", "hardtanh.default")
def clamp(call: AtenCall) -> str:
    """Clamps between two optional numbers."""
    names = ("min_val", "max_val") if call.op == "hardtanh.default" else ("min", "max")
    low, high = (call.arguments.get(name) for name in names)
    data = call.operand(0, call.compute_dtype)
    if call.compute_dtype in FLOATS:
        ends = [-math.inf if low is None else float(low), math.inf if high is None else float(high)]
        return call.add("clip", [data], low=ends[0], high=ends[1])
    for op, end in (("maximum", low), ("minimum", high)):
        data = data if end is None else call.add(op, [data, call.number(end, call.compute_dtype)])
    return data


@converts("clamp.Tensor", "clamp_min.Tensor", "clamp_max.Tensor")
def clamp_between_tensors(call: AtenCall) -> str:
    """Clamps between two optional tensors."""
    data = call.operand(0, call.compute_dtype)
    for place, name in enumerate(call.arguments):
        if name in ("min", "max") and call.arguments[name] is not None:
            data = call.add("maximum" if name == "min" else "minimum", [data, call.operand(place, call.compute_dtype)])
    return data


@converts("_to_copy.default", "to.dtype", "prims.convert_element_type.default")
def convert(call: AtenCall) -> str:
    """Converts to another dtype; memory layouts are ignored."""
    value = call.value(0)
    same = call.type(0).dtype == call.result.dtype
    return value if same else call.cast(value, call.result.dtype)


@converts(
    *("clone.default", "alias.default", "contiguous.default", "lift_fresh_copy.default"),
    *("dropout.default", "copy.default"),
)
def identity(call: AtenCall) -> str:
    """Returns its input: operators that only affect memory or training; `copy` converts its source."""
    if call.op == "dropout.default":
        call.require(not call["train"], "must not be in training mode", "train=True")
    if call.op == "copy.default":
        value = call.cast(call.value(1), call.result.dtype)
        same = call.shape(value) == call.result.shape
        return value if same else call.add("broadcast_to", [value], shape=call.result.shape)
    return call.value(0)


@converts("detach.default")
def detach(call: AtenCall) -> str:
    """Returns its input, through a `stop_gradient` in a graph that is differentiated."""
    stops = isinstance(call.context, AtenContext) and call.context.stops_gradients and call.result.dtype in FLOATS
    return call.add(STOP_GRADIENT, [call.value(0)]) if stops else call.value(0)


@converts("reciprocal.default")
def reciprocal(call: AtenCall) -> str:
    """Computes 1 / x."""
    return call.add("divide", [call.number(1.0, call.compute_dtype), call.operand(0, call.compute_dtype)])


@converts("log2.default", "log10.default")
def logarithm(call: AtenCall) -> str:
    """Scales the natural logarithm."""
    base = 2 if call.op.startswith("log2") else 10
    x = call.operand(0, call.compute_dtype)
    return call.add("multiply", [call.add("log", [x]), call.number(1 / math.log(base), call.compute_dtype)])


_TRIGONOMETRY = {
    f"{name}.default": op
    for name, op in (
        *(("tan", "Tan"), ("asin", "Asin"), ("acos", "Acos"), ("atan", "Atan"), ("sinh", "Sinh"), ("cosh", "Cosh")),
        *(("asinh", "Asinh"), ("acosh", "Acosh"), ("atanh", "Atanh")),
    )
}


@converts(*_TRIGONOMETRY)
def trigonometric(call: AtenCall) -> str:
    """Converts trigonometric and hyperbolic functions to the compositions that ONNX import uses; angles are radians."""
    call.require(call.type(0).dtype in FLOATS, "must have floating-point values", call.type(0))
    return trigonometry.trigonometric(call.shared(_TRIGONOMETRY[call.op], call.inputs[:1]))


@converts("round.default", "round.decimals")
def round_decimals(call: AtenCall) -> str:
    """Rounds to whole numbers, ties to even, or to decimals by a product and a quotient, as PyTorch does."""
    call.require(call.compute_dtype in FLOATS, "must have floating-point values", call.result)
    x, places = call.operand(0, call.compute_dtype), call.arguments.get("decimals", 0)
    if places == 0:
        return call.add("rint", [x])
    power, (first, second) = 10.0 ** abs(places), ("multiply", "divide") if places > 0 else ("divide", "multiply")
    by = call.number(power, call.compute_dtype)
    return call.add(second, [call.add("rint", [call.add(first, [x, by])]), by])


@converts("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def raise_to_power(call: AtenCall) -> str:
    """Raises to powers, by multiplication or roots if the exponent is a small number."""
    call.require(call.compute_dtype in FLOATS, "must raise floating-point values", call.result)
    base, exponent = list(call.arguments.values())
    if isinstance(exponent, Node):
        return call.add("power", [call.operand(place, call.compute_dtype) for place in (0, 1)])
    if exponent == 0:
        return call.constant(torch.ones(call.result.shape).numpy())
    name = f"{call.title}_exponent"
    call.context.arrays[name] = torch.tensor(float(exponent)).numpy()
    return power(call.shared("Pow", [base.name, name]))


_SHARED = {
    "ceil.default": ceil,
    "sign.default": sign_of_numbers,  # 0 for NaN, unlike ONNX
    "isnan.default": is_nan,
}


@converts(*_SHARED)
def shared(call: AtenCall) -> str:
    """Converts to the compositions of simpler operations that ONNX import uses."""
    call.require(call.type(0).dtype in FLOATS, "must have floating-point values", call.type(0))
    return _SHARED[call.op](call)


@converts("isinf.default")
def is_infinite(call: AtenCall) -> str:
    """Tells for each element whether it is infinite, of either sign."""
    size = call.add("abs", [call.value(0)])
    return call.add("equal", [size, call.scalar(math.inf, size)])
