"""Canonical integer arithmetic: polynomials over atoms, ranges of loop variables, proofs of divisibility.

A polynomial maps a monomial (a sorted tuple of atoms: variables, divisions, minima, ...) to an integer. Candidates'
numbers make the atoms constants, so the same code serves symbolic and concrete programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from itertools import product as cartesian

from search_space.ir.expr import BOOL, Expr, const, make, maximum, minimum, product, transform, variables, walk

MAX_CHOICES = 8
Monomial = tuple[Expr, ...]
Poly = dict[Monomial, int]
Ranges = Mapping[str, Expr]  # loop variable → extent: the variable runs over range(extent)


def _key(e: Expr) -> str:
    return str(e)


def poly(e: Expr) -> Poly:
    """The polynomial of an integer expression; shared, so not to be changed."""
    if e._poly is None:
        e._poly = _poly(e)
    return e._poly


def _poly(e: Expr) -> Poly:
    if e.op == "const":
        return {(): int(e.value)} if e.value else {}
    if e.op in ("add", "sub"):
        a, b = poly(e.args[0]), poly(e.args[1])
        sign = 1 if e.op == "add" else -1
        out = dict(a)
        for m, c in b.items():
            out[m] = out.get(m, 0) + sign * c
        return {m: c for m, c in out.items() if c}
    if e.op == "mul":
        return poly_mul(poly(e.args[0]), poly(e.args[1]))
    return {(e,): 1}


def poly_mul(a: Poly, b: Poly) -> Poly:
    out: Poly = {}
    for m, c in a.items():
        for n, d in b.items():
            key = tuple(sorted(m + n, key=_key))
            out[key] = out.get(key, 0) + c * d
    return {m: c for m, c in out.items() if c}


def from_poly(p: Poly) -> Expr:
    """The canonical expression: monomials in textual order, the constant last."""
    out: Expr | None = None
    for m in sorted(p, key=lambda m: (not m, -len(m), [_key(x) for x in m])):
        c = p[m]
        if not m:
            term = const(abs(c))
        else:
            term = product(m)
            if abs(c) != 1:
                term = term * abs(c)
        if out is None:
            out = term if c > 0 else make("sub", const(0), term)
        else:
            out = out + term if c > 0 else make("sub", out, term)
    return const(0) if out is None else out


def canon(e: Expr) -> Expr:
    """`e` with integer sums in canonical order, so that equal polynomials are the same node."""
    if e.op not in ("add", "sub", "mul"):
        return e
    return from_poly(poly(e))


@dataclass(frozen=True)
class AtomRange:
    """How an atom varies.

    Attributes:
        varies: with the loops; otherwise it stands for itself.
        nonnegative: proved not to be negative.
        highs: upper bounds in decision variables, each of them valid.
    """

    varies: bool
    nonnegative: bool
    highs: tuple[Expr, ...] = ()


UNKNOWN = AtomRange(True, False)


@dataclass
class Simplifier:
    """Simplifies integer expressions given the ranges of loop variables.

    Attributes:
        ranges: extent of each loop variable in scope; other variables are decision variables, at least 1.
        limits: the greatest value of a decision variable, where one is known.
    """

    ranges: Mapping[str, Expr]
    limits: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._memo: dict[int, Expr] = {}
        self._seen = (0, 0)

    def forget(self) -> None:
        """Drops remembered results: the range of a known loop has changed."""
        self._memo.clear()

    def proved(self, e: Expr) -> bool:
        """Whether e <= 0 for all decision variables, their upper limits taken into account."""
        if nonpositive(e):
            return True
        p = poly(e)
        if not any(a.op == "var" and a.args[0] in self.limits for m, c in p.items() if c > 0 for a in m):
            return False
        out: Poly = {}
        for m, c in p.items():
            factors = [
                const(self.limits[a.args[0]]) if c > 0 and a.op == "var" and a.args[0] in self.limits else a for a in m
            ]
            for n, d in poly(product(factors)).items():
                out[n] = out.get(n, 0) + c * d
        return nonpositive(from_poly({m: c for m, c in out.items() if c}))

    def __call__(self, e: Expr) -> Expr:
        state = (len(self.ranges), len(self.limits))
        if state != self._seen:  # more is known than when the results were remembered
            self._memo.clear()
            self._seen = state
        return transform(e, self._visit, self._memo)

    def _visit(self, e: Expr) -> Expr | None:
        if e.op == "load" or e.op not in _INTEGER_OPS or (e.dtype != "int64" and e.dtype != BOOL):
            return None
        a, b = (self(x) for x in e.args)
        if e.op in ("lt", "le") and a.dtype == "int64":
            return self.compare(e.op, a, b)
        if e.op in ("and", "or") or e.dtype == BOOL or a.dtype != "int64":
            return make(e.op, a, b)
        if e.op in ("min", "max"):
            return self.extremum(e.op, a, b)
        if e.op == "floordiv":
            return self.floordiv(a, b)
        if e.op == "mod":
            return self.mod(a, b)
        return canon(make(e.op, a, b))

    def compare(self, op: str, a: Expr, b: Expr) -> Expr:
        """`a < b` or `a <= b`, decided where the ranges allow."""
        if self.at_most_zero(canon(a - b) + (1 if op == "lt" else 0)):
            return const(True, BOOL)
        if self.at_most_zero(canon(b - a) + (0 if op == "lt" else 1)):
            return const(False, BOOL)
        return make(op, a, b)

    def extremum(self, op: str, a: Expr, b: Expr) -> Expr:
        if self.at_most_zero(canon(a - b)):
            return a if op == "min" else b
        if self.at_most_zero(canon(b - a)):
            return b if op == "min" else a
        return make(op, a, b)

    def split_multiple(self, a: Expr, b: Expr) -> tuple[Expr, Expr] | None:
        """`(q, r)` with a == q * b + r and 0 <= r < b proved, or None."""
        divisor = poly(b)
        if len(divisor) != 1:
            return None
        ((factor, scale),) = divisor.items()
        quotient: Poly = {}
        rest: Poly = {}
        for m, c in poly(a).items():
            left = list(m)
            ok = c % scale == 0 if scale else False
            for atom in factor:
                if atom in left:
                    left.remove(atom)
                else:
                    ok = False
            if ok:
                quotient[tuple(left)] = c // scale
            elif not factor and c // scale and m == ():
                quotient[m], rest[m] = c // scale, c % scale
            else:
                rest[m] = c
        remainder = from_poly({m: c for m, c in rest.items() if c})
        if not self.at_most_zero(remainder - b + 1) or not self.at_most_zero(const(0) - remainder):
            return None
        return from_poly(quotient), remainder

    def floordiv(self, a: Expr, b: Expr) -> Expr:
        parts = self.split_multiple(a, b)
        if parts is not None:
            return parts[0]
        if a.op == "floordiv" and a.args[1].is_const and b.is_const:
            return self.floordiv(a.args[0], const(a.args[1].value * b.value))
        return make("floordiv", a, b)

    def mod(self, a: Expr, b: Expr) -> Expr:
        parts = self.split_multiple(a, b)
        if parts is not None:
            return parts[1]
        return make("mod", a, b)

    def at_most_zero(self, e: Expr) -> bool:
        """Whether e <= 0 is proved for all loop and decision variables in range."""
        return any(self.proved(bound) for bound in self.uppers(e))

    def upper(self, e: Expr) -> Expr | None:
        """An upper bound over the loop variables in range, in decision variables; None when none is found."""
        return next(self.uppers(e), None)

    def uppers(self, e: Expr) -> Iterator[Expr]:
        """Upper bounds, one for each way to bound the minima in `e` by one of their sides.

        Every monomial is bounded alone: a loop variable by extent - 1 where its coefficient is positive, by 0 where
        it is negative; atoms that are not variables by their own bound.
        """
        terms = poly(e)
        bounds = {atom: self.atom_range(atom) for m in terms for atom in m}
        minima = [a for a, bound in bounds.items() if bound.varies and len(bound.highs) > 1]
        for choice in islice(cartesian(*(bounds[a].highs for a in minima)), MAX_CHOICES):
            chosen = dict(zip(minima, choice, strict=True))
            highs = {a: chosen.get(a, bound.highs[0] if bound.highs else None) for a, bound in bounds.items()}
            found = self._upper(terms, bounds, highs)
            if found is not None:
                yield found

    def _upper(self, terms: Poly, bounds: dict[Expr, AtomRange], highs: dict[Expr, Expr | None]) -> Expr | None:
        out: Poly = {}
        for m, c in terms.items():
            varying = [a for a in m if bounds[a].varies]
            still = [a for a in m if not bounds[a].varies]
            if any(a.op != "var" and not _positive(a) for a in still):
                return None
            # A product of bounds bounds the product only where no factor can be negative.
            if (c < 0 or len(m) > 1) and any(not bounds[a].nonnegative for a in varying):
                return None
            if c < 0 and varying:
                continue
            tops = [highs[a] for a in varying]
            if any(t is None for t in tops):
                return None
            for n, d in poly(product([*still, *tops])).items():
                out[n] = out.get(n, 0) + c * d
        return from_poly({m: c for m, c in out.items() if c})

    def atom_range(self, atom: Expr) -> AtomRange:
        """How an atom varies with the loops."""
        if atom.op == "var":
            name = atom.args[0]
            if name in self.ranges:
                return AtomRange(True, True, (canon(self.ranges[name] - 1),))
            return AtomRange(name.startswith("#"), True)
        if atom.op == "mod":
            return AtomRange(True, True, (canon(atom.args[1] - 1),)) if self.divisor(atom.args[1]) else UNKNOWN
        if atom.op == "floordiv":
            if not self.divisor(atom.args[1]):
                return UNKNOWN
            divided = tuple(self._bounded_div(t, atom.args[1]) for t in self.uppers(atom.args[0]))
            return AtomRange(True, self.nonnegative(atom.args[0]), divided)
        if atom.op == "min":
            tops = tuple(t for x in atom.args for t in self.uppers(x))
            return AtomRange(
                True, all(map(self.nonnegative, atom.args)), tuple(sorted(tops, key=lambda t: not t.is_const))
            )
        if atom.op == "max":
            return AtomRange(True, any(map(self.nonnegative, atom.args)), self._tops_of_max(*atom.args))
        return UNKNOWN if atom.op != "var" and _names(atom) & self.ranges.keys() else AtomRange(False, True)

    def nonnegative(self, e: Expr) -> bool:
        return self.at_most_zero(canon(const(0) - e))

    def divisor(self, e: Expr) -> bool:
        """Whether `e` may be taken for positive: a number above 0, or a loop's extent (0 only where nothing runs)."""
        return bool(e.value > 0) if e.is_const else not _names(e) & self.ranges.keys()

    def _tops_of_max(self, a: Expr, b: Expr) -> tuple[Expr, ...]:
        """A bound of one side that is proved to be no less than a bound of the other."""
        tops = [tuple(self.uppers(x)) for x in (a, b)]
        pairs = [(t, u) for t in tops[0] for u in tops[1]]
        over = [t for t, u in pairs if self.proved(canon(u - t))] + [u for t, u in pairs if self.proved(canon(t - u))]
        return tuple(dict.fromkeys(over))

    def _bounded_div(self, top: Expr, divisor: Expr) -> Expr:
        return Simplifier({}).floordiv(canon(top), divisor)


