"""Expressions as C99."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from search_space.dtypes import numpy_dtype
from search_space.ir.expr import BOOL, FLOATS, INT, Expr, total, walk
from search_space.ir.polynomial import Poly, from_poly, poly
from search_space.ir.regroup import Regrouping, pulled_apart, recombined
from search_space.ir.rounding import limited
from search_space.ir.stmt import Buffer
from targets.arrays import C_TYPE
from targets.base import BuildError
from targets.c.helpers import PREFIX
from targets.c.names import Names
from targets.c_spelling import FUNCTIONS, SYMBOLS

HALVES = {"float16": "f16", "bfloat16": "bf16"}
CALLS = {**FUNCTIONS, "sigmoid": "f32_sigmoid", "rsqrt": "f32_rsqrt"}
"""Math functions; what libm does not bring stands in `helpers`."""
_CLOSED = re.compile(r"[\w.]+|[\w>-]+\[[^\[\]]*\]|\w+\([^()]*\)")
_CHEAP = ("const", "var", "load")


def grouped(text: str) -> str:
    """The text with parentheses around it, unless it holds together as it is."""
    return text if _CLOSED.fullmatch(text) else f"({text})"


class Values:
    """Writes expressions; 16-bit floats are computed in float and rounded after every operation.

    Args:
        names: of loop variables and buffers.
        buffers: by name.
        simplify: knows the ranges of the loops around.
        wide: whether integers of 64 bits are needed for indices.

    Attributes:
        places: text that stands for a buffer, where it is not its name alone.
        used: helpers that the text calls.
        read: names of buffers that the text reads.
    """

    def __init__(self, names: Names, buffers: Mapping[str, Buffer], simplify: Regrouping, wide: bool) -> None:
        self.names, self.buffers, self.simplify = names, buffers, simplify
        self.index_type = "int64_t" if wide else "int32_t"
        self.places: dict[str, str] = {}
        self.used: set[str] = set()
        self.read: set[str] = set()
        self._bases: dict[Expr, str] = {}  # what has a name in indices
        self._known: dict[int, tuple[Expr, str]] = {}  # values that have a name, by serial; they must stay alive

    def helper(self, name: str, *arguments: str) -> str:
        """A call of one of `helpers.HELPERS`."""
        self.used.add(name)
        return f"{name}({', '.join(arguments)})"

    # ------------------------------------------------------------------ integers
    def element(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        """Text of an element."""
        terms = poly(self.offset(buffer, indices))
        moving = _without_number(terms)
        at = self._bases.get(moving)
        text = at if at is not None and len(terms) == len(poly(moving)) else self._sum(terms)
        if at is not None and () in terms:
            text = f"{at} {'-' if terms[()] < 0 else '+'} {self._number(abs(terms[()]))}"
        return f"{self.places.get(buffer.name) or self.names(buffer.name)}[{text}]"

    def offset(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
        """Elements from a buffer's first one; axes that a fused loop took apart are one again."""
        offset = self.simplify(total(i * s for i, s in zip(indices, buffer.strides, strict=True)))
        return pulled_apart(recombined(offset, self.simplify), self.simplify)

    def index(self, e: Expr) -> str:
        """Text of an integer expression."""
        if e.op == "const":
            return self._number(int(e.value))
        if e.op == "var":
            return self.names(e.args[0])
        if e.op in ("add", "sub", "mul"):
            return self._sum(poly(e))
        if e.op in ("floordiv", "mod"):
            return self._division(e)
        if e.op in ("min", "max"):
            return self.helper(f"{self._short}_{e.op}", *(self.index(x) for x in e.args))
        if e.op == "select":
            return self._select(e, self.index)
        if e.op == "load":
            return self._index_cast(self.load(e), e.dtype)
        if e.op == "cast":
            return f"({self.index_type}){grouped(self.value(e.args[0]))}"
        raise BuildError(f"an index must be arithmetic over loop variables, but got {e}")

    @property
    def _short(self) -> str:
        return "i64" if self.index_type == "int64_t" else "i32"

    def _index_cast(self, text: str, dtype: str) -> str:
        return text if C_TYPE[dtype] == self.index_type else f"({self.index_type}){grouped(text)}"

    def _number(self, value: int) -> str:
        return str(value) if abs(value) < 2**31 else f"INT64_C({value})"

    def _sum(self, terms: Poly) -> str:
        """Long strides first, in one order whatever was made first; what is subtracted and the number last."""
        texts = []
        for monomial, c in terms.items():
            factors = sorted(grouped(self.index(a)) for a in monomial)
            if abs(c) != 1 or not factors:
                factors.append(self._number(abs(c)))
            texts.append((c < 0, not monomial, -abs(c), " * ".join(factors)))
        out = ""
        for negative, _, _, text in sorted(texts):
            term = f"({text})" if " " in text and len(texts) > 1 else text
            out += (" - " if negative else " + ") + term if out else f"-{grouped(term)}" if negative else term
        return out or "0"

    def _division(self, e: Expr) -> str:
        a, b = e.args
        if self.simplify.nonnegative(a) and b.is_const and b.value > 0:
            symbol = "/" if e.op == "floordiv" else "%"
            return f"{grouped(self.index(a))} {symbol} {self._number(int(b.value))}"
        return self.helper(f"{self._short}_{e.op}", self.index(a), self.index(b))

    # ------------------------------------------------------------------ conditions
    def condition(self, e: Expr) -> str:
        """Text of a bool, to stand behind an `if`."""
        if e.op == "const":
            return "1" if e.value else "0"
        if e.op in ("and", "or"):
            return f" {SYMBOLS[e.op]} ".join(grouped(self.condition(a)) for a in e.args)
        if e.op in ("lt", "le", "eq", "ne"):
            a, b = (grouped(self.value(x)) for x in e.args)
            return f"{a} {SYMBOLS[e.op]} {b}"
        return f"{grouped(self.value(e))} != 0U"

    # ------------------------------------------------------------------ values
    def value(self, e: Expr) -> str:
        """Text of an expression."""
        if e.serial in self._known:
            return self._known[e.serial][1]
        if e.op == "const":
            return self.literal(e)
        if e.op == "load":
            return self.load(e)
        if e.dtype == INT:
            return self.index(e)
        if e.op == "select":
            return self._select(e, self.value)
        if e.op == "cast":
            return self._cast(self._within(e) or self.value(e.args[0]), e.args[0].dtype, e.dtype)
        if e.op == "call":
            function, argument = CALLS[e.args[0]], self.value(e.args[1])
            plain = function.endswith("f") and function != "tfloat32"
            return self.rounded(f"{function}({argument})" if plain else self.helper(function, argument), e.dtype)
        if e.dtype == BOOL and e.op not in ("min", "max"):
            return f"(uint8_t)({self.condition(e)})"
        a, b = e.args
        if e.op in ("min", "max") and e.dtype in FLOATS and b.is_const:
            a, b = b, a  # the first is looked at for NaN
        return self.combine(e.op, self.value(a), self.value(b), e.dtype)

    def _within(self, e: Expr) -> str | None:
        """The text of what is cast, if that is a float between limits."""
        found = limited(e)
        if found is None:
            return None
        ends = (float_literal(end) for end in (found.low, found.high))
        return self.helper("f32_within", self.value(found.number), *ends)

    def _select(self, e: Expr, write: Callable[[Expr], str]) -> str:
        return f"({self.condition(e.args[0])}) ? {grouped(write(e.args[1]))} : {grouped(write(e.args[2]))}"

    def load(self, e: Expr) -> str:
        buffer = self.buffers[e.args[0]]
        self.read.add(buffer.name)
        return self.widened(self.element(buffer, e.args[1:]), buffer.dtype)

    def widened(self, text: str, dtype: str) -> str:
        """A value as it is computed with, of one as it is kept in memory."""
        return self.helper(f"f32_of_{HALVES[dtype]}", text) if dtype in HALVES else text

    def stored(self, text: str, dtype: str) -> str:
        """A value as it is kept in memory."""
        return self.helper(f"{HALVES[dtype]}_of_f32", text) if dtype in HALVES else text

    def rounded(self, text: str, dtype: str) -> str:
        """The result of an operation with the rounding of its dtype."""
        return self.helper(f"round_{HALVES[dtype]}", text) if dtype in HALVES else text

    def literal(self, e: Expr) -> str:
        """Text of a constant."""
        if e.dtype in FLOATS:
            return float_literal(float(numpy_dtype(e.dtype).type(e.value)))
        if e.dtype == INT:
            return self._number(int(e.value))
        if e.dtype == "int32":
            return "INT32_MIN" if e.value == -(2**31) else str(int(e.value))
        return f"({C_TYPE[e.dtype]}){int(e.value)}{'U' * (e.dtype in ('uint8', BOOL))}"

    def _cast(self, text: str, source: str, dtype: str) -> str:
        if dtype in FLOATS:
            wide = text if source in FLOATS else f"(float){grouped(text)}"
            return self.rounded(wide, dtype)
        if dtype == BOOL:
            return f"(uint8_t)({grouped(text)} != {'0.0F' if source in FLOATS else '0'})"
        if source in FLOATS and dtype in ("int8", "uint8"):
            return f"({C_TYPE[dtype]})(int32_t){grouped(text)}"
        return f"({C_TYPE[dtype]}){grouped(text)}"

    def combine(self, op: str, a: str, b: str, dtype: str) -> str:
        """A binary operation on two values of one dtype."""
        if dtype in FLOATS and op in ("add", "sub", "mul", "div"):
            return self.rounded(f"{grouped(a)} {SYMBOLS[op]} {grouped(b)}", dtype)
        if op in ("min", "max"):
            return self.helper(f"{'f32' if dtype in FLOATS else PREFIX[dtype]}_{op}", a, b)
        if op == "fmod":
            return f"fmodf({a}, {b})"
        if dtype in FLOATS or dtype == BOOL:
            raise BuildError(f"`{op}` must be used on integers, but got dtype={dtype}")
        return self.helper(f"{PREFIX[dtype]}_{op}", a, b)

    # ------------------------------------------------------------------ what is used more than once
    def bases(self, accesses: Iterable[tuple[Buffer, tuple[Expr, ...]]]) -> list[str]:
        """Declarations of places from which elements are numbers away, which have names from here to `forget`."""
        found = [_without_number(poly(self.offset(*access))) for access in accesses]
        lines = []
        for base in dict.fromkeys(e for e, times in Counter(found).items() if times > 1 and len(poly(e)) > 1):
            text, name = self.index(base), self.names.fresh("at")
            lines.append(f"const {self.index_type} {name} = {text};")
            self._bases[base] = name
        return lines

    def shared(self, value: Expr) -> list[str]:
        """Declarations of what a value uses more than once, which have names from here to `forget`.

        What only a branch of a choice uses is not computed before it, where it reads memory.
        """
        order = _computed(value)
        uses = Counter(operand.serial for node in order for operand in _parts(node))
        certain = _certain(value)
        lines = []
        for node in order:
            if node.op in _CHEAP or node.dtype in (INT, BOOL) or uses[node.serial] < 2:
                continue
            if node.serial in certain or not any(n.op == "load" for n in walk(node)):
                kind = "float" if node.dtype in FLOATS else C_TYPE[node.dtype]
                text, name = self.value(node), self.names.fresh("part")
                lines.append(f"const {kind} {name} = {text};")
                self._known[node.serial] = (node, name)
        return lines

    def forget(self) -> None:
        """Ends the names of `bases` and `shared`."""
        self._bases.clear()
        self._known.clear()


