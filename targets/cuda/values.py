"""Expressions as CUDA C++ text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from search_space.ir.expr import BOOL, Expr, var, variables, walk
from search_space.ir.polynomial import from_poly, poly, poly_add
from search_space.ir.regroup import Regrouping
from search_space.ir.stmt import Buffer
from targets.base import BuildError
from targets.cstyle import values
from targets.cstyle.spelling import FUNCTIONS, SYMBOLS, Identifiers

C_TYPES = {
    "float32": "float",
    "float16": "half_t",
    "bfloat16": "bfloat_t",
    "int8": "signed char",
    "uint8": "unsigned char",
    "int32": "int",
    "int64": "long long",
    "bool": "bool",
}
"""Types of elements in memory."""
CALLS = {**FUNCTIONS, "sigmoid": "sigmoid", "rsqrt": "rsqrtf"}
"""Math functions; `prelude` defines the ones that CUDA lacks."""
HALVES = {"float16": ("from_half", "to_half"), "bfloat16": ("from_bfloat", "to_bfloat")}
_EXTREMES = {"min": "min_nan", "max": "max_nan"}
_INTEGERS = {"floordiv": "floor_div", "mod": "floor_mod"}
_BITS = {"shl": "(int)((unsigned)({a}) << ({b} & 31))", "shr": "(({a}) >> ({b} & 31))", "bitand": "(({a}) & ({b}))"}


class Values(values.Values):
    """A writer of expressions, of loads and lanes of vectors, too.

    Attributes:
        replacements: loads that are at hand already, by serial; they must stay alive.
        lane: the number that a vector's loop variable stands for.
        unrolled_variables: variables of loops around that are written out.
    """

    TYPES = C_TYPES
    INDEX = ("int", "long long")
    CALLS = CALLS
    HALVES = HALVES
    EXTREMES = _EXTREMES
    TRUTHS = ("false", "true")
    POINTER = "* __restrict__ "

    def __init__(self, names: Identifiers, buffers: Mapping[str, Buffer], simplify: Regrouping, wide: bool) -> None:
        super().__init__(names, buffers, simplify, wide)
        self.suffix = "ll" if wide else ""
        self.replacements: dict[int, tuple[Expr, str]] = {}
        self.lane: tuple[str, int] | None = None
        self.unrolled_variables: set[str] = set()

    # ------------------------------------------------------------------ the language
    def number(self, value: int) -> str:
        return f"{value}{self.suffix}"

    def float_literal(self, value: float, dtype: str) -> str:
        bits = np.float32(value)
        if not math.isfinite(bits):
            return f"__int_as_float({int(bits.view(np.int32))})"
        text = repr(float(bits)) if abs(bits) < 1e16 else f"{float(bits):.17g}"
        return self.round_result(f"{text if '.' in text or 'e' in text else text + '.0'}f", dtype)

    def quotient(self, op: str, a: Expr, by: int) -> str:
        """Writes an unsigned division, which is a multiplication and a shift."""
        unsigned = "unsigned long long" if self.wide else "unsigned"
        symbol = "/" if op == "floordiv" else "%"
        return f"({self.index_type})(({unsigned}){self.index(a)} {symbol} {by}u{self.suffix})"

    def integer(self, op: str, a: str, b: str) -> str:
        return self.helper(_INTEGERS.get(op, op), a, b)

    def integer_operation(self, op: str, a: str, b: str, dtype: str) -> str:
        kind = self.TYPES[dtype]
        if op in ("min", "max", *_INTEGERS):
            return f"({kind}){self.integer(op, f'(int)({a})', f'(int)({b})')}"
        if op in ("add", "sub", "mul"):  # unsigned, so that an overflow wraps around
            return f"({kind})((unsigned)({a}) {SYMBOLS[op]} (unsigned)({b}))"
        if op in _BITS:
            return _BITS[op].format(a=a, b=b)
        if op == "bytedot":
            return byte_dot(a, b)
        raise BuildError(f"`{op}` must be used on index expressions or floats, but got dtype={dtype}")

    def join_conditions(self, texts: Sequence[str], symbol: str, *tests: Expr) -> str:
        """Joins conditions without a branch between them, if all can be evaluated independently of the first one."""
        if not any(node.op == "load" for test in tests for node in walk(test)):
            symbol = symbol[0]
        return super().join_conditions(texts, symbol) if len(texts) > 1 else texts[0]

    def conditions(self, tests: Sequence[Expr]) -> str:
        """Writes a bool that is true if all conditions hold."""
        return self.join_conditions([self.condition(t) for t in tests], "&&", *tests) if tests else "true"

    def reduce(self, op: str, old: str, text: str, dtype: str) -> str:
        if dtype == BOOL:
            return f"({old} {'||' if op == 'max' else '&&'} {text})"
        return super().reduce(op, old, text, dtype)

    # ------------------------------------------------------------------ places
    def steps_evenly(self, buffer: Buffer, indices: tuple[Expr, ...], name: str) -> bool:
        """Tells whether neighbours along a loop are equally far apart, so that one offset serves all `lane`s."""
        step = (var(name),)
        return not any(name in variables(a) for m in poly(self.offset(buffer, indices)) if m != step for a in m)

    def element_offset(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
        """Returns the offset, in the vector's `lane` if there is one."""
        offset = self.offset(buffer, indices)
        if self.lane is None:
            return offset
        name, number = self.lane
        step = (var(name),)
        by = poly(offset).get(step, 0)
        return from_poly(poly_add(poly(offset), {step: -by, (): by * number}))

    def load(self, e: Expr) -> str:
        return self.replacements[e.serial][1] if e.serial in self.replacements else super().load(e)

    def element(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        moving, known = self._parts(buffer, indices)
        return f"({self.names(buffer.name)} + {moving})[{known}]" if moving else f"{self.names(buffer.name)}[{known}]"

    def pointer(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        """Writes the address of an element."""
        return " + ".join(part for part in (self.names(buffer.name), *self._parts(buffer, indices)) if part)

    def _parts(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[str, str]:
        """Splits an offset into device memory into a part that changes at run time, and one known in unrolled loops.

        If they are apart, one 64-bit address serves all accesses of an unrolled loop; they differ in their immediates.
        """
        offset = self.element_offset(buffer, indices)
        if buffer.swizzled:  # whole rows of 16 bytes are: what lies beside an element in them still does
            return "", f"swizzle({self.index(offset)})"
        terms = poly(offset)
        known = {m: c for m, c in terms.items() if all(variables(a) <= self.unrolled_variables for a in m)}
        if buffer.scope != "global" or not known or len(known) == len(terms):
            return "", self.index(offset)
        return self.sum({m: c for m, c in terms.items() if m not in known}), self.sum(known)


def byte_dot(a: str, b: str) -> str:
    """Writes the sum of products of the unsigned bytes of a word with the signed bytes of another."""
    left = (f"(int)((unsigned)({a}) >> {at} & 255u)" for at in (0, 8, 16, 24))
    right = (f"((int)((unsigned)({b}) >> {at} & 255u ^ 128u) - 128)" for at in (0, 8, 16, 24))
    return f"({' + '.join(f'{x} * {y}' for x, y in zip(left, right, strict=True))})"
