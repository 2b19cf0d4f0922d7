"""Normal forms of terms, matching with patterns, and rewriting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from autotune.lab.substitutions.rules import Rule
from autotune.lab.substitutions.terms import Term, operands, text, variables
from benchmarks.substitutions.values import COMMUTATIVE


def substitute_term(term: Term, values: Mapping[str, Term]) -> Term:
    """Replaces variables of a term."""
    if isinstance(term, str):
        return values.get(term, term)
    return (term[0], *(substitute_term(operand, values) for operand in operands(term)))


def unify(pattern: Term, term: Term, bound: dict[str, Term]) -> bool:
    """Tells whether `term` is `pattern` with its variables replaced; adds them to `bound`, weights for weights."""
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
    """Lists the term in every order of the operands of commutative operations, up to `limit` of them."""
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


def order_operands(term: Term, commutative: frozenset[str]) -> Term:
    """Brings the operands of commutative operations into one order."""
    if isinstance(term, str):
        return term
    parts: Sequence[Term] = [order_operands(operand, commutative) for operand in operands(term)]
    if term[0] in commutative:
        parts = sorted(parts, key=text)
    return (term[0], *parts)


def rename_variables(rule: Rule) -> tuple[Rule, dict[str, str]]:
    """Numbers the variables of a rule in the order in which the source reads them; returns it and old names → new ones.

    Operands of commutative operations are brought into one order, in which the variables are numbered again.
    """
    total: dict[str, str] = {name: name for name in variables(*rule.source)}
    for _ in range(3):
        names: dict[str, str] = {}
        for name in variables(*rule.source):
            names[name] = f"{name[0]}{sum(other[0] == name[0] for other in names)}"
        source, target = (
            tuple(order_operands(substitute_term(term, names), COMMUTATIVE) for term in side)
            for side in (rule.source, rule.target)
        )
        total = {old: names[new] for old, new in total.items()}
        rule = Rule(source, target)
    return rule, total
