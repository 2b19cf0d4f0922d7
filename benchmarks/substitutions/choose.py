"""Selection of rules from candidates: verified on other shapes, and not implied by other rules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from autotune.graph.ir import Array
from autotune.lab.substitutions.operators import TERM_OPS, Pooling, Shape, Sliding, Windows
from autotune.lab.substitutions.rules import Rule, is_weight
from autotune.lab.substitutions.terms import Term, operands, variables
from benchmarks.substitutions.generate import Candidate
from benchmarks.substitutions.rewriting import flips, order_operands, substitute_term, unify
from benchmarks.substitutions.values import COMMUTATIVE, COMPUTE

DRAWS = 600
"""Draws of shapes of which most do not go together."""

ENOUGH = 16
"""Draws that must go together, and give equal values."""


def verify_candidate(candidate: Candidate, rng: np.random.Generator) -> bool:
    """Tells whether source and target are equal up to rounding where both are defined, on other shapes and windows."""
    rule, good = candidate.rule, 0
    for _ in range(DRAWS):
        shapes, windows = _drawn_shapes(candidate.shapes, rng), _drawn_windows(rng)
        values: dict[Term, Array | None] = {name: rng.normal(size=shape) for name, shape in shapes.items()}
        source = [_value(term, values, windows) for term in rule.source]
        target = [_value(term, values, windows) for term in rule.target]
        for a, b in zip(source, target, strict=True):
            if a is None or b is None or a.shape != b.shape:
                break
            if not np.allclose(a, b, rtol=1e-9, atol=1e-9):
                return False
        else:
            good += 1
            if good == ENOUGH:
                return True
    return False


def _drawn_shapes(shapes: Mapping[str, tuple[int, ...]], rng: np.random.Generator) -> dict[str, tuple[int, ...]]:
    """Draws other extents for the variables: equal ones become the same other one, or one of two each time."""
    channels, spatial, kernel = (rng.choice(c, 2, replace=False) for c in ((1, 2, 3, 4), (9, 10, 12), (1, 2, 3)))
    batch, alike = int(rng.integers(1, 3)), bool(rng.integers(2))

    def extent(name: str, index: int, old: int) -> int:
        if old == 1 and name[0] == "w":
            return 1
        pool = [batch] if old == 1 else channels if old in (2, 4) else kernel if name[0] == "w" else spatial
        new = int(pool[0] if alike else rng.choice(pool))
        return 2 * new if old == 4 else new

    return {name: tuple(extent(name, *e) for e in enumerate(shape)) for name, shape in shapes.items()}


def _drawn_windows(rng: np.random.Generator) -> Windows:
    def two(*choices: int) -> tuple[int, int]:
        return int(rng.choice(choices)), int(rng.choice(choices))

    def sliding() -> Sliding:
        return Sliding(two(1, 2), two(0, 1, 2), two(1, 2))

    def pooling() -> Pooling:
        kernel, counts = two(2, 3), bool(rng.integers(2))
        return Pooling(kernel, two(1, 2), two(0, 1, 1), counts)

    return Windows(sliding(), sliding(), pooling(), pooling())


def _value(term: Term, values: dict[Term, Array | None], windows: Windows) -> Array | None:
    if term not in values:
        read = [_value(operand, values, windows) for operand in operands(term)]
        values[term] = None
        if all(array is not None for array in read):
            shapes = [Shape(a.shape, is_weight(o)) for a, o in zip(read, operands(term), strict=True) if a is not None]
            name = str(term[0])
            values[term] = COMPUTE[name](windows, *read) if TERM_OPS[name].accepts(*shapes) else None
    return values[term]


@dataclass
class RuleSelection:
    """Rules that do not follow from each other by two steps.

    Attributes:
        rules: rules in the order in which they came.
        generated_count: candidates that differ by more than names.
        implied_count: candidates that earlier rules do in at most two steps, at any subterm of the source.
        refuted_count: other candidates that did not hold on other shapes.
    """

    rules: list[Rule] = field(default_factory=list)
    generated_count: int = 0
    implied_count: int = 0
    refuted_count: int = 0
    _by_root: dict[str, list[tuple[Term, Term]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, candidate: Candidate, rng: np.random.Generator) -> None:
        """Takes a candidate in, or counts why not."""
        self.generated_count += 1
        rule = candidate.rule
        if self.implies(rule):
            self.implied_count += 1
        elif not verify_candidate(candidate, rng):
            self.refuted_count += 1
        else:
            self.keep(rule)

    def keep(self, rule: Rule) -> None:
        """Takes a rule in that is known to hold."""
        self.rules.append(rule)
        if len(rule.source) == 1:
            for pattern in flips(rule.source[0], COMMUTATIVE):
                self._by_root[str(pattern[0])].append((pattern, rule.target[0]))

    def implies(self, rule: Rule) -> bool:
        """Tells whether one of the outputs is made by one step, or two, and the others are the same."""
        for place, (source, target) in enumerate(zip(rule.source, rule.target, strict=True)):
            others = [s[:place] + s[place + 1 :] for s in (rule.source, rule.target)]
            if others[0] != others[1]:
                continue
            once = set(self._steps(source))
            if target in once or any(target in set(self._steps(middle)) for middle in once):
                return True
        return False

    def _steps(self, term: Term) -> Iterator[Term]:
        """Lists the terms that one step of the rules makes of a term."""
        if isinstance(term, str):
            return
        for pattern, target in self._by_root[str(term[0])]:
            bound: dict[str, Term] = {}
            if unify(pattern, term, bound):
                yield order_operands(substitute_term(target, bound), COMMUTATIVE)
        for place, operand in enumerate(operands(term), 1):
            for new in self._steps(operand):
                yield order_operands((*term[:place], new, *term[place + 1 :]), COMMUTATIVE)


def choose(candidates: Iterable[Candidate], rng: np.random.Generator) -> RuleSelection:
    """Selects rules among candidates, the smallest and most general first, so that others may follow from them."""
    distinct = {str(candidate.rule): candidate for candidate in candidates}
    chosen = RuleSelection()
    for candidate in sorted(distinct.values(), key=_order):
        chosen.add(candidate, rng)
    return chosen


def _order(candidate: Candidate) -> tuple[int, int, str]:
    """Returns the key of the order: number of operations, then variables, most first: x + y before x + x."""
    rule = candidate.rule
    written = str(rule)
    return written.count("("), -len(variables(*rule.source)), written
