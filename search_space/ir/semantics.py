"""Semantics of operators: a row each, for the code that folds, evaluates, bounds, counts or writes expressions.

Emitters have code of their own for each; `tests/contracts/test_function_contract.py` checks all of them against a row.
"""

from __future__ import annotations

import math
import operator as op
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_space.dtypes import BITS, FLOATS, numpy_dtype, round_tfloat32

HUGE = 1e30
"""Bound at which estimates of values saturate."""

Array = NDArray[Any]
Interval = tuple[Any, Any]
"""Least and greatest value, both inclusive."""

_ANY = ("numbers", frozenset(BITS))
_NUMBERS = ("numbers", frozenset(BITS) - {"bool"})
_INTEGERS = ("integers (use te.floor_divide and te.floor_mod on floats)", frozenset(BITS) - {"bool", *FLOATS})
_FLOATING = ("floating-point (use // on integers)", frozenset(FLOATS))
_BOOL = ("bool", frozenset(["bool"]))
_INT32 = ("int32", frozenset(["int32"]))


@dataclass(frozen=True)
class BinaryOperator:
    """An operator on two values of one dtype.

    Attributes:
        symbol, rank: symbol in text, and its precedence there.
        number: function of two numbers, Python's or NumPy's: folds constants. A quotient of integers is rounded down.
        array: function of arrays, element by element.
        operands: description of the operands in messages, and their dtypes.
        interval: function from the operands' intervals to that of the result, of integers, or of floats for sums and
            products; None: any value.
        column: function of values on a tape of float64 columns (`search_space.ir.tape`); None: a tape cannot hold it.
        commutative: whether operands may be exchanged.
        truth: whether the result is a bool.
        cost: number of vector instructions in estimates of time.
    """

    symbol: str
    rank: float
    number: Callable[[Any, Any], Any]
    array: Callable[[Any, Any], Any]
    operands: tuple[str, frozenset[str]]
    interval: Callable[[Interval, Interval], Interval | None] = lambda a, b: None
    column: Callable[[Any, Any], Any] | None = None
    commutative: bool = False
    truth: bool = False
    cost: float = 1.0

    @property
    def counted(self) -> bool:
        """True for an operation of a definition: no comparison, and not on bools alone."""
        return not self.truth and self.operands is not _BOOL


@dataclass(frozen=True)
class MathFunction:
    """A function of one floating-point value.

    Attributes:
        array: function of float64 arrays. Other dtypes are widened, and the result is rounded once: `apply_function`.
        estimate: (least, greatest, typical size) of the argument → the same of the result, and the slope.
        cost: number of vector instructions, as of a `BinaryOperator`.
        defined: test whether it is defined for all arguments from a least one on.
        exact: whether the result is the same number on all machines.
        step: relative distance of neighbouring results, where that is more than that of their dtype.
        jump: distance of two results whose arguments may be next to each other, where errors of arguments count.
        input_range: range of random inputs for the element-wise operator of its name; None: there is no such operator.
        on_integers: whether that operator is defined on integers, too.
    """

    array: Callable[[Any], Array]
    estimate: Callable[[float, float, float], tuple[float, float, float, float]]
    cost: float = 1.0
    defined: Callable[[float], bool] = lambda least: True
    exact: bool = False
    step: float = 0.0
    jump: float = 0.0
    input_range: tuple[float, float] | None = (-4.0, 4.0)
    on_integers: bool = False


def apply_function(function: str, values: Any, dtype: str) -> Array:
    """Applies a math function to values of a dtype, with float64's accuracy and one rounding."""
    with np.errstate(all="ignore"):
        return np.asarray(FUNCTIONS[function].array(np.asarray(values, np.float64))).astype(numpy_dtype(dtype))


def erf(x: Array) -> Array:
    """Computes the error function within 1e-12 (NumPy has none), by cubic interpolation of values of math.erf."""
    grid, step = _erf_grid()
    size = np.fmin(np.abs(x), (len(grid) - 2) * step)
    left = np.floor(size / step)
    t, at = size / step - left, left.astype(np.int64)
    low, high = (2 / math.sqrt(math.pi) * step * np.exp(-((s * step) ** 2)) for s in (left, left + 1))
    value = (2 * t**3 - 3 * t**2 + 1) * grid[at] + (3 * t**2 - 2 * t**3) * grid[at + 1]
    slope = (t**3 - 2 * t**2 + t) * low + (t**3 - t**2) * high
    return np.where(np.isnan(x), x, np.copysign(value + slope, x))


@cache
def _erf_grid() -> tuple[Array, float]:
    step = 1 / 512
    return np.array([math.erf(i * step) for i in range(6 * 512 + 2)]), step


def _sigmoid(x: Array) -> Array:
    """Computes 1 / (1 + exp(-x)); small results keep their digits."""
    found: Array = np.exp(-np.logaddexp(0, -x))
    return found


def _fmod(a: Any, b: Any) -> Any:
    """Subtracts from a the multiple of b next to it towards zero, exactly; NaN for infinite a and for b 0."""
    with np.errstate(invalid="ignore"):
        return np.fmod(a, b)


