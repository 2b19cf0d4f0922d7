"""Simplification under the ranges of loop variables: bounds, proofs of divisibility, intervals of indices."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from itertools import product as cartesian

from search_space.ir.expr import BOOL, Expr, const, is_size, make, maximum, minimum, product, transform, variables, walk
from search_space.ir.findings import Context, Findings, collect_extents
from search_space.ir.polynomial import (
    Poly,
    canon,
    from_poly,
    make_monomial,
    nonpositive,
    poly,
    poly_add,
    poly_mul,
    positive,
)

MAX_CHOICES = 8
"""Greatest number of bounds that are tried for an expression: minima multiply the choices of sides."""
Ranges = Mapping[str, Expr]  # loop variable → extent: the variable runs over range(extent)


@dataclass(frozen=True)
class AtomRange:
    """The variation of an atom.

    Attributes:
        varies: whether it varies with the loops; otherwise the atom itself is its bound.
        nonnegative: proved not to be negative.
        highs: upper bounds as polynomials of decision variables, each of them valid.
    """

    varies: bool
    nonnegative: bool
    highs: tuple[Poly, ...] = ()


UNKNOWN = AtomRange(True, False)


@dataclass
class Simplifier:
    """A simplifier of integer expressions, given the ranges of loop variables.

    Attributes:
        ranges: extent of each loop variable in scope; other variables are decision variables, at least 1.
        limits: greatest value of a decision variable, if known.
        facts: further knowledge of decision variables: polynomials that are not positive.
        findings: results that are shared with other simplifiers; None: nothing is shared.
    """

    ranges: Mapping[str, Expr]
    limits: dict[str, int] = field(default_factory=dict)
    facts: list[Poly] = field(default_factory=list)
    findings: Findings | None = None

    def __post_init__(self) -> None:
        self._memo: dict[int, Expr] = {}
        self._atoms: dict[Expr, AtomRange] = {}
        self._proofs: dict[frozenset[tuple[tuple[Expr, ...], int]], bool] = {}
        self._last_state = (0, 0, 0)
        self._contexts: dict[frozenset[str], Context] = {}  # by the names of variables
        self._extents: dict[str, Expr | None] = {}  # extents that remembered results depend on
        self._knowledge: Context | None = None

    def forget(self) -> None:
        """Clears the caches: the range of a known loop has changed."""
        self._memo.clear()
        self._atoms.clear()
        self._proofs.clear()
        self._contexts.clear()
        self._extents.clear()

    def _refresh(self) -> None:
        """Clears the caches when the ranges, limits or facts that their results depend on have changed."""
        state = (len(self.ranges), len(self.limits), len(self.facts))
        if state != self._last_state:
            if state[1:] != self._last_state[1:]:
                self._knowledge = None
                self.forget()
            elif self.findings is None or any(self.ranges.get(v) is not e for v, e in self._extents.items()):
                self.forget()
            self._last_state = state

    def _context(self, names: frozenset[str]) -> Context:
        """Returns the context of expressions over some variables, under which results are shared."""
        context = self._contexts.get(names)
        if context is None:
            assert self.findings is not None
            if self._knowledge is None:
                self._knowledge = self.findings.knowledge(type(self), self.limits, self.facts)
            extents = collect_extents(names, self.ranges)
            self._extents.update(extents)
            context = self._contexts[names] = self.findings.context(self._knowledge, extents)
        return context

    def proves(self, p: Poly) -> bool:
        """Tells whether p <= 0 is proved for all decision variables, their upper limits taken into account."""
        if nonpositive(p) or any(nonpositive(poly_add(p, fact, -1)) for fact in self.facts):
            return True
        if self._proved_by_limits(p):
            return True
        raised = _shift_sizes(p)
        return raised is not p and (nonpositive(raised) or self._proved_by_limits(raised))

    def _proved_by_limits(self, p: Poly) -> bool:
        if not any(self._has_limit(a) for m, c in p.items() if c > 0 for a in m):
            return False
        out: Poly = {}
        for m, c in p.items():
            for a in m if c > 0 else ():
                c *= self._limit(a) if self._has_limit(a) else 1
            left = tuple(a for a in m if not self._has_limit(a)) if c > 0 else m
            out[left] = out.get(left, 0) + c
        return nonpositive({m: c for m, c in out.items() if c})

    def _has_limit(self, atom: Expr) -> bool:
        return atom.op == "var" and (atom.args[0] in self.limits or is_size(atom))

    def _limit(self, atom: Expr) -> int:
        return int(atom.args[2]) if is_size(atom) else self.limits[atom.args[0]]

    def __call__(self, e: Expr) -> Expr:
        self._refresh()
        known = self._memo.get(e.serial)
        return transform(e, self._visit, self._memo) if known is None else known

    def _visit(self, e: Expr) -> Expr | None:
        if e.op == "load" or e.op not in _INTEGER_OPS or (e.dtype != "int64" and e.dtype != BOOL):
            return None
        if self.findings is None:
            return self._simplify_operation(e)
        key, known = (e.serial, self._context(variables(e))), self.findings.nodes
        found = known.get(key)
        if found is None:
            found = known[key] = self._simplify_operation(e)
        return found

    def _simplify_operation(self, e: Expr) -> Expr:
        """Simplifies an operation on integers or truth values, its operands first."""
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
        """Simplifies `a < b` or `a <= b`, to a constant if the ranges decide it."""
        gap = poly_add(poly(a), poly(b), -1)
        if self.is_nonpositive(poly_add(gap, ONE if op == "lt" else {})):
            return const(True, BOOL)
        if self.is_nonpositive(poly_add({} if op == "lt" else ONE, gap, -1)):
            return const(False, BOOL)
        return make(op, a, b)

    def extremum(self, op: str, a: Expr, b: Expr) -> Expr:
        gap = poly_add(poly(a), poly(b), -1)
        if self.is_nonpositive(gap):
            return a if op == "min" else b
        if self.is_nonpositive(poly_add({}, gap, -1)):
            return b if op == "min" else a
        return make(op, a, b)

    def split_multiple(self, a: Expr, b: Expr) -> tuple[Expr, Expr] | None:
        """Finds `(q, r)` with a == q * b + r and 0 <= r < b proved, or None."""
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
        rest = {m: c for m, c in rest.items() if c}
        if not self.is_nonpositive(poly_add({}, rest, -1)) or not self.is_nonpositive(
            poly_add(poly_add(rest, divisor, -1), ONE)
        ):
            return None
        return from_poly(quotient), from_poly(rest)

    def floordiv(self, a: Expr, b: Expr) -> Expr:
        parts = self.split_multiple(a, b)
        if parts is not None:
            return parts[0]
        if a.op == "floordiv" and a.args[1].is_const and b.is_const:
            return self.floordiv(a.args[0], const(a.args[1].value * b.value))
        shared = self.shared_multiple(a, b)
        if shared is not None:
            factor, quotient, _ = shared
            return self.floordiv(quotient, const(b.value // factor))
        return make("floordiv", a, b)

    def mod(self, a: Expr, b: Expr) -> Expr:
        parts = self.split_multiple(a, b)
        if parts is not None:
            return parts[1]
        shared = self.shared_multiple(a, b)
        if shared is not None:
            factor, quotient, rest = shared
            return canon(self.mod(quotient, const(b.value // factor)) * factor + rest)
        return make("mod", a, b)

    def shared_multiple(self, a: Expr, b: Expr) -> tuple[int, Expr, Expr] | None:
        """Finds `(c, q, r)` with a == q * c + r, 0 <= r < c proved and c > 1 a divisor of the number b, or None.

        The rest below such a factor changes no quotient: 16 lanes of one group of 32 channels are in the same group.
        """
        if not b.is_const or b.value <= 0:
            return None
        divisors = {math.gcd(c, b.value) for m, c in poly(a).items() if m} - {1, b.value}
        for factor in sorted(divisors, reverse=True):
            parts = self.split_multiple(a, const(factor))
            if parts is not None:
                return factor, *parts
        return None

    def at_most_zero(self, e: Expr) -> bool:
        """Tells whether e <= 0 is proved for all loop and decision variables in range."""
        return self.is_nonpositive(poly(e))

    def is_nonpositive(self, p: Poly) -> bool:
        """Tells whether p <= 0 is proved for all loop and decision variables in range."""
        self._refresh()
        key = frozenset(p.items())
        found = self._proofs.get(key)
        if found is None:
            found = self._proofs[key] = self._prove_nonpositive(p, key)
        return found

    def _prove_nonpositive(self, p: Poly, key: frozenset[tuple[tuple[Expr, ...], int]]) -> bool:
        if self.findings is None:
            return any(self.proves(bound) for bound in self._uppers(p))
        entry = (self._context(frozenset().union(*(variables(a) for m in p for a in m))), key)
        known = self.findings.proofs
        found = known.get(entry)
        if found is None:
            found = known[entry] = any(self.proves(bound) for bound in self._uppers(p))
        return found

    def upper(self, e: Expr) -> Expr | None:
        """Returns an upper bound over the loop variables in range, in decision variables; None without one."""
        return next(self.uppers(e), None)

    def uppers(self, e: Expr) -> Iterator[Expr]:
        """Lists upper bounds, one for each way to bound the minima in `e` by one of their sides."""
        self._refresh()
        return map(from_poly, self._uppers(poly(e)))

    def _uppers(self, terms: Poly) -> Iterator[Poly]:
        """Lists upper bounds of a polynomial.

        Every monomial is bounded alone: a loop variable by extent - 1 if its coefficient is positive, by 0 if it is
        negative. Atoms that are not variables are bounded by their own range.
        """
        bounds = {atom: self.atom_range(atom) for m in terms for atom in m}
        # In one order, as no more than a few choices are looked at.
        minima = make_monomial(a for a, bound in bounds.items() if bound.varies and len(bound.highs) > 1)
        highs = {a: bound.highs[0] if bound.highs else None for a, bound in bounds.items()}
        for choice in islice(cartesian(*(bounds[a].highs for a in minima)), MAX_CHOICES):
            found = self._upper(terms, bounds, {**highs, **dict(zip(minima, choice, strict=True))})
            if found is not None:
                yield found

    def _upper(self, terms: Poly, bounds: dict[Expr, AtomRange], highs: dict[Expr, Poly | None]) -> Poly | None:
        out: Poly = {}
        for m, c in terms.items():
            varying = [a for a in m if bounds[a].varies]
            still = tuple(a for a in m if not bounds[a].varies)
            if any(a.op != "var" and not positive(a) for a in still):
                return None
            # A product of bounds bounds the product only if no factor can be negative.
            if (c < 0 or len(m) > 1) and any(not bounds[a].nonnegative for a in varying):
                return None
            if c < 0 and varying:
                continue
            term: Poly = {still: c}
            for atom in varying:
                top = highs[atom]
                if top is None:
                    return None
                term = poly_mul(term, top)
            for n, d in term.items():
                out[n] = out.get(n, 0) + d
        return {m: c for m, c in out.items() if c}

    def atom_range(self, atom: Expr) -> AtomRange:
        """Determines the variation of an atom with the loops."""
        atom_range = self._atoms.get(atom)
        if atom_range is None:
            if self.findings is not None:
                self._context(variables(atom))  # for its effect: it records the extents that the range depends on
            atom_range = self._atoms[atom] = self._atom_range(atom)
        return atom_range

    def _atom_range(self, atom: Expr) -> AtomRange:
        if atom.op == "var":
            name = atom.args[0]
            if name in self.ranges:
                return AtomRange(True, True, (poly_add(poly(self.ranges[name]), ONE, -1),))
            return AtomRange(name.startswith("#"), True)
        if atom.op == "mod":
            top = poly_add(poly(atom.args[1]), ONE, -1)
            return AtomRange(True, True, (top,)) if self.divisor(atom.args[1]) else UNKNOWN
        if atom.op == "floordiv":
            if not self.divisor(atom.args[1]):
                return UNKNOWN
            divided = tuple(self._bounded_div(t, atom.args[1]) for t in self._uppers(poly(atom.args[0])))
            return AtomRange(True, self.nonnegative(atom.args[0]), divided)
        if atom.op == "min":
            tops = [t for x in atom.args for t in self._uppers(poly(x))]
            return AtomRange(True, all(map(self.nonnegative, atom.args)), tuple(sorted(tops, key=_has_variables)))
        if atom.op == "max":
            return AtomRange(True, any(map(self.nonnegative, atom.args)), self._tops_of_max(*atom.args))
        return UNKNOWN if atom.op != "var" and variables(atom) & self.ranges.keys() else AtomRange(False, True)

    def nonnegative(self, e: Expr) -> bool:
        return self.is_nonpositive(poly_add({}, poly(e), -1))

    def divisor(self, e: Expr) -> bool:
        """Tells whether `e` may be assumed positive: a number above 0, or a loop's extent (if 0, no code runs)."""
        return bool(e.value > 0) if e.is_const else not variables(e) & self.ranges.keys()

    def _tops_of_max(self, a: Expr, b: Expr) -> tuple[Poly, ...]:
        """Bounds a maximum: lists bounds of one side that are proved to be no less than a bound of the other."""
        tops = [tuple(self._uppers(poly(x))) for x in (a, b)]
        pairs = [(t, u) for t in tops[0] for u in tops[1]]
        over = [t for t, u in pairs if self.proves(poly_add(u, t, -1))]
        over += [u for t, u in pairs if self.proves(poly_add(t, u, -1))]
        return tuple({frozenset(t.items()): t for t in over}.values())

    def _bounded_div(self, top: Poly, divisor: Expr) -> Poly:
        """Divides an upper bound by `divisor`, which is assumed to be at least 1 (`divisor` tells when)."""
        # The last row, such as of a fused loop over 12 * b: (12 * b - 1) // b is 11 for any b.
        rows = _times(poly_add(top, ONE), divisor)
        if rows is not None:
            return poly_add(rows, ONE, -1)
        return poly(Simplifier({}).floordiv(from_poly(top), divisor))


