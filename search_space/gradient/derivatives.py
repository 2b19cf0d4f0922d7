"""Derivatives of an element's expression by the elements that it reads.

Ties and kinks have the derivatives of PyTorch: 0 at the kink of `max(x, 0)`, a half to each of two equal operands of
`max(x, y)`, 0 of `abs` at 0, 0 of `floor` and `rint` everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from search_space.ir.expr import BOOL, FLOATS, Expr, call, cast, const, eq, make, select, walk

Guards = tuple[Expr, ...]
"""Conditions in the order in which they are tested: a condition may read only where those before it hold."""
Terms = dict[Guards, Expr]
"""Sum of values, each of which counts where its guards hold, and may be evaluated only there."""


class ReadDerivative(NamedTuple):
    """The derivative of a stage's element by one element that it reads.

    Attributes:
        load: the read.
        terms: its derivative, times that of the stage's element.
    """

    load: Expr
    terms: Terms


_Parts = Iterator[tuple[Expr, Guards, Callable[[Expr], Expr]]]
"""Operands, the guards of each, and the function from the node's adjoint to the share of the operand."""
_Rule = Callable[[Expr, Expr, Expr], _Parts]
"""Function of both operands and the value that lists the parts of a binary operator."""

FUNCTION_DERIVATIVES: Mapping[str, Callable[[Expr, Expr], Expr]] = {
    "exp": lambda x, y: y,
    "exp2": lambda x, y: y * math.log(2),
    "log": lambda x, y: 1.0 / x,
    "expm1": lambda x, y: y + 1.0,
    "log1p": lambda x, y: 1.0 / (x + 1.0),
    "sin": lambda x, y: call("cos", x),
    "cos": lambda x, y: -call("sin", x),
    "tanh": lambda x, y: 1.0 - y * y,
    "erf": lambda x, y: call("exp", -(x * x)) * (2 / math.sqrt(math.pi)),
    "sigmoid": lambda x, y: y * (1.0 - y),
    "sqrt": lambda x, y: 0.5 / y,
    "rsqrt": lambda x, y: y * y * y * -0.5,
    "abs": lambda x, y: select(x > 0.0, 1.0, select(x < 0.0, _like(-1.0, x), x * 0.0)),
    "floor": lambda x, y: const(0.0, x.dtype),
    "rint": lambda x, y: const(0.0, x.dtype),
    "tfloat32": lambda x, y: const(1.0, x.dtype),
}
"""Function of `ir.MATH` → its derivative as a function of the argument and of the value.

`tfloat32` rounds factors of products: its derivative is that of the number it stands for.
"""


def _like(value: float, e: Expr) -> Expr:
    return const(value, e.dtype)


def differentiate(body: Expr, seed: Expr, value: Expr | None = None) -> Iterator[ReadDerivative]:
    """Differentiates an element's expression by each of its reads of floating-point tensors.

    Args:
        body: expression of the element.
        seed: derivative of the result by the element.
        value: expression that reads the element itself, used in place of `body`; None: use `body`.

    Returns:
        A derivative for each distinct read, in the order of `walk`.
    """
    if body.dtype not in FLOATS:
        return
    adjoints: dict[int, Terms] = {body.serial: {(): seed}}
    nodes = list(walk(body))
    depends = _depends_on_reads(nodes)
    for node in reversed(nodes):
        terms = adjoints.get(node.serial)
        if not terms or node.op == "load":
            continue
        result = value if node is body and value is not None else node
        for operand, guards, factor in _operand_derivatives(node, result):
            if operand.dtype not in FLOATS or operand.serial not in depends:
                continue
            into = adjoints.setdefault(operand.serial, {})
            for outer, adjoint in terms.items():
                path = (*outer, *(guard for guard in guards if guard not in outer))
                contribution = factor(adjoint)
                into[path] = into[path] + contribution if path in into else contribution
    for node in nodes:
        if node.op == "load" and node.dtype in FLOATS and adjoints.get(node.serial):
            yield ReadDerivative(node, adjoints[node.serial])


def _depends_on_reads(nodes: list[Expr]) -> set[int]:
    """Lists the floating-point nodes, by serial, that depend on a read through floating-point nodes alone."""
    depends: set[int] = set()
    for node in nodes:
        if node.dtype in FLOATS and (node.op == "load" or any(o.serial in depends for o in node.operands)):
            depends.add(node.serial)
    return depends


def _operand_derivatives(node: Expr, value: Expr) -> _Parts:
    """Lists operands with the guards of each, and the function from the node's adjoint to the share of the operand."""
    if node.op == "select":
        test, then, other = node.args
        yield then, (test,), lambda g: g
        yield other, (eq(test, const(False, BOOL)),), lambda g: g
        return
    if node.op == "cast":
        (operand,) = node.operands
        # Elements of 16 bits are widened as they are read: shares of their derivatives are added up before rounding.
        yield operand, (), (lambda g: g) if operand.op == "load" else (lambda g: cast(g, operand.dtype))
        return
    if node.op == "call":
        function, x = node.args
        slope = FUNCTION_DERIVATIVES[function](x, value)
        yield x, (), (lambda g: g) if _is_one(slope) else (lambda g: g * slope)
        return
    left, right = node.args
    yield from _BINARY[node.op](left, right, value)


def _is_one(e: Expr) -> bool:
    return e.is_const and e.value == 1.0


def _add(a: Expr, b: Expr, value: Expr) -> _Parts:
    yield a, (), lambda g: g
    yield b, (), lambda g: g


def _sub(a: Expr, b: Expr, value: Expr) -> _Parts:
    yield a, (), lambda g: g
    yield b, (), lambda g: -g


def _mul(a: Expr, b: Expr, value: Expr) -> _Parts:
    yield a, (), lambda g: g * b
    yield b, (), lambda g: g * a


def _div(a: Expr, b: Expr, value: Expr) -> _Parts:
    yield a, (), lambda g: g / b
    yield b, (), lambda g: -(g * (value / b))


def _fmod(a: Expr, b: Expr, value: Expr) -> _Parts:
    yield a, (), lambda g: g
    yield b, (), lambda g: -(g * ((a - value) / b))


def _extremum(beyond: Callable[[Expr, Expr], Expr]) -> _Rule:
    """Returns the rule of a minimum or maximum, given the test that its first operand is beyond the second.

    A comparison with NaN does not hold, so that NaN hands the adjoint on where the other operand is a constant.
    """

    def rule(a: Expr, b: Expr, value: Expr) -> _Parts:
        for x, y in ((a, b), (b, a)):
            if y.is_const:
                yield x, (eq(make("or", beyond(y, x), eq(x, y)), const(False, BOOL)),), lambda g: g
            else:
                yield x, (eq(beyond(y, x), const(False, BOOL)),), partial(_share_of_equals, x, y)

    return rule


def _share_of_equals(x: Expr, y: Expr, adjoint: Expr) -> Expr:
    """Halves an adjoint where both operands are equal."""
    return adjoint * select(eq(x, y), _like(0.5, adjoint), _like(1.0, adjoint))


_BINARY: Mapping[str, _Rule] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "fmod": _fmod,
    "max": _extremum(lambda a, b: a > b),
    "min": _extremum(lambda a, b: a < b),
}
"""Operator on floating-point values → its rule."""