def _rint(x: Array) -> Array:
    return np.rint(np.asarray(x, np.float32)).astype(np.float64)  # ties are those of float32


def _tfloat32(x: Any) -> Array:
    return round_tfloat32(x).astype(np.float64)


def _root(x: float) -> float:
    return math.sqrt(max(x, 0.0))


def _log(x: float) -> float:
    return math.log(max(x, 1 / HUGE))


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(min(-x, 600.0)))


def _exp(low: float, high: float, _: float) -> tuple[float, float, float, float]:
    # A softmax subtracts the largest first, which intervals do not see: arguments are assumed to be at most 1.
    size = math.exp(min(high, 1.0))
    return math.exp(max(low, -600.0)), math.exp(min(high, 69.0)), size, size


def _expm1(low: float, high: float, size: float) -> tuple[float, float, float, float]:
    grown = math.exp(min(high, 1.0))
    return math.expm1(max(low, -600.0)), math.expm1(min(high, 69.0)), max(min(size, grown), 1 / HUGE), grown


def _log1p(low: float, high: float, size: float) -> tuple[float, float, float, float]:
    least = max(1 + low, 1 / HUGE)
    typical = max(abs(math.log(least)), math.log1p(max(high, 0.0)), 1 / HUGE)
    return math.log(least), _log(1 + high), min(size, typical) if low >= 0 else typical, max(1.0, 1 / least)


def _wave(low: float, high: float, size: float) -> tuple[float, float, float, float]:
    return -1.0, 1.0, 1.0, 1.0


def _rsqrt(low: float, high: float, size: float) -> tuple[float, float, float, float]:
    return 1 / _root(max(high, 1 / HUGE)), 1 / _root(max(low, 1 / HUGE)), 1 / _root(size), 0.5 / size**1.5


def _abs(low: float, high: float, size: float) -> tuple[float, float, float, float]:
    return 0.0 if low < 0 < high else min(abs(low), abs(high)), max(-low, high), size, 1.0


def _any(a: Interval, b: Interval) -> None:
    """Returns None: nothing is known."""


def _each(operation: Callable[[Any, Any], Any]) -> Callable[[Interval, Interval], Interval]:
    """Returns the interval rule of an operation that increases with both operands."""
    return lambda a, b: (operation(a[0], b[0]), operation(a[1], b[1]))


def _ends(operation: Callable[[Any, Any], Any]) -> Callable[[Interval, Interval], Interval]:
    """Returns the interval rule of an operation monotone in each operand: its ends are at ends of the operands."""

    def interval(a: Interval, b: Interval) -> Interval:
        ends = [operation(x, y) for x in a for y in b]
        return min(ends), max(ends)

    return interval


def _quotient(a: Interval, b: Interval) -> Interval | None:
    return None if b[0] <= 0 <= b[1] else _ends(op.floordiv)(a, b)


def _remainder(a: Interval, b: Interval) -> Interval | None:
    if b[0] <= 0 <= b[1]:
        return None
    if b[0] == b[1] and a[0] // b[0] == a[1] // b[0]:
        return a[0] % b[0], a[1] % b[0]
    if b[1] < 0:
        return b[0] + 1, 0
    return 0, min(a[1], b[1] - 1) if a[0] >= 0 else b[1] - 1


def _bits(a: Interval, b: Interval) -> Interval | None:
    """Bounds the common bits of two integers: they are at most any operand that is not negative."""
    tops = [high for low, high in (a, b) if low >= 0]
    return (0, min(tops)) if tops else None


def _byte_dot(a: Any, b: Any) -> Any:
    """Adds up the products of the four unsigned bytes of one word and the signed bytes of another."""
    return sum(((a >> place) & 255) * ((((b >> place) & 255) ^ 128) - 128) for place in (0, 8, 16, 24))


def _lesser(a: Any, b: Any) -> Any:
    """Returns the lesser of two numbers; NaN if either is NaN."""
    return a if a < b or a != a else b


def _greater(a: Any, b: Any) -> Any:
    """Returns the greater of two numbers; NaN if either is NaN."""
    return a if a > b or a != a else b


def _differ(a: Any, b: Any) -> Any:
    return a.equals(b).equals(0)


