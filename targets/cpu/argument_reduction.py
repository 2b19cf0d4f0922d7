"""Sine, cosine and the remainder of floats: functions of the module that kernels call, for all lanes of a vector.

Each takes few instructions where all lanes are of usual size. If one is not, a function of one number computes every
lane again, and lanes of unusual size take its result. That function handles any argument, by a loop or by integers of
64 bits.

Sine and cosine subtract a multiple of pi/2 from the argument in three parts (Cody and Waite, Software Manual for the
Elementary Functions, 1980). Up to 2^17 this is exact but for the last rounding. Beyond, 2/pi is multiplied out in
integers, from the first significant bit on (Payne and Hanek, Radian Reduction for Trigonometric Functions, 1983). The
polynomials are those of Moshier's Cephes library. Both are within 2 units in the last place of the exact value, and the
remainder is exact.
"""

from __future__ import annotations

import math as numbers
import re
from collections.abc import Iterable

from targets.cpu.text import Text, Value, float_literal, llvm_type
from targets.cpu.vector_math import FUNCTION, ROUNDING_SHIFT, VectorMath

_DIGITS = "3141592653589793238462643383279502884197169399375105820974944592307816406286208998628034825342117067"
_HALF_PI = (float.fromhex("0x1.921fb4p+0"), float.fromhex("0x1.4442d0p-24"), float.fromhex("0x1.846988p-48"))
"""pi/2 in parts of 24 bits, cut off, so that no part is negative and -0 stays.

The product of the first part with whole numbers below 2^17 is exact, and so is its difference from an angle.
"""
_TWO_OVER_PI = (2 * 10 ** (len(_DIGITS) - 1) << 224) // int(_DIGITS)
"""The first 224 bits behind the point."""
_USUAL = 131072.0
"""Greatest size of an angle for which three parts of pi/2 do."""
_LEAST = 127 + 16
"""Exponent, as it is kept, of the least angle that is taken apart in integers."""
_SINE = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)  # on [-pi/4, pi/4], as `_COSINE` (Cephes)
_COSINE = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
_QUOTIENT = 2.0**28
"""Quotients below it, times 24 bits, are exact in float64."""
_TABLE = "@autotune.two.over.pi"


def definitions(declarations: Iterable[str], features: frozenset[str], attributes: str) -> tuple[list[str], list[str]]:
    """Replaces declarations of functions of this module by definitions; returns the other declarations and the texts.

    Args:
        declarations: a line each.
        features: instruction sets to use.
        attributes: attributes of every function, as LLVM writes them.
    """
    left, needed = [], []
    for line in declarations:
        called = re.search(rf"@{re.escape(FUNCTION)}(\w+?)\.(\d+)\(", line)
        if called is None:
            left.append(line)
        else:
            needed.append((called[1], int(called[2])))
    texts: dict[tuple[str, int], str] = {}
    for function, lanes in sorted({*needed, *((function, 0) for function, _ in needed)}):
        writer = _Function(features)
        texts[function, lanes] = writer.one(function) if lanes == 0 else writer.vector(function, lanes)
        left += [line for line in sorted(writer.math.declarations) if line not in left and FUNCTION not in line]
    words = ", ".join(f"i32 {_TWO_OVER_PI >> shift & 0xFFFFFFFF}" for shift in range(192, -1, -32))
    table = [f"{_TABLE} = internal constant [8 x i32] [i32 0, {words}]"]
    turns = any(function != "fmod" for function, _ in texts)
    return left, [*(table if turns else ()), *(text.replace("#attributes", attributes) for text in texts.values())]


