"""Extents of arrays that sizes leave open, as plain data: numbers, names of sizes, and operators of these.

A module is sent without expressions: its sizes and the shapes of its arrays are described by extents.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from search_space.ir.semantics import BINARY

if TYPE_CHECKING:  # a process that only runs networks needs no expressions
    from search_space.ir.expr import Expr

Extent = Any
"""int | str | ["select", condition, then, otherwise] | [operator of `BINARY`, left, right]"""


def plain_extent(e: Expr) -> Extent:
    """Converts an integer expression of sizes to plain data."""
    if e.op == "const":
        return int(e.value)
    return e.args[0] if e.op == "var" else [e.op, *map(plain_extent, e.operands)]


DEEPEST = 16
"""Levels that an extent may have where it comes from a file."""


def is_extent(extent: Any, sizes: Collection[str], depth: int = 0) -> bool:
    """Tells whether plain data are a number, or sums and products of numbers and sizes."""
    if isinstance(extent, list):
        plain = len(extent) == 3 and extent[0] in ("add", "mul") and depth < DEEPEST
        return plain and all(is_extent(operand, sizes, depth + 1) for operand in extent[1:])
    return extent in sizes if isinstance(extent, str) else type(extent) is int and 0 <= extent < 1 << 40


def describe_extent(extent: Extent) -> str:
    """Formats an extent for readers, such as `n`, `2 * n + 1`."""
    if not isinstance(extent, list):
        return str(extent)
    signs = {"add": "+", "sub": "-", "mul": "*"}
    name, *operands = extent
    texts = [
        f"({describe_extent(of)})" if isinstance(of, list) and name != "add" else describe_extent(of) for of in operands
    ]
    return f" {signs[name]} ".join(texts) if name in signs else f"{name}({', '.join(map(describe_extent, operands))})"


def extent_at(extent: Extent, sizes: Mapping[str, int]) -> int:
    """Evaluates an extent at the values of the sizes."""
    if not isinstance(extent, list):
        return int(sizes[extent]) if isinstance(extent, str) else int(extent)
    operator, *operands = extent
    values = [extent_at(operand, sizes) for operand in operands]
    if operator == "select":
        return values[1] if values[0] else values[2]
    return int(BINARY[operator].number(*values))


def extent_text(extent: Extent) -> str:
    """Formats an extent for people, as a call if the operator has no symbol."""
    if not isinstance(extent, list):
        return str(extent)
    operator, *operands = extent
    shown = [extent_text(operand) for operand in operands]
    symbol = BINARY[operator].symbol if operator in BINARY else ""
    return f"({shown[0]} {symbol} {shown[1]})" if symbol else f"{operator}({', '.join(shown)})"
