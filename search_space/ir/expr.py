"""Hash-consed scalar expressions: loop indices, decision variables and tensor-valued bodies alike.

An expression is immutable and interned, so that structural equality is identity (`is`) and a shared subterm is
evaluated once. The constructors fold constants and apply the identities that keep index arithmetic readable; `simplify`
has the rules that need the ranges of variables.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from weakref import KeyedRef

import numpy as np

from search_space.dtypes import BITS as BITS
from search_space.dtypes import FLOATS as FLOATS
from search_space.ir.semantics import BINARY, FUNCTIONS

INT = "int64"
BOOL = "bool"
DTYPES = tuple(BITS)
SHIFTS = ("shl", "shr")
MATH = tuple(FUNCTIONS)


def dtype_bytes(dtype: str) -> int:
    """Returns the bytes that one element of `dtype` takes in memory."""
    return BITS[dtype] // 8


class Expr:
    """One node: an operator name, its operands (expressions or plain payload) and a dtype.

    Grammar, `op` and then `args`:
        expr := const number | var name | load buffer expr* | cast expr | select condition then otherwise
                | call function expr, a function of `MATH` | an operator of `BINARY` left right
    """

    __slots__ = ("__weakref__", "_names", "_poly", "_text", "args", "dtype", "op", "serial")
    op: str
    args: tuple[Any, ...]
    dtype: str
    serial: int

    def __add__(self, other: Any) -> Expr:
        return make("add", self, other)

    def __radd__(self, other: Any) -> Expr:
        return make("add", other, self)

    def __sub__(self, other: Any) -> Expr:
        return make("sub", self, other)

    def __rsub__(self, other: Any) -> Expr:
        return make("sub", other, self)

    def __mul__(self, other: Any) -> Expr:
        return make("mul", self, other)

    def __rmul__(self, other: Any) -> Expr:
        return make("mul", other, self)

    def __truediv__(self, other: Any) -> Expr:
        return make("div", self, other)

    def __rtruediv__(self, other: Any) -> Expr:
        return make("div", other, self)

    def __floordiv__(self, other: Any) -> Expr:
        return make("floordiv", self, other)

    def __rfloordiv__(self, other: Any) -> Expr:
        return make("floordiv", other, self)

    def __mod__(self, other: Any) -> Expr:
        return make("mod", self, other)

    def __lshift__(self, other: Any) -> Expr:
        return make("shl", self, other)

    def __rshift__(self, other: Any) -> Expr:
        return make("shr", self, other)

    def __and__(self, other: Any) -> Expr:
        return make("bitand", self, other)

    def __neg__(self) -> Expr:
        # For floats, 0 - 0 is 0, but the negative of 0 is -0; so subtract from -0.
        return make("sub", const(-0.0 if self.dtype in FLOATS else 0, self.dtype), self)

    def __lt__(self, other: Any) -> Expr:
        return make("lt", self, other)

    def __le__(self, other: Any) -> Expr:
        return make("le", self, other)

    def __gt__(self, other: Any) -> Expr:
        return make("lt", other, self)

    def __ge__(self, other: Any) -> Expr:
        return make("le", other, self)

    def __bool__(self) -> bool:
        raise TypeError(f"a symbolic expression has no truth value, but got {self}; use te.if_then_else or eq()")

    def astype(self, dtype: str) -> Expr:
        """Converts this value to `dtype`."""
        return cast(self, dtype)

    @property
    def is_const(self) -> bool:
        return self.op == "const"

    @property
    def value(self) -> Any:
        """The number of a constant."""
        assert self.op == "const", self
        return self.args[0]

    @property
    def operands(self) -> tuple[Expr, ...]:
        """The arguments that are themselves expressions."""
        return tuple(a for a in self.args if isinstance(a, Expr))

    def __str__(self) -> str:
        if self._text is None:
            from search_space.ir.render import expression_text

            self._text = expression_text(self)
        return self._text

    __repr__ = __str__

    _text: str | None
    _names: frozenset[str] | None
    _poly: dict[tuple[Expr, ...], int] | None  # see `simplify.poly`


_NODES: dict[tuple[Any, ...], KeyedRef[tuple[Any, ...], Expr]] = {}  # a WeakValueDictionary, looked up natively


def _forget(dead: KeyedRef[tuple[Any, ...], Expr]) -> None:
    if _NODES.get(dead.key) is dead:
        del _NODES[dead.key]


_FEW = 4096
"""Magnitude below which int64 literals are kept for the process's life."""
_COMMON: dict[int, Expr] = {}  # small int64 literals met so far
_serial = 0


