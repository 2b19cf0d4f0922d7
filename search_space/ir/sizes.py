"""Sizes that a kernel is given when it is called: which there are in an expression, and what it is over their ranges.

A size is a variable that knows its range (`expr.size`). In a definition it may stand in shapes, in extents of axes and
in bodies; a loop program is one for all sizes, and a kernel of it takes them as numbers behind its arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from search_space.ir.expr import Expr, is_size, lift, substitute, var, variables, walk
from search_space.ir.intervals import Bounds, Span

Sizes = Mapping[str, Span]
"""Least and greatest value of each, by name."""


def sizes_of(exprs: Iterable[Any]) -> dict[str, Span]:
    """The sizes that expressions or numbers mention, in order of appearance.

    Raises:
        ValueError: two sizes of one name.
    """
    found: dict[str, Span] = {}
    for e in exprs:
        if not isinstance(e, Expr) or not variables(e):
            continue
        for node in walk(e):
            if is_size(node):
                name, low, high = node.args
                if found.setdefault(name, (low, high)) != (low, high):
                    (a, b), text = found[name], f"but got {name} of {low} to {high}"
                    raise ValueError(f"sizes of one name must have one range, {text} and of {a} to {b}")
    return found


def is_sized(e: Any) -> bool:
    """Whether an extent depends on sizes, and on no other variables."""
    return isinstance(e, Expr) and bool(variables(e)) and variables(e) == sizes_of([e]).keys()


def from_low(e: Expr, sizes: Sizes) -> Expr:
    """The expression with every size as its least value and a variable of its name, which runs from 0."""
    return substitute(e, {name: var(name) + low for name, (low, _) in sizes.items()})


def extents_from_low(sizes: Sizes) -> dict[str, int]:
    """How far the variables of `from_low` run."""
    return {name: high - low + 1 for name, (low, high) in sizes.items()}


def span(e: Any) -> Span:
    """Bounds of an integer expression of sizes alone over their ranges, both inclusive."""
    whole = lift(e)
    if whole.is_const:
        return int(whole.value), int(whole.value)
    sizes = sizes_of([whole])
    return Bounds(extents_from_low(sizes))(from_low(whole, sizes))


def may_be_empty(extent: Expr) -> bool:
    """Whether a loop may have no iteration, for some sizes or somewhere in the loops around."""
    known = extent.is_const or is_sized(extent)
    return not known or span(extent)[0] < 1
