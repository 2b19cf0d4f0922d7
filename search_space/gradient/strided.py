"""Sums over windows whose stride does not divide their length, as a few products that are computed once.

Behind a stride, an element is read by windows at few positions: two of a window of three behind a stride of two, or
one. A sum over two for every element would multiply zeros for half of them. So each product of a window's position is
computed once, by a sum over the remaining axes such as channels, and an element adds up those that belong to it.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Mapping
from functools import reduce

from search_space import te
from search_space.gradient.gather import Solution
from search_space.ir.expr import Expr, const, load, logical_and, select, substitute, variables, walk
from search_space.tensor import IterVar, Tensor

MOST_TERMS = 16
"""Greatest number of products that an element adds up, all in one expression."""


def sum_products(element: Mapping[str, int], solution: Solution, value: Expr) -> Expr | None:
    """Returns the sum for an element, in its indices; None if windows are even, or if there are too many positions.

    Args:
        element: names and extents of the element's indices.
        solution: axes of the stage at which it reads the element.
        value: product in the stage's axes.
    """
    values, tests = solution.values, solution.test(())
    uneven = any(node.op == "mod" for axis in solution.outside for node in walk(values[axis]))
    read = frozenset().union(*map(variables, (*values.values(), *tests)))
    positions = {axis: extent for axis, extent in solution.free.items() if axis in read}
    if not uneven or math.prod(positions.values()) > MOST_TERMS:
        return None
    extents = _list_extents(element, solution)
    inner = {axis: extent for axis, extent in solution.free.items() if axis not in read}
    names = [axis for axis in values if axis in variables(value)]
    if any(axis not in extents for axis in names) or not variables(value) <= {*names, *inner}:
        return None
    products = _store_products(value, {axis: extents[axis] for axis in names}, inner) if inner else None
    terms = []
    for place in itertools.product(*map(range, positions.values())):
        at = {axis: const(step) for axis, step in zip(positions, place, strict=True)}
        axes = {axis: solution.simplify(substitute(values[axis], at)) for axis in values}
        term = substitute(value, axes) if products is None else load(products, list(map(axes.get, names)), value.dtype)
        inside = [solution.simplify(substitute(test, at)) for test in tests]
        terms.append(select(logical_and(*inside), term, const(0.0, value.dtype)) if inside else term)
    return reduce(operator.add, terms)


def _list_extents(element: Mapping[str, int], solution: Solution) -> dict[str, int]:
    """Lists the extents of the stage's axes: those that may be outside, and those that are an index of the element."""
    alone = {axis: at.args[0] for axis, at in solution.values.items() if at.op == "var"}
    inside = {axis: element[name] for axis, name in alone.items() if name in element}
    return inside | solution.outside


def _store_products(value: Expr, axes: dict[str, int], inner: dict[str, int]) -> Tensor:
    """Computes the products of all positions, each a sum."""
    over = [te.reduce_axis((0, extent), axis) for axis, extent in inner.items()]

    def product(*indices: IterVar) -> te.Reduction:
        at = {axis: index.expr for axis, index in zip(axes, indices, strict=True)}
        at |= {axis: index.expr for axis, index in zip(inner, over, strict=True)}
        return te.sum(substitute(value, at), axis=over)

    return te.compute(list(axes.values()), product, name="products")
