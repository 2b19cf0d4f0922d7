"""Restrictions are evaluated as Python would, on arrays, and nothing else is run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search_space.parameters import ExpressionError, Restriction

NAMES = ("a", "b", "c")


def numbers() -> st.SearchStrategy[str]:
    leaves = st.one_of(st.sampled_from(NAMES), st.integers(1, 9).map(str))
    return st.recursive(
        leaves,
        lambda part: st.one_of(
            st.tuples(part, st.sampled_from(["+", "-", "*"]), part).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
            st.tuples(part, st.sampled_from(["//", "%"]), st.integers(1, 7)).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
            st.tuples(st.sampled_from(["min", "max"]), part, part).map(lambda p: f"{p[0]}({p[1]}, {p[2]})"),
            part.map(lambda p: f"abs(-{p})"),
        ),
        max_leaves=5,
    )


def conditions() -> st.SearchStrategy[str]:
    compared = st.one_of(
        st.tuples(numbers(), st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), numbers()).map(" ".join),
        st.tuples(numbers(), numbers(), numbers()).map(lambda p: f"{p[0]} <= {p[1]} < {p[2]}"),
        st.tuples(numbers(), st.lists(st.integers(0, 9), max_size=4)).map(lambda p: f"{p[0]} in {p[1]}"),
        numbers(),
    )
    return st.recursive(
        compared.map(lambda text: f"({text})"),
        lambda part: st.one_of(
            st.tuples(part, st.sampled_from(["and", "or"]), part).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
            part.map(lambda p: f"(not {p})"),
            st.tuples(part, part, part).map(lambda p: f"({p[0]} if {p[1]} else {p[2]})"),
        ),
        max_leaves=5,
    )


@settings(deadline=None, max_examples=200)
@given(conditions(), st.integers(0, 2**32 - 1))
def test_it_holds_where_python_says_so(text: str, seed: int) -> None:
    draws = np.random.default_rng(seed)
    values = {name: draws.integers(0, 20, 25) for name in NAMES}
    found = Restriction(text).holds(values)
    wanted = [bool(eval(text, {}, {n: int(v[i]) for n, v in values.items()})) for i in range(25)]
    assert found.tolist() == wanted


def test_texts_compare_as_texts() -> None:
    values: dict[str, Any] = {"m": np.array(["shared", "global"]), "n": np.array([1, 2])}
    assert Restriction("m == 'shared' or n == 2").holds(values).tolist() == [True, True]
    assert Restriction("m in ['shared', 'local']").holds(values).tolist() == [True, False]
    assert Restriction("m != n").holds(values).tolist() == [True, True]
    with pytest.raises(ExpressionError, match="a text in arithmetic: 'shared'"):
        Restriction("m + 1 > 2").holds(values)


def test_what_python_would_not_get_to_is_not_looked_at() -> None:
    found = Restriction("a == 0 or 12 % a == 0").holds({"a": np.array([0, 3, 5])})
    assert found.tolist() == [True, True, False]


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "a.__class__",
        "[x for x in a]",
        "(lambda: 1)()",
        "a[0] == 1",
        "max()",
        "print(a)",
        "a := 3",
        "f'{a}' == 'x'",
        "max(a, key=b)",
        "a & b",
        "b'x' == a",
        "",
        "a ==",
        "a == 1; b",
        "a is b",
        "a in b",
        "+".join("a" * 1500),
        "(" * 300 + "a" + ")" * 300,
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        Restriction(text).holds({"a": np.array([1]), "b": np.array([2])})


def test_a_power_is_bounded() -> None:
    assert Restriction("2 ** a == 8").holds({"a": np.array([3, 4])}).tolist() == [True, False]
    with pytest.raises(ExpressionError, match="an exponent must be at most 64, but got 1000"):
        Restriction("9 ** a > 1").holds({"a": np.array([1000])})
