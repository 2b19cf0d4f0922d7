"""A tape of float64 operations on columns: hash-consed, folded where the operands are numbers.

Folding and both evaluators round every operation as IEEE 754 demands. A program with a candidate's numbers substituted
gives bit for bit the result of the symbolic program for that candidate's row.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

Number = int | float
Node = tuple[int, int, int, int]
CONST, VARIABLE, ADD, SUB, MUL, DIV, FLOOR, MIN, MAX, LT, LE, EQ, SELECT = range(13)
ARITY = (0, 0, 2, 2, 2, 2, 1, 2, 2, 2, 2, 2, 3)
"""Operands, by operation."""
_FOLD: dict[int, Callable[[float, float], float]] = {
    ADD: lambda a, b: a + b,
    SUB: lambda a, b: a - b,
    MUL: lambda a, b: a * b,
    DIV: lambda a, b: a / b,
    MIN: lambda a, b: a if a < b else b,
    MAX: lambda a, b: a if a > b else b,
    LT: lambda a, b: float(a < b),
    LE: lambda a, b: float(a <= b),
    EQ: lambda a, b: float(a == b),
}
_NEUTRAL = {ADD: 0.0, SUB: 0.0, MUL: 1.0, DIV: 1.0}
_COMMUTATIVE = {ADD, MUL, MIN, MAX, EQ}


class Value:
    """A column on a tape; `number` where it is the same for all candidates. A truth value is 0 or 1."""

    __slots__ = ("index", "number", "tape")

    def __init__(self, tape: Tape, index: int, number: float | None) -> None:
        self.tape, self.index, self.number = tape, index, number

    def __add__(self, other: Value | Number) -> Value:
        return self.tape.apply(ADD, self, other)

    def __sub__(self, other: Value | Number) -> Value:
        return self.tape.apply(SUB, self, other)

    def __mul__(self, other: Value | Number) -> Value:
        return self.tape.apply(MUL, self, other)

    def __truediv__(self, other: Value | Number) -> Value:
        return self.tape.apply(DIV, self, other)

    def __floordiv__(self, other: Value | Number) -> Value:
        return self.tape.apply(FLOOR, self.tape.apply(DIV, self, other), self)

    def __lt__(self, other: Value | Number) -> Value:
        return self.tape.apply(LT, self, other)

    def __le__(self, other: Value | Number) -> Value:
        return self.tape.apply(LE, self, other)

    def equals(self, other: Value | Number) -> Value:
        return self.tape.apply(EQ, self, other)

    def least(self, other: Value | Number) -> Value:
        """Computes the smaller of two values."""
        return self.tape.apply(MIN, self, other)

    def most(self, other: Value | Number) -> Value:
        """Computes the greater of two values."""
        return self.tape.apply(MAX, self, other)

    def magnitude(self) -> Value:
        """Computes the absolute value."""
        return self.most(self.tape.const(0) - self)

    def ceildiv(self, other: Value | Number) -> Value:
        """Computes ceil(self / other) of integers."""
        return (self + other - 1) // other

    def otherwise(self, then: Value | Number, other: Value | Number) -> Value:
        """Selects `then` where this value is true, else `other`."""
        return self.tape.select(self, then, other)


class Tape:
    """Operations in the order in which they can be evaluated.

    Attributes:
        nodes: (operation, a, b, c), operands by index, the last one repeated if there are fewer; a constant is (CONST,
            index in numbers, 0, 0), a variable (VARIABLE, column, 0, 0).
        numbers: the constants.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.numbers: list[float] = []
        self._values: dict[Node, Value] = {}
        self._flat = array("i")
        self._constants: dict[float, Value] = {}

    def const(self, number: Number) -> Value:
        value = self._constants.get(number)
        if value is None:
            self.numbers.append(float(number))
            value = self._constants[number] = self._node((CONST, len(self.numbers) - 1, 0, 0), float(number))
        return value

    def variable(self, position: int) -> Value:
        """Returns the column at `position`."""
        return self._node((VARIABLE, position, 0, 0), None)

    def lift(self, value: Value | Number) -> Value:
        return value if isinstance(value, Value) else self.const(value)

    def apply(self, op: int, left: Value | Number, right: Value | Number) -> Value:
        """Applies a binary operation (or FLOOR to `left`), folded if the operands are numbers."""
        known = self._constants  # most numbers are known already; a call for each would take a tenth of estimating
        a = left if isinstance(left, Value) else known.get(left) or self.const(left)
        b = right if isinstance(right, Value) else known.get(right) or self.const(right)
        if op == FLOOR:
            index = a.index
            return self._node((op, index, index, index), None) if a.number is None else self.const(math.floor(a.number))
        if a.number is not None:
            if b.number is not None:
                return self.const(_FOLD[op](a.number, b.number))
            if op in _COMMUTATIVE:
                a, b = b, a
        if b.number is not None:
            if b.number == 0.0 and op == MUL:
                return b
            if b.number == _NEUTRAL.get(op):
                return a
        elif a.index > b.index and op in _COMMUTATIVE:
            a, b = b, a
        if a is b and op in (MIN, MAX):
            return a
        index = b.index
        key = (op, a.index, index, index)
        return self._values.get(key) or self._node(key, None)

    def select(self, condition: Value, then: Value | Number, other: Value | Number) -> Value:
        """Selects `then` where `condition` is not 0, else `other`."""
        a, b = self.lift(then), self.lift(other)
        if condition.number is not None:
            return a if condition.number else b
        return a if a is b else self._node((SELECT, condition.index, a.index, b.index), None)

    def product(self, values: Iterable[Value | Number]) -> Value:
        out = self.const(1)
        for value in values:
            out = out * value
        return out

    def total(self, values: Iterable[Value | Number]) -> Value:
        out = self.const(0)
        for value in values:
            out = out + value
        return out

    def operands(self, index: int) -> tuple[int, ...]:
        """Returns the indices of the nodes that a node reads."""
        node = self.nodes[index]
        return node[1 : 1 + ARITY[node[0]]]

    def list_dependencies(self, outputs: Sequence[int]) -> list[int]:
        """Returns the indices of some nodes and of all that these depend on, operands first."""
        nodes = self.nodes
        wanted = bytearray(len(nodes))
        for output in outputs:
            wanted[output] = 1
        order = []
        for index in range(max(outputs, default=-1), -1, -1):  # operands have smaller indices than their users
            if wanted[index]:
                order.append(index)
                node = nodes[index]
                if node[0] > VARIABLE:
                    for operand in node[1:]:
                        wanted[operand] = 1
        order.reverse()
        return order

    def flat(self) -> array[int]:
        """Returns the nodes, four numbers each."""
        done = len(self._flat) // 4
        self._flat.extend(chain.from_iterable(self.nodes[done:] if done else self.nodes))
        return self._flat

    def _node(self, key: Node, number: float | None) -> Value:
        value = self._values.get(key)
        if value is None:
            value = self._values[key] = Value(self, len(self.nodes), number)
            self.nodes.append(key)
        return value
