"""Substitution rules: terms of a graph, and terms that may replace them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from autotune.lab.substitutions.operators import TERM_OPS
from autotune.lab.substitutions.terms import Term, nodes, parse, text, variables

RULES_FILE = Path(__file__).with_name("rules.json")
"""Rules that `python -m benchmarks.substitutions` found by enumeration and verified, one a line."""


@dataclass(frozen=True)
class Rule:
    """Terms that may be replaced by others, output by output.

    Attributes:
        source: one term, or two of independent nodes.
        target: terms of the same number, over some of the same variables.
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
        """Tells whether the source binds everything that the target needs, and has no operation on weights."""
        known, needed = self.windows
        return needed <= known and not any(is_weight(node) for node in nodes(*self.source))

    @staticmethod
    def parse(rule_text: str) -> Rule:
        """Parses a rule that `str` wrote.

        Raises:
            ValueError: the text is not a rule.
        """
        sides = [tuple(parse(part.strip()) for part in side.split(";")) for side in rule_text.split(" -> ")]
        if len(sides) != 2 or len(sides[0]) != len(sides[1]):
            raise ValueError(f"a rule must be a source and a target of as many terms, but got {rule_text!r}")
        rule = Rule(*sides)
        for node in nodes(*rule.source, *rule.target):
            if node[0] not in TERM_OPS or len(node) - 1 != TERM_OPS[node[0]].arity:
                raise ValueError(f"a rule must be of known operations, but got {text(node)!r} in {rule_text!r}")
        if not set(variables(*rule.target)) <= set(variables(*rule.source)) or not rule.is_bound:
            raise ValueError(f"a target must read what its source binds, but got {rule_text!r}")
        return rule


def is_weight(term: Term) -> bool:
    """Tells whether a term reads weights alone: it is computed before the graph runs."""
    return all(name.startswith("w") for name in variables(term))


@cache
def saved_rules() -> tuple[Rule, ...]:
    """Reads the rules of this package.

    Raises:
        ValueError: an entry of the file is not a rule.
    """
    return tuple(Rule.parse(written) for written in json.loads(RULES_FILE.read_text())["rules"])
