"""Small operator graphs as terms: a variable is its name, an operation is a tuple of its name and its operands.

Equal subterms are one node, so a term is a graph with one output. Variables begin with `x` where they stand for
activations and with `w` where they stand for weights.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

Term = str | tuple["str | Term", ...]
"""`x0`, or `("add", "x0", ("relu", "x1"))`."""


def operands(term: Term) -> tuple[Term, ...]:
    """What an operation reads; nothing for a variable."""
    return () if isinstance(term, str) else tuple(term[1:])


def subterms(*terms: Term) -> Iterator[Term]:
    """Every distinct subterm, variables included, each after what it reads."""
    seen: dict[Term, None] = {}

    def walk(term: Term) -> None:
        if term not in seen:
            for operand in operands(term):
                walk(operand)
            seen[term] = None

    for term in terms:
        walk(term)
    yield from seen


def nodes(*terms: Term) -> list[Term]:
    """The distinct operations of terms."""
    return [term for term in subterms(*terms) if not isinstance(term, str)]


def variables(*terms: Term) -> list[str]:
    """Variables in the order in which they are read."""
    return [term for term in subterms(*terms) if isinstance(term, str)]


def substituted(term: Term, values: Mapping[str, Term]) -> Term:
    """The term with variables replaced."""
    if isinstance(term, str):
        return values.get(term, term)
    return (term[0], *(substituted(operand, values) for operand in operands(term)))


def unify(pattern: Term, term: Term, bound: dict[str, Term]) -> bool:
    """Whether `term` is `pattern` with its variables replaced, which are added to `bound`; weights by weights."""
    if isinstance(pattern, str):
        if pattern in bound:
            return bound[pattern] == term
        if pattern[0] == "w" and any(name[0] != "w" for name in variables(term)):
            return False
        bound[pattern] = term
        return True
    if isinstance(term, str) or pattern[0] != term[0] or len(pattern) != len(term):
        return False
    return all(unify(p, t, bound) for p, t in zip(operands(pattern), operands(term), strict=True))


def flips(term: Term, commutative: frozenset[str], limit: int = 16) -> Iterator[Term]:
    """The term in every order of the operands of commutative operations, up to `limit` of them."""
    for number, flipped in enumerate(_flips(term, commutative)):
        if number == limit:
            return
        yield flipped


def _flips(term: Term, commutative: frozenset[str]) -> Iterator[Term]:
    if isinstance(term, str):
        yield term
        return
    for chosen in product(*(list(_flips(operand, commutative)) for operand in operands(term))):
        yield (term[0], *chosen)
        if term[0] in commutative and chosen[0] != chosen[1]:
            yield (term[0], chosen[1], chosen[0])


def ordered(term: Term, commutative: frozenset[str]) -> Term:
    """The term with the operands of commutative operations in one order."""
    if isinstance(term, str):
        return term
    parts: Sequence[Term] = [ordered(operand, commutative) for operand in operands(term)]
    if term[0] in commutative:
        parts = sorted(parts, key=text)
    return (term[0], *parts)


def text(term: Term) -> str:
    """As `add(x0,relu(x1))`."""
    return term if isinstance(term, str) else f"{term[0]}({','.join(map(text, operands(term)))})"


def parse(written: str) -> Term:
    """The term that `text` wrote.

    Raises:
        ValueError: it is none.
    """
    tokens = re.findall(r"[A-Za-z_0-9]+|[(),]", written)
    if "".join(tokens) != written.replace(" ", ""):
        raise ValueError(f"a term must be names, brackets and commas, but got {written!r}")
    place = 0

    def read() -> Term:
        nonlocal place
        name = tokens[place] if place < len(tokens) else ""
        if not name.isidentifier():
            raise ValueError(f"a term must name its operations and variables, but got {written!r}")
        place += 1
        if place == len(tokens) or tokens[place] != "(":
            return name
        parts: list[Term] = []
        while tokens[place : place + 1] != [")"]:
            if tokens[place : place + 1] not in (["("], [","]):
                raise ValueError(f"a term must close its brackets, but got {written!r}")
            place += 1
            parts.append(read())
        place += 1
        return (name, *parts)

    term = read()
    if place != len(tokens):
        raise ValueError(f"a term must be one term, but got {written!r}")
    return term