def _without_number(terms: Poly) -> Expr:
    return from_poly({monomial: c for monomial, c in terms.items() if monomial})


def _parts(node: Expr) -> tuple[Expr, ...]:
    """Values that a value is computed of; indices are none."""
    return () if node.op == "load" or node.dtype == INT else node.operands


def _computed(e: Expr) -> list[Expr]:
    """Every node of a value once, operands first."""
    order: dict[int, Expr] = {}

    def visit(node: Expr) -> None:
        if node.serial not in order:
            for operand in _parts(node):
                visit(operand)
            order[node.serial] = node

    visit(e)
    return list(order.values())


def _certain(value: Expr) -> set[int]:
    """Serials of what is computed whatever the conditions in a value say."""
    found: set[int] = set()
    left = [value]
    while left:
        node = left.pop()
        if node.serial not in found:
            found.add(node.serial)
            parts = _parts(node)
            left += parts[:1] if node.op in ("select", "and", "or") else parts
    return found


def float_literal(value: float) -> str:
    """A float32 as C reads the same bits back."""
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    text = np.format_float_scientific(np.float32(value), trim="0") if 0 < abs(value) < 1e-4 or abs(value) >= 1e7 else ""
    text = text or np.format_float_positional(np.float32(value), trim="0")
    return f"{text}F"
