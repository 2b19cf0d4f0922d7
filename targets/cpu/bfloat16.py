"""Conversions between float32 and bfloat16, whose bits are the upper half of a float32's."""

from __future__ import annotations

import struct
from collections.abc import Collection

from targets.cpu.text import Text, Value, float_literal, llvm_type

HALF, LOWER, QUIET = 16, 0x7FFF, 0x40
"""Bits that are cut off, what is added to them to round, and the bit that makes a NaN of a NaN's upper half."""


def widen(text: Text, x: Value) -> Value:
    """Converts bfloat16 to float32, exactly."""
    kind, single = llvm_type("int32", x.lanes), llvm_type("float32", x.lanes)
    bits = text.value(f"zext {x.type} {x.text} to {kind}", "int32", x.lanes)
    upper = text.value(f"shl {kind} {bits.text}, {_number(HALF, x)}", "int32", x.lanes)
    return text.value(f"bitcast {kind} {upper.text} to {single}", "float32", x.lanes)


def constant(x: Value) -> Value | None:
    """Converts a constant bfloat16 to float32, which needs no instruction; None for another value."""
    if x.text.startswith("%"):
        return None
    bits = int(x.text.removeprefix("splat (i16 ").removesuffix(")")) & 0xFFFF
    literal = float_literal(struct.unpack(">f", struct.pack(">I", bits << HALF))[0], "float32")
    return Value(f"splat (float {literal})" if x.lanes else literal, "float32", x.lanes)


def narrow(text: Text, x: Value, features: Collection[str]) -> Value:
    """Rounds float32 to bfloat16, to nearest, ties to even; NaN stays NaN.

    Without the instruction LLVM would call a library function that is not linked, so integers are used.
    """
    if "avx512bf16" not in features:
        return _rounded_in_integers(text, x)
    kind = f"<{x.lanes} x bfloat>" if x.lanes else "bfloat"
    short = text.value(f"fptrunc {x.type} {x.text} to {kind}", "bfloat16", x.lanes).text
    line = f"bitcast {kind} {short} to {llvm_type('bfloat16', x.lanes)}"
    return text.value(line, "bfloat16", x.lanes)


def _rounded_in_integers(text: Text, x: Value) -> Value:
    """Rounds with integers: adds half a step less one, and one more if the result would be odd. A carry is right."""
    kind = llvm_type("int32", x.lanes)

    def op(line: str) -> str:
        return text.value(line, "int32", x.lanes).text

    bits = op(f"bitcast {x.type} {x.text} to {kind}")
    upper = op(f"lshr {kind} {bits}, {_number(HALF, x)}")
    odd = op(f"and {kind} {upper}, {_number(1, x)}")
    near = op(f"add {kind} {bits}, {_number(LOWER, x)}")
    near = op(f"add {kind} {near}, {odd}")
    near = op(f"lshr {kind} {near}, {_number(HALF, x)}")
    # The sum turns a NaN with low bits alone into infinity, and one with all bits set into zero.
    quiet = op(f"or {kind} {upper}, {_number(QUIET, x)}")
    test = text.value(f"fcmp uno {x.type} {x.text}, {x.text}", "bool", x.lanes)
    found = op(f"select {test.type} {test.text}, {kind} {quiet}, {kind} {near}")
    return text.value(f"trunc {kind} {found} to {llvm_type('bfloat16', x.lanes)}", "bfloat16", x.lanes)


def _number(value: int, like: Value) -> str:
    return f"splat (i32 {value})" if like.lanes else str(value)
