"""Expressions as CUDA C++ text."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from search_space.ir.expr import BOOL, FLOATS, Expr, const, total, var, variables, walk
from search_space.ir.polynomial import Poly, from_poly, poly, poly_add
from search_space.ir.regroup import Regrouping, pulled_apart, recombined
from search_space.ir.rounding import limited
from search_space.ir.stmt import Buffer
from targets.base import BuildError
from targets.cstyle.spelling import FUNCTIONS, SYMBOLS

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
"""How elements are kept in memory; 16-bit floats are computed in float and rounded after every operation."""
CALLS = {**FUNCTIONS, "sigmoid": "sigmoid", "rsqrt": "rsqrtf"}
"""Math functions; what CUDA does not bring stands in `prelude`."""
HALVES = ("float16", "bfloat16")


class Values:
    """Writes expressions.

    Args:
        names: C name of every loop variable and buffer.
        buffers: by name.
        simplify: knows the ranges of the loops around.
        wide: whether an index may pass 2^31.
    """

    def __init__(
        self, names: Callable[[str], str], buffers: Mapping[str, Buffer], simplify: Regrouping, wide: bool
    ) -> None:
        self.names, self.buffers, self.simplify = names, buffers, simplify
        self.index_type = "long long" if wide else "int"
        self.suffix = "ll" if wide else ""
        self.replaced: dict[
            int, tuple[Expr, str]
        ] = {}  # loads that are at hand already, by serial: they must stay alive
        self.lane: tuple[str, int] | None = None  # the number that a vector's loop variable stands for
        self.unrolled: set[str] = set()  # variables of loops around that are written out
        self._offsets: dict[tuple[object, ...], Expr] = {}

    # ------------------------------------------------------------------ integers
    def offset(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
        """Elements from the buffer's first one; axes that a fused loop took apart are one again."""
        key = (buffer.name, *(i.serial for i in indices))
        if key not in self._offsets:
            place = recombined(
                self.simplify(total(i * s for i, s in zip(indices, buffer.strides, strict=True))), self.simplify
            )
            self._offsets[key] = pulled_apart(place, self.simplify)
        return self._offsets[key]

    def forget(self) -> None:
        """Drops offsets that were simplified under the ranges of other loops."""
        self._offsets.clear()

    def steps_evenly(self, buffer: Buffer, indices: tuple[Expr, ...], name: str) -> bool:
        """Whether neighbours along a loop are equally far apart, so that one offset serves all `lane`s."""
        step = (var(name),)
        return not any(name in variables(a) for m in poly(self.offset(buffer, indices)) if m != step for a in m)

    def place(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
        """The offset, in the vector's `lane` if there is one."""
        offset = self.offset(buffer, indices)
        if self.lane is None:
            return offset
        name, number = self.lane
        step = (var(name),)
        by = poly(offset).get(step, 0)
        return from_poly(poly_add(poly(offset), {step: -by, (): by * number}))

    def index(self, e: Expr) -> str:
        """Text of an integer expression."""
        if e.op == "const":
            return f"{int(e.value)}{self.suffix}"
        if e.op == "var":
            return self.names(e.args[0])
        if e.op in ("add", "sub", "mul"):
            return self._sum(poly(e))
        if e.op in ("floordiv", "mod"):
            return self._division(e)
        if e.op in ("min", "max"):
            a, b = (self.index(x) for x in e.args)
            return f"{e.op}({a}, {b})"
        if e.op == "select":
            return f"({self.condition(e.args[0])} ? {self.index(e.args[1])} : {self.index(e.args[2])})"
        if e.op == "load":
            return f"({self.index_type}){self.load(e)}"
        if e.op == "cast":
            return f"({self.index_type}){self.value(e.args[0])}"
        raise BuildError(f"an index must be arithmetic over loop variables, but got {e}")

    def _sum(self, terms: Poly) -> str:
        out = ""
        for monomial, c in terms.items():
            factors = [self.index(a) for a in monomial]
            if abs(c) != 1 or not factors:
                factors.append(f"{abs(c)}{self.suffix}")
            sign = ("-" if c < 0 else "") if not out else (" - " if c < 0 else " + ")
            out += sign + " * ".join(factors)
        return f"({out})" if out else "0"

    def _division(self, e: Expr) -> str:
        a, b = e.args
        symbol = "/" if e.op == "floordiv" else "%"
        # C rounds to zero, ours down: the same where nothing is negative, and unsigned a multiplication and a shift.
        if self.simplify.nonnegative(a) and b.is_const and b.value > 0:
            unsigned = "unsigned long long" if self.suffix else "unsigned"
            return f"({self.index_type})(({unsigned}){self.index(a)} {symbol} {b.value}u{self.suffix})"
        function = "floor_div" if e.op == "floordiv" else "floor_mod"
        return f"{function}({self.index(a)}, {self.index(b)})"

    def condition(self, e: Expr) -> str:
        """Text of a bool."""
        if e.op == "const":
            return "true" if e.value else "false"
        if e.op in ("and", "or"):
            return _joined([self.condition(a) for a in e.args], SYMBOLS[e.op], e)
        if e.op in ("lt", "le", "eq", "ne"):
            a, b = (self.value(x) for x in e.args)
            return f"({a} {SYMBOLS[e.op]} {b})"
        return self.value(e)

    def conditions(self, tests: Sequence[Expr]) -> str:
        """Text of a bool: whether all hold."""
        return _joined([self.condition(t) for t in tests], "&&", *tests) if tests else "true"

    # ------------------------------------------------------------------ values
    def value(self, e: Expr) -> str:
        """Text of an expression; 16-bit floats are held in float."""
        if e.op == "const":
            return self.literal(e)
        if e.op == "load":
            return self.load(e)
        if e.dtype == "int64" and e.op != "cast":
            return self.index(e)
        if e.op == "select":
            return f"({self.condition(e.args[0])} ? {self.value(e.args[1])} : {self.value(e.args[2])})"
        if e.op == "cast":
            return self.cast(self._within(e) or self.value(e.args[0]), e.args[0].dtype, e.dtype)
        if e.op == "call":
            return self.rounded(f"{CALLS[e.args[0]]}({self.value(e.args[1])})", e.dtype)
        if e.dtype == BOOL and e.op not in ("min", "max"):
            return self.condition(e)
        return self.combine(e.op, self.value(e.args[0]), self.value(e.args[1]), e.dtype)

    def _within(self, e: Expr) -> str | None:
        """The text of what is cast, if that is a float between limits; `fmaxf` leaves NaN out."""
        found = limited(e)
        if found is None:
            return None
        low, high = (self.literal(const(end, "float32")) for end in (found.low, found.high))
        return f"fminf(fmaxf({self.value(found.number)}, {low}), {high})"

    def load(self, e: Expr) -> str:
        if e.serial in self.replaced:
            return self.replaced[e.serial][1]
        buffer = self.buffers[e.args[0]]
        return self.widened(self.element(buffer, e.args[1:]), buffer.dtype)

    def element(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        moving, known = self._parts(buffer, indices)
        return f"({self.names(buffer.name)} + {moving})[{known}]" if moving else f"{self.names(buffer.name)}[{known}]"

    def pointer(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        """Text of the address of an element."""
        return " + ".join(part for part in (self.names(buffer.name), *self._parts(buffer, indices)) if part)

    def _parts(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[str, str]:
        """Of an offset into device memory, what changes at run time, and what is a number where loops are written out.

        Apart, for one 64-bit address then serves all accesses of an unrolled loop; they differ in their immediates.
        """
        place = self.place(buffer, indices)
        if buffer.swizzled:  # whole rows of 16 bytes are: what lies beside an element in them still does
            return "", f"swizzle({self.index(place)})"
        terms = poly(place)
        known = {m: c for m, c in terms.items() if all(variables(a) <= self.unrolled for a in m)}
        if buffer.scope != "global" or not known or len(known) == len(terms):
            return "", self.index(place)
        return self._sum({m: c for m, c in terms.items() if m not in known}), self._sum(known)

    def widened(self, text: str, dtype: str) -> str:
        """A value as it is computed with, of one as it is kept in memory."""
        return {"float16": f"from_half({text})", "bfloat16": f"from_bfloat({text})"}.get(dtype, text)

    def stored(self, text: str, dtype: str) -> str:
        """A value as it is kept in memory."""
        return {"float16": f"to_half({text})", "bfloat16": f"to_bfloat({text})"}.get(dtype, text)

    def rounded(self, text: str, dtype: str) -> str:
        """The result of an operation with the rounding of its dtype."""
        return self.widened(self.stored(text, dtype), dtype)

    def literal(self, e: Expr) -> str:
        if e.dtype == "int64":
            return self.index(e)
        if e.dtype == BOOL:
            return "true" if e.value else "false"
        if e.dtype not in FLOATS:
            return f"({C_TYPES[e.dtype]}){int(e.value)}" if e.dtype != "int32" else _int32(int(e.value))
        bits = np.float32(e.value)
        if not math.isfinite(bits):
            return f"__int_as_float({_int32(int(bits.view(np.int32)))})"
        text = repr(float(bits)) if abs(bits) < 1e16 else f"{float(bits):.17g}"
        literal = f"{text if '.' in text or 'e' in text else text + '.0'}f"
        return self.rounded(literal, e.dtype) if e.dtype in HALVES else literal

    def cast(self, text: str, source: str, dtype: str) -> str:
        if dtype == "float32":
            return f"(float)({text})" if source not in FLOATS else text
        if dtype in HALVES:
            return self.rounded(text if source in FLOATS else f"(float)({text})", dtype)
        if dtype == BOOL:
            return f"({text} != 0)"
        if source in FLOATS and dtype in ("int8", "uint8"):
            return f"({C_TYPES[dtype]})(int)({text})"
        return f"({self.index_type if dtype == 'int64' else C_TYPES[dtype]})({text})"

    def combine(self, op: str, a: str, b: str, dtype: str) -> str:
        """A binary operation on two values of one dtype."""
        if dtype in FLOATS:
            if op in ("min", "max"):
                return f"{op}_nan({a}, {b})"
            if op == "fmod":
                return f"fmodf({a}, {b})"
            if op not in ("add", "sub", "mul", "div"):
                raise BuildError(f"`{op}` must be used on integers, but got dtype={dtype}")
            return self.rounded(f"({a} {SYMBOLS[op]} {b})", dtype)
        kind = C_TYPES[dtype]
        if op in ("min", "max"):
            return f"({kind}){op}((int)({a}), (int)({b}))"
        if op in ("add", "sub", "mul"):  # unsigned, so that an overflow wraps around
            return f"({kind})((unsigned)({a}) {SYMBOLS[op]} (unsigned)({b}))"
        if op == "shl":
            return f"(int)((unsigned)({a}) << ({b} & 31))"
        if op == "shr":
            return f"(({a}) >> ({b} & 31))"
        if op == "bitand":
            return f"(({a}) & ({b}))"
        if op == "bytedot":
            return byte_dot(a, b)
        if op in ("floordiv", "mod"):
            return f"({kind}){'floor_div' if op == 'floordiv' else 'floor_mod'}((int)({a}), (int)({b}))"
        raise BuildError(f"`{op}` must be used on index expressions or floats, but got dtype={dtype}")


def byte_dot(a: str, b: str) -> str:
    """Unsigned bytes of a word times signed ones of another, added up."""
    left = (f"(int)((unsigned)({a}) >> {at} & 255u)" for at in (0, 8, 16, 24))
    right = (f"((int)((unsigned)({b}) >> {at} & 255u ^ 128u) - 128)" for at in (0, 8, 16, 24))
    return f"({' + '.join(f'{x} * {y}' for x, y in zip(left, right, strict=True))})"


def _joined(texts: Sequence[str], symbol: str, *tests: Expr) -> str:
    """Conditions together; where all can be computed whatever the first says, with no branch between them."""
    if not any(node.op == "load" for test in tests for node in walk(test)):
        symbol = symbol[0]
    return f"({f' {symbol} '.join(texts)})" if len(texts) > 1 else texts[0]


def _int32(value: int) -> str:
    return str(value) if value > -(2**31) else "(-2147483647 - 1)"
