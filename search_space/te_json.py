"""Tensor expressions as plain JSON data and back: records, keys and workers store definitions in this form.

A definition is `{"inputs": [...], "stages": [...]}`, producers first, the output last:

    input  ::= {"name", "shape", "dtype", "constant"}, and "mean" if it has one
    stage  ::= {"name", "tag", "axes": [[name, extent], ...], "reduce": [[name, extent], ...],
                "reducer": name or null, "shared": [expr, ...], "body": expr}
    expr   ::= integer | axis name | ["const", dtype, value] | ["load", tensor name, index...] | [binary, expr, expr]
             | ["select", condition, expr, expr] | ["call", function, expr] | ["cast", dtype, expr] | ["ref", number]
             | ["size", name, least, greatest]

An integer is an int64 constant. A subexpression that a body contains several times is stored once in `shared`, operands
first, and `ref` is its number there. Names are kept, since traces refer to them. Equal definitions give equal data.

An extent is an integer; where sizes are open (`te.var`), it may be an expression of sizes. Workloads have none.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from search_space import te
from search_space.ir import expr as ir
from search_space.ir.expr import BOOL, DTYPES, FLOATS, INT, Expr, raw
from search_space.ir.semantics import BINARY
from search_space.ir.sizes import is_sized, span
from search_space.schedule.state import operations
from search_space.tags import Tag

__all__ = ["read_extent", "from_json", "text", "to_json"]

DEEPEST = 200
"""Greatest number of levels of an expression; the count starts anew in shared ones."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*", re.ASCII)
_SPECIAL = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def to_json(tensors: Sequence[te.Tensor], open_sizes: bool = False) -> dict[str, Any]:
    """Converts a definition to plain data.

    Args:
        tensors: every placeholder that the output reads, in the kernel's order, then the output.
        open_sizes: whether the definition may have open sizes.

    Raises:
        ValueError: the tensors are no such list, or an expression that a definition cannot hold.
    """
    if isinstance(tensors, str) or not isinstance(tensors, Sequence):
        raise ValueError(f"`tensors` must be a list of inputs and the output, but got tensors={tensors!r}")
    for tensor in tensors:
        if not isinstance(tensor, te.Tensor):
            raise ValueError(f"`tensors` must be te tensors, inputs first, the output last, but got {tensor!r}")
    shown = ", ".join(t.name for t in tensors) or "none"
    if not tensors or tensors[-1].op.body is None:
        raise ValueError(f"`tensors` must end with the output, which is computed, but got {shown}")
    if not open_sizes and (sized := [t for t in tensors if t.op.size_expressions]):
        raise ValueError(
            f"a definition as plain data must have numbers for sizes, but got {sized[0].name} of {sized[0].shape}"
        )
    inputs = [t.op for t in tensors[:-1]]
    names = operations(tensors[-1:], tensors[:-1])
    read = [op for op in operations(tensors[-1:]) if op.body is None]
    if len(set(inputs)) != len(inputs) or set(inputs) != set(read):
        wanted = ", ".join(op.name for op in read) or "no inputs"
        raise ValueError(
            f"`tensors` must be each placeholder that the output reads ({wanted}) once, then the output, "
            f"but got {shown}"
        )
    return {
        "inputs": [
            {
                "name": names[op],
                "shape": _extents(op.shape),
                "dtype": op.dtype,
                "constant": op.constant,
                **({} if op.mean is None else {"mean": op.mean}),
            }
            for op in inputs
        ],
        "stages": [_stage(op, names) for op in names if op.body is not None],
    }