BINARY: dict[str, BinaryOperator] = {
    "add": BinaryOperator("+", 4, op.add, np.add, _NUMBERS, _each(op.add), op.add, commutative=True),
    "sub": BinaryOperator("-", 4, op.sub, np.subtract, _NUMBERS, lambda a, b: (a[0] - b[1], a[1] - b[0]), op.sub),
    "mul": BinaryOperator("*", 5, op.mul, np.multiply, _NUMBERS, _ends(op.mul), op.mul, commutative=True),
    "div": BinaryOperator("/", 5, op.truediv, np.divide, _FLOATING, _any, op.truediv, cost=8.0),
    "floordiv": BinaryOperator("//", 5, op.floordiv, np.floor_divide, _INTEGERS, _quotient, op.floordiv),
    "mod": BinaryOperator("%", 5, op.mod, np.mod, _INTEGERS, _remainder, lambda a, b: a - b * (a // b)),
    "fmod": BinaryOperator("", 9, _fmod, _fmod, _FLOATING, cost=32.0),
    "shl": BinaryOperator("<<", 3.5, lambda a, b: a << (b & 31), lambda a, b: np.left_shift(a, b & 31), _INT32),
    "shr": BinaryOperator(">>", 3.5, lambda a, b: a >> (b & 31), lambda a, b: np.right_shift(a, b & 31), _INT32),
    "bitand": BinaryOperator("&", 3.25, op.and_, np.bitwise_and, _INT32, _bits, commutative=True),
    "bytedot": BinaryOperator(
        "", 9, _byte_dot, _byte_dot, _INT32, lambda a, b: (-4 * 255 * 128, 4 * 255 * 127), cost=24.0
    ),
    "min": BinaryOperator("", 9, _lesser, np.minimum, _ANY, _each(min), lambda a, b: a.least(b), commutative=True),
    "max": BinaryOperator("", 9, _greater, np.maximum, _ANY, _each(max), lambda a, b: a.most(b), commutative=True),
    "lt": BinaryOperator("<", 3, op.lt, np.less, _ANY, _any, op.lt, truth=True),
    "le": BinaryOperator("<=", 3, op.le, np.less_equal, _ANY, _any, op.le, truth=True),
    "eq": BinaryOperator("==", 3, op.eq, np.equal, _ANY, _any, lambda a, b: a.equals(b), commutative=True, truth=True),
    "ne": BinaryOperator("!=", 3, op.ne, np.not_equal, _ANY, _any, _differ, commutative=True, truth=True),
    "and": BinaryOperator(
        "and", 2, lambda a, b: a and b, np.logical_and, _BOOL, _any, lambda a, b: a.least(b), commutative=True
    ),
    "or": BinaryOperator(
        "or", 1, lambda a, b: a or b, np.logical_or, _BOOL, _any, lambda a, b: a.most(b), commutative=True
    ),
}
"""Name -> row. The shifts are of int32, by an amount modulo 32; to the right the sign is kept.

`floordiv` and `mod` by zero are 0, and the least number by -1 wraps around, as in NumPy: nothing traps. `fmod` is C's,
exact, with the sign of the dividend. `bytedot` takes two words: it adds up four products of unsigned bytes of the left
and signed bytes of the right one. Its cost is that of a machine without an instruction for it.
"""

FUNCTIONS: dict[str, MathFunction] = {
    "exp": MathFunction(np.exp, _exp, cost=12.0),
    "exp2": MathFunction(np.exp2, lambda *sizes: _exp(*(v * math.log(2) for v in sizes)), cost=12.0),
    "log": MathFunction(
        np.log,
        lambda low, high, size: (_log(low), _log(high), max(abs(_log(size)), 1.0), 1 / size),
        cost=16.0,
        defined=lambda least: least > 0,
        input_range=(0.1, 4.0),
    ),
    "expm1": MathFunction(np.expm1, _expm1, cost=16.0),
    "log1p": MathFunction(np.log1p, _log1p, cost=20.0, defined=lambda least: least > -1, input_range=(-0.9, 4.0)),
    "sin": MathFunction(np.sin, _wave, cost=24.0),
    "cos": MathFunction(np.cos, _wave, cost=24.0),
    "tanh": MathFunction(
        np.tanh, lambda low, high, size: (math.tanh(low), math.tanh(high), min(size, 1.0), 1.0), cost=20.0
    ),
    "erf": MathFunction(
        erf,
        lambda low, high, size: (math.erf(low), math.erf(high), min(size, 1.0), 2 / math.sqrt(math.pi)),
        cost=20.0,
    ),
    "sigmoid": MathFunction(_sigmoid, lambda low, high, size: (_logistic(low), _logistic(high), 1.0, 0.25), cost=20.0),
    "sqrt": MathFunction(
        np.sqrt,
        lambda low, high, size: (_root(low), _root(high), _root(size), 0.5 / _root(size)),
        cost=10.0,
        defined=lambda least: least >= 0,
        exact=True,
        input_range=(0.0, 4.0),
    ),
    "rsqrt": MathFunction(
        lambda x: 1 / np.sqrt(x), _rsqrt, cost=12.0, defined=lambda least: least > 0, input_range=(0.1, 4.0)
    ),
    "abs": MathFunction(np.abs, _abs, exact=True, on_integers=True),
    "floor": MathFunction(
        np.floor, lambda low, high, size: (math.floor(low), math.floor(high), max(size, 1.0), 1.0), exact=True
    ),
    "rint": MathFunction(
        _rint,
        lambda low, high, size: (round(low), round(high), max(size, 1.0), 1.0),
        exact=True,
        jump=1.0,
    ),
    "tfloat32": MathFunction(
        _tfloat32, lambda low, high, size: (low, high, size, 1.0), exact=True, step=2.0**-10, input_range=None
    ),
}
"""Name -> row. A new function is a row here and its emission on the CPU and on GPUs (docs/adding_an_operator.md)."""
