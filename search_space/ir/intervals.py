"""Ranges of integer expressions over axes whose extents are numbers, conditions on them taken into account."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from search_space.ir.expr import BITS, Expr
from search_space.ir.polynomial import Monomial, Poly, poly, poly_add
from search_space.ir.semantics import BINARY

Span = tuple[int, int]
"""Least and greatest value, both inclusive."""

DTYPE_RANGES: dict[str, Span] = {
    **{name: (-(1 << (BITS[name] - 1)), (1 << (BITS[name] - 1)) - 1) for name in ("int8", "int32", "int64")},
    "uint8": (0, 255),
    "bool": (0, 1),
}


class Bounds:
    """Bounds of integer expressions over all values of the axes for which the guards hold.

    Sums are bounded as polynomials, monomial by monomial. A guard `g <= 0` bounds an expression `p` by `p - g` as well,
    in which common terms cancel.

    Attributes:
        impossible: whether the guards are proved to hold nowhere.
    """

    def __init__(self, extents: Mapping[str, int], guards: Iterable[Expr] = ()) -> None:
        self._extents = extents
        self._plain: dict[Expr, Span] = {}
        self._tight: dict[Expr, Span] = {}
        self._guards = [polynomial for guard in guards if self._exact(guard) for polynomial in _at_most_zero(guard)]
        self.impossible = any(self._sum(guard, self._atom)[0] > 0 for guard in self._guards)

    def __call__(self, e: Expr) -> Span:
        if not self._guards:
            return self._free(e)
        span = self._tight.get(e)
        if span is None:
            narrowed = self._narrow(poly(e)) if e.dtype == "int64" else self._tight_atom(e)
            span = self._tight[e] = _widen_on_overflow(narrowed, e.dtype)
        return span

    def _free(self, e: Expr) -> Span:
        """Bounds an expression over all values of the axes, without guards."""
        span = self._plain.get(e)
        if span is None:
            plain = self._sum(poly(e), self._atom) if e.dtype == "int64" else self._atom(e)
            span = self._plain[e] = _widen_on_overflow(plain, e.dtype)
        return span

    def _exact(self, guard: Expr) -> bool:
        """Tells whether a guard compares integers that never overflow int64, or is a constant."""
        if guard.op not in ("lt", "le", "eq"):
            return guard.op == "const"
        if guard.args[0].dtype not in DTYPE_RANGES:
            return False
        ends = [self._sum(_terms(side), self._atom) for side in guard.args]
        return all(_widen_on_overflow(span, "int64") == span for span in ends)

    def _sum(self, p: Poly, atom: Callable[[Expr], Span]) -> Span:
        low = high = 0
        for monomial, factor in p.items():
            ends = _product(monomial, atom)
            low += factor * ends[factor < 0]
            high += factor * ends[factor > 0]
        return low, high

    def _narrow(self, p: Poly) -> Span:
        own = {atom for monomial in p for atom in monomial}
        # atoms of a guard alone are bounded without guards, so that this comes to an end
        tight = {atom: self._tight_atom(atom) for atom in own}

        def bound_atom(atom: Expr) -> Span:
            return tight.get(atom) or self._atom(atom)

        low, high = self._sum(p, bound_atom)
        for guard in self._guards:
            if any(atom in own for monomial in guard for atom in monomial):
                low = max(low, self._sum(poly_add(p, guard), bound_atom)[0])
                high = min(high, self._sum(poly_add(p, guard, -1), bound_atom)[1])
        return (low, high) if low <= high else (high, low)

    def _atom(self, atom: Expr) -> Span:
        return self._node(atom, self._free)

    def _tight_atom(self, atom: Expr) -> Span:
        """Bounds an atom by its operands and by the guards that contain it."""
        low, high = self._node(atom, self)
        for guard in self._guards:
            factor = guard.get((atom,), 0)
            rest = poly_add(guard, {(atom,): factor}, -1)
            if factor and not any(atom in monomial for monomial in rest):
                least = self._sum(rest, self._atom)[0]  # factor * atom <= -rest
                if factor > 0:
                    high = min(high, -least // factor)
                else:
                    low = max(low, -(least // factor))
        return (low, high) if low <= high else (high, low)

    def _node(self, e: Expr, bound: Callable[[Expr], Span]) -> Span:
        """Bounds an expression by the bounds of its operands."""
        if e.op == "var":
            return 0, self._extents[e.args[0]] - 1
        if e.op == "const":
            return int(e.value), int(e.value)
        span: Span | None = None
        if e.op == "select":
            (a, b), (c, d) = bound(e.args[1]), bound(e.args[2])
            span = min(a, c), max(b, d)
        elif e.op == "cast" and e.args[0].dtype in DTYPE_RANGES:
            span = bound(e.args[0])
        elif e.op in BINARY and e.dtype in DTYPE_RANGES:
            span = BINARY[e.op].interval(*(bound(operand) for operand in e.args))
        return _widen_on_overflow(span or DTYPE_RANGES[e.dtype], e.dtype)


def _widen_on_overflow(span: Span, dtype: str) -> Span:
    """Returns the span, or all values of the dtype if the span exceeds them."""
    low, high = DTYPE_RANGES[dtype]
    return span if low <= span[0] and span[1] <= high else (low, high)


def _at_most_zero(guard: Expr) -> list[Poly]:
    """Lists polynomials that are at most 0 where a guard holds: a comparison of integers, or a constant."""
    if guard.op == "const":
        return [] if guard.value else [{(): 1}]
    gap = poly_add(_terms(guard.args[0]), _terms(guard.args[1]), -1)
    if guard.op == "eq":
        return [gap, poly_add({}, gap, -1)]
    return [poly_add(gap, {(): 1}) if guard.op == "lt" else gap]


def _terms(e: Expr) -> Poly:
    """Returns the polynomial of an operand; a sum of narrow integers, which wraps around, is an atom."""
    return poly(e) if e.dtype == "int64" or e.op == "const" else {(e,): 1}


def _product(monomial: Monomial, atom: Callable[[Expr], Span]) -> Span:
    low = high = 1
    for factor in monomial:
        a, b = atom(factor)
        ends = (low * a, low * b, high * a, high * b)
        low, high = min(ends), max(ends)
    return low, high