def text(data: Mapping[str, Any]) -> str:
    """Returns the canonical text of the data that `to_json` gives."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


def from_json(data: Any, open_sizes: bool = False) -> list[te.Tensor]:
    """Reads a definition: returns its inputs and then its output.

    Args:
        data: data that `to_json` wrote.
        open_sizes: whether the definition may have open sizes.

    Raises:
        ValueError: data that are no definition; the message states the rule, and the stage and value that break it.
    """
    _fields(data, "definition", ("inputs", "stages"))
    defined: dict[str, te.Tensor] = {}
    for item in _list(data["inputs"], "inputs"):
        _fields(item, "input", ("name", "shape", "dtype", "constant", *(["mean"] if "mean" in item else [])))
        name = _new(item["name"], defined)
        if not isinstance(item["constant"], bool):
            raise ValueError(f"`constant` of {name} must be true or false, but got constant={item['constant']!r}")
        if not isinstance(item["dtype"], str):
            raise ValueError(f"`dtype` of {name} must be a name, but got dtype={item['dtype']!r}")
        shape = [_Reader(name, {}).extent(e) for e in _list(item["shape"], "shape")]
        defined[name] = te.placeholder(shape, item["dtype"], name, item["constant"], item.get("mean"))
    inputs = list(defined.values())
    for item in _list(data["stages"], "stages"):
        _fields(item, "stage", ("name", "tag", "axes", "reduce", "reducer", "shared", "body"))
        name = _new(item["name"], defined)
        defined[name] = _Reader(name, defined).stage(item)
    tensors = [*inputs, *list(defined.values())[len(inputs) :][-1:]]
    to_json(tensors, open_sizes)  # raises the errors of the complete definition
    used = set(operations(tensors[-1:]).values())
    if idle := [name for name in defined if name not in used]:
        raise ValueError(f"`stages` must all be read on the way to the last, but got {', '.join(idle)}, read by none")
    return tensors


def read_extent(data: Any) -> int | Expr:
    """Reads an extent of a definition with open sizes: a positive number, or an expression of sizes that is always one.

    Raises:
        ValueError: something else.
    """
    return _Reader("an array", {}).extent(data)


def _stage(op: te.Operation, names: Mapping[te.Operation, str]) -> dict[str, Any]:
    assert op.body is not None
    uses = Counter(operand.serial for node in ir.walk(op.body) for operand in node.operands)
    writer = _Writer(names, uses)
    body = writer.write(op.body)
    return {
        "name": names[op],
        "tag": op.tag.value,
        "axes": _list_ranges(op.axis),
        "reduce": _list_ranges(op.reduce_axis),
        "reducer": op.reducer,
        "shared": writer.shared,
        "body": body,
    }


def _list_ranges(axes: Sequence[te.IterVar]) -> list[list[Any]]:
    return [[axis.name, extent] for axis, extent in zip(axes, _extents([a.extent for a in axes]), strict=True)]


def _extents(extents: Sequence[int | Expr]) -> list[Any]:
    """Converts extents to numbers, or to data of expressions of sizes, in which nothing is shared."""
    return [_Writer({}, Counter()).write(e) if isinstance(e, Expr) else e for e in extents]


class _Writer:
    """A converter of one stage's expressions to lists; `uses` counts the uses of each node."""

    def __init__(self, names: Mapping[te.Operation, str], uses: Mapping[int, int]) -> None:
        self._names, self._uses = names, uses
        self.shared: list[Any] = []
        self._indices: dict[int, int] = {}

    def write(self, e: Expr) -> Any:
        if e.serial in self._indices:
            return ["ref", self._indices[e.serial]]
        data = self._node(e)
        if e.operands and self._uses[e.serial] > 1:
            self._indices[e.serial] = len(self.shared)
            self.shared.append(data)
            return ["ref", self._indices[e.serial]]
        return data

    def _node(self, e: Expr) -> Any:
        if e.op == "const":
            return e.value if e.dtype == INT else ["const", e.dtype, _plain(e.value)]
        if ir.is_size(e):
            return ["size", *e.args]
        if e.op == "var":
            return e.args[0]
        if e.op == "load":
            return ["load", self._names[e.args[0].op], *(self.write(i) for i in e.args[1:])]
        if e.op == "cast":
            return ["cast", e.dtype, self.write(e.args[0])]
        if e.op == "call":
            return ["call", e.args[0], self.write(e.args[1])]
        return [e.op, *(self.write(a) for a in e.args)]


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