def _times(p: Poly, atom: Expr) -> Poly | None:
    """Divides `p` by an expression that is no sum; None if a term of `p` does not contain it."""
    quotient: Poly = {}
    for m, c in p.items():
        if atom not in m:
            return None
        left = list(m)
        left.remove(atom)
        quotient[tuple(left)] = c
    return quotient


def _shift_sizes(p: Poly) -> Poly:
    """Substitutes sizes in a polynomial: a size of at least `low` becomes `low - 1` plus a variable of at least 1.

    The substituted variables are at least 1, like all others: for `n` of at least 64, `64 - n` becomes `1 - n`.
    """
    if not any(is_size(a) and a.args[1] > 1 for m in p for a in m):
        return p
    out: Poly = {}
    for m, c in p.items():
        term: Poly = {(): c}
        for a in m:
            # The variable now means the size minus (low - 1); the size's upper end still bounds it.
            term = poly_mul(term, {(a,): 1, (): a.args[1] - 1} if is_size(a) else {(a,): 1})
        out = poly_add(out, term)
    return out


def _has_variables(p: Poly) -> bool:
    return any(p)  # a monomial other than the empty one


ONE: Poly = {(): 1}
_INTEGER_OPS = {"add", "sub", "mul", "floordiv", "mod", "min", "max", "lt", "le", "eq", "ne", "and", "or"}