def raw(op: str, dtype: str, *args: Any) -> Expr:
    """Returns the interned node, without simplification."""
    return _intern((op, dtype, *[a.serial if isinstance(a, Expr) else _payload_key(a) for a in args]), args)


def _intern(key: tuple[Any, ...], args: tuple[Any, ...]) -> Expr:
    """Returns the node of a key: op, dtype, then each operand's serial or another argument's `_payload_key`."""
    global _serial
    kept = _NODES.get(key)
    node = kept() if kept is not None else None
    if node is None:
        node = Expr.__new__(Expr)
        node.op, node.dtype = key[:2]
        node.args = args
        node._text = node._names = node._poly = None
        _serial += 1
        node.serial = _serial
        _NODES[key] = KeyedRef(node, _forget, key)
    return node


def _payload_key(payload: Any) -> tuple[str, Any]:
    """Returns a key that distinguishes payloads: 1, 1.0 and True differ, and 0.0 and -0.0; NaN equals itself."""
    if isinstance(payload, float):
        return ("float", struct.pack("d", payload))
    return (type(payload).__name__, payload)


def const(value: Any, dtype: str = INT) -> Expr:
    """Makes a literal, rounded to float32 if that is its dtype.

    Raises:
        TypeError: a number that an integer `dtype` does not hold.
    """
    if dtype == INT and type(value) is int:
        node = _COMMON.get(value)
        if node is None:
            node = raw("const", INT, value)
            if -_FEW < value < _FEW:
                _COMMON[value] = node
        return node
    if dtype == BOOL:
        return raw("const", BOOL, bool(value))
    if dtype in FLOATS:
        return raw("const", dtype, _round_to_float32(float(value)) if dtype == "float32" else float(value))
    whole = int(value) if math.isfinite(value) else None
    if whole is None or whole != value or wrap_integer(whole, dtype) != whole:
        raise TypeError(f"`value` must be a number that {dtype} holds, but got value={value}")
    return raw("const", dtype, whole)