class _Reader:
    """A reader of one stage: it checks each node, and then builds it without simplifying it."""

    def __init__(self, stage: str, tensors: Mapping[str, te.Tensor]) -> None:
        self._stage, self._tensors = stage, tensors
        self._axes: dict[str, int | Expr] = {}
        self._shared: list[Expr] = []

    def stage(self, data: Mapping[str, Any]) -> te.Tensor:
        tag, reducer = data["tag"], data["reducer"]
        if not isinstance(tag, str):
            raise ValueError(f"`tag` of {self._stage} must be text, but got tag={tag!r}")
        axis, reduced = (self._ranges(data[key], key) for key in ("axes", "reduce"))
        if reducer is not None and reducer not in te.REDUCERS:
            raise ValueError(
                f"`reducer` of {self._stage} must be one of {', '.join(te.REDUCERS)}, but got reducer={reducer!r}"
            )
        if reduced and reducer is None:
            raise ValueError(f"`reducer` of {self._stage} must be given with reduce axes, but got reducer=None")
        for item in _list(data["shared"], "shared"):
            self._shared.append(self._expr(item))
        body = self._expr(data["body"])
        if body.dtype == BOOL and reducer in ("sum", "prod"):
            raise self._wrong(f"be numbers where the reducer is {reducer}", data["body"])
        inputs = tuple(dict.fromkeys(n.args[0] for n in ir.walk(body) if n.op == "load"))
        shape = tuple(a.extent for a in axis)
        axes = tuple(te.IterVar(a.name, a.extent, "reduce") for a in reduced)
        return te.Tensor(
            te.Operation(self._stage, shape, body.dtype, axis, axes, body, reducer, tag=Tag(tag), inputs=inputs)
        )

    def _ranges(self, data: Any, key: str) -> tuple[te.IterVar, ...]:
        axes = []
        for item in _list(data, key):
            if not isinstance(item, Sequence) or isinstance(item, str) or len(item) != 2:
                raise ValueError(f"`{key}` of {self._stage} must be pairs of name and extent, but got {item!r}")
            name = _identifier(item[0], f"`{key}` of {self._stage}")
            if name in self._axes:
                raise ValueError(f"axes of {self._stage} must have distinct names, but got {name} twice")
            self._axes[name] = self.extent(item[1])
            axes.append(te.IterVar(name, self._axes[name]))
        return tuple(axes)

    def extent(self, data: Any) -> int | Expr:
        """Reads a positive number, or an expression of sizes alone that is always one."""
        if not isinstance(data, (list, tuple)):
            return _extent(data, self._stage)
        found = _Reader(self._stage, {})._expr(data)
        if not is_sized(found) or span(found)[0] < 1:
            raise self._wrong("be positive and of sizes alone where it is an extent", data)
        return found

    def _expr(self, data: Any, depth: int = 0) -> Expr:
        if depth > DEEPEST:
            raise ValueError(f"expressions of {self._stage} must be at most {DEEPEST} levels deep, but got more")
        if isinstance(data, int) and not isinstance(data, bool):
            return self._const(INT, data, data)
        if isinstance(data, str):
            if data not in self._axes:
                raise self._wrong(f"name an axis among {', '.join(self._axes)}", data)
            return ir.var(data)
        if not isinstance(data, Sequence) or not data or not isinstance(data[0], str):
            raise self._wrong("be an integer, an axis or a list that starts with an operator", data)
        op, rest = data[0], data[1:]
        if op in BINARY:
            return self._binary(op, data, self._operands(data, rest, 2, depth))
        if op not in _FORMS:
            raise self._wrong(f"start with one of {', '.join((*BINARY, *_FORMS))}", data)
        return _FORMS[op](self, data, rest, depth)

    def _operands(self, data: Any, rest: Sequence[Any], count: int, depth: int) -> list[Expr]:
        if len(rest) != count:
            raise self._wrong(f"have {count} operands", data)
        return [self._expr(item, depth + 1) for item in rest]

    def _binary(self, op: str, data: Any, operands: list[Expr]) -> Expr:
        a, b = operands
        if a.dtype != b.dtype:
            raise self._wrong(f"have operands of one dtype, not {a.dtype} and {b.dtype}", data)
        try:
            dtype = ir.make(op, a, b).dtype  # for its checks: the node itself is stored unsimplified
        except (TypeError, ZeroDivisionError, ArithmeticError) as error:
            raise ValueError(f"an expression of {self._stage} cannot be made: {error}") from None
        return raw(op, dtype, a, b)

    def _read_name(self, data: Any, rest: Sequence[Any], names: Sequence[str]) -> str:
        if len(rest) != 2 or rest[0] not in names:
            raise self._wrong(f"be [{data[0]!r}, one of {', '.join(names)}, a value]", data)
        return str(rest[0])

    def _literal(self, data: Any, rest: Sequence[Any], depth: int) -> Expr:
        return self._const(self._read_name(data, rest, DTYPES), rest[1], data)

    def _const(self, dtype: str, value: Any, data: Any) -> Expr:
        if dtype in FLOATS and isinstance(value, str) and value in _SPECIAL:
            return ir.const(_SPECIAL[value], dtype)
        fits = isinstance(value, bool) if dtype == BOOL else isinstance(value, int) and not isinstance(value, bool)
        if dtype in FLOATS:
            fits = fits or (isinstance(value, float) and math.isfinite(value))
        if fits and dtype not in (*FLOATS, BOOL):
            fits = ir.wrap_integer(value, dtype) == value
        if not fits:
            raise self._wrong(f"hold a value of {dtype}", data)
        try:
            return ir.const(value, dtype)
        except OverflowError:
            raise self._wrong(f"hold a value of {dtype}", data) from None

    def _load(self, data: Any, rest: Sequence[Any], depth: int) -> Expr:
        if not rest or not isinstance(rest[0], str) or rest[0] not in self._tensors:
            known = ", ".join(self._tensors)
            raise self._wrong(f"load from an earlier tensor among {known}", data)
        tensor = self._tensors[rest[0]]
        indices = self._operands(data, rest[1:], len(tensor.shape), depth)
        for index in indices:
            if index.dtype in (*FLOATS, BOOL):
                raise self._wrong(f"load at integers, not at {index}: {index.dtype}", data)
        return ir.load(tensor, indices, tensor.dtype)

    def _size(self, data: Any, rest: Sequence[Any], depth: int) -> Expr:
        if len(rest) != 3:
            raise self._wrong("be ['size', name, least, greatest]", data)
        try:
            return te.var(*rest)
        except (TypeError, ValueError) as error:
            raise ValueError(f"a size of {self._stage} cannot be: {error}") from None

    def _select(self, data: Any, rest: Sequence[Any], depth: int) -> Expr:
        test, then, other = self._operands(data, rest, 3, depth)
        if test.dtype != BOOL or then.dtype != other.dtype:
            raise self._wrong("select on a bool between values of one dtype", data)
        return raw("select", then.dtype, test, then, other)

    def _cast(self, data: Any, rest: Sequence[Any], depth: int) -> Expr:
        dtype = self._read_name(data, rest, DTYPES)
        return raw("cast", dtype, self._expr(rest[1], depth + 1))

    def _call(self, data: Any, rest: Sequence[Any], depth: int) -> Expr:
        function = self._read_name(data, rest, ir.MATH)
        value = self._expr(rest[1], depth + 1)
        if value.dtype not in FLOATS:
            raise self._wrong(f"call {function} on floating point, not on {value.dtype}", data)
        return raw("call", value.dtype, function, value)

    def _ref(self, data: Any, rest: Sequence[Any], depth: int) -> Expr:
        number = rest[0] if len(rest) == 1 else None
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < len(self._shared):
            raise self._wrong(f"refer to an earlier of {len(self._shared)} shared expressions", data)
        return self._shared[number]

    def _wrong(self, rule: str, data: Any) -> ValueError:
        shown = repr(data)
        shown = shown if len(shown) <= 120 else shown[:117] + "..."
        return ValueError(f"an expression of {self._stage} must {rule}, but got {shown}")


