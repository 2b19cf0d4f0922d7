"""Lists of values as text in Python's syntax, such as `[1, 2] + list(range(4, 33, 4))`; parsed, and never run."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from search_space.parameters.expression import COMPARISONS, LARGEST_POWER, MOST_NODES, SCALAR, ExpressionError

MOST_VALUES = 1 << 16
"""Greatest number of values of a list, intermediate lists included."""
MOST_STEPS = 1 << 20
"""Greatest number of parts that are evaluated for one text."""
LARGEST = 1 << 63
"""Bound of the magnitude of integers."""

Scalar = bool | int | float | str
_NUMBERS: Mapping[str, Callable[..., Any]] = {
    "int": int,
    "float": float,
    "abs": abs,
    "min": min,
    "max": max,
    "round": round,
}
"""Functions of numbers."""
_LISTS: Mapping[str, Callable[[list[Any]], list[Any]]] = {"list": list, "tuple": list, "sorted": sorted}
"""Functions of a list."""


def evaluate_list(text: str) -> list[Scalar]:
    """Evaluates the list that a text describes.

    It may have lists, `range`, `list`, `tuple`, `sorted`, `+` and `*` of lists, comprehensions with conditions,
    arithmetic, comparisons, and `int`, `float`, `abs`, `min`, `max` and `round` of numbers.

    Raises:
        ExpressionError: any other text, a list of more than `MOST_VALUES`, or text that takes more than `MOST_STEPS`.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ExpressionError(f"a list must be a Python expression, but got {text!r:.200}") from error
    if len(list(ast.walk(tree))) > MOST_NODES:
        raise ExpressionError(f"a list must be written in at most {MOST_NODES} parts, but got {text!r:.200}")
    try:
        values = _Reader(text).value(tree, {})
    except (TypeError, ValueError, ArithmeticError) as error:
        if isinstance(error, ExpressionError):
            raise
        raise ExpressionError(f"a list must be computable, but got {text!r:.200}: {error}") from error
    if not isinstance(values, list) or any(isinstance(value, list) for value in values):
        raise ExpressionError(f"a list must be of numbers or texts, but got {text!r:.200}")
    return values