@dataclass(frozen=True)
class Interval:
    """The values an index takes while some loops run: from `low`, at most `width` further (both inclusive)."""

    low: Expr
    width: Expr


class UnboundedIndexError(ValueError):
    """An index whose region is not bounded by arithmetic over loop variables; the whole axis may be read."""


def interval(e: Expr, loop_ranges: Ranges, simplify: Simplifier) -> Interval:
    """Bounds `e` while the loop variables in `loop_ranges` run and the others are fixed.

    The width bounds high - low and never depends on a fixed variable, so that it can size a buffer: min(x, c) is no
    wider than x.

    Raises:
        Unbounded: a read from a tensor, or a product whose factors may be negative.
    """
    if any(n.op == "load" for n in walk(e)):
        raise UnboundedIndexError(f"an index must be arithmetic over loop variables, but got {e}")
    return _interval(e, loop_ranges, simplify)


def _interval(e: Expr, loop_ranges: Ranges, simplify: Simplifier) -> Interval:
    """Bounds an expression without reads."""
    if e.op == "var":
        name = e.args[0]
        return Interval(const(0), canon(loop_ranges[name] - 1)) if name in loop_ranges else Interval(e, const(0))
    if not variables(e) & loop_ranges.keys():
        return Interval(e, const(0))
    if e.op not in _INTERVALS:
        raise UnboundedIndexError(f"an index must be arithmetic over loop variables, but got {e}")
    a, b = (_interval(x, loop_ranges, simplify) for x in (e.args[1:] if e.op == "select" else e.args))
    found = _INTERVALS[e.op](e.op, a, b, simplify)
    return Interval(found.low, _without_loops(found.width, simplify))


