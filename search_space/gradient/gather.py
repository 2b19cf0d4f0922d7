"""Sums over the places at which an element is read: a scatter written as a gather.

A stage with axes v reads a tensor at indices f(v). The gradient of the element at x is a sum over all v with f(v) = x.
These equations are solved for as many of the axes as possible; the sum runs over the others. Quotients and remainders
in indices become unknowns of their own, `u = m * (u // m) + u % m`, so that all equations are linear.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from search_space.ir.expr import BOOL, INT, Expr, const, eq, make, substitute, total, transform, var, variables, walk
from search_space.ir.intervals import Bounds
from search_space.ir.polynomial import canon, poly
from search_space.ir.simplify import Simplifier

MOST_CASES = 32
"""Greatest number of combinations of the sides of minima and maxima in one read's indices."""


class NotAffine(ValueError):
    """An index that the solver cannot invert."""


@dataclass
class Solution:
    """Axes of a stage at which it reads an element x.

    Attributes:
        values: axis → expression in the element's indices and in `free`.
        free: axes that the equations leave open, with their extents.
        outside: axes whose value may lie outside of their range, with their extents; elsewhere there is no read.
        conditions: further conditions under which the axes are such a place; they read nothing.
        simplify: simplifier of expressions in the element's indices and the free axes.
    """

    values: dict[str, Expr]
    free: dict[str, int]
    outside: dict[str, int]
    conditions: list[Expr]
    simplify: Simplifier

    def locate(self, e: Expr) -> Expr:
        """Writes an expression in the stage's axes in the element's indices and the free axes."""
        return self.simplify(substitute(e, self.values))

    def test(self, guards: Iterable[Expr]) -> tuple[Expr, ...]:
        """Lists the conditions under which an element is read here: those of the solution, then guards on the axes."""
        ranges = [test for axis in self.outside for test in self._range(axis)]
        conditions = (*map(self.simplify, [*ranges, *self.conditions]), *map(self.locate, guards))
        return tuple(test for test in dict.fromkeys(conditions) if not test.is_const or not test.value)

    def _range(self, axis: str) -> tuple[Expr, Expr]:
        return make("le", const(0), self.values[axis]), make("lt", self.values[axis], const(self.outside[axis]))