_INTEGER_OPS = {"add", "sub", "mul", "floordiv", "mod", "min", "max", "lt", "le", "eq", "ne", "and", "or"}


_names = variables


def _positive(atom: Expr) -> bool:
    """Whether an atom over decision variables (each at least 1) is known not to be negative."""
    if atom.op == "var":
        return True
    if atom.op in ("floordiv", "mod", "min", "max"):
        return all(c > 0 for x in atom.args for c in poly(x).values())
    return False


def nonpositive(e: Expr) -> bool:
    """Whether e <= 0 holds for every value >= 1 of the decision variables: proved monomial by monomial."""
    p = poly(e)
    if any(not _positive(atom) for m in p for atom in m):
        return all(not m for m in p) and p.get((), 0) <= 0
    # Each positive monomial must be covered by a negative one that it divides, for all atoms are >= 1.
    credit = {m: -c for m, c in p.items() if c < 0}
    for m in sorted((m for m, c in p.items() if c > 0), key=len, reverse=True):
        need = p[m]
        for n in sorted(credit, key=len):
            if need and credit[n] and _divides(m, n):
                used = min(need, credit[n])
                credit[n] -= used
                need -= used
        if need:
            return False
    return True


def _divides(m: Monomial, n: Monomial) -> bool:
    left = list(n)
    for atom in m:
        if atom not in left or atom.op != "var":
            return False
        left.remove(atom)
    return all(atom.op == "var" for atom in left)


