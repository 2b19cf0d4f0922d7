"""Small operator graphs as terms: a variable is its name, an operation is a tuple of its name and its operands.

Equal subterms are one node, so a term is a graph with one output. Variables begin with `x` where they stand for
activations and with `w` where they stand for weights.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

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
