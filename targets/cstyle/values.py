"""Expressions in a language like C."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from search_space.ir.expr import BOOL, FLOATS, INT, Expr, const, total
from search_space.ir.polynomial import Poly, poly
from search_space.ir.regroup import Regrouping, pulled_apart, recombine
from search_space.ir.rounding import match_clamp
from search_space.ir.stmt import Buffer
from targets.arrays import C_TYPE
from targets.base import BuildError
from targets.cstyle.spelling import FUNCTIONS, SYMBOLS

ARITHMETIC = ("add", "sub", "mul", "div")


class Values(ABC):
    """A writer of expressions; 16-bit floats are computed in float and rounded after every operation.

    A language is a subclass with names of its own, which overrides methods.

    Args:
        names: identifier of every loop variable and buffer.
        buffers: buffers by name.
        simplify: knows the ranges of the loops around.
        wide: says that indices need 64 bits.

    Attributes:
        TYPES: types of elements in memory, by dtype.
        INDEX: types of indices, of 32 and of 64 bits.
        CALLS: math functions of float32.
        HALVES: functions that widen and that narrow a 16-bit float, by dtype.
        EXTREMES: functions of floats, NaN where either operand is.
        TRUTHS: texts of False and True.
        ZERO: text of 0.0.
        LEAST: text of -2^31.
        POINTER: text between the type and the name of an array that a function takes.
        OPERATION: holds the text of an operation together, so that it may be an operand.
        TEST: holds the condition of a choice.
        TRUTH: makes a condition of a bool.
        OF_TRUTH: makes a bool of a condition.
    """

    TYPES: ClassVar[Mapping[str, str]] = C_TYPE
    INDEX: ClassVar[tuple[str, str]] = ("int32_t", "int64_t")
    CALLS: ClassVar[Mapping[str, str]] = FUNCTIONS
    HALVES: ClassVar[Mapping[str, tuple[str, str]]] = {}
    EXTREMES: ClassVar[Mapping[str, str]] = {}
    TRUTHS: ClassVar[tuple[str, str]] = ("0", "1")
    ZERO: ClassVar[str] = "0"
    LEAST: ClassVar[str] = "(-2147483647 - 1)"
    POINTER: ClassVar[str] = "* "
    OPERATION: ClassVar[str] = "({})"
    TEST: ClassVar[str] = "{}"
    TRUTH: ClassVar[str] = "{}"
    OF_TRUTH: ClassVar[str] = "{}"

    def __init__(
        self, names: Callable[[str], str], buffers: Mapping[str, Buffer], simplify: Regrouping, wide: bool
    ) -> None:
        self.names, self.buffers, self.simplify, self.wide = names, buffers, simplify, wide
        self.index_type = self.INDEX[wide]
        self._offsets: dict[tuple[object, ...], Expr] = {}

    def forget(self) -> None:
        """Forgets conclusions under the ranges of other loops."""
        self._offsets.clear()

    # ------------------------------------------------------------------ what languages write in their own ways
    def operand(self, text: str) -> str:
        """Returns the text of a value as an operand of an operation."""
        return text

    def convert(self, text: str, kind: str) -> str:
        """Writes a conversion to another type."""
        return f"({kind})({text})"

    def helper(self, name: str, *arguments: str) -> str:
        """Writes a call of a function."""
        return f"{name}({', '.join(arguments)})"

    def number(self, value: int) -> str:
        """Writes an integer that is an index."""
        return str(value)

    @abstractmethod
    def float_literal(self, value: float, dtype: str) -> str:
        """Writes a float constant so that the language reads the same bits back."""

    def quotient(self, op: str, a: Expr, by: int) -> str:
        """Writes a division or a remainder of an index that is not negative by a positive number."""
        return self.infix("/" if op == "floordiv" else "%", self.index(a), self.number(by))

    def integer(self, op: str, a: str, b: str) -> str:
        """Writes `floordiv`, `mod`, `min` or `max` of two indices."""
        return self.integer_operation(op, a, b, INT if self.wide else "int32")

    @abstractmethod
    def integer_operation(self, op: str, a: str, b: str, dtype: str) -> str:
        """Writes an operation on two integers or bools of one dtype; results wrap around, divisions round down.

        The operations are rows of `search_space/ir/semantics.py`: `add`, `sub`, `mul`, `floordiv`, `mod`, `min` and
        `max`; on int32 also `shl`, `shr`, `bitand` and `bytedot`.

        Raises:
            BuildError: the dtype has no such operation.
        """

    def join_conditions(self, texts: Sequence[str], symbol: str, *tests: Expr) -> str:
        """Joins texts of conditions by `&&` or `||`."""
        return self.OPERATION.format(f" {symbol} ".join(map(self.operand, texts)))

    def convert_to_index(self, text: str, dtype: str) -> str:
        """Converts an integer that was read from an array to an index."""
        return f"({self.index_type}){self.operand(text)}"

    # ------------------------------------------------------------------ integers
    def element(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        """Writes an element as the operand of a read or a write."""
        return f"{self.names(buffer.name)}[{self.index(self.offset(buffer, indices))}]"

    def offset(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
        """Computes the elements from the buffer's first one; indices of a fused loop are recombined."""
        key = (buffer.name, *indices)
        if key not in self._offsets:
            place = self.simplify(total(i * s for i, s in zip(indices, buffer.strides, strict=True)))
            self._offsets[key] = pulled_apart(recombine(place, self.simplify), self.simplify)
        return self._offsets[key]

    def index(self, e: Expr) -> str:
        """Writes an integer expression.

        Raises:
            BuildError: the expression is no arithmetic over loop variables.
        """
        if e.op == "const":
            return self.number(int(e.value))
        if e.op == "var":
            return self.names(e.args[0])
        if e.op in ("add", "sub", "mul"):
            return self.sum(poly(e))
        if e.op in ("floordiv", "mod") and self._divides_plainly(*e.args):
            return self.quotient(e.op, e.args[0], int(e.args[1].value))
        if e.op in ("floordiv", "mod", "min", "max"):
            return self.integer(e.op, *map(self.index, e.args))
        if e.op == "select":
            return self.choice(e, self.index)
        if e.op == "load":
            return self.convert_to_index(self.load(e), e.dtype)
        if e.op == "cast":
            return f"({self.index_type}){self.operand(self.value(e.args[0]))}"
        raise BuildError(f"an index must be arithmetic over loop variables, but got {e}")

    def _divides_plainly(self, a: Expr, b: Expr) -> bool:
        """Tells whether rounding to zero, as C does, is rounding down."""
        return self.simplify.nonnegative(a) and b.is_const and b.value > 0

    def sum(self, terms: Poly) -> str:
        """Writes a polynomial."""
        out = ""
        for monomial, c in terms.items():
            texts = [self.index(a) for a in monomial]
            if abs(c) != 1 or not texts:
                texts.append(self.number(abs(c)))
            sign = ("-" if c < 0 else "") if not out else (" - " if c < 0 else " + ")
            out += sign + " * ".join(texts)
        return self.OPERATION.format(out) if out else "0"

    # ------------------------------------------------------------------ values
    def condition(self, e: Expr) -> str:
        """Writes a bool as the condition of an `if`."""
        if e.op == "const":
            return self.TRUTHS[bool(e.value)]
        if e.op in ("and", "or"):
            return self.join_conditions([self.condition(a) for a in e.args], SYMBOLS[e.op], e)
        if e.op in ("lt", "le", "eq", "ne"):
            return self.infix(SYMBOLS[e.op], *map(self.value, e.args))
        return self.TRUTH.format(self.operand(self.value(e)))

    def value(self, e: Expr) -> str:
        """Writes an expression; 16-bit floats are computed in float."""
        if e.op == "const":
            return self.literal(e)
        if e.op == "load":
            return self.load(e)
        if e.dtype == INT and e.op != "cast":
            return self.index(e)
        if e.op == "select":
            return self.choice(e, self.value)
        if e.op == "cast":
            return self.cast(self._within(e) or self.value(e.args[0]), e.args[0].dtype, e.dtype)
        if e.op == "call":
            return self.round_result(self.helper(self.CALLS[e.args[0]], self.value(e.args[1])), e.dtype)
        if e.dtype == BOOL and e.op not in ("min", "max"):
            return self.OF_TRUTH.format(self.condition(e))
        return self.combine(e.op, self.value(e.args[0]), self.value(e.args[1]), e.dtype)

    def infix(self, symbol: str, a: str, b: str) -> str:
        """Writes two operands with a symbol between them."""
        return self.OPERATION.format(f"{self.operand(a)} {symbol} {self.operand(b)}")

    def choice(self, e: Expr, write: Callable[[Expr], str]) -> str:
        """Writes a `select`; `write` gives the text of its branches."""
        test, a, b = self.TEST.format(self.condition(e.args[0])), *(self.operand(write(x)) for x in e.args[1:])
        return self.OPERATION.format(f"{test} ? {a} : {b}")

    def _within(self, e: Expr) -> str | None:
        """Writes the operand of a cast if it is a float between limits; None otherwise."""
        limits = match_clamp(e)
        if limits is None:
            return None
        low, high = (self.literal(const(end, "float32")) for end in (limits.low, limits.high))
        return self.within(self.value(limits.number), low, high)

    def within(self, text: str, low: str, high: str) -> str:
        """Limits a float; NaN becomes the lower limit, as `fmaxf` ignores a NaN."""
        return f"fminf(fmaxf({text}, {low}), {high})"

    def load(self, e: Expr) -> str:
        """Reads an element in the type that it is computed in."""
        buffer = self.buffers[e.args[0]]
        return self.widen(self.element(buffer, e.args[1:]), buffer.dtype)

    def widen(self, text: str, dtype: str) -> str:
        """Converts a value in memory to the type that it is computed in."""
        return self.helper(self.HALVES[dtype][0], text) if dtype in self.HALVES else text

    def convert_to_stored(self, text: str, dtype: str) -> str:
        """Converts a computed value to its type in memory."""
        return self.helper(self.HALVES[dtype][1], text) if dtype in self.HALVES else text

    def round_result(self, text: str, dtype: str) -> str:
        """Rounds the result of an operation to its dtype."""
        return self.widen(self.convert_to_stored(text, dtype), dtype)

    def literal(self, e: Expr) -> str:
        """Writes a constant."""
        if e.dtype in FLOATS:
            return self.float_literal(e.value, e.dtype)
        if e.dtype == INT:
            return self.number(int(e.value))
        if e.dtype == BOOL:
            return self.OF_TRUTH.format(self.condition(e))
        if e.dtype == "int32":
            return self.LEAST if e.value == -(2**31) else str(int(e.value))
        return f"({self.TYPES[e.dtype]}){int(e.value)}"

    def cast(self, text: str, source: str, dtype: str) -> str:
        """Converts a value of the dtype `source` to another dtype."""
        if dtype in FLOATS:
            return self.round_result(text if source in FLOATS else self.convert(text, "float"), dtype)
        if dtype == BOOL:
            return self.OF_TRUTH.format(self.infix("!=", text, self.ZERO if source in FLOATS else "0"))
        if source in FLOATS and dtype in ("int8", "uint8"):
            return f"({self.TYPES[dtype]}){self.convert(text, self.TYPES['int32'])}"
        return self.convert(text, self.index_type if dtype == INT else self.TYPES[dtype])

    def combine(self, op: str, a: str, b: str, dtype: str) -> str:
        """Writes an operation on two values of one dtype.

        Raises:
            BuildError: the dtype has no such operation.
        """
        if dtype not in FLOATS:
            return self.integer_operation(op, a, b, dtype)
        if op in ("min", "max"):
            return self.helper(self.EXTREMES[op], a, b)
        if op == "fmod":
            return self.helper("fmodf", a, b)
        if op not in ARITHMETIC:
            raise BuildError(f"`{op}` must be used on integers, but got dtype={dtype}")
        return self.round_result(self.infix(SYMBOLS[op], a, b), dtype)

    def reduce(self, op: str, old: str, text: str, dtype: str) -> str:
        """Writes an operation of a reduction on the value in memory and one more value."""
        return self.combine(op, old, text, dtype)
