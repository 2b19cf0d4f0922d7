"""Rules: what stands in a graph, and what may stand there instead."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from autotune.graph.substitutions.operators import COMMUTATIVE, TERM_OPS
from autotune.graph.substitutions.terms import Term, nodes, ordered, parse, substituted, text, variables

SAVED = Path(__file__).with_name("rules.json")
"""The rules that are generated, verified and chosen from."""


@dataclass(frozen=True)
class Rule:
    """Terms that may be replaced by others, output by output.

    Attributes:
        source: one term, or two that stand side by side.
        target: as many, over the same variables or some of them.
    """

    source: tuple[Term, ...]
    target: tuple[Term, ...]

    def __str__(self) -> str:
        return f"{'; '.join(map(text, self.source))} -> {'; '.join(map(text, self.target))}"

    @property
    def size(self) -> int:
        """Operations on both sides."""
        return len(nodes(*self.source)) + len(nodes(*self.target))

    @cached_property
    def needs(self) -> frozenset[str]:
        """Operations that a graph must have for the source to be there."""
        return frozenset(TERM_OPS[str(node[0])].op for node in nodes(*self.source))

    @property
    def windows(self) -> tuple[set[str], set[str]]:
        """Kinds of windows that the sides have."""
        of = [{TERM_OPS[str(node[0])].window for node in nodes(*side)} - {""} for side in (self.source, self.target)]
        return of[0], of[1]

    @property
    def is_bound(self) -> bool:
        """Whether the source says all that the target needs, and can be matched: it holds no operation on weights."""
        known, needed = self.windows
        return needed <= known and not any(is_weight(node) for node in nodes(*self.source))

    @staticmethod
    def parse(written: str) -> Rule:
        """The rule that `str` wrote.

        Raises:
            ValueError: it is none.
        """
        sides = [tuple(parse(part.strip()) for part in side.split(";")) for side in written.split(" -> ")]
        if len(sides) != 2 or len(sides[0]) != len(sides[1]):
            raise ValueError(f"a rule must be a source and a target of as many terms, but got {written!r}")
        rule = Rule(*sides)
        for node in nodes(*rule.source, *rule.target):
            if node[0] not in TERM_OPS or len(node) - 1 != TERM_OPS[node[0]].arity:
                raise ValueError(f"a rule must be of known operations, but got {text(node)!r} in {written!r}")
        if not set(variables(*rule.target)) <= set(variables(*rule.source)) or not rule.is_bound:
            raise ValueError(f"a target must read what its source binds, but got {written!r}")
        return rule


def is_weight(term: Term) -> bool:
    """Whether a term reads weights alone: it is computed before the graph runs."""
    return all(name.startswith("w") for name in variables(term))


def renamed(rule: Rule) -> tuple[Rule, dict[str, str]]:
    """The rule with its variables numbered in the order in which the source reads them, and old names to new ones.

    Operands of commutative operations are brought into one order, in which the variables are numbered again.
    """
    total: dict[str, str] = {name: name for name in variables(*rule.source)}
    for _ in range(3):
        names: dict[str, str] = {}
        for name in variables(*rule.source):
            names[name] = f"{name[0]}{sum(other[0] == name[0] for other in names)}"
        source, target = (
            tuple(ordered(substituted(term, names), COMMUTATIVE) for term in side)
            for side in (rule.source, rule.target)
        )
        total = {old: names[new] for old, new in total.items()}
        rule = Rule(source, target)
    return rule, total


def save(path: Path, rules: Iterable[Rule], report: Mapping[str, Any]) -> None:
    """Writes rules as plain data, one a line, after the numbers of how they were found."""
    data = {**report, "rules": [str(rule) for rule in rules]}
    path.write_text(json.dumps(data, indent=1) + "\n")


@cache
def saved_rules() -> tuple[Rule, ...]:
    """The rules of this package.

    Raises:
        ValueError: the file holds what is none.
    """
    return tuple(Rule.parse(written) for written in json.loads(SAVED.read_text())["rules"])
