"""Values of an expression at all points of its axes at which conditions hold: exact where bounds are too wide."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_space.dtypes import numpy_dtype
from search_space.ir.expr import Expr, variables, walk
from search_space.ir.semantics import BINARY, FUNCTIONS, apply_function

Array = NDArray[Any]
Span = tuple[int, int]

MOST_POINTS = 1 << 22
"""Greatest number of points that are enumerated; beyond it bounds must do."""
AT_ONCE = 1 << 17
"""Points that are evaluated at a time, which bounds the memory of the grids."""


def values_where(e: Expr, conditions: Iterable[Expr], extents: Mapping[str, int]) -> list[Span] | None:
    """Computes the least and greatest values of an integer expression on blocks of the domain where conditions hold.

    Conditions on data, and conditions on more axes than can be enumerated, are assumed to hold.

    Args:
        e: expression over axes.
        conditions: conditions over axes and data.
        extents: each axis runs over `range(extent)`.

    Returns:
        A span for each block with a point at which the conditions hold; None if the expression reads data or has too
        many points.
    """
    axes = variables(e)
    if not _evaluable(e) or _points(axes, extents) > MOST_POINTS:
        return None
    used = []
    for condition in sorted(filter(_evaluable, conditions), key=lambda c: (len(variables(c) - variables(e)), str(c))):
        if _points(axes | variables(condition), extents) <= MOST_POINTS:
            axes |= variables(condition)
            used.append(condition)
    return list(_spans(e, used, {name: extents[name] for name in sorted(axes, key=lambda name: -extents[name])}))


def _points(axes: Iterable[str], extents: Mapping[str, int]) -> int:
    return math.prod(extents[name] for name in axes)


def _evaluable(e: Expr) -> bool:
    return all(_is_exact(node) for node in walk(e))


def _is_exact(e: Expr) -> bool:
    """Tells whether an operator gives the same number on every machine, from numbers alone."""
    if e.op == "call":
        return FUNCTIONS[e.args[0]].exact
    return e.op in ("const", "var", "cast", "select") or e.op in BINARY


def _spans(e: Expr, conditions: list[Expr], extents: Mapping[str, int]) -> Iterable[Span]:
    """Lists the spans of blocks of the first axis, which is the longest."""
    names = list(extents)
    outer = extents[names[0]] if names else 1
    step = max(1, AT_ONCE // max(1, _points(names[1:], extents)))
    for start in range(0, outer, step):
        ranges = {name: (0, extents[name]) for name in names}
        if names:
            ranges[names[0]] = (start, min(start + step, outer))
        grid = _Grid(ranges)
        value, mask = grid(e), np.ones((), bool)
        for condition in conditions:
            mask = mask & grid(condition)
        values = np.broadcast_to(value, np.broadcast_shapes(value.shape, mask.shape))[
            np.broadcast_to(mask, np.broadcast_shapes(value.shape, mask.shape))
        ]
        if values.size:
            yield int(values.min()), int(values.max())


class _Grid:
    """Expressions at the points of a block, one dimension for each axis, 1 where it does not matter."""

    def __init__(self, ranges: Mapping[str, Span]) -> None:
        self._values: dict[int, Array] = {}
        self._vars = {
            name: np.arange(start, stop).reshape([-1 if name == other else 1 for other in ranges])
            for name, (start, stop) in ranges.items()
        }

    def __call__(self, e: Expr) -> Array:
        with np.errstate(all="ignore"):
            for node in walk(e):
                if node.serial not in self._values:
                    self._values[node.serial] = self._node(node)
        return self._values[e.serial]

    def _node(self, e: Expr) -> Array:
        if e.op == "var":
            return self._vars[e.args[0]]
        if e.op == "const":
            return np.asarray(e.value, numpy_dtype(e.dtype))
        operands = [self._values[operand.serial] for operand in e.operands]
        if e.op == "cast":
            return operands[0].astype(numpy_dtype(e.dtype))
        if e.op == "call":
            return apply_function(e.args[0], operands[0], e.dtype)
        function = np.where if e.op == "select" else BINARY[e.op].array
        return np.asarray(function(*operands)).astype(numpy_dtype(e.dtype), copy=False)
