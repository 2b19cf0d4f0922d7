"""Math functions as straight-line vector polynomials; no call leaves the loop.

Errors are relative to the exact value, over the whole range unless stated. In ulp: exp and exp2 2 (Cephes expf), log 2,
log1p and expm1 3, sigmoid 4, tanh 4 (through exp; a polynomial below 0.625). The absolute error of erf is 5e-7; rsqrt
and sqrt are correctly rounded divisions. NaN stays NaN. `wide_math.py` has other code for registers of AVX-512. Sine,
cosine and remainders are functions of `argument_reduction.py`, which are part of each module that calls them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from targets.cpu.text import Text, Value, float_literal, llvm_type

_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 0.16666665459, 0.5)  # Cephes expf
_POWERS = tuple(2.0 ** (place / 16) for place in range(16))
_EXP_NEAR = (0.16666667, 0.5, 1.0)
"""(e^r - 1) / r on [-ln2/32, ln2/32]: r^3 / 24 is 2^-21 of it, and of e^r 2^-26."""
_LN2, _LN2_REST = 0.693147182464599609375, -1.904654299957e-9
"""ln2 in float32, and what is missing."""
_LOG = (
    *(7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1),
    *(-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
)
"""(log(1 + m) - m + m^2 / 2) / m^3 on [sqrt(1/2) - 1, sqrt(2) - 1] (Cephes logf)."""
_ROOT_HALF = 0.707106781186547524
ROUNDING_SHIFT = 12582912.0
"""1.5 * 2^23: floats as large lie 1 apart, so that a sum with it holds a whole number in its lowest bits."""
FUNCTION = "autotune.math."
"""Prefix of the module's functions; the function, a point and the number of lanes follow."""
_SIXTEENTHS = 786432.0
"""1.5 * 2^19, where floats lie 1/16 apart: a sum with it has the sixteenths of a number in its four lowest bits."""