@dataclass
class _System:
    """Linear equations `sum of coefficient * unknown = right` over unknowns with extents, in the making.

    Attributes:
        extents: extent of each unknown that is not solved; unknowns begin at 0.
        element: extents of the indices of the element.
        equations: coefficients by unknown, and the right side.
        solutions: unknown → expression in others; later ones may occur in earlier ones.
        outside: unknowns whose solution may lie outside of their range, with their extents.
        conditions: further conditions so far.
    """

    extents: dict[str, int]
    element: Mapping[str, int]
    equations: list[tuple[dict[str, int], Expr]] = field(default_factory=list)
    solutions: dict[str, Expr] = field(default_factory=dict)
    outside: dict[str, int] = field(default_factory=dict)
    conditions: list[Expr] = field(default_factory=list)
    _parts: dict[tuple[Expr, int], tuple[Expr, Expr]] = field(default_factory=dict)
    _ranges: dict[str, int] = field(default_factory=dict)
    _count: int = 0

    def __post_init__(self) -> None:
        self._ranges = {**self.element, **self.extents}

    def new_unknown(self, extent: int) -> str:
        """Adds an unknown that runs over `range(extent)`."""
        name = f"r{self._count}"
        while name in self._ranges:
            self._count += 1
            name = f"r{self._count}"
        self.extents[name] = self._ranges[name] = extent
        return name

    def linear(self, index: Expr) -> Expr:
        """Replaces quotients and remainders of unknowns by unknowns of their own, each with its equation.

        Raises:
            NotAffine: an index that is not made of sums, multiples, quotients and remainders.
        """

        def visit(node: Expr) -> Expr | None:
            if node.op in ("floordiv", "mod") and variables(node) & self.extents.keys():
                top, bottom = node.args
                if not bottom.is_const or bottom.value < 1:
                    raise NotAffine(str(node))
                quotient, remainder = self._split(transform(top, visit), int(bottom.value))
                return quotient if node.op == "floordiv" else remainder
            if node.op == "cast" and node.dtype in ("int32", INT) and node.args[0].dtype in ("int32", INT):
                return transform(node.args[0], visit) if node.dtype == INT else None
            if node.op not in ("var", "const", "add", "sub", "mul", "floordiv", "mod"):
                raise NotAffine(str(node))
            return None

        return transform(index, visit)

    def _split(self, top: Expr, bottom: int) -> tuple[Expr, Expr]:
        """Returns unknowns for the quotient and the remainder of an expression."""
        parts = self._parts.get((top, bottom))
        if parts is None:
            low, high = Bounds(self._ranges)(top)
            first = low // bottom
            quotient = var(self.new_unknown(high // bottom - first + 1)) + first
            remainder = var(self.new_unknown(bottom))
            parts = self._parts[top, bottom] = quotient, remainder
            self.add(top - quotient * bottom - remainder, const(0))
        return parts

    def add(self, left: Expr, right: Expr) -> None:
        """Adds the equation `left = right`; `left` is linear in the unknowns.

        Raises:
            NotAffine: a product of an unknown and a variable.
        """
        factors: dict[str, int] = {}
        right = right
        for monomial, factor in poly(left).items():
            names = [atom for atom in monomial if variables(atom) & self._unknowns()]
            if not names:
                right = right - make("mul", _product(monomial), const(factor))
            elif len(monomial) == 1 and monomial[0].op == "var":
                factors[monomial[0].args[0]] = factor
            else:
                raise NotAffine(str(left))
        self.equations.append((factors, canon(right)))

    def _unknowns(self) -> set[str]:
        return self.extents.keys() | self.solutions.keys()

    def solve(self) -> None:
        """Solves the equations, those of fewest unknowns first."""
        while self.equations:
            self.equations.sort(key=lambda equation: len(equation[0]))
            factors, right = self.equations.pop(0)
            self._solve_one(dict(factors), right)

    def _solve_one(self, factors: dict[str, int], right: Expr) -> None:
        if not factors:
            self.require(eq(right, 0))
            return
        for name, factor in list(factors.items()):
            if factor < 0:  # counted from the other end
                other = self.new_unknown(self.extents[name])
                right = right - factor * (self.extents[name] - 1)
                self.replace(name, const(self.extents[name] - 1) - var(other), check=False)
                del factors[name]
                factors[other] = -factor
        common = math.gcd(*factors.values())
        if common > 1:
            self.require(eq(make("mod", canon(right), const(common)), 0))
            right, factors = make("floordiv", canon(right), const(common)), {n: f // common for n, f in factors.items()}
        right = canon(right)
        # One unknown of factor 1 beside multiples of `step`: its remainder by `step` is that of the right side.
        name = min(factors, key=lambda n: (factors[n], -self.extents[n]))
        others = {n: f for n, f in factors.items() if n != name}
        step = math.gcd(*others.values()) if others else 0
        eliminations = {n: (math.prod(self.extents[m] for m in factors if m != n), f) for n, f in factors.items()}
        best = min(eliminations, key=lambda n: eliminations[n])
        if factors[name] == 1 and step > 1:
            turns = -(-self.extents[name] // step)
            open_others = math.prod(self.extents[n] for n in others) // max(self.extents[n] for n in others)
            if turns * open_others <= eliminations[best][0]:
                turn = const(0) if turns == 1 else var(self.new_unknown(turns))
                self.replace(name, make("mod", right, const(step)) + turn * step)
                rest = make("floordiv", right, const(step))
                reduced = {n: f // step for n, f in others.items()}
                if turns > 1:
                    reduced[turn.args[0]] = 1
                    # It is free, unless the others leave nothing open.
                    self._eliminate(max(others, key=lambda n: (reduced[n] == 1, self.extents[n])), reduced, rest)
                else:
                    self._solve_one(reduced, rest)
                return
        self._eliminate(best, factors, right)

    def _eliminate(self, name: str, factors: Mapping[str, int], right: Expr) -> None:
        rest = right - total(var(n) * f for n, f in factors.items() if n != name)
        factor = factors[name]
        if factor > 1:
            self.require(eq(make("mod", canon(rest), const(factor)), 0))
            rest = make("floordiv", canon(rest), const(factor))
        self.replace(name, canon(rest))

    def replace(self, name: str, value: Expr, check: bool = True) -> None:
        """Solves an unknown, and replaces it in the remaining equations."""
        extent = self.extents.pop(name)
        self.solutions[name] = value
        if check:
            tests = make("le", const(0), value), make("lt", value, const(extent))
            if not all(_always(test, self._ranges) for test in tests):
                self.outside[name] = extent
        equations, self.equations = self.equations, []
        for factors, right in equations:
            if name not in factors:
                self.equations.append((factors, right))
                continue
            left = total(var(n) * f for n, f in factors.items() if n != name) + value * factors[name]
            self.add(self.linear(left), right)  # the solution may have quotients

    def require(self, condition: Expr) -> None:
        """Adds a condition, unless it always holds."""
        if not _always(condition, self._ranges):
            self.conditions.append(condition)


def _product(monomial: Sequence[Expr]) -> Expr:
    out = const(1)
    for atom in monomial:
        out = out * atom
    return out


def _always(condition: Expr, ranges: Mapping[str, int]) -> bool:
    """Tells whether a comparison of integers holds for all values of the variables."""
    if condition.is_const:
        return bool(condition.value)
    low, high = Bounds(ranges)(canon(condition.args[0] - condition.args[1]))
    return {"lt": high < 0, "le": high <= 0, "eq": low == high == 0}[condition.op]


def solve_reads(
    indices: Sequence[Expr],
    axes: Mapping[str, int],
    element: Mapping[str, int],
    guards: Sequence[Expr] = (),
    sides: Sequence[Expr] | None = None,
) -> Solution:
    """Solves `indices = element` for the axes.

    Args:
        indices: indices of a read, in the axes.
        axes: extents of the stage's axes.
        element: names and extents of the element's indices; no axis has such a name.
        guards: conditions on the axes under which the read counts; equalities among them are equations, too.
        sides: the right side of each equation, in the element's indices; None: the element's indices themselves.

    Raises:
        NotAffine: an index that cannot be inverted.
    """
    system = _System(dict(axes), dict(element))
    for index, side in zip(indices, map(var, element) if sides is None else sides, strict=True):
        system.add(system.linear(index), side)
    for guard in guards:
        if guard.op == "eq" and guard.args[0].dtype == INT:
            try:
                system.add(system.linear(guard.args[0] - guard.args[1]), const(0))
            except NotAffine:  # the caller tests it
                continue
    system.solve()
    solutions: dict[str, Expr] = {}
    for name in reversed(system.solutions):
        solutions[name] = _resolve(system.solutions[name], solutions)
    free = {n: e for n, e in system.extents.items() if e > 1}
    ones: dict[str, Expr | int] = {n: 0 for n, e in system.extents.items() if e == 1}
    ranges = {**element, **free}
    simplify = Simplifier({name: const(extent) for name, extent in ranges.items()})

    def finish(e: Expr) -> Expr:
        return simplify(substitute(_resolve(e, solutions), ones))

    values = {axis: finish(var(axis)) for axis in axes if axis not in free}
    conditions = [finish(condition) for condition in system.conditions]
    outside = {}
    for name, extent in system.outside.items():
        value = finish(var(name))
        tests = [
            test
            for test in (make("le", const(0), value), make("lt", value, const(extent)))
            if not _always(test, ranges)
        ]
        if tests and name in values:
            outside[name] = extent
        else:
            conditions += tests
    return Solution(values, free, outside, conditions, simplify)


def _resolve(e: Expr, memo: Mapping[str, Expr]) -> Expr:
    """Replaces solved unknowns until none is left."""
    while variables(e) & memo.keys():
        e = substitute(e, {name: memo[name] for name in variables(e) & memo.keys()})
    return e


def list_cases(indices: Sequence[Expr]) -> list[tuple[tuple[Expr, ...], tuple[Expr, ...]]]:
    """Lists the indices for each choice of the sides of minima, maxima and selections in them, with its conditions.

    Raises:
        NotAffine: too many choices.
    """
    cases: list[tuple[tuple[Expr, ...], tuple[Expr, ...]]] = [(tuple(indices), ())]
    while True:
        choice = next(((case, node) for case in cases for node in _choices(case[0])), None)
        if choice is None:
            return cases
        case, node = choice
        if len(cases) >= MOST_CASES:
            raise NotAffine(str(node))
        if node.op == "select":
            test, first, second = node.args
        else:
            first, second = node.args
            test = make("le", first, second) if node.op == "min" else make("le", second, first)
        at = cases.index(case)
        cases[at : at + 1] = [
            (tuple(_put(index, node, side) for index in case[0]), (*case[1], condition))
            for side, condition in ((first, test), (second, eq(test, const(False, BOOL))))
        ]


def _choices(indices: Sequence[Expr]) -> list[Expr]:
    """Lists the minima, maxima and selections in indices, innermost first."""
    return [node for index in indices for node in walk(index) if node.op in ("min", "max", "select")]


def _put(e: Expr, node: Expr, value: Expr) -> Expr:
    return transform(e, lambda x: value if x is node else None)
