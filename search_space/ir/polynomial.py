"""Canonical integer arithmetic: polynomials over atoms.

A polynomial maps a monomial (a sorted tuple of atoms: variables, divisions, minima, ...) to an integer. Candidates'
numbers make the atoms constants, so the same code serves symbolic and concrete programs.

Atoms are sorted by their text. The age of a node depends on what else a process has made, and on when it freed that;
nothing that is concluded or written may depend on it.
"""

from __future__ import annotations

from collections.abc import Iterable

from search_space.ir.expr import Expr, const, make, product

Monomial = tuple[Expr, ...]
Poly = dict[Monomial, int]


def _sort_key(atom: Expr) -> tuple[str, int]:
    """Orders atoms by their text; the older of two with one text, which no program has together, comes first."""
    return atom._text or str(atom), atom.serial


def make_monomial(atoms: Iterable[Expr]) -> Monomial:
    """Multiplies atoms: sorts them in the one order of monomials."""
    return tuple(sorted(atoms, key=_sort_key))


def sort_monomials(p: Poly) -> list[Monomial]:
    """Lists the monomials in textual order: those with most factors first, the constant last."""
    if len(p) < 2:
        return list(p)
    return sorted(p, key=lambda m: (-len(m), [a._text or str(a) for a in m]))


def poly(e: Expr) -> Poly:
    """Returns the polynomial of an integer expression; it is shared, so do not change it."""
    if e._poly is None:
        e._poly = _poly(e)
    return e._poly


def _poly(e: Expr) -> Poly:
    if e.op == "const":
        return {(): int(e.value)} if e.value else {}
    if e.op in ("add", "sub"):
        return poly_add(poly(e.args[0]), poly(e.args[1]), 1 if e.op == "add" else -1)
    if e.op == "mul":
        return poly_mul(poly(e.args[0]), poly(e.args[1]))
    return {(e,): 1}


def poly_add(a: Poly, b: Poly, sign: int = 1) -> Poly:
    """Computes a + sign * b."""
    out = dict(a)
    for m, c in b.items():
        out[m] = out.get(m, 0) + sign * c
    return {m: c for m, c in out.items() if c}


def poly_mul(a: Poly, b: Poly) -> Poly:
    """Computes a * b."""
    out: Poly = {}
    for m, c in a.items():
        for n, d in b.items():
            key = make_monomial(m + n) if m and n else m or n
            out[key] = out.get(key, 0) + c * d
    return {m: c for m, c in out.items() if c}


def from_poly(p: Poly) -> Expr:
    """Builds the canonical expression: monomials in textual order, the constant last."""
    out: Expr | None = None
    for m in sort_monomials(p):
        c = p[m]
        if not m:
            term = const(abs(c))
        else:
            term = product(m) if len(m) > 1 else m[0]
            if abs(c) != 1:
                term = make("mul", term, const(abs(c)))
        if out is None:
            out = term if c > 0 else make("sub", const(0), term)
        else:
            out = make("add" if c > 0 else "sub", out, term)
    return const(0) if out is None else out


def canon(e: Expr) -> Expr:
    """Puts integer sums in `e` in canonical order, so that equal polynomials are the same node."""
    if e.op not in ("add", "sub", "mul"):
        return e
    return from_poly(poly(e))


def positive(atom: Expr) -> bool:
    """Tells whether an atom over decision variables (each at least 1) is known not to be negative."""
    if atom.op == "var":
        return True
    if atom.op in ("floordiv", "mod", "min", "max"):
        return all(c > 0 for x in atom.args for c in poly(x).values())
    return False


def nonpositive(p: Poly) -> bool:
    """Tells whether p <= 0 holds for all values >= 1 of the decision variables: proved monomial by monomial."""
    if all(c <= 0 for c in p.values()) and all(a.op == "var" for m in p for a in m):
        return True
    if any(not positive(atom) for m in p for atom in m):
        return all(not m for m in p) and p.get((), 0) <= 0
    # Each positive monomial must be covered by a negative one that it divides, for all atoms are >= 1. In one order, or
    # equal polynomials would be proved or not by how they came about.
    order = sort_monomials(p)
    credit = {m: -p[m] for m in sorted(order, key=len) if p[m] < 0}
    for m in order:
        need = max(p[m], 0)
        for n in credit:
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
