"""One definition of open sizes from the same definition at several sizes.

Graphs and operators derive definitions for known shapes; each is a tree of plain data (`te_json`). Definitions that
differ in numbers alone are generalised (Plotkin, A note on inductive generalization, 1970): a term of sizes replaces
each differing number. These sizes are the definition's own: each is the extent of an axis of an input, as the schedule
language requires, however it depends on the network's sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from search_space.ir.expr import FLOATS
from search_space.ir.intervals import Span
from search_space.terms import NoTerm, SizePoint, Term, fit_term

Plain = Any


class NotGeneral(ValueError):
    """Definitions that are not one at several sizes."""


@dataclass(frozen=True)
class OpenDefinition:
    """A definition with open sizes.

    Attributes:
        data: plain data of `te_json`; a `Term` of the definition's sizes replaces each number that depends on them.
        sizes: term of each size of the definition in the sizes of the points.
    """

    data: Plain
    sizes: tuple[Term, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sizes of the definition."""
        return tuple(f"n{place}" for place in range(len(self.sizes)))

    @property
    def terms(self) -> dict[str, Term]:
        """Term of each size of the definition, by the size's name."""
        return dict(zip(self.names, self.sizes, strict=True))

    def spans(self, least: SizePoint, greatest: SizePoint) -> dict[str, Span]:
        """Computes the least and greatest value of each size of the definition."""
        return {name: (term.at(least), term.at(greatest)) for name, term in zip(self.names, self.sizes, strict=True)}

    def to_expressions(self, tree: Plain, least: SizePoint, greatest: SizePoint) -> Plain:
        """Replaces terms of the definition's sizes in plain data by expressions of `te_json`, for a range of sizes."""
        spans = self.spans(least, greatest)
        return _to_expressions(tree, [["size", name, *spans[name]] for name in self.names])

    def plain(self, least: SizePoint, greatest: SizePoint) -> Plain:
        """Returns the definition as `te_json` has it, for a range of sizes."""
        return self.to_expressions(self.data, least, greatest)


def merge_definitions(definitions: Sequence[Plain], points: Sequence[SizePoint]) -> OpenDefinition:
    """Merges definitions into one of open sizes: a number that differs becomes a term of the sizes.

    Args:
        definitions: definitions as in `te_json`, one for each point.
        points: points that `terms.choose_points` returned.

    Raises:
        NotGeneral: they differ in more than numbers, or a number is no term of extents of inputs.
    """
    inputs = [definition["inputs"] for definition in definitions]
    if len({len(each) for each in inputs}) != 1:
        raise NotGeneral("definitions must have as many inputs at all sizes, but they have not")
    columns = [
        tuple(numbers)
        for arrays in zip(*inputs, strict=True)
        for numbers in zip(*(array["shape"] for array in arrays), strict=False)
    ]
    # Extents of inputs from which the others follow; each becomes a size of the definition.
    independent: list[tuple[int, ...]] = []
    for column in sorted({c for c in columns if len(set(c)) > 1}, key=lambda c: (c[-1], c)):
        if not independent or not _follows(column, independent):
            independent.append(column)
    own = [tuple(values) for values in zip(*independent, strict=True)] or [()] * len(points)
    try:
        data = _Merging(own).merge(definitions)
        sizes = tuple(fit_term(column, points) for column in independent)
    except NoTerm as error:
        raise NotGeneral(str(error)) from error
    for array in data["inputs"]:
        if any(isinstance(extent, Term) for extent in array["shape"]):
            array["constant"] = False
    return OpenDefinition(data, sizes)


def common(trees: Sequence[Plain], points: Sequence[SizePoint]) -> Plain:
    """Merges plain data, such as workloads: each number that differs becomes a `Term` of the points.

    Raises:
        NotGeneral: trees differ in more than numbers, or a number is no term.
    """
    try:
        return _Merging(points).merge(trees)
    except NoTerm as error:
        raise NotGeneral(str(error)) from error