class _Function:
    """A writer of one function."""

    def __init__(self, features: frozenset[str]) -> None:
        self.text = Text()
        self.math = VectorMath(self.text, features)

    def one(self, function: str) -> str:
        """Writes the function of one number, or of two."""
        x = Value("%x", "float32")
        if function == "fmod":
            return self._write_function("fmod", 0, 2, self._remainder_by_steps(x, Value("%y", "float32")))
        usual, turned = self._usual(x, function)
        with_far = self.math.select(usual, turned, self._turned_far(x, function))
        return self._write_function(function, 0, 1, with_far)

    def vector(self, function: str, lanes: int) -> str:
        """Writes the function of a vector; if one lane is of unusual size, the scalar function computes each lane
        again.
        """
        x, y = Value("%x", "float32", lanes), Value("%y", "float32", lanes)
        if function == "fmod":
            usual, fast = self._remainder(x, y)
        else:
            usual, fast = self._usual(x, function)
        operands = (x, y) if function == "fmod" else (x,)
        bits = f"i{lanes}"
        packed = self._new(f"bitcast {usual.type} {usual.text} to {bits}")
        every = self._new(f"icmp eq {bits} {packed}, -1")
        line, kind = self.text.emit, x.type
        line(f"  br i1 {every}, label %end, label %each")
        line("each:")
        line("  %i = phi i32 [0, %entry], [%next, %each]")
        line(f"  %before = phi {kind} [poison, %entry], [%after, %each]")
        single = [self._new(f"extractelement {kind} {v.text}, i32 %i") for v in operands]
        found = self._new(f"call float @{FUNCTION}{function}.0({', '.join(f'float {v}' for v in single)})")
        line(f"  %after = insertelement {kind} %before, float {found}, i32 %i")
        line("  %next = add i32 %i, 1")
        line(f"  %more = icmp slt i32 %next, {lanes}")
        line("  br i1 %more, label %each, label %chosen")
        line("chosen:")
        slow = self.math.select(usual, fast, Value("%after", "float32", lanes))
        line("  br label %end")
        line("end:")
        out = self._new(f"phi {kind} [{fast.text}, %entry], [{slow.text}, %chosen]")
        return self._write_function(function, lanes, len(operands), Value(out, "float32", lanes))

    def _write_function(self, function: str, lanes: int, operands: int, result: Value) -> str:
        given = ", ".join(f"{result.type} %{name}" for name in "xy"[:operands])
        head = f"define internal {result.type} @{FUNCTION}{function}.{lanes}({given}) #attributes {{\nentry:"
        return "\n".join([head, *self.text.flat(), f"  ret {result.type} {result.text}", "}"])

    def _new(self, instruction: str) -> str:
        return self.text.value(instruction, "int32").text

    # ------------------------------------------------------------------ sine and cosine
    def _usual(self, x: Value, function: str) -> tuple[Value, Value]:
        """Finds the angles of usual size, or NaN, and computes the function of these."""
        math = self.math
        shifted = math.fma(x, 2 / numbers.pi, ROUNDING_SHIFT)
        turns = math.op("fsub", shifted, ROUNDING_SHIFT)
        rest = x
        for part in _HALF_PI:
            rest = math.fma(turns, -part, rest)
        quarter = math.convert("bitcast", shifted, "int32")
        size, limit = math.intrinsic("fabs", x), math.constant(_USUAL, x)
        usual = self.text.value(f"fcmp ule {x.type} {size.text}, {limit}", "bool", x.lanes)
        return usual, self._apply_quarter_turns(rest, quarter, function)

    def _apply_quarter_turns(self, rest: Value, quarter: Value, function: str) -> Value:
        """Computes the function of a number of quarter turns, modulo 4, plus an angle of at most pi/4."""
        math = self.math
        quarter = math.integer("add", quarter, 1) if function == "cos" else quarter
        square = math.op("fmul", rest, rest)
        sine = math.fma(math.op("fmul", math.polynomial(square, _SINE), square), rest, rest)
        sine = math.intrinsic("copysign", sine, rest)  # -0 became 0
        even = math.fma(math.polynomial(square, _COSINE), math.op("fmul", square, square), math.fma(square, -0.5, 1.0))
        kind = quarter.type
        odd = self.text.value(f"trunc {kind} {quarter.text} to {llvm_type('bool', rest.lanes)}", "bool", rest.lanes)
        bits = math.convert("bitcast", math.select(odd, even, sine), "int32")
        sign = math.integer("shl", math.integer("and", quarter, 2), 30)
        turned = self.text.value(f"xor {kind} {bits.text}, {sign.text}", "int32", rest.lanes)
        return math.convert("bitcast", turned, "float32")

    def _turned_far(self, x: Value, function: str) -> Value:
        """Computes the function of an angle that is not of usual size: NaN of an infinity.

        Let x = m 2^s. As four quarters are a turn, the significant bits of 2/pi begin where 2^s times them is 2. The
        product of 96 of them with the 24 bits of m gives quarters and 62 bits behind the point.
        """
        math, new = self.math, self._new
        bits = new(f"bitcast float {x.text} to i32")
        size = new(f"and i32 {bits}, 2147483647")
        exponent = new(f"lshr i32 {size}, 23")
        fraction = new(f"and i32 {size}, 8388607")
        narrow = new(f"or i32 {fraction}, 8388608")
        mantissa = new(f"zext i32 {narrow} to i64")
        low = new(f"icmp slt i32 {exponent}, {_LEAST}")
        above = new(f"select i1 {low}, i32 {_LEAST}, i32 {exponent}")
        place = new(f"sub i32 {above}, {127 - 7}")  # of the first bit in the table, whose first word is 0
        word, by = new(f"lshr i32 {place}, 5"), new(f"and i32 {place}, 31")
        words = []
        for number in range(4):
            at = new(f"add i32 {word}, {number}")
            pointer = new(f"getelementptr [8 x i32], ptr {_TABLE}, i32 0, i32 {at}")
            words.append(new(f"load i32, ptr {pointer}"))
        self.math.declarations.add("declare i32 @llvm.fshl.i32(i32, i32, i32)")
        total = "0"
        for number, move in ((2, "lshr"), (1, ""), (0, "shl")):
            part = new(f"call i32 @llvm.fshl.i32(i32 {words[number]}, i32 {words[number + 1]}, i32 {by})")
            wide = new(f"zext i32 {part} to i64")
            product = new(f"mul i64 {wide}, {mantissa}")
            product = new(f"{move} i64 {product}, 32") if move else product
            total = new(f"add i64 {total}, {product}")
        near = new(f"add i64 {total}, {1 << 61}")
        quarter = new(f"lshr i64 {near}, 62")
        taken = new(f"shl i64 {quarter}, 62")
        behind = new(f"sub i64 {total}, {taken}")
        exact = new(f"sitofp i64 {behind} to double")
        angle = new(f"fmul double {exact}, {_double(numbers.pi / 2 * 2.0**-62)}")
        rest = self.text.value(f"fptrunc double {angle} to float", "float32")
        result = self._apply_quarter_turns(rest, self.text.value(f"trunc i64 {quarter} to i32", "int32"), function)
        if function == "sin":
            sign = new(f"and i32 {bits}, -2147483648")
            turned = new(f"xor i32 {new(f'bitcast float {result.text} to i32')}, {sign}")
            result = self.text.value(f"bitcast i32 {turned} to float", "float32")
        infinite = self.text.value(f"icmp uge i32 {size}, 2139095040", "bool")
        return math.select(infinite, math.number(numbers.nan, x), result)

    # ------------------------------------------------------------------ remainder
    def _doubles(self, x: Value) -> str:
        """Converts the absolute values of floats to float64."""
        size = self.math.intrinsic("fabs", x)
        return self._new(f"fpext {x.type} {size.text} to {_double_type(x.lanes)}")

    def _signed(self, rest: str, x: Value) -> Value:
        """Gives a remainder, which is a float32, the sign of the dividend."""
        narrow = self.text.value(f"fptrunc {_double_type(x.lanes)} {rest} to {x.type}", "float32", x.lanes)
        return self.math.intrinsic("copysign", narrow, x)

    def _less_multiple(self, a: str, b: str, lanes: int) -> str:
        """Computes a - trunc(a / b) b of float64 that are not negative, for quotients below 2^29: exact.

        A quotient just below a whole number may be rounded to it: then the rest is negative, by less than b.
        """
        new, kind, suffix = self._new, _double_type(lanes), f"v{lanes}f64" if lanes else "f64"
        for name, count in (("trunc", 1), ("fma", 3)):
            self.math.declarations.add(f"declare {kind} @llvm.{name}.{suffix}({', '.join([kind] * count)})")
        quotient = new(f"fdiv {kind} {a}, {b}")
        times = new(f"call {kind} @llvm.trunc.{suffix}({kind} {quotient})")
        negated = new(f"fneg {kind} {times}")
        rest = new(f"call {kind} @llvm.fma.{suffix}({kind} {negated}, {kind} {b}, {kind} {a})")
        truth = llvm_type("bool", lanes)
        below = new(f"fcmp olt {kind} {rest}, {_double(0.0, lanes)}")
        more = new(f"fadd {kind} {rest}, {b}")
        return new(f"select {truth} {below}, {kind} {more}, {kind} {rest}")

    def _remainder(self, x: Value, y: Value) -> tuple[Value, Value]:
        """Finds the quotients below 2^28, or whose remainder is NaN, and computes their remainders."""
        new, kind, truth = self._new, _double_type(x.lanes), llvm_type("bool", x.lanes)
        a, b = self._doubles(x), self._doubles(y)
        rest = self._less_multiple(a, b, x.lanes)
        # Of an infinite divisor, too, which times a quotient of 0 is no number.
        less = new(f"fcmp olt {kind} {a}, {b}")
        rest = new(f"select {truth} {less}, {kind} {a}, {kind} {rest}")
        reach = new(f"fmul {kind} {b}, {_double(_QUOTIENT, x.lanes)}")
        within = new(f"fcmp ult {kind} {a}, {reach}")
        none = new(f"fcmp oeq {kind} {b}, {_double(0.0, x.lanes)}")
        infinite = new(f"fcmp oeq {kind} {a}, {_double(numbers.inf, x.lanes)}")
        either = new(f"or {truth} {none}, {infinite}")
        return self.text.value(f"or {truth} {within}, {either}", "bool", x.lanes), self._signed(rest, x)

    def _remainder_by_steps(self, x: Value, y: Value) -> Value:
        """Computes the remainder by subtracting multiples of the divisor times powers of two, the largest first."""
        new, line = self._new, self.text.emit
        a, b = self._doubles(x), self._doubles(y)
        usual, fast = self._remainder(x, y)
        line(f"  br i1 {usual.text}, label %end, label %step")
        line("step:")
        line(f"  %left = phi double [{a}, %entry], [%rest, %step]")
        high, low = (new(f"lshr i64 {new(f'bitcast double {v} to i64')}, 52") for v in ("%left", b))
        distance = new(f"sub i64 {high}, {low}")
        over = new(f"sub i64 {distance}, 28")
        some = new(f"icmp sgt i64 {over}, 0")
        power = new(f"select i1 {some}, i64 {over}, i64 0")
        biased = new(f"add i64 {power}, 1023")
        scale = new(f"bitcast i64 {new(f'shl i64 {biased}, 52')} to double")
        multiple = new(f"fmul double {b}, {scale}")
        rest = self._less_multiple("%left", multiple, 0)
        line(f"  %rest = fadd double {rest}, {_double(-0.0)}")
        more = new(f"fcmp oge double %rest, {b}")
        line(f"  br i1 {more}, label %step, label %last")
        line("last:")
        signed = self._signed("%rest", x)
        line("  br label %end")
        line("end:")
        return self.text.value(f"phi float [{fast.text}, %entry], [{signed.text}, %last]", "float32")


def _double_type(lanes: int) -> str:
    return f"<{lanes} x double>" if lanes else "double"


def _double(value: float, lanes: int = 0) -> str:
    literal = float_literal(value, "float64")
    return f"splat (double {literal})" if lanes else literal
