"""Math functions by the instructions of AVX-512, on registers of 16 float32.

A permutation of a register looks up the coefficients of polynomials over 16 intervals (`piecewise.py`). The
instructions `vscalefps` and `vreduceps` split powers of 2 with no limits to test. If a result is at once rounded to
bfloat16, functions of `SHORT` are relatively within 2^-11 of the exact value. That is an eighth to a quarter of the
greatest rounding error:

| | float32 | for bfloat16 |
|---|---|---|
| exp | 2 ulp | 2^-13 |
| sigmoid, silu | 4 ulp | 2^-12 |
| tanh | 4 ulp | 2^-15 |
| erf | 4 ulp | 2^-14 |
| gelu | 2e-7 of the argument | 2^-11 above -5; below, 1e-8 absolute |

In a softmax, the argument of `exp` is a difference d, which is rounded by up to 2^-24 |d|. The result has a relative
error as large. `exp_difference` is 2^(d log2(e)), whose product adds a rounding error as large, and takes 8
instructions in place of 11. Its relative error is within 1.5 * 2^-23 (1 + |d|).

NaN stays NaN. `gelu` and `silu` are not in the table of operators; `match_form` recognises their expressions. For x
slightly below 0, 1 + erf(x) has no digit left, but the function `gelu` keeps its digits. At minus infinity it is its
limit, 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from search_space.ir.expr import Expr
from targets.cpu import piecewise
from targets.cpu.piecewise import Table
from targets.cpu.text import Value, float_literal
from targets.cpu.vector_math import ROUNDING_SHIFT, VectorMath

LANES = 16
"""Elements of 32 bits in a register of AVX-512."""
REQUIRED_FEATURE = "avx512f"
ROUNDS = "avx512bf16"
"""Processors that round to bfloat16 have `vreduceps`, too, which is of AVX512-DQ."""
DIFFERENCES = "avx512dq"
"""Instruction set of `vreduceps`."""
_LOG2_E = 1.44269504088896341
_POWER = (0.07706641, 0.22764568, 0.69511663, 1.0)
"""2^r on [0, 1), relatively within 8.6e-5, the least there is for this degree and 1 at 0."""
_WHOLE_POWER = (0.0018669571, 0.0090174722, 0.0557995178, 0.2401645929, 0.6931512952, 1.0)
"""Coefficients of 2^r on [0, 1), relatively within 8.3e-8, less than an ulp of a float32 in [1, 2]."""


@dataclass(frozen=True)
class Form:
    """A function in the form of an expression.

    Attributes:
        function: `gelu`, `silu`, `exp_difference`, or a row of the table of operators.
        argument: argument of the function.
    """

    function: str
    argument: Expr


def match_form(e: Expr) -> Form | None:
    """Recognises a function by the form of a float32 expression; None for any other.

    Forms: x * 0.5 * (1 + erf(x / sqrt 2)) or x * sigmoid(x), factors and summands in any order; or exp(x - y).
    """
    if e.op == "call" and e.dtype == "float32" and e.args[0] == "exp" and e.args[1].op == "sub":
        return Form("exp_difference", e.args[1])
    if e.op != "mul" or e.dtype != "float32":
        return None
    x: Expr
    other: Expr
    for x, other in (e.args, e.args[::-1]):
        if other.op == "call" and other.args[0] == "sigmoid" and other.args[1] is x:
            return Form("silu", x)
        if (inner := _find_scaled_operand(x, 0.5)) is not None and (of := _one_plus_erf(other)) is not None:
            if _find_scaled_operand(of, math.sqrt(0.5)) is inner:
                return Form("gelu", inner)
    return None


def match_short_form(e: Expr) -> Form | None:
    """Recognises a function of `SHORT` by its name or its form."""
    if e.op == "call" and e.dtype == "float32" and e.args[0] in SHORT:
        return Form(e.args[0], e.args[1])
    return match_form(e)


def _find_scaled_operand(e: Expr, factor: float) -> Expr | None:
    """Returns the operand that is multiplied by a constant factor."""
    x: Expr
    other: Expr
    if e.op == "mul":
        for x, other in (e.args, e.args[::-1]):
            if other.is_const and abs(float(other.value) - factor) < 1e-7:  # the constant may be rounded to float32
                return x
    return None


def _one_plus_erf(e: Expr) -> Expr | None:
    """Returns the argument of erf."""
    x: Expr
    if e.op == "add":
        for x, other in (e.args, e.args[::-1]):
            if other.is_const and other.value == 1 and x.op == "call" and x.args[0] == "erf":
                found: Expr = x.args[1]
                return found
    return None


def has(math: VectorMath, lanes: int) -> bool:
    """Tells whether functions of so many lanes are available."""
    return lanes == LANES and REQUIRED_FEATURE in math.features


def apply(math: VectorMath, function: str, x: Value, short: bool = False) -> Value:
    """Emits a function of the table of operators, `gelu` or `silu`.

    Args:
        math: emits.
        function: its name, or that of a form.
        x: float32.
        short: whether the result is rounded to bfloat16.
    """
    if has(math, x.lanes):
        if short and ROUNDS in math.features and function in SHORT:
            return SHORT[function](math, x)
        if function in WIDE:
            return WIDE[function](math, x)
    return math.apply(function, x)


def looked_up(math: VectorMath, table: Table, x: Value) -> Value:
    """Computes the table's function of numbers that are not negative, or NaN."""
    limited = math.limit_ordered("olt", math.number((piecewise.INTERVALS - 1) / table.scale, x), x)
    shifted = math.fma(limited, table.scale, ROUNDING_SHIFT)
    place = math.op("fsub", shifted, ROUNDING_SHIFT)
    distance = math.fma(limited, table.scale, math.negate(place))
    index = math.convert("bitcast", shifted, "int32")
    highest, *others = (_look_up(math, numbers, index) for numbers in table.coefficients)
    found = highest
    for coefficient in others:
        found = math.fma(found, distance, coefficient)
    return found


