"""Evaluates many expressions for many candidates: one straight-line NumPy function over columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from search_space.ir.expr import Expr, walk

ColumnFunction = Callable[[NDArray[np.float64]], NDArray[np.float64]]

# Columns are float64: integers are exact below 2**53, and floor(a / b) is the exact quotient for a below 2**53.
_UFUNC = {
    "add": "add({0},{1})",
    "sub": "subtract({0},{1})",
    "mul": "multiply({0},{1})",
    "div": "divide({0},{1})",
    "floordiv": "floor(divide({0},{1}))",
    "min": "minimum({0},{1})",
    "max": "maximum({0},{1})",
    "lt": "less({0},{1})",
    "le": "less_equal({0},{1})",
    "eq": "equal({0},{1})",
    "ne": "not_equal({0},{1})",
    "and": "logical_and({0},{1})",
    "or": "logical_or({0},{1})",
    "select": "where({0},{1},{2})",
    "mod": "subtract({0},multiply({1},floor(divide({0},{1}))))",
}
_CALL = {"log": "log2({0})", "exp": "exp({0})", "sqrt": "sqrt({0})", "abs": "abs({0})", "floor": "floor({0})"}
CHUNK = 2048  # candidates at a time, so that a few hundred temporaries stay in the second-level cache


def compile_columns(outputs: Sequence[Expr], names: Sequence[str]) -> ColumnFunction:
    """Compiles `outputs` to a function of decision columns.

    Args:
        outputs: expressions over the variables in `names`; `call("log", x)` means log2 here.
        names: variable names, in the order of the columns.

    Returns:
        A function from float64 `(len(names), n)` to float64 `(len(outputs), n)`.

    Raises:
        KeyError: an output mentions a variable that is not in `names`.
    """
    position = {name: i for i, name in enumerate(names)}
    seen: set[int] = set()
    lines: list[str] = []
    text: dict[int, str] = {}
    for output in outputs:
        for node in walk(output):
            if node.serial in seen:
                continue
            seen.add(node.serial)
            text[node.serial] = _term(node, position, text, lines)
    lines += [f"  out[{j}]={text[output.serial]}" for j, output in enumerate(outputs)]
    scope: dict[str, object] = {name: getattr(np, name) for name in _NUMPY} | {"inf": np.inf}
    exec("def block(x, out):\n" + ("\n".join(lines) or "  pass"), scope)
    block: Callable[[NDArray[np.float64], NDArray[np.float64]], None] = scope["block"]  # type: ignore[assignment]

    def function(columns: NDArray[np.float64]) -> NDArray[np.float64]:
        count = columns.shape[1]
        out = np.empty((len(outputs), count))
        for start in range(0, count, CHUNK):
            block(columns[:, start : start + CHUNK], out[:, start : start + CHUNK])
        return out

    return function


_NUMPY: tuple[str, ...] = (
    "add",
    "subtract",
    "multiply",
    "divide",
    "floor",
    "minimum",
    "maximum",
    "less",
    "less_equal",
    "equal",
)
_NUMPY += ("not_equal", "logical_and", "logical_or", "where", "log2", "exp", "sqrt", "abs")


def _term(node: Expr, position: dict[str, int], text: dict[int, str], lines: list[str]) -> str:
    if node.op == "const":
        return repr(float(node.value))
    if node.op == "var":
        return f"x[{position[node.args[0]]}]"
    operands = [text[a.serial] for a in node.operands]
    if node.op == "cast":  # the sum of two conditions is a number, not a condition
        return f"multiply({operands[0]},1.0)" if node.operands[0].dtype == "bool" else operands[0]
    template = _CALL[node.args[0]] if node.op == "call" else _UFUNC[node.op]
    name = f"t{node.serial}"
    lines.append(f"  {name}={template.format(*operands)}")
    return name
