"""Operations on LLVM values that are there already: casts, arithmetic, comparisons, choices, lanes reduced to one."""

from __future__ import annotations

import re
from typing import Any

from search_space.ir.expr import BITS, FLOATS, SHIFTS
from targets.base import BuildError
from targets.cpu import bfloat16
from targets.cpu.reductions import by_comparison, horizontal, minmax
from targets.cpu.text import Text, Value, float_literal, llvm_type
from targets.cpu.vector_math import ROUNDING_SHIFT, VectorMath

_NUMBER = re.compile(r"(-?\d+)|splat \(i\d+ (-?\d+)\)")


class Operations:
    """An emitter of operations on scalars and vectors of all types of elements.

    Args:
        text: the function being written.
        math: its functions of float32.
    """

    def __init__(self, text: Text, math: VectorMath) -> None:
        self.text, self.math = text, math

    def literal(self, value: Any, dtype: str) -> Value:
        if dtype in FLOATS:
            return Value(float_literal(float(value), dtype), dtype)
        return Value(str(value).lower() if dtype == "bool" else str(int(value)), dtype)

    def vector(self, x: Value, lanes: int) -> Value:
        """Broadcasts `x` to every lane."""
        return self.text.splat(x, lanes)

    def same_lanes(self, a: Value, b: Value) -> tuple[Value, Value]:
        lanes = a.lanes or b.lanes
        return self.vector(a, lanes), self.vector(b, lanes)

    def choose(self, condition: Value, a: Value, b: Value) -> Value:
        line = f"select {condition.type} {condition.text}, {a.type} {a.text}, {b.type} {b.text}"
        return self.text.value(line, a.dtype, a.lanes)

    def both(self, a: Value, b: Value) -> Value:
        a, b = self.same_lanes(a, b)
        return self.text.value(f"and {a.type} {a.text}, {b.text}", "bool", a.lanes)

    def negate(self, a: Value) -> Value:
        true = "splat (i1 true)" if a.lanes else "true"
        return self.text.value(f"xor {a.type} {a.text}, {true}", "bool", a.lanes)

    def cast(self, x: Value, dtype: str) -> Value:
        if x.dtype == dtype:
            return x
        known = parse_number(x)
        if known is not None and x.dtype == "int64" and dtype == "int32" and -(1 << 31) <= known < 1 << 31:
            return Value(x.text.replace("i64", "i32"), dtype, x.lanes)
        to = llvm_type(dtype, x.lanes)
        from_float, to_float = x.dtype in FLOATS, dtype in FLOATS
        if x.dtype == "bfloat16":
            single = bfloat16.constant(x) or bfloat16.widen(self.text, x)
            return self.cast(single, dtype)
        if dtype == "bfloat16":
            return bfloat16.narrow(self.text, self.cast(x, "float32"), self.math.features)
        if from_float and to_float:
            name = "fptrunc" if BITS[dtype] < BITS[x.dtype] else "fpext"
        elif from_float:
            if dtype == "bool":
                zero = "zeroinitializer" if x.lanes else float_literal(0.0, x.dtype)
                return self.text.value(f"fcmp une {x.type} {x.text}, {zero}", "bool", x.lanes)
            name = "fptoui" if dtype == "uint8" else "fptosi"
        elif to_float:
            name = "uitofp" if x.dtype in ("uint8", "bool") else "sitofp"
        elif dtype == "bool":
            return self.text.value(f"icmp ne {x.type} {x.text}, {'zeroinitializer' if x.lanes else 0}", "bool", x.lanes)
        else:
            narrow = BITS[dtype] < (1 if x.dtype == "bool" else BITS[x.dtype])
            name = "trunc" if narrow else "zext" if x.dtype in ("uint8", "bool") else "sext"
            # The same bits: LLVM's integers have no sign, its operations do.
            if not narrow and x.dtype != "bool" and BITS[dtype] == BITS[x.dtype]:
                return Value(x.text, dtype, x.lanes)
        return self.text.value(f"{name} {x.type} {x.text} to {to}", dtype, x.lanes)

    def byte(self, x: Value, addend: Value | None, limits: tuple[float, float], dtype: str) -> Value:
        """Rounds a float to a whole number, adds another one, limits the sum to (low, high), and converts it to a byte.

        Adding 1.5 * 2^23 to a float of less than 2^22 rounds it to a whole number, ties to even. The sum's lowest byte
        is that number's. Larger values stay beyond the limits; NaN becomes the lower limit.
        """
        x = self.math.op("fadd", x, ROUNDING_SHIFT)
        if addend is not None:  # whole numbers as large are added exactly
            x, addend = self.same_lanes(x, self.cast(addend, "float32"))
            x = self.math.op("fadd", x, addend)
        x = self.clamp(x, (ROUNDING_SHIFT + limits[0], ROUNDING_SHIFT + limits[1]))
        bits = self.text.value(f"bitcast {x.type} {x.text} to {llvm_type('int32', x.lanes)}", "int32", x.lanes)
        return self.cast(bits, dtype)

    def clamp(self, x: Value, limits: tuple[float, float]) -> Value:
        """Limits a float to (low, high); NaN becomes the lower limit."""
        for op, limit in zip(("max", "min"), limits, strict=True):
            x = by_comparison(self.text, op, x, self.math.number(limit, x))
        return x

    def float_of_byte(self, x: Value, addend: Value | None, limits: tuple[float, float], subtrahend: Value) -> Value:
        """Computes `byte` less another byte, as a float: whole numbers this small are floats, and need not become
        integers.

        The added number shifts the limits instead, which are the same for all vectors.
        """
        x, subtrahend = self.same_lanes(self.math.op("fadd", x, ROUNDING_SHIFT), self.cast(subtrahend, "float32"))
        if addend is not None:
            x, addend = self.same_lanes(x, self.cast(addend, "float32"))
        rest = self.math.op("fadd", self.vector(subtrahend, x.lanes), ROUNDING_SHIFT)
        rest = rest if addend is None else self.math.op("fsub", rest, addend)
        for op, limit in zip(("max", "min"), limits, strict=True):
            end = self.math.number(ROUNDING_SHIFT + limit, x)
            x = by_comparison(self.text, op, x, end if addend is None else self.math.op("fsub", end, addend))
        return self.math.op("fsub", x, rest)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        lanes = a.lanes or b.lanes or c.lanes
        return self.math.intrinsic("fma", self.vector(a, lanes), self.vector(b, lanes), self.vector(c, lanes))

    def combine(self, op: str, a: Value, b: Value, dtype: str) -> Value:
        """Computes a binary operation on values of one type; `dtype` decides signedness.

        bfloat16 is computed in float32 and rounded.
        """
        if a.dtype == "bfloat16":
            wide = self.combine(op, self.cast(a, "float32"), self.cast(b, "float32"), "float32")
            return self.cast(wide, "bfloat16") if wide.dtype == "float32" else wide
        if op == "fmod":
            wide = self.math.call_function("fmod", self.cast(a, "float32"), self.cast(b, "float32"))
            return self.cast(wide, a.dtype)
        floating = dtype in FLOATS
        if op in ("lt", "le", "eq", "ne"):
            unsigned = dtype in ("uint8", "bool")
            code = {"lt": "ult" if unsigned else "slt", "le": "ule" if unsigned else "sle", "eq": "eq", "ne": "ne"}[op]
            if floating:
                # What is not a number differs from everything, itself included, and is neither less nor greater.
                code = {"lt": "olt", "le": "ole", "eq": "oeq", "ne": "une"}[op]
            return self.text.value(
                f"{'fcmp' if floating else 'icmp'} {code} {a.type} {a.text}, {b.text}", "bool", a.lanes
            )
        if op in ("min", "max"):
            return self.minmax(op, a, b)
        if op in ("floordiv", "mod") and not floating:
            return self._divide(op, a, b, dtype)
        names = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
        if not floating:
            names = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "bitand": "and"}
            if op in SHIFTS:
                names |= {"shl": "shl", "shr": "ashr"}
                b = self._amount(b)
        if op not in names:
            raise BuildError(f"`{op}` must be used on index expressions or floats, but got dtype={dtype}")
        return self.text.value(f"{names[op]} {a.type} {a.text}, {b.text}", a.dtype, a.lanes)

    def _divide(self, op: str, a: Value, b: Value, dtype: str) -> Value:
        """Computes a quotient rounded down, or the remainder; by 0 both are 0, as in NumPy, and nothing traps."""
        kind = a.type
        known = parse_number(b)
        if known is not None and known > 0 and not known & (known - 1):
            return self._by_power(op, a, known, dtype)

        def compare(code: str, x: Value, y: str) -> Value:
            return self.text.value(f"icmp {code} {kind} {x.text}, {y}", "bool", a.lanes)

        def number(value: int) -> Value:
            return Value(f"splat ({llvm_type(dtype, 0)} {value})" if a.lanes else str(value), dtype, a.lanes)

        zero = compare("eq", b, number(0).text)
        if dtype == "uint8":
            by = self.choose(zero, number(1), b)
            name = "udiv" if op == "floordiv" else "urem"
            return self.choose(zero, number(0), self.text.value(f"{name} {kind} {a.text}, {by.text}", dtype, a.lanes))
        # By -1 the quotient of the least number overflows, and the instruction traps.
        minus = compare("eq", b, number(-1).text)
        by = self.choose(minus, number(1), self.choose(zero, number(1), b))
        rest = self.text.value(f"srem {kind} {a.text}, {by.text}", dtype, a.lanes)
        mixed = self.text.value(f"xor {kind} {rest.text}, {by.text}", dtype, a.lanes)
        below = self.both(compare("ne", rest, number(0).text), compare("slt", mixed, number(0).text))
        if op == "mod":
            return self.combine("add", rest, self.choose(below, by, number(0)), dtype)
        quotient = self.text.value(f"sdiv {kind} {a.text}, {by.text}", dtype, a.lanes)
        down = self.combine("add", quotient, self.choose(below, number(-1), number(0)), dtype)
        negated = self.combine("sub", number(0), a, dtype)
        return self.choose(zero, number(0), self.choose(minus, negated, down))

    def _by_power(self, op: str, a: Value, number: int, dtype: str) -> Value:
        """Computes `_divided` by a power of two: the bits below it, or those from it on."""
        bits = number - 1 if op == "mod" else number.bit_length() - 1
        name = "and" if op == "mod" else "lshr" if dtype == "uint8" else "ashr"
        kind = llvm_type(dtype, 0)
        return self.text.value(
            f"{name} {a.type} {a.text}, {f'splat ({kind} {bits})' if a.lanes else bits}", dtype, a.lanes
        )

    def _amount(self, b: Value) -> Value:
        """Returns the amount of a shift, modulo 32: beyond that LLVM's shifts are not defined."""
        known = parse_number(b)
        if known is not None:
            return Value(f"splat (i32 {known & 31})" if b.lanes else str(known & 31), b.dtype, b.lanes)
        return self.text.value(f"and {b.type} {b.text}, {'splat (i32 31)' if b.lanes else 31}", b.dtype, b.lanes)

    def minmax(self, op: str, a: Value, b: Value) -> Value:
        return minmax(self.math, op, a, b)

    def horizontal(self, reducer: str, x: Value) -> Value:
        """Reduces all lanes to one scalar; 16-bit floats in float32."""
        if x.dtype in ("float16", "bfloat16"):
            return self.cast(self.horizontal(reducer, self.cast(x, "float32")), x.dtype)
        return horizontal(self.math, reducer, x)


def parse_number(x: Value) -> int | None:
    """Returns the integer that a value is by its text, in each lane of a vector; None if it is computed."""
    found = _NUMBER.fullmatch(x.text)
    return int(found[1] or found[2]) if found else None