def _look_up(math: VectorMath, numbers: tuple[float, ...], index: Value) -> Value:
    """Looks up, in each lane, the number that the lowest four bits of its index name."""
    kind, index_type = f"<{LANES} x float>", f"<{LANES} x i32>"
    if not any(numbers):
        return math.number(0.0, index)
    name = "llvm.x86.avx512.permvar.sf.512"
    math.declarations.add(f"declare {kind} @{name}({kind}, {index_type})")
    held = ", ".join(f"float {float_literal(number, 'float32')}" for number in numbers)
    return math.text.value(f"call {kind} @{name}({kind} <{held}>, {index_type} {index.text})", "float32", LANES)


def _odd(math: VectorMath, x: Value, table: Table) -> Value:
    return math.intrinsic("copysign", looked_up(math, table, math.intrinsic("fabs", x)), x)


def _gelu(math: VectorMath, x: Value, table: Table) -> Value:
    """Computes GELU: max(x, 0) less the excess of that, which is the same for x and -x."""
    zero = math.number(0.0, x)
    positive = math.limit_ordered("ogt", zero, x)
    return math.op("fsub", positive, looked_up(math, table, math.intrinsic("fabs", x)))


def silu(math: VectorMath, x: Value) -> Value:
    """Computes x / (1 + exp(-x))."""
    return math.op("fdiv", x, math.op("fadd", math.exp(math.negate(x)), 1.0))


def exp_difference(math: VectorMath, x: Value) -> Value:
    if DIFFERENCES not in math.features:
        return math.exp(x)
    return _power(math, math.op("fmul", x, _LOG2_E), _WHOLE_POWER)


def short_exp(math: VectorMath, x: Value) -> Value:
    return _power(math, math.op("fmul", x, _LOG2_E))


def short_sigmoid(math: VectorMath, x: Value) -> Value:
    power = _power(math, math.op("fmul", x, -_LOG2_E))
    return _reciprocal(math, math.op("fadd", power, 1.0))


def short_silu(math: VectorMath, x: Value) -> Value:
    return math.op("fmul", x, short_sigmoid(math, x))


def _power(math: VectorMath, x: Value, coefficients: Sequence[float] = _POWER) -> Value:
    """Computes 2^x: 2^r on [0, 1) as a polynomial of the fractional part of x, scaled by the power of its floor."""
    kind = x.type
    reduce, scale = "llvm.x86.avx512.mask.reduce.ps.512", "llvm.x86.avx512.mask.scalef.ps.512"
    math.declarations.add(f"declare {kind} @{reduce}({kind}, i32, {kind}, i16, i32)")
    math.declarations.add(f"declare {kind} @{scale}({kind}, {kind}, {kind}, i16, i32)")
    # The immediate 1 rounds down, as `vscalefps` does with its exponent; 4 leaves the rounding of results as it is.
    line = f"call {kind} @{reduce}({kind} {x.text}, i32 1, {kind} zeroinitializer, i16 -1, i32 4)"
    rest = math.text.value(line, "float32", LANES)
    p = math.polynomial(rest, coefficients)
    line = f"call {kind} @{scale}({kind} {p.text}, {kind} {x.text}, {kind} zeroinitializer, i16 -1, i32 4)"
    return math.text.value(line, "float32", LANES)


def _reciprocal(math: VectorMath, x: Value) -> Value:
    """Computes 1 / x, relatively within 2^-14."""
    kind, name = x.type, "llvm.x86.avx512.rcp14.ps.512"
    math.declarations.add(f"declare {kind} @{name}({kind}, {kind}, i16)")
    line = f"call {kind} @{name}({kind} {x.text}, {kind} zeroinitializer, i16 -1)"
    return math.text.value(line, "float32", LANES)


WIDE: dict[str, Callable[[VectorMath, Value], Value]] = {
    "erf": lambda m, x: _odd(m, x, piecewise.ERF),
    "tanh": lambda m, x: _odd(m, x, piecewise.TANH),
    "gelu": lambda m, x: _gelu(m, x, piecewise.GELU),
    "silu": silu,
    "exp_difference": exp_difference,
}
SHORT: dict[str, Callable[[VectorMath, Value], Value]] = {
    "erf": lambda m, x: _odd(m, x, piecewise.ERF_SHORT),
    "tanh": lambda m, x: _odd(m, x, piecewise.TANH_SHORT),
    "gelu": lambda m, x: _gelu(m, x, piecewise.GELU_SHORT),
    "exp": short_exp,
    "sigmoid": short_sigmoid,
    "silu": short_silu,
}