def _without_loops(width: Expr, simplify: Simplifier) -> Expr:
    """Returns the width, or a bound of it if it depends on a loop."""
    if not variables(width) & simplify.ranges.keys():
        return width
    bound = simplify.upper(width)
    if bound is None:
        raise UnboundedIndexError(f"a region must have a width that no loop changes, but got {width}")
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
        raise UnboundedIndexError(f"factors of an index must not be negative, but got {a.low} and {factor}")
    low = canon(a.low * factor)
    return Interval(low, canon((a.low + a.width) * (factor + b.width) - low))


def _interval_of_extremum(op: str, a: Interval, b: Interval, simplify: Simplifier) -> Interval:
    width = simplify.extremum("max", a.width, b.width)
    return Interval(simplify.extremum(op, a.low, b.low), width)


def _interval_of_division(op: str, a: Interval, b: Interval, simplify: Simplifier) -> Interval:
    divisor = b.low
    if b.width is not const(0) or not simplify.divisor(divisor):
        raise UnboundedIndexError(f"the divisor of an index must be positive and stand still, but got {divisor}")
    shifted = simplify.extremum("min", _misalignment(a.low, divisor, simplify), const(1))
    if op == "floordiv":
        return Interval(simplify.floordiv(a.low, divisor), canon(simplify.floordiv(a.width, divisor) + shifted))
    within = simplify.extremum("min", a.width, canon(divisor - 1))
    return Interval(const(0), simplify.extremum("max", within, canon(shifted * (divisor - 1))))


def _misalignment(low: Expr, divisor: Expr, simplify: Simplifier) -> Expr:
    """Returns an expression in decision variables that is 0 if `low` is a multiple of `divisor` for all loop values.

    A term whose loops run once is 0, as it is where numbers have replaced the decisions.
    """
    rest = const(0)
    for monomial, c in poly(low).items():
        still = [atom for atom in monomial if not variables(atom) & simplify.ranges.keys()]
        moving = [atom for atom in monomial if variables(atom) & simplify.ranges.keys()]
        term = simplify.mod(canon(product([const(abs(c)), *still])), divisor)
        if moving and term is not const(0) and all(map(simplify.nonnegative, moving)):
            greatest = simplify.upper(product(moving))
            term = term if greatest is None else simplify.extremum("min", term, greatest)
        rest = rest + term
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
