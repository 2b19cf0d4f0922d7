"""Tangent, hyperbolic functions and inverses, composed of polynomials, sines, exponentials and logarithms.

The polynomials are those of Moshier's Cephes library, in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from autotune.graph.calls import Call
from autotune.graph.frontends.onnx.importer.activations import with_number
from autotune.graph.frontends.onnx.importer.registry import imports

_ATAN = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)
_SINH = (2.7557319e-6, 1.98412698e-4, 8.3333333e-3, 1.6666667e-1)
_ASINH = (2.0122003309e-2, -4.2699340972e-2, 7.4847586088e-2, -1.6666288134e-1)
_ATANH = (1.81740078349e-1, 8.24370301058e-2, 1.46691431730e-1, 1.99782164500e-1, 3.33337300303e-1)
_HUGE = 1e9
"""Size above which x^2 + 1 rounds to x^2."""
_REACH = 88.0
"""Number below the largest one with a finite exponential."""


def _odd(call: Call, x: str, coefficients: Sequence[float]) -> str:
    """Computes x + x^3 * p(x^2); coefficients begin with the highest power."""
    square = call.add("multiply", [x, x])
    out = with_number(call, "multiply", square, coefficients[0])
    for place, coefficient in enumerate(coefficients[1:]):
        out = call.add("multiply", [out, square]) if place else out
        out = with_number(call, "add", out, coefficient)
    return call.add("add", [x, call.add("multiply", [call.add("multiply", [out, square]), x])])


def _near_zero(call: Call, x: str, reach: float, near: str, far: str) -> str:
    """Selects `near` if |x| is below `reach`, else `far` with the sign of x."""
    size, zero = call.add("abs", [x]), call.scalar(0.0, x)
    signed = call.add("where", [call.add("less", [x, zero]), call.add("negative", [far]), far])
    return call.add("where", [call.add("less", [size, call.scalar(reach, x)]), near, signed])


def _tangent(call: Call, x: str) -> str:
    return call.add("divide", [call.add("sin", [x]), call.add("cos", [x])])


def _arc_tangent(call: Call, x: str) -> str:
    """Computes the arctangent of x, of (|x| - 1) / (|x| + 1) plus pi / 4, or of -1 / |x| plus pi / 2."""
    size = call.add("abs", [x])
    one = call.scalar(1.0, x)
    middle = call.add("divide", [call.add("subtract", [size, one]), call.add("add", [size, one])])
    large = call.add("divide", [call.scalar(-1.0, x), size])
    above = [call.add("less", [call.scalar(math.tan(k * math.pi / 8), x), size]) for k in (3, 1)]

    def choose(far: str, between: str, near: str) -> str:
        return call.add("where", [above[0], far, call.add("where", [above[1], between, near])])

    turned = choose(*(call.scalar(k * math.pi / 4, x) for k in (2, 1, 0)))
    out = call.add("add", [turned, _odd(call, choose(large, middle, size), _ATAN)])
    return call.add("where", [call.add("less", [x, call.scalar(0.0, x)]), call.add("negative", [out]), out])


def _around_one(call: Call, x: str) -> tuple[str, str]:
    """Computes 1 - x and 1 + x."""
    one = call.scalar(1.0, x)
    return call.add("subtract", [one, x]), call.add("add", [one, x])


def _arc_sine(call: Call, x: str) -> str:
    leg = call.add("sqrt", [call.add("multiply", list(_around_one(call, x)))])
    return _arc_tangent(call, call.add("divide", [x, leg]))


def _arc_cosine(call: Call, x: str) -> str:
    ratio = call.add("sqrt", [call.add("divide", list(_around_one(call, x)))])
    return with_number(call, "multiply", _arc_tangent(call, ratio), 2.0)


def _halves(call: Call, x: str) -> tuple[str, str]:
    """Computes exp(x) / 2 and exp(-x) / 2."""
    return _half_power(call, x), _half_power(call, call.add("negative", [x]))


def _half_power(call: Call, x: str) -> str:
    """Computes exp(x) / 2, finite for some x whose exp(x) is not: a second factor covers x beyond `_REACH`."""
    near = with_number(call, "multiply", call.add("exp", [with_number(call, "minimum", x, _REACH)]), 0.5)
    over = with_number(call, "maximum", with_number(call, "subtract", x, _REACH), 0.0)
    return call.add("multiply", [near, call.add("exp", [over])])


def _hyperbolic_sine(call: Call, x: str) -> str:
    far = call.add("subtract", list(_halves(call, call.add("abs", [x]))))
    return _near_zero(call, x, 1.0, _odd(call, x, _SINH), far)


def _hyperbolic_cosine(call: Call, x: str) -> str:
    return call.add("add", list(_halves(call, x)))


def _inverse_hyperbolic_sine(call: Call, x: str) -> str:
    """Computes log(size + sqrt(size^2 + 1)) with the sign of x, for large sizes log(2 size)."""
    size = call.add("abs", [x])
    root = call.add("sqrt", [with_number(call, "add", call.add("multiply", [size, size]), 1.0)])
    small = call.add("log", [call.add("add", [size, root])])
    large = with_number(call, "add", call.add("log", [size]), math.log(2))
    far = call.add("where", [call.add("less", [size, call.scalar(_HUGE, size)]), small, large])
    return _near_zero(call, x, 0.5, _odd(call, x, _ASINH), far)


def _inverse_hyperbolic_cosine(call: Call, x: str) -> str:
    """Computes log(1 + t + sqrt(t) sqrt(t + 2)) with t = x - 1, precise near 1; for large x log(2 x).

    One root of the product would be real below -1, where both factors are negative and there is no result.
    """
    above = with_number(call, "subtract", x, 1.0)
    roots = [call.add("sqrt", [factor]) for factor in (above, with_number(call, "add", above, 2.0))]
    root = call.add("multiply", roots)
    small = call.add("log1p", [call.add("add", [above, root])])
    large = with_number(call, "add", call.add("log", [x]), math.log(2))
    return call.add("where", [call.add("less", [x, call.scalar(_HUGE, x)]), small, large])


def _inverse_hyperbolic_tangent(call: Call, x: str) -> str:
    below, above = _around_one(call, call.add("abs", [x]))
    far = with_number(call, "multiply", call.add("log", [call.add("divide", [above, below])]), 0.5)
    return _near_zero(call, x, 0.5, _odd(call, x, _ATANH), far)


_FUNCTIONS: dict[str, Callable[[Call, str], str]] = {
    "Tan": _tangent,
    "Asin": _arc_sine,
    "Acos": _arc_cosine,
    "Atan": _arc_tangent,
    "Sinh": _hyperbolic_sine,
    "Cosh": _hyperbolic_cosine,
    "Asinh": _inverse_hyperbolic_sine,
    "Acosh": _inverse_hyperbolic_cosine,
    "Atanh": _inverse_hyperbolic_tangent,
}


@imports(*_FUNCTIONS)
def trigonometric(call: Call) -> str:
    """Computes the function of each element; angles are radians."""
    return _FUNCTIONS[call.op](call, call.value(0))
