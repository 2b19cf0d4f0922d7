"""Quotients and remainders, which differ between integers and floats, and operations on bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autotune.graph.calls import Call
from autotune.graph.frontends.onnx.importer.registry import imports
from search_space.ir.expr import FLOATS

_UNSIGNED = ("uint8",)
BIT_TYPES = ("int8", "uint8", "int32")
"""Integers whose bits kernels can compute with."""
_WIDTH = 32
"""Bits of shifted integers; shifts by as many bits or more, or by negative numbers, leave only the sign."""


def _inexact(call: Call, x: str, y: str) -> str:
    """Tells whether an integer quotient is negative and has a remainder: then rounding down differs from truncation."""
    rest = call.add("floor_mod", [x, y])
    left = call.add("logical_not", [call.add("equal", [rest, call.scalar(0, rest)])])
    signs = [call.add("less", [side, call.scalar(0, side)]) for side in (x, y)]
    return call.add("logical_and", [left, call.add("logical_xor", signs)])


@imports("Div")
def divide(call: Call) -> str:
    """Computes x / y; integer quotients are truncated."""
    x, y = call.value(0), call.value(1)
    dtype = call.type(0).dtype
    if dtype in FLOATS:
        return call.add("divide", [x, y])
    down = call.add("floor_divide", [x, y])
    return down if dtype in _UNSIGNED else call.add("add", [down, call.cast(_inexact(call, x, y), dtype)])


@imports("Mod")
def remainder(call: Call) -> str:
    """Computes the remainder, with the sign of the divisor, or with `fmod` that of the dividend."""
    x, y, dtype = call.value(0), call.value(1), call.type(0).dtype
    by_dividend = bool(call.attrs.get("fmod", 0))
    if dtype in FLOATS:
        return call.add("fmod" if by_dividend else "floor_mod", [x, y])
    rest = call.add("floor_mod", [x, y])
    if not by_dividend or dtype in _UNSIGNED:
        return rest
    over = call.add("where", [_inexact(call, x, y), y, call.scalar(0, y)])
    return call.add("subtract", [rest, over])


@imports("BitShift")
def shift(call: Call) -> str:
    """Shifts bits of integers of up to 32 bits to the left or right."""
    kind, left = call.type(0), call.attrs["direction"] == b"LEFT"
    call.require(kind.dtype in BIT_TYPES, "must shift integers of up to 32 bits", f"{kind}")
    x, y = (call.cast(call.value(place), "int32") for place in (0, 1))
    within = [call.add("less_equal", [call.scalar(0, y), y]), call.add("less", [y, call.scalar(_WIDTH, y)])]
    shifted = call.add("left_shift" if left else "right_shift", [x, y])
    beyond = call.scalar(0, x) if left else call.add("right_shift", [x, call.scalar(_WIDTH - 1, x)])
    return call.cast(call.add("where", [call.add("logical_and", within), shifted, beyond]), kind.dtype)


@imports("BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor")
def bits(call: Call) -> str:
    """Combines or negates the bits of integers of up to 32 bits."""
    return combine_bits(call, call.op, [call.value(place) for place in range(len(call.inputs))])


def combine_bits(call: Call, op: str, operands: Sequence[str]) -> str:
    """Combines the bits of values of one dtype by an ONNX operator.

    Raises:
        UnsupportedModelError: the values are not integers of up to 32 bits.
    """
    kind = call.context.builder.type(operands[0])
    call.require(kind.dtype in BIT_TYPES, "must combine the bits of integers of up to 32 bits", f"{kind}")
    return call.cast(_BITS[op](call, *(call.cast(value, "int32") for value in operands)), kind.dtype)


def _complement(call: Call, x: str) -> str:
    return call.add("subtract", [call.scalar(-1, x), x])


def _without(call: Call, x: str, y: str) -> str:
    """Clears in `x` the bits that `y` has."""
    return call.add("bitwise_and", [x, _complement(call, y)])


_BITS: dict[str, Callable[..., str]] = {
    "BitwiseAnd": lambda call, x, y: call.add("bitwise_and", [x, y]),
    "BitwiseNot": _complement,
    # Terms that have no bit in common are added, which cannot overflow.
    "BitwiseOr": lambda call, x, y: call.add("add", [x, _without(call, y, x)]),
    "BitwiseXor": lambda call, x, y: call.add("add", [_without(call, x, y), _without(call, y, x)]),
}
"""Operator → function of a call and its operands in int32."""
