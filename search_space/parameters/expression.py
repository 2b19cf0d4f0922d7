"""Restrictions as text, evaluated on arrays of parameters' values. Text from files is parsed, never run."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[Any]

MOST_NODES = 2000
"""Greatest number of parts of an expression, so that no file keeps a reader busy."""
LARGEST_POWER = 64
"""Greatest exponent."""


class ExpressionError(ValueError):
    """Text that is no restriction."""


def _power(base: Values, exponent: Values) -> Values:
    if np.any(np.abs(np.asarray(exponent)) > LARGEST_POWER):
        raise ExpressionError(f"an exponent must be at most {LARGEST_POWER}, but got {np.max(np.abs(exponent))}")
    return np.asarray(np.asarray(base, np.float64) ** exponent)  # whole numbers would overflow


SCALAR: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
"""Arithmetic on numbers."""
_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {**SCALAR, ast.Pow: _power}
COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "max": lambda *values: reduce(np.maximum, values),
    "min": lambda *values: reduce(np.minimum, values),
    "abs": np.abs,
    "int": lambda value: np.trunc(value).astype(np.int64),
    "float": np.float64,
    "ceil": np.ceil,
    "floor": np.floor,
    "log2": np.log2,
}


@dataclass(frozen=True)
class Restriction:
    """A condition on parameters, in Python's syntax.

    It may have comparisons, also in chains, `and`, `or`, `not`, `in` lists, arithmetic, `a if b else c`, `min`, `max`,
    `abs`, `int`, `float`, `ceil`, `floor` and `log2`. Parts that Python would skip, such as a division after an `or`,
    are computed as well, and ignored.

    Attributes:
        text: the condition.

    Raises:
        ExpressionError: any other text.
    """

    text: str

    def __post_init__(self) -> None:
        _ = self.names

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Parameters that it reads."""
        found = dict.fromkeys(node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name))
        return tuple(name for name in found if name not in self._functions)

    def holds(self, values: Mapping[str, Values]) -> NDArray[np.bool_]:
        """Tells for each of n configurations whether the condition holds.

        Args:
            values: values of each parameter that it reads, (n,).

        Returns:
            Array of bool, (n,).

        Raises:
            ExpressionError: values on which an operation is not defined.
        """
        count = len(next(iter(values.values()))) if values else 1
        try:
            with np.errstate(all="ignore"):
                found = self._value(self._tree, values)
        except (TypeError, ValueError) as error:
            raise ExpressionError(f"`{self.text}` must be computable, but got {error}") from error
        return np.broadcast_to(_truth(found), (count,))

    @cached_property
    def _tree(self) -> ast.expr:
        try:
            tree = ast.parse(self.text.strip(), mode="eval").body
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            raise ExpressionError(f"a restriction must be a Python expression, but got {self.text!r}") from error
        nodes = list(ast.walk(tree))
        if len(nodes) > MOST_NODES:
            raise ExpressionError(f"a restriction must have at most {MOST_NODES} parts, but got {len(nodes)}")
        for node in nodes:
            self._check(node)
        return tree

    @cached_property
    def _functions(self) -> frozenset[str]:
        return frozenset(
            n.func.id for n in ast.walk(self._tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
        )

    def _check(self, node: ast.AST) -> None:
        match node:
            case ast.BoolOp() | ast.Name() | ast.IfExp() | ast.Tuple() | ast.List() | ast.Compare():
                return
            case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.UAdd()):
                return
            case ast.BinOp(op=op) if type(op) in _BINARY:
                return
            case ast.Constant(value=bool() | int() | float() | str()):
                return
            case ast.Call(func=ast.Name(id=name), args=[_, *_], keywords=[]) if name in _FUNCTIONS:
                return
            case ast.expr_context() | ast.boolop() | ast.operator() | ast.unaryop() | ast.cmpop():
                return
        raise ExpressionError(
            f"a restriction must be made of comparisons, arithmetic, and, or, not, in, and the functions "
            f"{', '.join(_FUNCTIONS)}, but got {ast.unparse(node) if isinstance(node, ast.expr) else node!r} "
            f"in {self.text!r}"
        )

    def _value(self, node: ast.expr, values: Mapping[str, Values]) -> Any:
        def of(part: ast.expr) -> Any:
            return self._value(part, values)

        match node:
            case ast.Constant(value=value):
                return np.asarray(value)
            case ast.Name(id=name):
                if name not in values:
                    raise ExpressionError(f"`{self.text}` must read parameters of the space, but got {name!r}")
                return values[name]
            case ast.BoolOp(op=op, values=parts):
                join = np.logical_and if isinstance(op, ast.And) else np.logical_or
                return reduce(join, [_truth(of(part)) for part in parts])
            case ast.UnaryOp(op=ast.Not(), operand=part):
                return np.logical_not(_truth(of(part)))
            case ast.UnaryOp(op=op, operand=part):
                return -_number(of(part)) if isinstance(op, ast.USub) else of(part)
            case ast.BinOp(op=op, left=left, right=right):
                return _BINARY[type(op)](_number(of(left)), _number(of(right)))
            case ast.IfExp(test=test, body=body, orelse=other):
                return np.where(_truth(of(test)), of(body), of(other))
            case ast.Call(func=ast.Name(id=name), args=args):
                return _FUNCTIONS[name](*(_number(of(arg)) for arg in args))
            case ast.Compare():
                operands = [
                    of(node.left),
                    *(None if isinstance(p, ast.Tuple | ast.List) else of(p) for p in node.comparators),
                ]
                pairs = zip(node.ops, operands, operands[1:], node.comparators, strict=False)
                return reduce(np.logical_and, [self._compare(op, left, right, p, of) for op, left, right, p in pairs])
        raise ExpressionError(f"a restriction must be true or false, but got {ast.unparse(node)} in {self.text!r}")

    def _compare(
        self, op: ast.cmpop, left: Values, right: Values | None, part: ast.expr, of: Callable[[ast.expr], Any]
    ) -> Any:
        """Compares two neighbours of a chain; `right` is None if its expression `part` is a list."""
        if isinstance(op, ast.In | ast.NotIn):
            if not isinstance(part, ast.Tuple | ast.List):
                raise ExpressionError(f"`in` must be followed by a list, but got {ast.unparse(part)} in {self.text!r}")
            parts = [_equal(left, of(one)) for one in part.elts]
            found = reduce(np.logical_or, parts, np.zeros(np.shape(left), np.bool_))
            return np.logical_not(found) if isinstance(op, ast.NotIn) else found
        if type(op) not in COMPARISONS or left is None or right is None:
            raise ExpressionError(f"a comparison must be of values, but got {ast.unparse(part)} in {self.text!r}")
        if isinstance(op, ast.Eq | ast.NotEq):
            equal = _equal(left, right)
            return equal if isinstance(op, ast.Eq) else np.logical_not(equal)
        return COMPARISONS[type(op)](_number(left), _number(right))


def _equal(left: Values, right: Values) -> Any:
    """Tells whether values are equal; a text and a number are not."""
    if (np.asarray(left).dtype.kind == "U") != (np.asarray(right).dtype.kind == "U"):
        return np.zeros(np.broadcast_shapes(np.shape(left), np.shape(right)), np.bool_)
    return np.equal(left, right)


def _number(value: Any) -> Values:
    """Converts truth values to 0 and 1; refuses texts."""
    found = np.asarray(value)
    if found.dtype.kind == "U":
        raise TypeError(f"a text in arithmetic: {str(found.ravel()[0])!r}")
    return found.astype(np.int64) if found.dtype.kind == "b" else found


def _truth(value: Any) -> NDArray[np.bool_]:
    found = np.asarray(value)
    return found != "" if found.dtype.kind == "U" else found.astype(np.bool_)