def _round_to_float32(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def wrap_integer(value: int, dtype: str) -> int:
    """Returns `value` modulo 2^bits, as integer arithmetic of `dtype` leaves it."""
    bits = BITS[dtype]
    value &= (1 << bits) - 1
    return value - (1 << bits) if dtype != "uint8" and value >> (bits - 1) else value


def var(name: str, dtype: str = INT) -> Expr:
    """Makes a loop index or a decision variable; two variables of one name are the same variable."""
    return raw("var", dtype, name)


def size(name: str, low: int, high: int) -> Expr:
    """Makes a size that a kernel takes when it is called: a variable with a range, both ends inclusive.

    The range is a part of the node: two sizes may have one name, but no program may contain both.
    """
    return raw("var", INT, name, low, high)


def is_size(e: Expr) -> bool:
    """Tells whether an expression is a size by itself, `(name, low, high)`."""
    return e.op == "var" and len(e.args) == 3


def lift(value: Any, dtype: str = INT) -> Expr:
    """Converts `value` to an expression: numbers become constants of `dtype`."""
    if isinstance(value, Expr):
        return value
    if hasattr(value, "expr"):
        return value.expr  # type: ignore[no-any-return]
    if isinstance(value, (bool, np.bool_)):
        return const(bool(value), BOOL)
    return const(value, dtype)


def load(buffer: Any, indices: Iterable[Any], dtype: str) -> Expr:
    """Reads the element of `buffer` (a te tensor, or a buffer's name after a schedule is made) at `indices`."""
    return raw("load", dtype, buffer, *(lift(i) for i in indices))


def cast(value: Any, dtype: str) -> Expr:
    """Converts `value` to `dtype` (float to int truncates, as in C)."""
    node = lift(value, dtype)
    if node.dtype == dtype:
        return node
    if node.op == "const" and not {dtype, node.dtype} & {"bfloat16", "float16"}:
        if dtype == BOOL or dtype in FLOATS:
            return const(node.value, dtype)
        if math.isfinite(node.value):
            return const(wrap_integer(int(node.value), dtype), dtype)
    return raw("cast", dtype, node)


def select(condition: Any, then: Any, otherwise: Any) -> Expr:
    """Selects `then` where `condition` holds, else `otherwise`; loads in the branch not taken are not performed."""
    test = lift(condition, BOOL)
    first, second = _balance(then, otherwise)
    if test.op == "const":
        return first if test.value else second
    if first is second:
        return first
    return raw("select", first.dtype, test, first, second)


def condition_of_term(value: Expr) -> Expr | None:
    """Returns the condition of a choice between a term and zero; None for other values."""
    if value.op != "select" or not value.args[2].is_const or value.args[2].value != 0:
        return None
    condition: Expr = value.args[0]
    return condition


def call(function: str, value: Any) -> Expr:
    """Applies a unary math function of `MATH`, element-wise."""
    if function not in MATH:
        raise ValueError(f"`function` must be one of {', '.join(MATH)}, but got function={function!r}")
    x = lift(value, "float32")
    if x.dtype not in FLOATS and function == "abs" and x.dtype != BOOL:
        # Negated uint8 would wrap around.
        return x if x.dtype == "uint8" else make("max", x, make("sub", const(0, x.dtype), x))
    if x.dtype not in FLOATS:
        raise TypeError(f"`value` of {function} must be floating-point, but got {x}: {x.dtype}")
    return raw("call", x.dtype, function, x)


def minimum(a: Any, b: Any) -> Expr:
    return make("min", a, b)


def maximum(a: Any, b: Any) -> Expr:
    return make("max", a, b)


def byte_dot(a: Any, b: Any) -> Expr:
    """Adds up the products of unsigned bytes of `a` and signed bytes of `b`, both words of int32."""
    return make("bytedot", a, b)


def eq(a: Any, b: Any) -> Expr:
    return make("eq", a, b)


def logical_and(*conditions: Any) -> Expr:
    result = const(True, BOOL)
    for condition in conditions:
        result = make("and", result, lift(condition, BOOL))
    return result


def ceildiv(a: Any, b: Any) -> Expr:
    top, bottom = lift(a), lift(b)
    if bottom.op == "const" and bottom.value == 1:
        return top
    return (top + (bottom - 1)) // bottom


def product(values: Iterable[Any]) -> Expr:
    result = const(1)
    for value in values:
        result = result * value
    return result


def total(values: Iterable[Any]) -> Expr:
    result = const(0)
    for value in values:
        result = result + value
    return result


def _balance(a: Any, b: Any) -> tuple[Expr, Expr]:
    if not isinstance(a, Expr) and hasattr(a, "expr"):
        a = a.expr
    if not isinstance(b, Expr) and hasattr(b, "expr"):
        b = b.expr
    if isinstance(a, Expr) and not isinstance(b, Expr):
        b = lift(b, a.dtype)
    elif isinstance(b, Expr) and not isinstance(a, Expr):
        a = lift(a, b.dtype)
    elif not isinstance(a, Expr):
        dtype = "float32" if isinstance(a, float) or isinstance(b, float) else INT
        a, b = lift(a, dtype), lift(b, dtype)
    if a.dtype != b.dtype:
        if a.op == "const":
            a = const(a.value, b.dtype)
        elif b.op == "const":
            b = const(b.value, a.dtype)
        else:
            raise TypeError(f"operands must have one dtype, but got {a}: {a.dtype} and {b}: {b.dtype}")
    return a, b


def make(op: str, left: Any, right: Any) -> Expr:
    """Makes a binary node after constant folding and identities.

    Raises:
        TypeError: operands of two dtypes, or of one the operator is not defined on.
    """
    if isinstance(left, Expr) and isinstance(right, Expr) and left.dtype == right.dtype:
        a, b = left, right
    else:
        a, b = _balance(left, right)
    row = BINARY[op]
    takes, dtypes = row.operands
    if a.dtype not in dtypes:
        raise TypeError(f"operands of `{op}` must be {takes}, but got {a}: {a.dtype}")
    if op in ("floordiv", "mod") and b.op == "const" and b.value == 0:
        raise ZeroDivisionError(f"the divisor must not be zero, but got {a} {op} 0")
    dtype = BOOL if row.truth else a.dtype
    if a.op == "const" and b.op == "const" and (dtype != "float16" and dtype != "bfloat16"):
        if not (op == "div" and b.value == 0):
            return _fold(op, a, b, dtype)
    if row.commutative and a.op == "const":
        a, b = b, a
    simple = _identity(op, a, b)
    if simple is not None:
        return simple
    return _intern((op, dtype, a.serial, b.serial), (a, b))


def _fold(op: str, a: Expr, b: Expr, dtype: str) -> Expr:
    value = BINARY[op].number(a.value, b.value)
    return const(value if dtype == BOOL or dtype in FLOATS else wrap_integer(value, dtype), dtype)


_BY_ZERO = frozenset(("add", "sub", *SHIFTS))
"""Operators that leave their left operand as it is where the right one is 0."""


def _identity(op: str, a: Expr, b: Expr) -> Expr | None:
    if a is not b and a.op != "const" and b.op != "const":
        return None  # the usual case
    number = b.value if b.op == "const" else None
    # For floats, x * 0 is NaN for NaN and infinity, x - x is not 0 and x == x not true for them, and merged sums and
    # products round differently. x * 1, x / 1 and x - 0 are x for each float; so is x + -0, but not x + 0.
    exact = a.dtype not in FLOATS
    if op in _BY_ZERO and number == 0 and (exact or (math.copysign(1, number) < 0) == (op == "add")):
        return a
    if (op in ("mul", "div") and number == 1) or (op == "floordiv" and number == 1 and exact):
        return a
    if op == "mul" and number == 0 and exact:
        return b
    if op == "mod" and number == 1 and exact:
        return const(0, a.dtype)
    if op in ("floordiv", "mod") and a.op == "const" and a.value == 0 and exact:
        return a
    if op == "sub" and a is b and exact:
        return const(0, a.dtype)
    if op in ("min", "max", "and", "or") and a is b:
        return a
    if op in ("eq", "le") and a is b and exact:
        return const(True, BOOL)
    if op in ("lt", "ne") and a is b and exact:
        return const(False, BOOL)
    if op == "and" and number is not None:
        return a if number else b
    if op == "or" and number is not None:
        return b if number else a
    if exact and number is not None and op in ("add", "mul") and a.op == op and a.args[1].op == "const":
        return make(op, a.args[0], _fold(op, a.args[1], b, a.dtype))
    return None


def rebuild(expr: Expr, args: tuple[Any, ...]) -> Expr:
    """Makes a node of `expr`'s kind over new arguments, simplified like a new one."""
    op = expr.op
    if op in BINARY:
        return make(op, *args)
    if op == "select":
        return select(*args)
    if op == "cast":
        return cast(args[0], expr.dtype)
    return raw(op, expr.dtype, *args)


def transform(expr: Expr, visit: Callable[[Expr], Expr | None], memo: dict[int, Expr] | None = None) -> Expr:
    """Rewrites bottom-up; `visit` sees each node before its operands and may return its replacement."""
    return _transform_node(expr, visit, {} if memo is None else memo)


def _transform_node(node: Expr, visit: Callable[[Expr], Expr | None], memo: dict[int, Expr]) -> Expr:
    # No inner function: a recursive one is a reference cycle, which keeps the memo until the garbage collector runs.
    done = memo.get(node.serial)
    if done is None:
        done = visit(node)
        if done is None:
            args, same = [], True
            for old in node.args:
                arg = old
                if isinstance(old, Expr):
                    arg = memo.get(old.serial)
                    if arg is None:
                        arg = _transform_node(old, visit, memo)
                    same = same and arg is old
                args.append(arg)
            done = node if same else rebuild(node, tuple(args))
        memo[node.serial] = done
    return done


def substitute(expr: Expr, values: Mapping[str, Expr | int], memo: dict[int, Expr] | None = None) -> Expr:
    """Replaces variables of `expr` by name, all at once."""

    def visit(node: Expr) -> Expr | None:
        if node.op == "var":
            return lift(values[node.args[0]]) if node.args[0] in values else node
        return node if variables(node).isdisjoint(values) else None

    return transform(expr, visit, memo)


def walk(expr: Expr) -> Iterable[Expr]:
    """Lists every distinct node of `expr`, itself included, operands first."""
    order: list[Expr] = []
    _walk_into(expr, set(), order)
    return order


def _walk_into(node: Expr, serials: set[int], order: list[Expr]) -> None:
    serials.add(node.serial)
    for arg in node.args:
        if isinstance(arg, Expr) and arg.serial not in serials:
            _walk_into(arg, serials, order)
    order.append(node)


def variables(expr: Expr) -> frozenset[str]:
    """Returns the names of the variables that `expr` mentions."""
    names = expr._names
    if names is None:
        if expr.op == "var":
            names = frozenset(expr.args[:1])  # a size has its range after its name
        else:
            names = frozenset().union(*(variables(a) for a in expr.args if isinstance(a, Expr)))
        expr._names = names
    return names