class _Reader:
    """An evaluator of one text."""

    def __init__(self, text: str) -> None:
        self._text, self._steps = text, 0

    def value(self, node: ast.expr, names: Mapping[str, Any]) -> Any:
        """Evaluates a number, a text or a list.

        Args:
            node: part of the text.
            names: variables of the comprehensions around it.
        """
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise ExpressionError(f"a list must take at most {MOST_STEPS} steps, but got {self._text!r:.200}")
        match node:
            case ast.Constant(value=bool() | int() | float() | str()):
                return self._check_limits(node.value)
            case ast.Name(id=name) if name in names:
                return names[name]
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                return self._check_limits([self.value(part, names) for part in parts])
            case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=part):
                number = self._number(part, names)
                return -number if isinstance(node.op, ast.USub) else number
            case ast.BinOp():
                return self._check_limits(self._binary(node, names))
            case ast.ListComp(elt=part) | ast.GeneratorExp(elt=part):
                return self._check_limits([self.value(part, each) for each in self._scopes(node.generators, names)])
            case ast.Call(func=ast.Name(id=name), keywords=[]):
                return self._check_limits(self._call(name, node.args, names))
        raise self._refusal(node)

    def _binary(self, node: ast.BinOp, names: Mapping[str, Any]) -> Any:
        left, right = self.value(node.left, names), self.value(node.right, names)
        if isinstance(node.op, ast.Mult) and isinstance(left, list) != isinstance(right, list):
            several, times = (left, right) if isinstance(left, list) else (right, left)
            if type(times) is not int or len(several) * times > MOST_VALUES:
                raise self._refusal(node)
            return several * times
        if isinstance(node.op, ast.Add) and isinstance(left, list) and isinstance(right, list):
            return left + right
        if type(node.op) not in SCALAR or not all(isinstance(side, int | float) for side in (left, right)):
            raise self._refusal(node)
        if isinstance(node.op, ast.Pow) and abs(right) > LARGEST_POWER:
            raise ExpressionError(f"an exponent must be at most {LARGEST_POWER}, but got {right}")
        return SCALAR[type(node.op)](left, right)

    def _call(self, name: str, parts: Sequence[ast.expr], names: Mapping[str, Any]) -> Any:
        if name == "range" and 1 <= len(parts) <= 3:
            numbers = range(*(self._integer(part, names) for part in parts))
            if len(numbers) > MOST_VALUES:
                raise ExpressionError(f"a list must have at most {MOST_VALUES} values, but got {len(numbers)}")
            return list(numbers)
        if name in _LISTS and len(parts) == 1:
            several = self.value(parts[0], names)
            if isinstance(several, list):
                return _LISTS[name](several)
        if name in _NUMBERS and parts:
            return _NUMBERS[name](*(self._number(part, names) for part in parts))
        raise ExpressionError(
            f"a list must be made by range, {', '.join([*_LISTS, *_NUMBERS])}, but got {name} in {self._text!r:.200}"
        )

    def _scopes(self, loops: Sequence[ast.comprehension], names: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Lists the variables of each iteration of a comprehension whose conditions hold."""
        if not loops:
            yield names
            return
        loop, *others = loops
        several = self.value(loop.iter, names)
        if not isinstance(loop.target, ast.Name) or loop.is_async or not isinstance(several, list):
            raise self._refusal(loop.iter)
        for value in several:
            inner = {**names, loop.target.id: value}
            if all(self._holds(test, inner) for test in loop.ifs):
                yield from self._scopes(others, inner)

    def _holds(self, node: ast.expr, names: Mapping[str, Any]) -> bool:
        match node:
            case ast.BoolOp(op=ast.And(), values=parts):
                return all(self._holds(part, names) for part in parts)
            case ast.BoolOp(values=parts):
                return any(self._holds(part, names) for part in parts)
            case ast.UnaryOp(op=ast.Not(), operand=part):
                return not self._holds(part, names)
            case ast.Compare(ops=ops) if all(type(op) in COMPARISONS for op in ops):
                sides = [self.value(part, names) for part in (node.left, *node.comparators)]
                pairs = zip(ops, sides, sides[1:], strict=False)
                return all(bool(COMPARISONS[type(op)](left, right)) for op, left, right in pairs)
        return bool(self.value(node, names))

    def _number(self, node: ast.expr, names: Mapping[str, Any]) -> int | float:
        value = self.value(node, names)
        if not isinstance(value, int | float):
            raise self._refusal(node)
        return value

    def _integer(self, node: ast.expr, names: Mapping[str, Any]) -> int:
        value = self.value(node, names)
        if not isinstance(value, int):
            raise self._refusal(node)
        return value

    def _check_limits(self, value: Any) -> Any:
        """Returns a value if it is within the limits.

        Raises:
            ExpressionError: a list of too many values, or a number that is too large.
        """
        if isinstance(value, list) and len(value) > MOST_VALUES:
            raise ExpressionError(f"a list must have at most {MOST_VALUES} values, but got {len(value)}")
        if isinstance(value, complex) or (isinstance(value, int) and abs(value) >= LARGEST):
            raise ExpressionError(f"numbers of a list must be real and below 2**63, but got {self._text!r:.200}")
        if isinstance(value, float) and not math.isfinite(value):
            raise ExpressionError(f"numbers of a list must be finite, but got {self._text!r:.200}")
        return value

    def _refusal(self, node: ast.expr) -> ExpressionError:
        return ExpressionError(
            f"a list must be made of numbers, texts, lists, ranges and comprehensions, but got "
            f"{ast.unparse(node):.80} in {self._text!r:.200}"
        )
