"""Terms: written and read, matched and replaced."""

from __future__ import annotations

import pytest

from autotune.lab.substitutions.terms import Term, nodes, parse, subterms, text, variables
from benchmarks.substitutions.rewriting import flips, order_operands, substitute_term, unify

ADDS = frozenset({"add"})


@pytest.mark.parametrize("source", ["x0", "relu(x0)", "add(x0,relu(x1))", "conv(concat(x0,x1),concat_in(w0,w1))"])
def test_what_is_written_is_read(source: str) -> None:
    assert text(parse(source)) == source


@pytest.mark.parametrize(
    "source", ["", "relu(", "relu(x0", "relu(x0))", "relu(x0)x1", "relu x0", "add(x0,)", "a-b", "(x0)"]
)
def test_what_is_no_term_is_refused(source: str) -> None:
    with pytest.raises(ValueError, match="a term must"):
        parse(source)


def test_equal_parts_are_one_node() -> None:
    term = parse("add(relu(x0),tanh(relu(x0)))")
    assert len(nodes(term)) == 3 and variables(term) == ["x0"]
    assert list(subterms(term))[:2] == ["x0", ("relu", "x0")]


def test_patterns_bind_variables() -> None:
    bound: dict[str, Term] = {}
    assert unify(parse("add(x0,relu(x1))"), parse("add(conv(x0,w0),relu(x0))"), bound)
    assert bound == {"x0": ("conv", "x0", "w0"), "x1": "x0"}
    assert substitute_term(parse("mul(x1,x0)"), bound) == parse("mul(x0,conv(x0,w0))")


def test_patterns_bind_alike_variables_alike() -> None:
    assert unify(parse("add(x0,x0)"), parse("add(relu(x1),relu(x1))"), {})
    assert not unify(parse("add(x0,x0)"), parse("add(x0,x1)"), {})
    assert not unify(parse("conv(x0,w0)"), parse("conv(x0,x1)"), {}), "a weight stands for weights"
    assert not unify(parse("add(x0,x1)"), parse("mul(x0,x1)"), {})


def test_orders_of_operands() -> None:
    assert set(map(text, flips(parse("add(add(x0,x1),x2)"), ADDS))) == {
        *("add(add(x0,x1),x2)", "add(add(x1,x0),x2)", "add(x2,add(x0,x1))", "add(x2,add(x1,x0))"),
    }
    assert list(flips(parse("sub(x0,x1)"), ADDS)) == [parse("sub(x0,x1)")]
    assert len({order_operands(term, ADDS) for term in flips(parse("add(add(x0,x1),add(x2,x3))"), ADDS)}) == 1