class VectorMath:
    """An emitter of functions of float32 scalars and vectors.

    Args:
        text: the function being written.
        features: instruction sets to use beyond those every vector unit has.
    """

    def __init__(self, text: Text, features: frozenset[str] = frozenset()) -> None:
        self.text, self.features = text, features
        self.declarations: set[str] = set()

    def apply(self, function: str, x: Value) -> Value:
        """Emits `function(x)` for a float32 value.

        Raises:
            KeyError: a function that has no emitter.
        """
        return _EMIT[function](self, x)

    def constant(self, number: float, like: Value) -> str:
        literal = float_literal(number, "float32")
        return "splat (float " + literal + ")" if like.lanes else literal

    def intrinsic(self, name: str, *operands: Value) -> Value:
        x = operands[0]
        suffix = f"v{x.lanes}f32" if x.lanes else "f32"
        kind = llvm_type("float32", x.lanes)
        arguments = ", ".join(f"{kind} {o.text}" for o in operands)
        self.declarations.add(f"declare {kind} @llvm.{name}.{suffix}({', '.join([kind] * len(operands))})")
        return self.text.value(f"call {kind} @llvm.{name}.{suffix}({arguments})", "float32", x.lanes)

    def op(self, name: str, a: Value, b: Value | float) -> Value:
        right = b.text if isinstance(b, Value) else self.constant(b, a)
        return self.text.value(f"{name} {a.type} {a.text}, {right}", "float32", a.lanes)

    def number(self, number: float, like: Value) -> Value:
        return Value(self.constant(number, like), "float32", like.lanes)

    def negate(self, x: Value) -> Value:
        return self.text.value(f"fneg {x.type} {x.text}", x.dtype, x.lanes)

    def fma(self, a: Value, b: Value | float, c: Value | float) -> Value:
        b = b if isinstance(b, Value) else self.number(b, a)
        c = c if isinstance(c, Value) else self.number(c, a)
        return self.intrinsic("fma", a, b, c)

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """Evaluates a polynomial by Horner's scheme, highest power first."""
        out = self.number(coefficients[0], x)
        for c in coefficients[1:]:
            out = self.fma(out, x, c)
        return out

    def less(self, a: Value, b: float) -> Value:
        return self.text.value(f"fcmp olt {a.type} {a.text}, {self.constant(b, a)}", "bool", a.lanes)

    def select(self, c: Value, a: Value, b: Value) -> Value:
        return self.text.value(f"select {c.type} {c.text}, {a.type} {a.text}, {b.type} {b.text}", "float32", a.lanes)

    def convert(self, instruction: str, x: Value, dtype: str) -> Value:
        return self.text.value(f"{instruction} {x.type} {x.text} to {llvm_type(dtype, x.lanes)}", dtype, x.lanes)

    def integer(self, name: str, x: Value, number: int) -> Value:
        right = f"splat (i32 {number})" if x.lanes else str(number)
        return self.text.value(f"{name} {x.type} {x.text}, {right}", "int32", x.lanes)

    def exp(self, x: Value) -> Value:
        """Computes 2^n * e^r with r in [-ln2/2, ln2/2]; 0 below -104, infinity above 88.73 (Cephes expf)."""
        if x.lanes == 16 and "avx512dq" in self.features:
            return self._exp_looked_up(x)
        clamped = self.intrinsic("minnum", self.intrinsic("maxnum", x, self.number(-104.0, x)), self.number(89.0, x))
        n = self.intrinsic("rint", self.op("fmul", clamped, 1.44269504088896341))
        r = self.fma(n, -0.693359375, clamped)
        r = self.fma(n, 2.12194440e-4, r)
        p = self.polynomial(r, _EXP)
        p = self.fma(p, self.op("fmul", r, r), self.op("fadd", r, 1.0))
        return self._scale_by_power(p, n, x)

    def exp2(self, x: Value) -> Value:
        """Computes 2^n * e^r with r in [-ln2/2, ln2/2], which is ln2 times an exact difference."""
        clamped = self.intrinsic("minnum", self.intrinsic("maxnum", x, self.number(-151.0, x)), self.number(129.0, x))
        n = self.intrinsic("rint", clamped)
        r = self.op("fmul", self.op("fsub", clamped, n), 0.693147180559945309)
        p = self.fma(self.polynomial(r, _EXP), self.op("fmul", r, r), self.op("fadd", r, 1.0))
        return self._scale_by_power(p, n, x)

    def _scale_by_power(self, p: Value, n: Value, x: Value) -> Value:
        """Computes p 2^n; returns `x` where that is NaN."""
        # 2^n in two factors, so that both ends of the range are reached without leaving the exponent's bits
        half = self.integer("ashr", self.convert("fptosi", n, "int32"), 1)
        whole = self.convert("fptosi", n, "int32")
        rest = self.text.value(f"sub {whole.type} {whole.text}, {half.text}", "int32", x.lanes)
        for part in (half, rest):
            bits = self.integer("shl", self.integer("add", part, 127), 23)
            p = self.op("fmul", p, self.convert("bitcast", bits, "float32"))
        # NaN became the lower limit, of which there is a result.
        unordered = self.text.value(f"fcmp uno {x.type} {x.text}, {x.text}", "bool", x.lanes)
        return self.select(unordered, x, p)

    def _exp_looked_up(self, x: Value) -> Value:
        """Computes `exp` with AVX-512, in two thirds of the instructions: 2^(n/16) e^r with r in [-ln2/32, ln2/32].

        A permutation looks up the sixteenths of the power of 2, and `vscalefps` applies its whole part, rounding down.
        That instruction handles the ends of the range and NaN. Only r needs limits, as x has none.
        """
        kind = x.type
        range_, scale, look = (
            f"llvm.x86.avx512.{name}.512" for name in ("mask.range.ps", "mask.scalef.ps", "permvar.sf")
        )
        self.declarations.add(f"declare {kind} @{range_}({kind}, {kind}, i32, {kind}, i16, i32)")
        self.declarations.add(f"declare {kind} @{scale}({kind}, {kind}, {kind}, i16, i32)")
        self.declarations.add(f"declare {kind} @{look}({kind}, <16 x i32>)")
        shifted = self.fma(x, 1.44269504088896341, _SIXTEENTHS)
        n = self.op("fsub", shifted, _SIXTEENTHS)
        r = self.fma(n, -_LN2_REST, self.fma(n, -_LN2, x))
        # The immediate 2: the one that is nearer to 0, with the sign of the first; 4 leaves the rounding as it is.
        line = f"call {kind} @{range_}({kind} {r.text}, {kind} {self.constant(1.0, x)}, i32 2, "
        r = self.text.value(f"{line}{kind} zeroinitializer, i16 -1, i32 4)", "float32", x.lanes)
        powers = ", ".join(f"float {float_literal(power, 'float32')}" for power in _POWERS)
        places = self.convert("bitcast", shifted, "int32")
        power = self.text.value(f"call {kind} @{look}({kind} <{powers}>, <16 x i32> {places.text})", "float32", x.lanes)
        p = self.fma(self.polynomial(r, _EXP_NEAR), self.op("fmul", r, power), power)
        line = f"call {kind} @{scale}({kind} {p.text}, {kind} {n.text}, {kind} zeroinitializer, i16 -1, i32 4)"
        return self.text.value(line, "float32", x.lanes)

    def limit_ordered(self, code: str, limit: Value, x: Value) -> Value:
        """Returns the limit where it compares so with `x`, otherwise `x`; NaN stays NaN."""
        return self.select(self.text.value(f"fcmp {code} {x.type} {limit.text}, {x.text}", "bool", x.lanes), limit, x)

    def log(self, x: Value) -> Value:
        """Computes the logarithm from exponent and mantissa in [sqrt(1/2), sqrt(2)) (Cephes logf); -inf at 0, NaN
        below.
        """
        # Denormal numbers have no exponent to take; 2^23 times as great they have.
        tiny = self.less(x, 1.17549435e-38)
        scaled = self.select(tiny, self.op("fmul", x, 8388608.0), x)
        bits = self.convert("bitcast", scaled, "int32")
        exponent = self.integer("add", self.integer("lshr", bits, 23), -126)
        mantissa = self.integer("or", self.integer("and", bits, 0x007FFFFF), 0x3F000000)
        m = self.convert("bitcast", mantissa, "float32")
        e = self.convert("sitofp", exponent, "float32")
        e = self.select(tiny, self.op("fadd", e, -23.0), e)
        small = self.less(m, _ROOT_HALF)
        e = self.select(small, self.op("fadd", e, -1.0), e)
        m = self.op("fadd", self.select(small, self.op("fadd", m, m), m), -1.0)
        y = self._combine_log(m, e)
        zero = self.text.value(f"fcmp oeq {x.type} {x.text}, {self.constant(0.0, x)}", "bool", x.lanes)
        y = self.select(zero, self.number(float("-inf"), x), y)
        infinite = self.text.value(f"fcmp oeq {x.type} {x.text}, {self.constant(float('inf'), x)}", "bool", x.lanes)
        y = self.select(infinite, x, y)
        bad = self.text.value(f"fcmp ult {x.type} {x.text}, {self.constant(0.0, x)}", "bool", x.lanes)
        return self.select(bad, self.number(float("nan"), x), y)

    def _combine_log(self, m: Value, e: Value) -> Value:
        """Computes log(2^e (1 + m)), with 1 + m in [sqrt(1/2), sqrt(2))."""
        z = self.op("fmul", m, m)
        y = self.op("fmul", self.op("fmul", self.polynomial(m, _LOG), m), z)
        y = self.fma(e, -2.12194440e-4, y)
        y = self.fma(z, -0.5, y)
        return self.fma(e, 0.693359375, self.op("fadd", m, y))

    def log1p(self, x: Value) -> Value:
        """Computes log(1 + x); the rounding error of that sum is added to the mantissa, which is x itself next to 0."""
        total = self.op("fadd", x, 1.0)
        taken = self.op("fsub", total, 1.0)
        # Knuth's sum of two numbers and its rounding, whichever is greater.
        lost = self.op("fsub", self.number(1.0, x), self.op("fsub", total, taken))
        lost = self.op("fadd", lost, self.op("fsub", x, taken))
        bits = self.convert("bitcast", total, "int32")
        exponent = self.integer("add", self.integer("lshr", bits, 23), -126)
        mantissa = self.integer("or", self.integer("and", bits, 0x007FFFFF), 0x3F000000)
        m = self.convert("bitcast", mantissa, "float32")
        small = self.less(m, _ROOT_HALF)
        less = self.convert("sext", small, "int32")
        exponent = self.text.value(f"add {exponent.type} {exponent.text}, {less.text}", "int32", x.lanes)
        m = self.op("fadd", self.select(small, self.op("fadd", m, m), m), -1.0)
        # 2^-e, or 0 where it is too small to count.
        kind, zero, bias = exponent.type, *(f"splat (i32 {n})" if x.lanes else str(n) for n in (0, 127))
        away = self.text.value(f"sub {kind} {bias}, {exponent.text}", "int32", x.lanes)
        positive = self.text.value(f"icmp sgt {kind} {away.text}, {zero}", "bool", x.lanes)
        line = f"select {positive.type} {positive.text}, {kind} {away.text}, {kind} {zero}"
        power = self.integer("shl", self.text.value(line, "int32", x.lanes), 23)
        m = self.fma(lost, self.convert("bitcast", power, "float32"), m)
        y = self._combine_log(m, self.convert("sitofp", exponent, "float32"))
        # Of -1, of infinity and beyond them; -0 became 0.
        ends = (("oeq", -1.0, self.number(float("-inf"), x)), ("oeq", float("inf"), x))
        for code, at, wanted in (*ends, ("ult", -1.0, self.number(float("nan"), x))):
            test = self.text.value(f"fcmp {code} {x.type} {x.text}, {self.constant(at, x)}", "bool", x.lanes)
            y = self.select(test, wanted, y)
        return self.intrinsic("copysign", y, x)

    def expm1(self, x: Value) -> Value:
        """Computes 2^n (e^r - 1) + (2^n - 1) with r in [-ln2/2, ln2/2], by half of 2^n, which never overflows."""
        clamped = self.intrinsic("minnum", self.intrinsic("maxnum", x, self.number(-30.0, x)), self.number(89.0, x))
        n = self.intrinsic("rint", self.op("fmul", clamped, 1.44269504088896341))
        r = self.fma(n, -0.693359375, clamped)
        r = self.fma(n, 2.12194440e-4, r)
        p = self.fma(self.polynomial(r, _EXP), self.op("fmul", r, r), r)
        power = self.integer("shl", self.integer("add", self.convert("fptosi", n, "int32"), 126), 23)
        half = self.convert("bitcast", power, "float32")
        y = self.fma(half, p, self.op("fadd", half, -0.5))
        y = self.op("fadd", y, y)
        # Next to 0 half of a denormal number may be none, and -0 became 0; NaN became a limit.
        tiny = self.text.value(
            f"fcmp ult {x.type} {self.intrinsic('fabs', x).text}, {self.constant(2.0**-26, x)}", "bool", x.lanes
        )
        return self.select(tiny, x, y)

    def call_function(self, function: str, *operands: Value) -> Value:
        """Calls a function of the module, see `argument_reduction.py`."""
        kind, lanes = operands[0].type, operands[0].lanes
        name = f"@{FUNCTION}{function}.{lanes}"
        self.declarations.add(f"declare {kind} {name}({', '.join([kind] * len(operands))})")
        given = ", ".join(f"{kind} {o.text}" for o in operands)
        return self.text.value(f"call {kind} {name}({given})", "float32", lanes)

    def sigmoid(self, x: Value) -> Value:
        e = self.exp(self.op("fsub", self.number(0.0, x), x))
        return self.op("fdiv", self.number(1.0, x), self.op("fadd", e, 1.0))

    def tanh(self, x: Value) -> Value:
        """Computes 1 - 2 / (e^2x + 1) away from 0, an odd polynomial below 0.625 (Cephes tanhf)."""
        e = self.exp(self.op("fadd", x, x))
        # Where e^2x overflows the quotient is 0, as it should be; near 0 the difference would lose its digits.
        far = self.op("fdiv", self.number(-2.0, x), self.op("fadd", e, 1.0))
        far = self.op("fadd", far, 1.0)
        z = self.op("fmul", x, x)
        coefficients: tuple[float, ...] = (
            -5.70498872745e-3,
            2.06390887954e-2,
            -5.37397155531e-2,
            1.33314422036e-1,
            -3.33332819422e-1,
        )
        near = self.fma(self.op("fmul", self.polynomial(z, coefficients), z), x, x)
        return self.select(self.less(self.intrinsic("fabs", x), 0.625), near, far)

    def erf(self, x: Value) -> Value:
        """Computes x * P(x^2) / Q(x^2) on |x| < 4, 1 beyond (rational minimax as in Eigen and XLA)."""
        # `minnum` and `maxnum` would make a limit of NaN; beside a constant these are one instruction, too.
        c = self.intrinsic("minimum", self.intrinsic("maximum", x, self.number(-4.0, x)), self.number(4.0, x))
        z = self.op("fmul", c, c)
        top: tuple[float, ...] = (
            -2.72614225801306e-10,
            2.77068142495902e-08,
            -2.10102402082508e-06,
            -5.69250639462346e-05,
        )
        top += (-7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02)
        low: tuple[float, ...] = (
            -1.45660718464996e-05,
            -2.13374055278905e-04,
            -1.68282697438203e-03,
            -7.37332916720468e-03,
        )
        low += (-1.42647390514189e-02,)
        numerator = self.op("fmul", self.polynomial(z, top), c)
        return self.op("fdiv", numerator, self.polynomial(z, low))

    def rsqrt(self, x: Value) -> Value:
        return self.op("fdiv", self.number(1.0, x), self.intrinsic("sqrt", x))

    def tfloat32(self, x: Value) -> Value:
        """Rounds to tfloat32: adds half of the last bit that stays, and cuts off the 13 bits behind it."""
        bits = self.integer("add", self.convert("bitcast", x, "int32"), 1 << 12)
        cut = self.convert("bitcast", self.integer("and", bits, -(1 << 13)), "float32")
        # The sum may carry NaN's bits over into another number's.
        unordered = self.text.value(f"fcmp uno {x.type} {x.text}, {x.text}", "bool", x.lanes)
        return self.select(unordered, x, cut)


_EMIT: dict[str, Callable[[VectorMath, Value], Value]] = {
    "exp": VectorMath.exp,
    "exp2": VectorMath.exp2,
    "log": VectorMath.log,
    "expm1": VectorMath.expm1,
    "log1p": VectorMath.log1p,
    "sin": lambda m, x: m.call_function("sin", x),
    "cos": lambda m, x: m.call_function("cos", x),
    "sigmoid": VectorMath.sigmoid,
    "tanh": VectorMath.tanh,
    "erf": VectorMath.erf,
    "rsqrt": VectorMath.rsqrt,
    "sqrt": lambda m, x: m.intrinsic("sqrt", x),
    "abs": lambda m, x: m.intrinsic("fabs", x),
    "floor": lambda m, x: m.intrinsic("floor", x),
    "rint": lambda m, x: m.intrinsic("rint", x),
    "tfloat32": VectorMath.tfloat32,
}
