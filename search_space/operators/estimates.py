"""Estimates from a definition's expressions: operations, rounding errors, inputs on which it is defined."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from search_space import te
from search_space.ir.expr import FLOATS, Expr, walk
from search_space.ir.semantics import BINARY, FUNCTIONS, HUGE
from search_space.schedule.state import operations

STEP = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""Distance from 1 to the next number."""

SIGNED, POSITIVE, AROUND_ONE = (-1.0, 1.0), (0.1, 1.1), (0.5, 1.5)


def count_flops(tensors: Sequence[te.Tensor]) -> int:
    """Counts the arithmetic of a definition, at least one operation for each element of the output.

    For each point of a stage's domain, reduce axes included, every distinct node of arithmetic or of a math function
    counts 1, and a reduction 1 more: a multiply-add is 2. The index of a load and the condition of a select count
    nothing, nor do comparisons and conversions.
    """
    total = 0
    for op in operations(tensors[-1:]):
        if op.body is not None:
            points = math.prod(a.extent for a in (*op.axis, *op.reduce_axis))
            total += points * (len(_collect_operations(op.body)) + (op.reducer is not None))
    return max(total, math.prod(tensors[-1].shape))


def _collect_operations(body: Expr) -> set[int]:
    seen: set[int] = set()
    nodes: set[int] = set()
    stack = [body]
    while stack:
        e = stack.pop()
        if e.serial not in seen:
            seen.add(e.serial)
            if e.op == "call" or (e.op in BINARY and BINARY[e.op].counted):
                nodes.add(e.serial)
            if e.op != "load":
                stack += e.operands[1:] if e.op == "select" else e.operands
    return nodes


def longest_chain(tensors: Sequence[te.Tensor]) -> int:
    """Counts the terms added or multiplied on the way to one element: reductions in a row count together."""
    chain: dict[te.Operation, int] = {}
    for op in operations(tensors[-1:]):
        terms = math.prod(a.extent for a in op.reduce_axis) if op.reducer in ("sum", "prod") else 0
        chain[op] = terms + max((chain[t.op] for t in op.inputs), default=0)
    return max(chain[tensors[-1].op], 1)


def rounding_error(tensors: Sequence[te.Tensor]) -> float:
    """Estimates the distance of a right output element from the reference, to first order, for inputs drawn for it.

    Additions and math functions round by a step of their dtype, a sum of n terms by 10 + n steps of a term's size;
    errors of operands add up. Jumps (floor, comparisons, conversions to integers) are treated as continuous.
    """
    out = _Spans(tensors, input_bounds(tensors)).of[tensors[-1].op]
    steps = 10 if tensors[-1].dtype == "float32" else 2
    return max(out.error, steps * STEP.get(tensors[-1].dtype, 0.0) * min(out.size, 1.0))


def whole_steps(tensors: Sequence[te.Tensor]) -> int:
    """Returns the allowed error of an integer: 1 if it is rounded from floats with rounding errors, else 0."""
    if tensors[-1].dtype in STEP:
        return 0
    return int(_Spans(tensors, input_bounds(tensors)).of[tensors[-1].op].error > 0)


def input_bounds(tensors: Sequence[te.Tensor]) -> tuple[float, float]:
    """Returns the range in which floating-point inputs are drawn.

    It is positive if otherwise a logarithm, a root or a division could be undefined. It is around one if otherwise a
    product of many numbers would be almost zero.
    """
    if any(op.reducer == "prod" for op in operations(tensors[-1:])):
        return AROUND_ONE
    return SIGNED if _Spans(tensors, SIGNED).is_defined else POSITIVE


@dataclass(frozen=True)
class Span:
    """A value: the interval in which it lies, its typical size, and its greatest rounding error."""

    low: float
    high: float
    size: float
    error: float = 0.0


def _span(low: float, high: float, size: float, error: float = 0.0) -> Span:
    return Span(_cap(low), _cap(high), max(_cap(size), 1 / HUGE), _cap(error))


def _cap(value: float) -> float:
    return HUGE if math.isnan(value) else min(max(value, -HUGE), HUGE)


