"""Element-wise functions: each as an expression and on float64 arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from search_space import te
from search_space.ir.expr import Expr
from search_space.operators.base import Array


@dataclass(frozen=True)
class Function:
    """A function of one or two values.

    Attributes:
        expression: of expressions, all of one dtype.
        reference: of arrays.
        whole: defined on integers, too.
        bounds: between which floating-point inputs are drawn.
    """

    expression: Callable[..., Expr]
    reference: Callable[..., Array]
    whole: bool = False
    bounds: tuple[float, float] = (-4.0, 4.0)


def erf(x: Array) -> Array:
    """The error function within 1e-12 (NumPy has none), by cubic interpolation between values of math.erf."""
    grid, step = _erf_grid()
    size = np.minimum(np.abs(x), (len(grid) - 2) * step)
    left = np.floor(size / step)
    t, at = size / step - left, left.astype(np.int64)
    low, high = (2 / math.sqrt(math.pi) * step * np.exp(-((s * step) ** 2)) for s in (left, left + 1))
    value = (2 * t**3 - 3 * t**2 + 1) * grid[at] + (3 * t**2 - 2 * t**3) * grid[at + 1]
    slope = (t**3 - 2 * t**2 + t) * low + (t**3 - t**2) * high
    return np.copysign(value + slope, x)


@cache
def _erf_grid() -> tuple[Array, float]:
    step = 1 / 512
    return np.array([math.erf(i * step) for i in range(6 * 512 + 2)]), step


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), whose small values keep their digits."""
    found: Array = np.exp(-np.logaddexp(0, -x))
    return found


def _gelu(x: Expr) -> Expr:
    return x * 0.5 * (te.erf(x * math.sqrt(0.5)) + 1.0)


ACTIVATIONS = {
    "relu": Function(lambda x: te.maximum(x, 0), lambda x: np.maximum(x, 0), whole=True),
    "relu6": Function(
        lambda x: te.minimum(te.maximum(x, 0), 6), lambda x: np.clip(x, 0, 6), whole=True, bounds=(-4.0, 8.0)
    ),
    "sigmoid": Function(te.sigmoid, sigmoid),
    "tanh": Function(te.tanh, np.tanh),
    "gelu": Function(_gelu, lambda x: 0.5 * x * (1 + erf(x * math.sqrt(0.5)))),
    "silu": Function(lambda x: x * te.sigmoid(x), lambda x: x * sigmoid(x)),
}
"""What may follow a layer within the same kernel."""

UNARY = {
    **ACTIVATIONS,
    "exp": Function(te.exp, np.exp),
    "log": Function(te.log, np.log, bounds=(0.1, 4.0)),
    "erf": Function(te.erf, erf),
    "sqrt": Function(te.sqrt, np.sqrt, bounds=(0.0, 4.0)),
    "rsqrt": Function(te.rsqrt, lambda x: 1 / np.sqrt(x), bounds=(0.1, 4.0)),
    "abs": Function(te.abs, np.abs, whole=True),
    "floor": Function(te.floor, np.floor),
    "negative": Function(lambda x: -x, np.negative, whole=True),
}

BINARY = {
    "add": Function(lambda x, y: x + y, np.add, whole=True),
    "subtract": Function(lambda x, y: x - y, np.subtract, whole=True),
    "multiply": Function(lambda x, y: x * y, np.multiply, whole=True),
    "divide": Function(lambda x, y: x / y, np.divide, bounds=(0.1, 4.0)),
    "maximum": Function(te.maximum, np.maximum, whole=True),
    "minimum": Function(te.minimum, np.minimum, whole=True),
}


def known(functions: dict[str, Function], dtype: str) -> list[str]:
    """Names of the functions that are defined on values of `dtype`."""
    return [name for name, f in functions.items() if f.whole or dtype.startswith(("float", "bfloat"))]
