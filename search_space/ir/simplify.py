"""Canonical integer arithmetic: polynomials over atoms, ranges of loop variables, proofs of divisibility.

A polynomial maps a monomial (a sorted tuple of atoms: variables, divisions, minima, ...) to an integer. Candidates'
numbers make the atoms constants, so the same code serves symbolic and concrete programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from search_space.ir.expr import BOOL, Expr, const, lift, make, maximum, minimum, product, raw, transform

Monomial = tuple[Expr, ...]
Poly = dict[Monomial, int]
Ranges = Mapping[str, Expr]  # loop variable → extent: the variable runs over range(extent)


def _key(e: Expr) -> str:
    return str(e)


def poly(e: Expr) -> Poly:
    """The polynomial of an integer expression."""
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
    return from_poly(poly(e))


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
        if e.op in ("lt", "le"):
            return self.compare(e.op, a, b)
        if e.op in ("and", "or", "eq", "ne"):
            return make(e.op, a, b)
        if a.dtype != "int64":
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
        difference = canon(a - b)
        bound = self.upper(difference)
        limit = -1 if op == "lt" else 0
        if bound is not None and self.proved(bound - limit):
            return const(True, BOOL)
        low = self.upper(canon(b - a))
        if low is not None and self.proved(low + (0 if op == "lt" else 1)):
            return const(False, BOOL)
        return make(op, a, b)

    def extremum(self, op: str, a: Expr, b: Expr) -> Expr:
        low, high = self.upper(canon(a - b)), self.upper(canon(b - a))
        if low is not None and self.proved(low):
            return a if op == "min" else b
        if high is not None and self.proved(high):
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
        upper, lower = self.upper(remainder - b), self.upper(const(0) - remainder)
        if upper is None or lower is None or not self.proved(upper + 1) or not self.proved(lower):
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

    def upper(self, e: Expr) -> Expr | None:
        """An upper bound over the loop variables in range, in decision variables; None when none is found.

        Every monomial is bounded alone: a loop variable by extent - 1 where its coefficient is positive, by 0 where
        it is negative; atoms that are not variables by their own bound.
        """
        out: Poly = {}
        for m, c in poly(e).items():
            factors: list[Expr] = []
            zero = False
            for atom in m:
                known, low, high = self.atom_range(atom)
                if not known:
                    factors.append(atom)
                    if atom.op != "var" and not _positive(atom):
                        return None
                elif c > 0:
                    if high is None:
                        return None
                    factors.append(high)
                elif low is None:
                    return None
                elif low.is_const and low.value == 0:
                    zero = True
                else:
                    factors.append(low)
            if zero:
                continue
            for n, d in poly(product(factors)).items():
                out[n] = out.get(n, 0) + c * d
        return from_poly({m: c for m, c in out.items() if c})

    def atom_range(self, atom: Expr) -> tuple[bool, Expr | None, Expr | None]:
        """Whether `atom` varies with the loops, and its (non-negative) least and greatest value."""
        if atom.op == "var":
            if atom.args[0] in self.ranges:
                return True, const(0), canon(self.ranges[atom.args[0]] - 1)
            return False, None, None
        if atom.op == "mod":
            return True, const(0), canon(atom.args[1] - 1)
        if atom.op == "floordiv":
            top = self.upper(atom.args[0])
            low = self.upper(canon(const(0) - atom.args[0]))
            floor = const(0) if low is not None and self.proved(low) else None
            return True, floor, None if top is None else self._bounded_div(top, atom.args[1])
        if atom.op == "min":
            tops = [t for t in (self.upper(x) for x in atom.args) if t is not None]
            lows = [self.upper(canon(const(0) - x)) for x in atom.args]
            floor = const(0) if all(x is not None and self.proved(x) for x in lows) else None
            best = next((t for t in tops if t.is_const), tops[0] if tops else None)
            return True, floor, best
        return (True, None, None) if any(v in self.ranges for v in _names(atom)) else (False, None, None)

    def _bounded_div(self, top: Expr, divisor: Expr) -> Expr:
        return Simplifier({}).floordiv(canon(top), divisor)


_INTEGER_OPS = {"add", "sub", "mul", "floordiv", "mod", "min", "max", "lt", "le", "eq", "ne", "and", "or"}


def _names(e: Expr) -> set[str]:
    from search_space.ir.expr import variables

    return variables(e)


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


def interval(e: Expr, relaxed: Ranges, simplify: Simplifier) -> Interval:
    """Bounds of `e` while the loop variables in `relaxed` run, the others standing still.

    The width bounds high - low and never depends on a variable that stands still, so that it can size a buffer:
    min(x, c) is no wider than x.
    """
    zero = const(0)
    if e.op == "var":
        name = e.args[0]
        return Interval(zero, canon(relaxed[name] - 1)) if name in relaxed else Interval(e, zero)
    if e.op == "const" or not any(v in relaxed for v in _names(e)):
        return Interval(e, zero)
    if e.op == "add":
        a, b = (interval(x, relaxed, simplify) for x in e.args)
        return Interval(canon(a.low + b.low), canon(a.width + b.width))
    if e.op == "sub":
        a, b = (interval(x, relaxed, simplify) for x in e.args)
        return Interval(canon(a.low - b.low - b.width), canon(a.width + b.width))
    if e.op == "mul":
        a, b = (interval(x, relaxed, simplify) for x in e.args)
        if b.width is not zero:
            a, b = b, a
        if b.width is zero:
            if b.low.is_const and b.low.value < 0:
                return Interval(canon((a.low + a.width) * b.low), canon(a.width * (const(0) - b.low)))
            return Interval(canon(a.low * b.low), canon(a.width * b.low))
    if e.op in ("min", "max"):
        a, b = (interval(x, relaxed, simplify) for x in e.args)
        width = a.width if b.width is zero else b.width if a.width is zero else maximum(a.width, b.width)
        return Interval((minimum if e.op == "min" else maximum)(a.low, b.low), width)
    if e.op in ("floordiv", "mod"):
        a, b = (interval(x, relaxed, simplify) for x in e.args)
        parts = simplify.split_multiple(a.low, b.low)
        aligned = parts is not None and parts[1] is zero
        if e.op == "floordiv":
            width = simplify.floordiv(a.width, b.low) if aligned else simplify.floordiv(a.width, b.low) + 1
            return Interval(simplify.floordiv(a.low, b.low), canon(width))
        if aligned:
            return Interval(zero, simplify(minimum(a.width, b.low - 1)))
        return Interval(zero, canon(b.low - 1))
    if e.op == "select":
        a, b = (interval(x, relaxed, simplify) for x in e.args[1:])
        low = simplify(minimum(a.low, b.low))
        return Interval(low, canon(maximum(a.low + a.width, b.low + b.width) - low))
    raise ValueError(f"an index must be arithmetic over loop variables, but got {e}")


def lift_int(value: int | Expr) -> Expr:
    return lift(value)


def opaque(op: str, *args: Expr) -> Expr:
    """A node kept as it stands, for tests of the simplifier."""
    return raw(op, "int64", *args)
