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
    """Returns the operands of an operation; none for a variable."""
    return () if isinstance(term, str) else tuple(term[1:])


def subterms(*terms: Term) -> Iterator[Term]:
    """Lists every distinct subterm, variables included, each after its operands."""
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
    """Lists the distinct operations of terms."""
    return [term for term in subterms(*terms) if not isinstance(term, str)]


def variables(*terms: Term) -> list[str]:
    """Lists variables in the order in which they are read."""
    return [term for term in subterms(*terms) if isinstance(term, str)]


def text(term: Term) -> str:
    """Formats a term, as in `add(x0,relu(x1))`."""
    return term if isinstance(term, str) else f"{term[0]}({','.join(map(text, operands(term)))})"


def parse(term_text: str) -> Term:
    """Parses a term that `text` wrote.

    Raises:
        ValueError: the text is not a term.
    """
    tokens = re.findall(r"[A-Za-z_0-9]+|[(),]", term_text)
    if "".join(tokens) != term_text.replace(" ", ""):
        raise ValueError(f"a term must be names, brackets and commas, but got {term_text!r}")
    position = 0

    def read() -> Term:
        nonlocal position
        name = tokens[position] if position < len(tokens) else ""
        if not name.isidentifier():
            raise ValueError(f"a term must name its operations and variables, but got {term_text!r}")
        position += 1
        if position == len(tokens) or tokens[position] != "(":
            return name
        parts: list[Term] = []
        while tokens[position : position + 1] != [")"]:
            if tokens[position : position + 1] not in (["("], [","]):
                raise ValueError(f"a term must close its brackets, but got {term_text!r}")
            position += 1
            parts.append(read())
        position += 1
        return (name, *parts)

    term = read()
    if position != len(tokens):
        raise ValueError(f"a term must be one term, but got {term_text!r}")
    return term
