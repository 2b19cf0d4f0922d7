"""Expressions as C99."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from search_space.dtypes import numpy_dtype
from search_space.ir.expr import BOOL, FLOATS, INT, Expr, walk
from search_space.ir.polynomial import Poly, from_poly, poly
from search_space.ir.regroup import Regrouping
from search_space.ir.stmt import Buffer
from targets.base import BuildError
from targets.c.helpers import HELPERS, PREFIX
from targets.c.names import Names
from targets.cstyle import values
from targets.cstyle.spelling import FUNCTIONS

HALVES = {"float16": "f16", "bfloat16": "bf16"}
CALLS = {**FUNCTIONS, "sigmoid": "f32_sigmoid", "rsqrt": "f32_rsqrt"}
"""Math functions of C; `helpers` defines the ones that libm lacks."""
_HALVES = {dtype: (f"f32_of_{short}", f"{short}_of_f32") for dtype, short in HALVES.items()}
_EXTREMES = {"min": "f32_min", "max": "f32_max"}
_TIGHT_TEXT = re.compile(r"[\w.]+|[\w>-]+\[[^\[\]]*\]|\w+\([^()]*\)")
_CHEAP = ("const", "var", "load")


def parenthesise(text: str) -> str:
    """Puts parentheses around a text, unless it binds tightly without them."""
    return text if _TIGHT_TEXT.fullmatch(text) else f"({text})"


class Values(values.Values):
    """A writer of expressions with few parentheses, and of sums in an order that does not depend on how they were
    built.

    Attributes:
        buffer_texts: text of a buffer that is not its name alone.
        used_helpers: helpers that the text calls.
        read: names of buffers that the text reads.
    """

    CALLS = CALLS
    HALVES = _HALVES
    EXTREMES = _EXTREMES
    ZERO = "0.0F"
    LEAST = "INT32_MIN"
    POINTER = " *restrict "
    OPERATION = "{}"
    TEST = "({})"
    TRUTH = "{} != 0U"
    OF_TRUTH = "(uint8_t)({})"

    def __init__(self, names: Names, buffers: Mapping[str, Buffer], simplify: Regrouping, wide: bool) -> None:
        super().__init__(names, buffers, simplify, wide)
        self.fresh = names.fresh
        self.buffer_texts: dict[str, str] = {}
        self.used_helpers: set[str] = set()
        self.read: set[str] = set()
        self._bases: dict[Expr, str] = {}  # what has a name in indices
        self._named_values: dict[int, tuple[Expr, str]] = {}  # values that have a name, by serial; they must stay alive

    # ------------------------------------------------------------------ the language
    def operand(self, text: str) -> str:
        return parenthesise(text)

    def convert(self, text: str, kind: str) -> str:
        return f"({kind}){parenthesise(text)}"

    def helper(self, name: str, *arguments: str) -> str:
        if name in HELPERS:
            self.used_helpers.add(name)
        return super().helper(name, *arguments)

    def number(self, value: int) -> str:
        return str(value) if abs(value) < 2**31 else f"INT64_C({value})"

    def float_literal(self, value: float, dtype: str) -> str:
        return float_literal(float(numpy_dtype(dtype).type(value)))

    def integer_operation(self, op: str, a: str, b: str, dtype: str) -> str:
        if dtype == BOOL and op not in ("min", "max"):
            raise BuildError(f"`{op}` must be used on integers, but got dtype={dtype}")
        return self.helper(f"{PREFIX[dtype]}_{op}", a, b)

    def convert_to_index(self, text: str, dtype: str) -> str:
        return text if self.TYPES[dtype] == self.index_type else super().convert_to_index(text, dtype)

    def within(self, text: str, low: str, high: str) -> str:
        return self.helper("f32_within", text, low, high)

    def round_result(self, text: str, dtype: str) -> str:
        return self.helper(f"round_{HALVES[dtype]}", text) if dtype in HALVES else text

    def literal(self, e: Expr) -> str:
        if e.dtype in ("uint8", BOOL):
            return f"(uint8_t){int(e.value)}U"
        return super().literal(e)

    def value(self, e: Expr) -> str:
        if e.serial in self._named_values:
            return self._named_values[e.serial][1]
        if e.op == "cast" and e.dtype == INT:
            return self.index(e)
        if e.op in ("min", "max") and e.dtype in FLOATS and e.args[1].is_const:  # the first is looked at for NaN
            return self.combine(e.op, self.value(e.args[1]), self.value(e.args[0]), e.dtype)
        return super().value(e)

    def load(self, e: Expr) -> str:
        self.read.add(e.args[0])
        return super().load(e)

    def reduce(self, op: str, old: str, text: str, dtype: str) -> str:
        """Writes an operation of a reduction; a sum or product of floats is rounded only when it is stored."""
        if dtype not in FLOATS:
            return self.integer_operation(op, old, text, dtype)
        # Of a maximum what is there already is the second: the first is looked at for NaN, which need not wait.
        return self.combine(op, *((text, old) if op in ("min", "max") else (old, text)), "float32")

    # ------------------------------------------------------------------ places
    def element(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        terms = poly(self.offset(buffer, indices))
        moving = _without_number(terms)
        at = self._bases.get(moving)
        text = at if at is not None and len(terms) == len(poly(moving)) else self.sum(terms)
        if at is not None and () in terms:
            text = f"{at} {'-' if terms[()] < 0 else '+'} {self.number(abs(terms[()]))}"
        return f"{self.buffer_texts.get(buffer.name) or self.names(buffer.name)}[{text}]"

    def sum(self, terms: Poly) -> str:
        """Writes a sum: long strides first; subtracted terms and the number last."""
        texts = []
        for monomial, c in terms.items():
            factors = sorted(parenthesise(self.index(a)) for a in monomial)
            if abs(c) != 1 or not factors:
                factors.append(self.number(abs(c)))
            texts.append((c < 0, not monomial, -abs(c), " * ".join(factors)))
        out = ""
        for negative, _, _, text in sorted(texts):
            term = f"({text})" if " " in text and len(texts) > 1 else text
            out += (" - " if negative else " + ") + term if out else f"-{parenthesise(term)}" if negative else term
        return out or "0"

    # ------------------------------------------------------------------ what is used more than once
    def bases(self, accesses: Iterable[tuple[Buffer, tuple[Expr, ...]]]) -> list[str]:
        """Declares offsets that several elements share up to a number; their names are valid until `forget`."""
        found = [_without_number(poly(self.offset(*access))) for access in accesses]
        lines = []
        for base in dict.fromkeys(e for e, times in Counter(found).items() if times > 1 and len(poly(e)) > 1):
            text, name = self.index(base), self.fresh("at")
            lines.append(f"const {self.index_type} {name} = {text};")
            self._bases[base] = name
        return lines

    def shared(self, value: Expr) -> list[str]:
        """Declares subexpressions that a value uses more than once; their names are valid until `forget`.

        A subexpression that reads memory and that only a branch of a choice uses is not computed before the choice.
        """
        order = _list_nodes(value)
        uses = Counter(operand.serial for node in order for operand in _parts(node))
        certain = _certain(value)
        lines = []
        for node in order:
            if node.op in _CHEAP or node.dtype in (INT, BOOL) or uses[node.serial] < 2:
                continue
            if node.serial in certain or not any(n.op == "load" for n in walk(node)):
                kind = "float" if node.dtype in FLOATS else self.TYPES[node.dtype]
                text, name = self.value(node), self.fresh("part")
                lines.append(f"const {kind} {name} = {text};")
                self._named_values[node.serial] = (node, name)
        return lines

    def forget(self) -> None:
        """Ends the names of `bases` and `shared`, too."""
        super().forget()
        self._bases.clear()
        self._named_values.clear()


def _without_number(terms: Poly) -> Expr:
    return from_poly({monomial: c for monomial, c in terms.items() if monomial})


def _parts(node: Expr) -> tuple[Expr, ...]:
    """Returns the values that a value is computed from, without indices."""
    return () if node.op == "load" or node.dtype == INT else node.operands


def _list_nodes(e: Expr) -> list[Expr]:
    """Lists every node of a value once, operands first."""
    order: dict[int, Expr] = {}

    def visit(node: Expr) -> None:
        if node.serial not in order:
            for operand in _parts(node):
                visit(operand)
            order[node.serial] = node

    visit(e)
    return list(order.values())


def _certain(value: Expr) -> set[int]:
    """Collects the serials of nodes that are computed whichever way the conditions in a value turn out."""
    certain: set[int] = set()
    left = [value]
    while left:
        node = left.pop()
        if node.serial not in certain:
            certain.add(node.serial)
            parts = _parts(node)
            left += parts[:1] if node.op in ("select", "and", "or") else parts
    return certain


def float_literal(value: float) -> str:
    """Writes a float32 so that C reads the same bits back."""
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    text = np.format_float_scientific(np.float32(value), trim="0") if 0 < abs(value) < 1e-4 or abs(value) >= 1e7 else ""
    text = text or np.format_float_positional(np.float32(value), trim="0")
    return f"{text}F"