_FORMS: dict[str, Callable[[_Reader, Any, Sequence[Any], int], Expr]] = {
    "const": _Reader._literal,
    "load": _Reader._load,
    "select": _Reader._select,
    "size": _Reader._size,
    "cast": _Reader._cast,
    "call": _Reader._call,
    "ref": _Reader._ref,
}


def _fields(data: Any, what: str, names: tuple[str, ...]) -> None:
    if not isinstance(data, Mapping) or set(data) != set(names):
        got = ", ".join(map(str, data)) if isinstance(data, Mapping) else repr(data)[:120]
        raise ValueError(f"a {what} must have the keys {', '.join(names)}, but got {got or 'none'}")


def _list(data: Any, what: str) -> Sequence[Any]:
    if not isinstance(data, Sequence) or isinstance(data, str):
        raise ValueError(f"`{what}` must be a list, but got {what}={repr(data)[:120]}")
    return data


def _extent(value: Any, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"extents of {what} must be integers of at least 1, but got {value!r}")
    return value


def _identifier(name: Any, what: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"{what} must be a name of letters, digits, _ and ., but got {name!r}")
    return name


def _new(name: Any, tensors: Mapping[str, te.Tensor]) -> str:
    found = _identifier(name, "`name`")
    if found in tensors:
        raise ValueError(f"`name` must be unique in a definition, but got name={name!r} twice")
    return found
