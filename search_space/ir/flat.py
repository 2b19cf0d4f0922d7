"""Offsets of elements: indices and strides as one sum, in which matching quotients and remainders are joined again."""

from __future__ import annotations

from search_space.ir.expr import Expr, total, var
from search_space.ir.polynomial import Monomial, Poly, from_poly, make_monomial, poly, poly_mul
from search_space.ir.simplify import Simplifier
from search_space.ir.sizes import is_sized

Strides = tuple[int | Expr, ...]
"""Elements between neighbours along each dimension; expressions of sizes where these are open."""


def flat_index(indices: tuple[Expr, ...], strides: Strides, simplify: Simplifier | None = None) -> Expr:
    """Computes the element offset, with x // c * c + x % c put together again; see `merge_divisions`."""
    flat = total(i * s for i, s in zip(indices, strides, strict=True))
    return merge_divisions(flat, simplify)


def stride_along(flat: Expr, name: str) -> Expr:
    """Computes the change of an offset per step of a variable that is in no division."""
    along = var(name)
    return from_poly({tuple(a for a in m if a is not along): c for m, c in poly(flat).items() if along in m})


def merge_divisions(flat: Expr, simplify: Simplifier | None = None) -> Expr:
    """Replaces c * k * (x // c) + k * (x % c) by k * x, where c and factors of k may depend on sizes.

    Before that it replaces c * k * (x // c % d) + k * (x % c) by k * (x % (c * d)): an index of several axes fused into
    one has both forms.

    Args:
        flat: sum of quotients and remainders.
        simplify: simplifier that writes quotients and remainders in the form that `flat` has.
    """
    terms = dict(poly(flat))
    changed = True
    while changed:
        changed = False
        for monomial, k in list(terms.items()):
            found = _remainder(monomial)
            if found is None:
                continue
            (x, c), rest = found
            quotient = _atom(simplify.floordiv(x, c)) if simplify else None
            quotient = _quotient(x, c) if quotient is None else quotient
            # Only both together are x again; a remainder alone stays.
            ((twin, scale),) = poly_mul(poly(c), {make_monomial((quotient, *rest)): 1}).items()
            if terms.get(twin) == k * scale:
                del terms[monomial], terms[twin]
                merged = poly(x)
            elif c.is_const and (outer := _find_remainder(quotient, rest, k * int(c.value), terms)) is not None:
                del terms[monomial], terms[outer[0]]
                wider = c * outer[1]
                merged = poly(simplify.mod(x, wider) if simplify else x % wider)
            else:
                continue
            for m, d in poly_mul(merged, {rest: 1}).items():
                terms[m] = terms.get(m, 0) + k * d
            changed = True
            break
    return from_poly({m: c for m, c in terms.items() if c})


def _remainder(monomial: Monomial) -> tuple[tuple[Expr, Expr], Monomial] | None:
    """Splits a remainder by a number or a product of sizes into its operands and its factors, sizes alone."""
    for place, atom in enumerate(monomial):
        if atom.op == "mod" and len(poly(atom.args[1])) == 1:
            rest, factors = monomial[:place] + monomial[place + 1 :], next(iter(poly(atom.args[1])))
            if all(map(is_sized, (*rest, *factors))):
                return (atom.args[0], atom.args[1]), rest
    return None


def _atom(e: Expr) -> Expr | None:
    """Returns the variable or quotient that an expression is, None for a sum or product."""
    terms = poly(e)
    if len(terms) != 1:
        return None
    ((monomial, c),) = terms.items()
    (atom,) = monomial if len(monomial) == 1 else (None,)
    return atom if c == 1 else None


def _find_remainder(x: Expr, rest: Monomial, k: int, terms: Poly) -> tuple[Monomial, Expr] | None:
    """Finds k * (x % d), d a number, times `rest` among some terms; returns its monomial and d."""
    for monomial, c in terms.items():
        if c == k and (found := _remainder(monomial)) is not None:
            (y, d), others = found
            if y is x and d.is_const and others == rest:
                return monomial, d
    return None


def _quotient(x: Expr, divisor: Expr) -> Expr:
    """Divides x by a divisor, in the simplifier's form if x is itself a quotient."""
    if x.op == "floordiv" and x.args[1].is_const and divisor.is_const:
        return _quotient(x.args[0], x.args[1] * divisor)
    return x // divisor
