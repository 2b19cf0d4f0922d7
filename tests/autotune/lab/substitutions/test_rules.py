"""The saved rules: reviewed data, each of which holds, and which generation finds again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from autotune.lab.substitutions.rules import RULES_FILE, Rule, saved_rules
from benchmarks.substitutions.choose import RuleSelection, choose, verify_candidate
from benchmarks.substitutions.generate import DOMAINS, Candidate, Domain, all_candidates
from benchmarks.substitutions.make import make, report, save
from benchmarks.substitutions.rewriting import rename_variables
from tests.autotune.graph.random_graphs import assert_equal_outputs
from tests.autotune.lab.substitutions.helpers import both_sides

CASES = [
    "add(conv(x0,w0),conv(x0,w1)) -> conv(x0,add(w0,w1))",
    "concat(conv(x0,w0),conv(x0,w1)) -> conv(x0,concat(w0,w1))",
    "add(conv(x0,w0),conv(x1,w1)) -> conv(concat(x0,x1),concat_in(w0,w1))",
    "conv(x0,w0) -> conv_wide(x0,enlarge(w0))",
    "matmul(matmul(x0,x1),x2) -> matmul(x0,matmul(x1,x2))",
    "point(conv(x0,w0),w1) -> conv(x0,chain(w0,w1))",
    "concat(relu(x0),relu(x1)) -> relu(concat(x0,x1))",
    "point(avg_pool(x0),w0) -> avg_pool(point(x0,w0))",
    "concat(depthwise(x0,w0),depthwise(x1,w1)) -> depthwise(concat(x0,x1),concat(w0,w1))",
    "conv(x0,w0); conv(x0,w1) -> first(conv(x0,concat(w0,w1)),w0); last(conv(x0,concat(w0,w1)),w1)",
]


@pytest.mark.parametrize("rule", CASES)
def test_rules_of_the_paper_are_found(rule: str) -> None:
    assert rule in set(map(str, saved_rules()))


def test_there_are_over_a_hundred_rules_and_none_twice() -> None:
    rules = saved_rules()
    assert len(rules) > 100 and len(set(rules)) == len(rules)
    assert json.loads(RULES_FILE.read_text())["verified"] == len(rules)


@pytest.mark.parametrize("part", range(8))
def test_every_rule_holds_in_graphs(part: int) -> None:
    """The evaluation of graphs confirms them, on other shapes and windows than those of generation and verification."""
    for rule in saved_rules()[part::8]:
        for source, target in both_sides(rule):
            assert_equal_outputs(target, source, rtol=1e-4)


SMALL = Domain(
    "small", {"x0": (1, 3, 3, 2), "x1": (1, 3, 3, 2), "w0": (3, 3, 2, 2), "w1": (3, 3, 2, 2)}, ("conv", "add")
)


def test_generation_finds_what_is_saved() -> None:
    """Rules that a small domain generates are saved, or follow from saved ones."""
    known = RuleSelection()
    for rule in saved_rules():
        known.keep(rule)
    made = make([SMALL])
    assert {CASES[0], "add(conv(x0,w0),conv(x1,w0)) -> conv(add(x0,x1),w0)"} <= set(map(str, made.rules))
    assert [str(rule) for rule in made.rules if rule not in set(saved_rules()) and not known.implies(rule)] == []


def test_the_same_seed_makes_the_same_rules() -> None:
    tiny = Domain("tiny", SMALL.shapes, (*SMALL.ops, "concat"), 2)
    first, second = (make([tiny], seed=3) for _ in range(2))
    assert first.rules == second.rules and report(first) == report(second)
    assert report(first)["verified"] == len(first.rules)


def test_every_domain_is_of_known_operations_and_variables() -> None:
    for domain in DOMAINS:
        tiny = Domain(domain.name, domain.shapes, domain.ops, 1)
        assert list(all_candidates([tiny], np.random.default_rng(0))) is not None


def test_what_holds_by_chance_is_refuted() -> None:
    rng, shapes = np.random.default_rng(0), {"x0": (2, 2), "x1": (2, 2)}
    for wrong in ("relu(add(x0,x1)) -> add(relu(x0),relu(x1))", "matmul(x0,x1) -> matmul(x1,x0)"):
        assert not verify_candidate(Candidate(Rule.parse(wrong), shapes), rng)
    assert verify_candidate(Candidate(Rule.parse("relu(mul(x0,x1)) -> relu(mul(x1,x0))"), shapes), rng)


def test_a_rule_that_never_goes_together_is_refuted() -> None:
    rule = Rule.parse("conv(x0,w0) -> conv(x0,enlarge(w0))")
    assert not verify_candidate(Candidate(rule, {"x0": (1, 3, 3, 2), "w0": (3, 3, 2, 2)}), np.random.default_rng(0))


def test_what_follows_from_rules_is_left_out() -> None:
    shapes = dict.fromkeys(("x0", "x1", "x2"), (2, 2))
    general = Candidate(Rule.parse("concat(relu(x0),relu(x1)) -> relu(concat(x0,x1))"), shapes)
    special = Candidate(Rule.parse("add(concat(relu(x0),relu(x1)),x2) -> add(relu(concat(x0,x1)),x2)"), shapes)
    chosen = choose([special, general, special], np.random.default_rng(0))
    assert (chosen.rules, chosen.generated_count, chosen.implied_count) == ([general.rule], 2, 1)


def test_names_of_variables_do_not_matter() -> None:
    first, _ = rename_variables(Rule.parse("add(relu(x1),x0) -> add(x0,relu(x1))"))
    second, names = rename_variables(Rule.parse("add(x4,relu(x2)) -> add(relu(x2),x4)"))
    assert first == second and set(names) == {"x4", "x2"}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("relu(x0)", "a source and a target"),
        ("relu(x0) -> relu(x0); relu(x0)", "as many terms"),
        ("rleu(x0) -> x0", "known operations"),
        ("relu(x0,x1) -> x0", "known operations"),
        ("relu(x0) -> add(x0,x1)", "must read what its source binds"),
        ("relu(x0) -> max_pool(x0)", "must read what its source binds"),
        ("conv(x0,enlarge(w0)) -> conv(x0,w0)", "must read what its source binds"),
    ],
)
def test_what_is_no_rule_is_refused(source: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Rule.parse(source)


def test_rules_are_saved_as_text(tmp_path: Path) -> None:
    rule = Rule.parse(CASES[0])
    save(tmp_path / "rules.json", [rule], {"verified": 1})
    assert json.loads((tmp_path / "rules.json").read_text()) == {"verified": 1, "rules": [CASES[0]]}