@dataclass(frozen=True)
class Interval:
    """The values an index takes while some loops run: from `low`, at most `width` further (both inclusive)."""

    low: Expr
    width: Expr


class Unbounded(ValueError):
    """An index whose region is not bounded by arithmetic over loop variables; the whole axis may be read."""


def interval(e: Expr, relaxed: Ranges, simplify: Simplifier) -> Interval:
    """Bounds of `e` while the loop variables in `relaxed` run, the others standing still.

    The width bounds high - low and never depends on a variable that stands still, so that it can size a buffer:
    min(x, c) is no wider than x.

    Raises:
        Unbounded: a read from a tensor, or a product whose factors may be negative.
    """
    if e.op == "var":
        name = e.args[0]
        return Interval(const(0), canon(relaxed[name] - 1)) if name in relaxed else Interval(e, const(0))
    if any(n.op == "load" for n in walk(e)):
        raise Unbounded(f"an index must be arithmetic over loop variables, but got {e}")
    if not _names(e) & relaxed.keys():
        return Interval(e, const(0))
    if e.op not in _INTERVALS:
        raise Unbounded(f"an index must be arithmetic over loop variables, but got {e}")
    a, b = (interval(x, relaxed, simplify) for x in (e.args[1:] if e.op == "select" else e.args))
    found = _INTERVALS[e.op](e.op, a, b, simplify)
    return Interval(found.low, _without_loops(found.width, simplify))