class _Spans:
    """Spans of every stage for inputs within `bounds`."""

    def __init__(self, tensors: Sequence[te.Tensor], bounds: tuple[float, float]) -> None:
        self.of: dict[te.Operation, Span] = {}
        self.is_defined = True
        """Flag for logarithms, roots and divisions whose arguments all lie where these are defined."""
        for op in operations(tensors[-1:]):
            self.of[op] = self._bound_input(op, bounds) if op.body is None else self._stage(op, op.body)

    @staticmethod
    def _bound_input(op: te.Operation, bounds: tuple[float, float]) -> Span:
        whole = {"uint8": (0.0, 255.0), "bool": (0.0, 1.0)}.get(op.dtype, (-127.0, 127.0))
        low, high = bounds if op.dtype in FLOATS else whole
        return Span(low, high, (low + high) / 2 if low > 0 else max(abs(low), abs(high)))

    def _stage(self, op: te.Operation, body: Expr) -> Span:
        extents = {a.name: a.extent for a in (*op.axis, *op.reduce_axis)}
        memo: dict[int, Span] = {}
        for e in walk(body):
            memo[e.serial] = self._node(e, memo, extents)
        term = memo[body.serial]
        terms = math.prod(a.extent for a in op.reduce_axis)
        if op.reducer == "sum":
            signed = term.low < 0 < term.high
            size = term.size * (math.sqrt(terms) if signed else terms)
            own = STEP.get(op.dtype, 0.0) * (10 + terms) * term.size
            return _span(term.low * terms, term.high * terms, size, terms * term.error + own)
        if op.reducer == "prod":
            high, size = _power(max(abs(term.low), abs(term.high)), terms), _power(term.size, terms)
            low = 0.0 if term.low >= 0 else -high
            relative = terms * term.error / term.size + (10 + terms) * STEP.get(op.dtype, 0.0)
            return _span(low, high, size, size * relative)
        return term

    def _node(self, e: Expr, memo: Mapping[int, Span], extents: Mapping[str, int]) -> Span:
        if e.op == "const":
            value = float(e.value)
            return _span(value, value, abs(value))
        if e.op == "var":
            last = float(extents[e.args[0]] - 1)
            return _span(0.0, last, last)
        if e.op == "load":
            return self.of[e.args[0].op]
        step = STEP.get(e.dtype, 0.0)
        spans = [memo[operand.serial] for operand in e.operands]
        if e.op == "select":
            return _either(*spans[1:])
        if e.op == "cast":
            (x,) = spans
            coarser = step > STEP.get(e.args[0].dtype, step)
            return _span(x.low, x.high, x.size, x.error + (step * x.size if coarser else 0.0))
        if e.op == "call":
            return self._call(e.args[0], spans[0], step)
        return self._binary(e, spans[0], spans[1], step)

    def _binary(self, e: Expr, a: Span, b: Span, step: float) -> Span:
        if e.op == "div":
            return self._quotient(a, b)
        if e.op == "mod" and 0 < b.low == b.high:
            return _span(0.0, b.high - 1, min(a.size, b.high), a.error)
        if e.op == "fmod":  # any error of an operand may move the remainder to that of the next multiple
            reach = max(abs(b.low), abs(b.high))
            missed = a.error + b.error + reach if a.error + b.error > 0 else 0.0
            return _span(min(max(a.low, -reach), 0.0), max(min(a.high, reach), 0.0), min(a.size, b.size), missed)
        if e.op in ("floordiv", "mod"):
            reach = max(abs(a.low), abs(a.high), abs(b.low), abs(b.high))
            return _span(0.0 if min(a.low, b.low) >= 0 else -reach, reach, max(a.size, b.size), a.error + b.error)
        if e.op == "shl":
            return Span(-(2.0**31), 2.0**31, 2.0**31)
        if e.op == "shr":
            return _span(min(a.low, 0.0), max(a.high, 0.0), a.size, a.error)
        if e.op in ("bitand", "bytedot"):
            reach = max(abs(a.low), abs(a.high)) if e.op == "bitand" else 2.0**17
            return Span(-reach if e.op == "bytedot" or min(a.low, b.low) < 0 else 0.0, reach, reach)
        ends = BINARY[e.op].interval((a.low, a.high), (b.low, b.high))
        if ends is None:
            return Span(0.0, 1.0, 1.0)  # truth values
        if e.op in ("add", "sub"):
            size = a.size + b.size
            return _span(*ends, size, a.error + b.error + step * size)
        if e.op == "mul":
            low = ends[0] if e.args[0] is not e.args[1] else 0.0  # a square
            coarse = step if e.dtype != "float32" else 0.0
            size = a.size * b.size
            return _span(low, ends[1], size, a.error * b.size + b.error * a.size + coarse * size)
        # The other side bounds the size of the result only if it is a constant: relu6 is at most 6.
        size = min(a.size, b.size) if e.op == "min" and a.low >= 0 and b.low >= 0 else max(a.size, b.size)
        return _span(*ends, size, max(a.error, b.error))

    def _quotient(self, a: Span, b: Span) -> Span:
        if b.low <= 0 <= b.high:
            self.is_defined = False
            size = a.size / b.size
            return _span(-HUGE, HUGE, size, (a.error + size * b.error) / b.size)
        ends = [x / y for x in (a.low, a.high) for y in (b.low, b.high)]
        size = a.size / b.size
        return _span(min(ends), max(ends), size, (a.error + size * b.error) / b.size)

    def _call(self, function: str, x: Span, step: float) -> Span:
        row = FUNCTIONS[function]
        self.is_defined &= row.defined(x.low)
        low, high, size, slope = row.estimate(x.low, x.high, x.size)
        if row.jump:  # exact, or on the other side of the jump
            return _span(low, high, size, x.error + row.jump if x.error > 0 else 0.0)
        if row.exact:
            step = 0.0
        if x.error > 0:  # an argument with an error may be rounded to another result, a step away
            step = max(step, row.step)
        return _span(low, high, size, slope * x.error + step * size)


def _either(a: Span, b: Span) -> Span:
    return Span(min(a.low, b.low), max(a.high, b.high), max(a.size, b.size), max(a.error, b.error))


def _power(base: float, exponent: int) -> float:
    return math.exp(min(exponent * math.log(base), 69.0)) if base > 0 else 0.0
