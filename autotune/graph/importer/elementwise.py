"""Element-wise operators."""

from __future__ import annotations

from functools import reduce

from autotune.graph.importer.call import Call
from autotune.graph.importer.registry import IMPORTERS, imports

SAME = {"Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "Exp": "exp", "Log": "log", "Erf": "erf"}
SAME |= {"Sqrt": "sqrt", "Abs": "abs", "Floor": "floor", "Neg": "negative"}
"""Operators that are one graph operation with no attributes."""
BINARY = {"Add": "add", "Sub": "subtract", "Mul": "multiply", "Div": "divide"}


def binary(call: Call, op: str, left: str, right: str) -> str:
    """An operation on two values; a constant of no dimensions gets one where the other value has some."""
    values = [left, right]
    for place, value in enumerate(values):
        if call.type_of(value).shape == () and call.type_of(values[1 - place]).shape:
            values[place] = call.reshape(value, (1,))
    return call.add(op, *values)


def _same(call: Call) -> str:
    return call.add(SAME[call.op], call.value(0))


def _binary(call: Call) -> str:
    return binary(call, BINARY[call.op], call.value(0), call.value(1))


for _name in SAME:
    IMPORTERS[_name] = _same
for _name in BINARY:
    IMPORTERS[_name] = _binary


@imports("Sum", "Max", "Min", "Mean")
def variadic(call: Call) -> str:
    """One after the other."""
    op = {"Sum": "add", "Max": "maximum", "Min": "minimum", "Mean": "add"}[call.op]
    out = reduce(lambda left, right: binary(call, op, left, right), call.values())
    if call.op == "Mean" and call.count > 1:
        out = call.add("multiply", out, call.scalar(1 / call.count, out))
    return out