def _without_loops(width: Expr, simplify: Simplifier) -> Expr:
    """The width, or a bound of it where it depends on a loop."""
    if not _names(width) & simplify.ranges.keys():
        return width
    bound = simplify.upper(width)
    if bound is None:
        raise Unbounded(f"a region must have a width that no loop changes, but got {width}")
    return bound


def _interval_of_sum(op: str, a: Interval, b: Interval, simplify: Simplifier) -> Interval:
    if op == "add":
        return Interval(canon(a.low + b.low), canon(a.width + b.width))
    return Interval(canon(a.low - b.low - b.width), canon(a.width + b.width))


def _interval_of_product(op: str, a: Interval, b: Interval, simplify: Simplifier) -> Interval:
    if b.width is not const(0):
        a, b = b, a
    factor = b.low
    if b.width is const(0) and factor.is_const and factor.value < 0:
        return Interval(canon((a.low + a.width) * factor), canon(a.width * (const(0) - factor)))
    if b.width is const(0) and simplify.nonnegative(factor):
        return Interval(canon(a.low * factor), canon(a.width * factor))
    if not simplify.nonnegative(a.low) or not simplify.nonnegative(factor):
        raise Unbounded(f"factors of an index must not be negative, but got {a.low} and {factor}")
    low = canon(a.low * factor)
    return Interval(low, canon((a.low + a.width) * (factor + b.width) - low))


def _interval_of_extremum(op: str, a: Interval, b: Interval, simplify: Simplifier) -> Interval:
    width = simplify.extremum("max", a.width, b.width)
    return Interval((minimum if op == "min" else maximum)(a.low, b.low), width)


def _interval_of_division(op: str, a: Interval, b: Interval, simplify: Simplifier) -> Interval:
    divisor = b.low
    if b.width is not const(0) or not simplify.divisor(divisor):
        raise Unbounded(f"the divisor of an index must be positive and stand still, but got {divisor}")
    shifted = simplify.extremum("min", _misalignment(a.low, divisor, simplify), const(1))
    if op == "floordiv":
        return Interval(simplify.floordiv(a.low, divisor), canon(simplify.floordiv(a.width, divisor) + shifted))
    within = simplify.extremum("min", a.width, canon(divisor - 1))
    return Interval(const(0), simplify.extremum("max", within, canon(shifted * (divisor - 1))))


def _misalignment(low: Expr, divisor: Expr, simplify: Simplifier) -> Expr:
    """An expression in decision variables that is 0 where `low` is a multiple of `divisor` wherever the loops stand."""
    rest = const(0)
    for monomial, c in poly(low).items():
        still = [atom for atom in monomial if not _names(atom) & simplify.ranges.keys()]
        rest = rest + simplify.mod(canon(product([const(abs(c)), *still])), divisor)
    return canon(rest)


def _interval_of_select(op: str, a: Interval, b: Interval, simplify: Simplifier) -> Interval:
    low = simplify(minimum(a.low, b.low))
    return Interval(low, simplify(maximum(a.low + a.width, b.low + b.width) - low))


_INTERVALS = {
    "add": _interval_of_sum,
    "sub": _interval_of_sum,
    "mul": _interval_of_product,
    "min": _interval_of_extremum,
    "max": _interval_of_extremum,
    "floordiv": _interval_of_division,
    "mod": _interval_of_division,
    "select": _interval_of_select,
}