def known_at(tree: Plain, point: SizePoint) -> Plain:
    """Evaluates the result of `common` at a point, constants in definitions included."""
    if isinstance(tree, Term):
        return tree.at(point)
    if isinstance(tree, Mapping):
        return {key: known_at(item, point) for key, item in tree.items()}
    if not isinstance(tree, list):
        return tree
    match tree:
        case ["cast", str(dtype), Term() as term]:
            return ["const", dtype, float(term.at(point)) if dtype in FLOATS else term.at(point)]
        case ["div", ["const", "float32", 1.0], ["cast", "float32", Term() as term]]:
            return ["const", "float32", float(np.float32(1) / np.float32(term.at(point)))]
    return [known_at(item, point) for item in tree]


def _follows(column: Sequence[int], samples: Sequence[tuple[int, ...]]) -> bool:
    try:
        fit_term(column, list(zip(*samples, strict=True)))
    except NoTerm:
        return False
    return True


class _Merging:
    """A merger of trees; `points` are the values of the definition's own sizes at each tree."""

    def __init__(self, points: Sequence[SizePoint]) -> None:
        self._points = points

    def merge(self, trees: Sequence[Plain]) -> Plain:
        first = trees[0]
        if isinstance(first, Mapping):
            if any(not isinstance(tree, Mapping) or tree.keys() != first.keys() for tree in trees):
                raise self._other(trees)
            return {key: self.merge([tree[key] for tree in trees]) for key in first}
        if isinstance(first, (list, tuple)):
            return self._list(trees)
        if all(tree == first and type(tree) is type(first) for tree in trees):
            return first
        if all(type(tree) is int for tree in trees):
            if not self._points[0]:
                raise NotGeneral("numbers must be the same where no input has an open extent, but they are not")
            return fit_term(trees, self._points)
        raise self._other(trees)

    def _list(self, trees: Sequence[Plain]) -> Plain:
        first = trees[0]
        if any(not isinstance(tree, (list, tuple)) or len(tree) != len(first) for tree in trees):
            raise self._other(trees)
        if first and first[0] == "ref" and any(tree != first for tree in trees):
            raise self._other(trees)
        if len(first) == 3 and first[0] == "const" and any(tree != first for tree in trees):
            return self._constant(trees)
        return [self.merge(each) for each in zip(*trees, strict=True)]

    def _constant(self, trees: Sequence[Plain]) -> Plain:
        """Merges constants of another type than indices: a size, or the reciprocal of a size, as means have it."""
        _, dtype, _ = trees[0]
        values = [tree[2] for tree in trees]
        if any(tree[:2] != trees[0][:2] for tree in trees) or any(isinstance(v, (str, bool)) for v in values):
            raise self._other(trees)
        if all(float(v).is_integer() for v in values):
            return ["cast", dtype, fit_term([int(v) for v in values], self._points)]
        if dtype == "float32" and all(0 < v < 1 for v in values):
            divisors = [round(1 / v) for v in values]
            if all(np.float32(1) / np.float32(n) == np.float32(v) for n, v in zip(divisors, values, strict=True)):
                return ["div", ["const", dtype, 1.0], ["cast", dtype, fit_term(divisors, self._points)]]
        raise self._other(trees)

    @staticmethod
    def _other(trees: Sequence[Plain]) -> NotGeneral:
        shown = " and ".join(repr(tree)[:60] for tree in {repr(t): t for t in trees}.values())
        return NotGeneral(f"definitions must differ in numbers alone at all sizes, but got {shown:.200}")


def _to_expressions(tree: Plain, sizes: Sequence[Plain]) -> Plain:
    if isinstance(tree, Term):
        return tree.plain(sizes)
    if isinstance(tree, Mapping):
        return {key: _to_expressions(item, sizes) for key, item in tree.items()}
    return [_to_expressions(item, sizes) for item in tree] if isinstance(tree, list) else tree
