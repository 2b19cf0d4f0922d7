"""The simplifier, intervals and columns against plain evaluation, on random index expressions over random ranges."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from search_space import te
from search_space.ir.columns import compile_columns
from search_space.ir.expr import (
    Expr,
    const,
    eq,
    logical_and,
    make,
    maximum,
    minimum,
    select,
    substitute,
    var,
    variables,
)
from search_space.ir.findings import Findings
from search_space.ir.polynomial import canon, from_poly, poly
from search_space.ir.regroup import recombine
from search_space.ir.simplify import Simplifier, UnboundedIndexError, interval
from tests.interpreter import evaluate
from tests.properties.running import examples

LOOPS = ("i", "j", "k")
DECISIONS = ("s", "t")


def terms(names: tuple[str, ...], divisors: tuple[int | str, ...]) -> st.SearchStrategy[Expr]:
    """Index expressions: sums, products, divisions by positive numbers or decisions, minima, selects."""
    leaf = st.one_of(st.sampled_from(names).map(var), st.integers(-6, 9).map(const))
    divisor = st.sampled_from(divisors).map(lambda d: const(d) if isinstance(d, int) else var(d))

    def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        pair = st.tuples(inner, inner)
        return st.one_of(
            pair.map(lambda p: p[0] + p[1]),
            pair.map(lambda p: p[0] - p[1]),
            pair.map(lambda p: p[0] * p[1]),
            pair.map(lambda p: minimum(*p)),
            pair.map(lambda p: maximum(*p)),
            st.tuples(inner, divisor).map(lambda p: p[0] // p[1]),
            st.tuples(inner, divisor).map(lambda p: p[0] % p[1]),
            st.tuples(inner, inner, inner).map(lambda p: select(p[0] < p[1], p[1], p[2])),
        )

    return st.recursive(leaf, grow, max_leaves=8)


INDICES = terms((*LOOPS, *DECISIONS), (1, 2, 3, 7, 12, "s", "t"))
EXTENTS = st.tuples(*(st.sampled_from((1, 2, 3, 5, "s", "t")) for _ in LOOPS))


def points(extents: tuple[int | str, ...], decisions: dict[str, int]) -> list[dict[str, int]]:
    """Every point of the loops for one choice of the decisions."""
    counts = [e if isinstance(e, int) else decisions[e] for e in extents]
    return [{**dict(zip(LOOPS, p, strict=True)), **decisions} for p in product(*map(range, counts))]


def ranges(extents: tuple[int | str, ...]) -> dict[str, Expr]:
    return {n: const(e) if isinstance(e, int) else var(e) for n, e in zip(LOOPS, extents, strict=True)}


def value(e: Expr, point: dict[str, int]) -> int:
    return int(evaluate(e, point, {}))


POINT = {"i": 3, "j": 2, "k": 1, "s": 2, "t": 1}

NUMBERS = st.fixed_dictionaries({d: st.integers(1, 5) for d in DECISIONS})


@settings(deadline=None, max_examples=examples(300))
@given(INDICES, EXTENTS, NUMBERS)
def test_simplified_expressions_keep_their_value(
    e: Expr, extents: tuple[int | str, ...], numbers: dict[str, int]
) -> None:
    simplify = Simplifier(ranges(extents))
    simple, condition = simplify(e), simplify(logical_and(e < 3, const(-2) <= e, eq(e % 2, 0)))
    for point in points(extents, numbers):
        assert value(simple, point) == value(e, point), (str(e), str(simple), point)
        assert value(condition, point) == (-2 <= value(e, point) < 3 and value(e, point) % 2 == 0)


@settings(deadline=None, max_examples=examples(300))
@given(INDICES, EXTENTS, NUMBERS)
def test_upper_bounds_are_bounds(e: Expr, extents: tuple[int | str, ...], numbers: dict[str, int]) -> None:
    simplify = Simplifier(ranges(extents))
    for bound in simplify.uppers(e):
        assert not variables(bound) & set(LOOPS)
        for point in points(extents, numbers):
            assert value(e, point) <= value(bound, point), (str(e), str(bound), point)


@settings(deadline=None, max_examples=examples(300))
@given(INDICES, EXTENTS, NUMBERS, st.sets(st.sampled_from(LOOPS)))
def test_intervals_hold_every_value(
    e: Expr, extents: tuple[int | str, ...], numbers: dict[str, int], running: set[str]
) -> None:
    """Values lie in [low, low + width] while the loops in `running` run, and no loop changes the width."""
    known = ranges(extents)
    simplify = Simplifier(known)
    try:
        found = interval(e, {n: known[n] for n in running}, simplify)
    except UnboundedIndexError:
        assume(False)
    assert not variables(found.width) & set(LOOPS)
    assert not variables(found.low) & running
    for point in points(extents, numbers):
        low = value(found.low, point)
        assert low <= value(e, point) <= low + value(found.width, point), (str(e), str(found), point)


@settings(deadline=None, max_examples=examples(200))
@given(INDICES)
def test_polynomials_go_both_ways(e: Expr) -> None:
    assert canon(from_poly(poly(e))) is canon(e)
    point = dict(zip((*LOOPS, *DECISIONS), (2, 3, 1, 4, 5), strict=True))
    assert value(canon(e), point) == value(e, point)


@settings(deadline=None, max_examples=examples(150))
@given(st.lists(INDICES, min_size=1, max_size=3))
def test_columns_evaluate_as_the_interpreter(outputs: list[Expr]) -> None:
    names = (*LOOPS, *DECISIONS)
    outputs = [*outputs, (outputs[0] < 3).astype("int64") + (outputs[0] < 5).astype("int64"), const(7)]
    rows = np.random.default_rng(0).integers(1, 9, (len(names), 50))
    found = compile_columns(outputs, names)(rows.astype(np.float64))
    for j, output in enumerate(outputs):
        wanted = [value(output, dict(zip(names, map(int, column), strict=True))) for column in rows.T]
        np.testing.assert_array_equal(found[j], wanted)


def test_columns_know_infinity_and_chunks() -> None:
    infinite = select(var("i") < 5000, const(float("inf"), "float32"), var("x", "float32"))
    column = np.arange(9000.0)
    found = compile_columns([infinite], ["i", "x"])(np.stack([column, column]))
    np.testing.assert_array_equal(found[0], np.where(column < 5000, np.inf, column))


def test_columns_reject_unknown_variables() -> None:
    with pytest.raises(KeyError, match="nowhere"):
        compile_columns([var("nowhere") + 1], ["i"])


def test_lanes_of_one_group_are_in_one_group() -> None:
    lane, tile, block = var("lane"), var("tile"), var("block")
    simplify = Simplifier({"lane": const(16), "tile": const(4), "block": const(3)})
    index = lane + tile * 16 + block * 64
    assert "lane" not in variables(simplify(index // 32))
    assert "lane" in variables(simplify(index % 32)) and "lane" in variables(simplify(index // 24))
    again = simplify(index // 32 * 32 + index % 32 - index)
    for point in ({"lane": 15, "tile": 3, "block": 2}, {"lane": 0, "tile": 1, "block": 0}):
        assert value(again, point) == 0 and value(simplify(index // 32), point) == value(index // 32, point)


@pytest.mark.parametrize("divisor", [const(6), var("s"), var("s") * var("t") * 2])
@pytest.mark.parametrize("scale", [const(1), const(5), var("t") * 3])
def test_a_split_index_that_is_fused_again_is_the_index(divisor: Expr, scale: Expr) -> None:
    index, rest = var("i") + var("j") * 7, var("k") - 4
    simplify = Simplifier({"i": var("t") + 4, "j": const(3), "k": const(4)})
    joined = index // divisor * divisor * scale + rest + index % divisor * scale
    assert recombine(canon(joined), simplify) is canon(index * scale + rest)
    other = index // divisor * (divisor + 1) + index % divisor
    assert value(recombine(canon(other), simplify), POINT) == value(other, POINT) != value(index, POINT)


def test_facts_about_decisions_decide_extrema() -> None:
    block, tile = var("block"), var("tile")
    known = Simplifier({"i": const(5)})
    assert known(minimum(block * tile, const(9))) is not canon(block * tile)
    known.facts.append(poly(block * tile - 9))
    assert known(minimum(block * tile, const(9))) is canon(block * tile)
    assert known(minimum(block * tile + 1, const(9))) is not canon(block * tile + 1)


def test_a_clamped_start_has_the_lesser_low_where_it_is_known() -> None:
    tile, block = var("tile"), var("block")
    known = Simplifier({"i": const(5)})
    start = minimum(var("i") * tile, block - tile)
    assert interval(start, {"i": const(5)}, known).low.op == "min"
    known.facts.append(poly(tile - block))
    assert interval(start, {"i": const(5)}, known).low is const(0)


def test_simplifying_goes_on_with_what_is_known_later() -> None:
    """Results remembered under fewer ranges must not outlive them."""
    known: dict[str, Expr] = {}
    simplify = Simplifier(known)
    e = make("floordiv", var("i"), const(4))
    assert simplify(e) is e
    known["i"] = const(4)
    assert simplify(e) is const(0)


def test_shared_findings_hold_where_what_they_rest_on_does() -> None:
    """The extent of a loop, the extent of a loop in that extent, limits and facts: each makes another context."""
    shared, tile, block = Findings(), var("tile"), var("block")
    asked = [make("floordiv", var("i"), const(4)), minimum(block * tile, const(9)), make("mod", var("j"), const(6))]
    ranges: list[dict[str, Expr]] = [
        {"i": const(4), "j": var("i") + 1},
        {"i": const(6), "j": var("i") + 1},
        {"i": const(7), "j": var("i") + 1},
        {"j": const(6)},
        {},
    ]
    for facts in ([], [poly(block * tile - 9)], [poly(tile - 1)]):
        for limits in ({}, {"tile": 3, "block": 3}):
            for each in ranges * 2:
                alone = Simplifier(each, dict(limits), list(facts))
                together = Simplifier(each, dict(limits), list(facts), shared)
                assert [together(e) for e in asked] == [alone(e) for e in asked]


def test_results_outlive_ranges_that_they_do_not_rest_on() -> None:
    known: dict[str, Expr] = {"i": const(9)}
    simplify = Simplifier(known, findings=Findings())
    e = make("mod", var("j"), const(4)) + make("floordiv", var("i"), const(9))
    assert simplify(e) is make("mod", var("j"), const(4))
    known["k"] = const(3)
    assert simplify(e) is make("mod", var("j"), const(4))
    known["j"] = const(4)
    assert simplify(e) is var("j")
    known["i"] = const(10)
    simplify.forget()
    assert simplify(e) is not var("j")


def test_substitution_is_simultaneous() -> None:
    assert str(substitute(var("i") - var("j"), {"i": var("j"), "j": var("i")})) == "j - i"


@pytest.mark.parametrize("rows", [1, 3, 12])
def test_the_quotient_of_a_fused_index_is_within_the_outer_loop(rows: int) -> None:
    """The inner loop's extent may be that of a decision, or depend on sizes."""
    for inner in ((var("s") + 13) // 14, var("s"), (te.var("n", 3, 40) + 13) // 14):
        simplify = Simplifier({"i": inner * rows})
        assert simplify(minimum(var("i") // inner, const(rows - 1))) is simplify(var("i") // inner)
        assert simplify(minimum(var("i") // inner, const(rows))) is simplify(var("i") // inner)
        if rows > 1:
            kept = simplify(minimum(var("i") // inner, const(rows - 2)))
            assert kept.op == "min"
