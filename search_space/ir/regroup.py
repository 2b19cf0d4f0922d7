"""Simplifications of concrete indices that threads and short vectors need.

The part that a vector's lane adds to an index is taken out of divisions, remainders and comparisons if it cannot change
their result. Then a vector is seen to be contiguous, and its condition to be one for all lanes.
"""

from __future__ import annotations

from math import gcd

from search_space.ir.expr import Expr, const, make, transform
from search_space.ir.polynomial import Poly, canon, from_poly, poly, poly_add, poly_mul
from search_space.ir.simplify import ONE, Simplifier


class Regrouping(Simplifier):
    """A simplifier that takes apart sums whose parts a division or a comparison cannot mix."""

    def floordiv(self, a: Expr, b: Expr) -> Expr:
        """Rewrites (g q + r) // (g d) to q // d where 0 <= r < g."""
        done = super().floordiv(a, b)
        parts = self._parts(done.args[0], done.args[1]) if done.op == "floordiv" else None
        if parts is None:
            return done
        factor, quotient, _ = parts
        return self.floordiv(quotient, const(done.args[1].value // factor))

    def mod(self, a: Expr, b: Expr) -> Expr:
        """Rewrites (g q + r) % (g d) to g (q % d) + r where 0 <= r < g."""
        done = super().mod(a, b)
        parts = self._parts(done.args[0], done.args[1]) if done.op == "mod" else None
        if parts is None:
            return done
        factor, quotient, rest = parts
        return canon(self.mod(quotient, const(done.args[1].value // factor)) * factor + rest)

    def compare(self, op: str, a: Expr, b: Expr) -> Expr:
        """Rewrites g q + r < 0 to q < 0 where 0 <= r < g."""
        done = super().compare(op, a, b)
        if done.op not in ("lt", "le"):
            return done
        gap = poly_add(poly(done.args[0]), poly(done.args[1]), -1)
        if done.op == "le":
            gap = poly_add(gap, ONE, -1)
        for factor in sorted({abs(c) for m, c in gap.items() if m}, reverse=True):
            parts = self._split(gap, factor) if factor > 1 else None
            if parts is not None:
                left = {m: c for m, c in parts[0].items() if m and c > 0}
                right = poly_add(left, parts[0], -1)
                return super().compare("lt", from_poly(left), from_poly(right))
        return done

    def _parts(self, a: Expr, b: Expr) -> tuple[int, Expr, Expr] | None:
        """Finds `(g, q, r)` with a == g q + r, 0 <= r < g and g > 1 a divisor of the number b, or None."""
        if not b.is_const or b.value < 2:
            return None
        terms = poly(a)
        for factor in sorted({gcd(abs(c), int(b.value)) for c in terms.values()}, reverse=True):
            parts = self._split(terms, factor) if factor > 1 else None
            if parts is not None:
                return factor, from_poly(parts[0]), from_poly(parts[1])
        return None

    def _split(self, terms: Poly, factor: int) -> tuple[Poly, Poly] | None:
        """Divides by `factor`: returns the quotient and the rest, if the rest is proved to lie below it."""
        quotient = {m: c // factor for m, c in terms.items() if c % factor == 0 or not m}
        rest = {m: c % factor if not m else c for m, c in terms.items() if c % factor}
        quotient = {m: c for m, c in quotient.items() if c}
        if not self.is_nonpositive(poly_add({}, rest, -1)) or not self.is_nonpositive(
            poly_add(rest, {(): factor - 1}, -1)
        ):
            return None
        return quotient, rest


def recombine(e: Expr, simplify: Simplifier) -> Expr:
    """Replaces (x // b) b + x % b by x: fusing two axes and ravelling their indices leaves such sums."""
    terms = dict(poly(e))
    again = True
    while again:
        again = False
        for monomial, c in list(terms.items()):
            found = _join_quotient(terms, monomial, c, simplify)
            if found is not None:
                terms, again = found, True
                break
    return from_poly(terms)


def pulled_apart(e: Expr, simplify: Simplifier) -> Expr:
    """Takes multiples of a divisor out of divisions: (8 x + y) // 4 is 2 x + y // 4, and its remainder y % 4.

    The step of a loop in an address is then a number when the loop is unrolled, and one address serves all its steps.
    """

    def visit(node: Expr) -> Expr | None:
        if node.op not in ("floordiv", "mod") or not node.args[1].is_const or node.args[1].value < 2:
            return None
        a, divisor = pulled_apart(node.args[0], simplify), int(node.args[1].value)
        terms = poly(a)
        multiples = {m: c // divisor for m, c in terms.items() if c % divisor == 0 and m}
        rest = from_poly({m: c for m, c in terms.items() if m not in multiples})
        if not multiples or (simplify.nonnegative(a) and not simplify.nonnegative(rest)):
            return None if a is node.args[0] else make(node.op, a, node.args[1])
        if node.op == "mod":
            return simplify.mod(rest, node.args[1])
        return from_poly(poly_add(multiples, poly(simplify.floordiv(rest, node.args[1]))))

    return canon(transform(e, visit))


def _join_quotient(terms: Poly, monomial: tuple[Expr, ...], c: int, simplify: Simplifier) -> Poly | None:
    """Merges a remainder in this monomial with its quotient among the terms; returns the new terms, or None."""
    for atom in monomial:
        if atom.op != "mod" or monomial.count(atom) > 1:
            continue
        x, b = atom.args
        rest: Poly = {tuple(a for a in monomial if a is not atom): c}
        multiple = poly_mul(poly_mul(poly(simplify.floordiv(x, b)), poly(b)), rest)
        if len(multiple) == 1 and () not in multiple and all(terms.get(m) == k for m, k in multiple.items()):
            left = {m: k for m, k in terms.items() if m != monomial and m not in multiple}
            return poly_add(left, poly_mul(poly(x), rest))
    return None


__all__ = ["Regrouping", "pulled_apart", "recombine"]
