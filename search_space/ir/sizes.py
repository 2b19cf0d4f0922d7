"""Sizes that a kernel takes when it is called: which sizes an expression has, and its values over their ranges.

A size is a variable with a range (`expr.size`). A definition may use it in shapes, in extents of axes and in bodies.
One loop program serves all sizes, and its kernel takes them as numbers after its arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from search_space.ir.expr import Expr, is_size, lift, substitute, var, variables, walk
from search_space.ir.intervals import Bounds, Span

Sizes = Mapping[str, Span]
"""Least and greatest value of each size, by name."""


def find_sizes(exprs: Iterable[Any]) -> dict[str, Span]:
    """Collects the sizes that expressions or numbers mention, in order of appearance.

    Raises:
        ValueError: two sizes of one name.
    """
    sizes: dict[str, Span] = {}
    for e in exprs:
        if not isinstance(e, Expr) or not variables(e):
            continue
        for node in walk(e):
            if is_size(node):
                name, low, high = node.args
                if sizes.setdefault(name, (low, high)) != (low, high):
                    (a, b), text = sizes[name], f"but got {name} of {low} to {high}"
                    raise ValueError(f"sizes of one name must have one range, {text} and of {a} to {b}")
    return sizes


def is_sized(e: Any) -> bool:
    """Tells whether an extent depends on sizes, and on no other variables."""
    return isinstance(e, Expr) and bool(variables(e)) and variables(e) == find_sizes([e]).keys()


def from_low(e: Expr, sizes: Sizes) -> Expr:
    """Replaces every size by its least value plus a variable of its name, which runs from 0."""
    return substitute(e, {name: var(name) + low for name, (low, _) in sizes.items()})


def extents_from_low(sizes: Sizes) -> dict[str, int]:
    """Returns the extents of the variables of `from_low`."""
    return {name: high - low + 1 for name, (low, high) in sizes.items()}


def span(e: Any) -> Span:
    """Bounds an integer expression of sizes alone over their ranges, both ends inclusive."""
    expression = lift(e)
    if expression.is_const:
        return int(expression.value), int(expression.value)
    sizes = find_sizes([expression])
    return Bounds(extents_from_low(sizes))(from_low(expression, sizes))


def may_be_empty(extent: Expr) -> bool:
    """Tells whether a loop may have no iteration, for some sizes or for some iterations of the loops around it."""
    known = extent.is_const or is_sized(extent)
    return not known or span(extent)[0] < 1
