"""Element-wise functions: each as an expression and on float64 arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from search_space import te
from search_space.ir import expr as ir
from search_space.ir.expr import Expr
from search_space.ir.semantics import BINARY as SEMANTICS
from search_space.ir.semantics import FUNCTIONS
from search_space.operators.base import Array


@dataclass(frozen=True)
class Function:
    """A function of one or two values.

    Attributes:
        expression: function of expressions, all of one dtype.
        reference: function of arrays.
        on_integers: defined on integers, too.
        bounds: range in which floating-point inputs are drawn.
    """

    expression: Callable[..., Expr]
    reference: Callable[..., Array]
    on_integers: bool = False
    bounds: tuple[float, float] = (-4.0, 4.0)


def _of_table(name: str) -> Function:
    """Makes the function of a row of `FUNCTIONS`, with the row's range of inputs."""
    row = FUNCTIONS[name]
    assert row.input_range is not None, name
    return Function(partial(ir.call, name), row.array, row.on_integers, row.input_range)


def _gelu(x: Expr) -> Expr:
    return x * 0.5 * (te.erf(x * math.sqrt(0.5)) + 1.0)


def _gelu_tanh(x: Expr) -> Expr:
    """Computes GELU by tanh (Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016)."""
    gate = te.tanh((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi))
    return x * 0.5 * (gate + 1.0)


def _compute_gelu_tanh(x: Array) -> Array:
    x = x.astype(np.float64)
    return np.asarray(x * 0.5 * (1 + np.tanh((x + 0.044715 * x**3) * math.sqrt(2 / math.pi))))


ACTIVATIONS = {
    "relu": Function(lambda x: te.maximum(x, 0), lambda x: np.maximum(x, 0), on_integers=True),
    "relu6": Function(
        lambda x: te.minimum(te.maximum(x, 0), 6), lambda x: np.clip(x, 0, 6), on_integers=True, bounds=(-4.0, 8.0)
    ),
    "sigmoid": _of_table("sigmoid"),
    "tanh": _of_table("tanh"),
    "gelu": Function(_gelu, lambda x: 0.5 * x * (1 + FUNCTIONS["erf"].array(x * math.sqrt(0.5)))),
    "silu": Function(lambda x: x * te.sigmoid(x), lambda x: x * FUNCTIONS["sigmoid"].array(x)),
}
"""Functions that may follow a layer within the same kernel."""

UNARY = {
    **ACTIVATIONS,
    **{name: _of_table(name) for name, row in FUNCTIONS.items() if row.input_range is not None},
    "negative": Function(lambda x: -x, np.negative, on_integers=True),
    "gelu_tanh": Function(_gelu_tanh, _compute_gelu_tanh),
}

BINARY = {
    "add": Function(lambda x, y: x + y, np.add, on_integers=True),
    "subtract": Function(lambda x, y: x - y, np.subtract, on_integers=True),
    "multiply": Function(lambda x, y: x * y, np.multiply, on_integers=True),
    "divide": Function(lambda x, y: x / y, np.divide, bounds=(0.1, 4.0)),
    "maximum": Function(te.maximum, np.maximum, on_integers=True),
    "minimum": Function(te.minimum, np.minimum, on_integers=True),
    "fmod": Function(te.fmod, SEMANTICS["fmod"].array, bounds=(0.1, 4.0)),
}


def names_for(functions: dict[str, Function], dtype: str) -> list[str]:
    """Lists the functions that are defined on values of `dtype`."""
    return [name for name, f in functions.items() if f.on_integers or dtype.startswith(("float", "bfloat"))]
