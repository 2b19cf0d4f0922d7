"""Element-wise functions with attributes, as networks use them: activations, powers, rounding."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from autotune.graph.ir import Array, Attributes
from autotune.graph.ops.base import GraphOp, Kind, Tensors, exactly, register
from autotune.graph.ops.elementwise import computed
from search_space import te
from search_space.ir.expr import Expr, make


def _function(
    name: str, expression: Callable[..., Expr], reference: Callable[..., Array], /, **defaults: float
) -> GraphOp:
    """An operation whose attributes are the keyword arguments of both functions; NumPy computes in 64 bits."""

    def define(attrs: Attributes, tensors: Tensors) -> te.Tensor:
        return computed(name, lambda *x: expression(*x, **attrs), tensors)

    def compute(attrs: Attributes, *arrays: Array) -> Array:
        wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
        with np.errstate(all="ignore"):
            return reference(*wide, **attrs)

    return GraphOp(name, Kind.elementwise, exactly(**defaults), define, compute=compute)


def power(x: Expr, exponent: float) -> Expr:
    """x to a constant power: products where it is a small integer, roots, else by the logarithm."""
    if exponent < 0:
        return 1.0 / power(x, -exponent)
    if exponent == 0.5:
        return te.sqrt(x)
    if exponent != int(exponent) or exponent > 16:
        return _signed_power(x, exponent)
    out: Any = None
    for _ in range(int(exponent)):
        out = x if out is None else out * x
    return x * 0.0 + 1.0 if out is None else out


def _signed_power(x: Expr, exponent: float) -> Expr:
    size = te.exp(te.log(te.abs(x)) * exponent)
    if exponent != int(exponent):
        return te.if_then_else(x < 0.0, math.nan, size)
    return te.if_then_else(x < 0.0, make("sub", 0.0, size), size) if exponent % 2 else size


def _pow(x: Expr, y: Expr) -> Expr:
    """As the function of that name in C, but for infinite arguments."""
    size = te.exp(te.log(te.abs(x)) * y)
    half = te.floor(y * 0.5) * 2.0
    odd = te.if_then_else(te.eq(half, y), size, make("sub", 0.0, size))
    negative = te.if_then_else(te.eq(te.floor(y), y), odd, math.nan)
    return te.if_then_else(te.eq(y, 0.0), 1.0, te.if_then_else(x < 0.0, negative, size))


def _softplus(x: Expr) -> Expr:
    """log(1 + e^x) with no overflow."""
    return te.maximum(x, 0.0) + te.log(te.exp(make("sub", 0.0, te.abs(x))) + 1.0)


def _round(x: Expr) -> Expr:
    """To the nearest integer, halves to the even one."""
    near = te.floor(x + 0.5)
    tie = te.all(te.eq(near - x, 0.5), make("ne", te.floor(near * 0.5) * 2.0, near))
    return te.if_then_else(tie, near - 1.0, near)


def _softplus_reference(x: Array) -> Array:
    return np.asarray(np.logaddexp(0, x))


_GELU = math.sqrt(2 / math.pi)


def _gelu_tanh(x: Expr) -> Expr:
    """The approximation of Hendrycks and Gimpel (2016) by tanh."""
    return x * 0.5 * (te.tanh((x * x * x * 0.044715 + x) * _GELU) + 1.0)


register(
    _function(
        "leaky_relu",
        lambda x, alpha: te.if_then_else(x < 0.0, x * alpha, x),
        lambda x, alpha: np.where(x < 0, x * alpha, x),
        alpha=0.01,
    ),
    _function(
        "elu",
        lambda x, alpha: te.if_then_else(x < 0.0, (te.exp(x) - 1.0) * alpha, x),
        lambda x, alpha: np.where(x < 0, np.expm1(x) * alpha, x),
        alpha=1.0,
    ),
    _function(
        "celu",
        lambda x, alpha: te.if_then_else(x < 0.0, (te.exp(x * (1 / alpha)) - 1.0) * alpha, x),
        lambda x, alpha: np.where(x < 0, np.expm1(x / alpha) * alpha, x),
        alpha=1.0,
    ),
    _function(
        "selu",
        lambda x, alpha, gamma: te.if_then_else(x < 0.0, (te.exp(x) - 1.0) * (alpha * gamma), x * gamma),
        lambda x, alpha, gamma: np.where(x < 0, np.expm1(x) * alpha * gamma, x * gamma),
        alpha=1.6732632,
        gamma=1.0507009,
    ),
    _function(
        "hard_sigmoid",
        lambda x, alpha, beta: te.minimum(te.maximum(x * alpha + beta, 0.0), 1.0),
        lambda x, alpha, beta: np.clip(x * alpha + beta, 0, 1),
        alpha=0.2,
        beta=0.5,
    ),
    _function(
        "thresholded_relu",
        lambda x, alpha: te.if_then_else(x > alpha, x, 0.0),
        lambda x, alpha: np.where(x > alpha, x, 0),
        alpha=1.0,
    ),
    _function(
        "shrink",
        lambda x, bias, limit: te.if_then_else(
            x < -limit, x + bias, te.if_then_else(x > limit, x - bias, make("mul", x, 0.0))
        ),
        lambda x, bias, limit: np.where(x < -limit, x + bias, np.where(x > limit, x - bias, 0)),
        bias=0.0,
        limit=0.5,
    ),
    _function(
        "swish",
        lambda x, alpha: x * te.sigmoid(x * alpha),
        lambda x, alpha: x * (0.5 + 0.5 * np.tanh(0.5 * alpha * x)),
        alpha=1.0,
    ),
    _function("softplus", _softplus, _softplus_reference),
    _function("softsign", lambda x: x / (te.abs(x) + 1.0), lambda x: x / (1 + np.abs(x))),
    _function("mish", lambda x: x * te.tanh(_softplus(x)), lambda x: x * np.tanh(_softplus_reference(x))),
    _function("gelu_tanh", _gelu_tanh, lambda x: 0.5 * x * (1 + np.tanh(_GELU * (x + 0.044715 * x**3)))),
    _function("power", power, lambda x, exponent: np.power(x, exponent), exponent=2.0),
    _function("pow", _pow, np.power),
    _function("reciprocal", lambda x: 1.0 / x, lambda x: 1 / x),
    _function("ceil", lambda x: make("sub", 0.0, te.floor(make("sub", 0.0, x))), np.ceil),
    _function("round", _round, np.round),
    _function("sinh", lambda x: te.tanh(x) * (te.exp(x) + te.exp(make("sub", 0.0, x))) * 0.5, np.sinh),
    _function("cosh", lambda x: (te.exp(x) + te.exp(make("sub", 0.0, x))) * 0.5, np.cosh),
    _function("prelu", lambda x, slope: te.if_then_else(x < 0, x * slope, x), lambda x, s: np.where(x < 0, x * s, x)),
)
