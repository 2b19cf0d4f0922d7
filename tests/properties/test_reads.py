"""Reads of a definition lie inside its tensors: the check against every point of small domains, and what it says."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

import autotune
from measure.errors import ErrorClass, TrialFailure
from measure.executor import KernelExecutor
from measure.pool import Trial
from search_space import te, te_json
from search_space.ir import points
from search_space.ir.access import check_reads
from search_space.ir.expr import Expr, load, logical_and, make, select
from search_space.ir.intervals import Bounds
from search_space.ir.semantics import BINARY
from search_space.workloads import Workload
from tests.properties.running import examples
from tests.properties.test_index_algebra import LOOPS, terms

TABLES = {(n, m): te.placeholder((n, m), name=f"t{n}x{m}") for n in (1, 2, 5, 9) for m in (3, 12)}
EXTENTS = st.fixed_dictionaries({name: st.integers(1, 6) for name in LOOPS})
INDICES = terms(LOOPS, (1, 2, 3, 7, -2))
COMPARISONS = st.tuples(st.sampled_from(("lt", "le", "eq", "ne")), INDICES, INDICES).map(lambda c: make(*c))
CONDITIONS = st.recursive(
    COMPARISONS,
    lambda inner: st.tuples(st.sampled_from(("and", "or")), inner, inner).map(lambda c: make(*c)),
    max_leaves=4,
)


def bodies() -> st.SearchStrategy[Expr]:
    """Sums of reads under conditions, some in both branches and some shared."""
    reads = st.tuples(st.sampled_from(sorted(TABLES)), INDICES, INDICES).map(
        lambda r: load(TABLES[r[0]], r[1:], "float32")
    )

    def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        return st.one_of(
            st.tuples(CONDITIONS, inner, inner).map(lambda s: select(*s)),
            st.tuples(CONDITIONS, inner).map(lambda s: select(s[0], s[1], 0.0)),
            st.tuples(CONDITIONS, CONDITIONS, inner).map(lambda s: select(s[0], s[2], 0.0) + select(s[1], 1.0, s[2])),
            st.tuples(inner, inner).map(lambda s: s[0] + s[1]),
        )

    return st.recursive(reads, grow, max_leaves=5)


def guarded_bodies() -> st.SearchStrategy[tuple[Expr, dict[str, int]]]:
    """Reads at any index under just the conditions that they need, or some of them: borderline cases."""

    def guard(table: tuple[int, int], at: tuple[Expr, Expr], slack: tuple[int, int, int, int]) -> Expr:
        ends = [(i + low >= 0, i < n + high) for i, n, low, high in zip(at, table, slack[:2], slack[2:], strict=True)]
        conditions = [condition for pair in ends for condition in pair]
        return select(logical_and(*conditions), load(TABLES[table], at, "float32"), 0.0)

    slack = st.tuples(*[st.sampled_from((0, 0, 0, 1))] * 2, *[st.sampled_from((0, 0, 0, 1))] * 2)
    pairs = st.tuples(INDICES, INDICES)
    return st.tuples(st.builds(guard, st.sampled_from(sorted(TABLES)), pairs, slack), EXTENTS)


def number(e: Expr, at: Mapping[str, int]) -> Any:
    if e.op == "const":
        return e.value
    if e.op == "var":
        return at[e.args[0]]
    if e.op == "select":
        return number(e.args[1] if number(e.args[0], at) else e.args[2], at)
    return BINARY[e.op].number(*(number(a, at) for a in e.args))


def leaves(e: Expr, at: Mapping[str, int]) -> bool:
    """Tells whether an evaluation at a point reads outside of a tensor, by going its way."""
    if e.op == "select":
        return leaves(e.args[0], at) or leaves(e.args[1] if number(e.args[0], at) else e.args[2], at)
    if e.op == "load":
        return any(not 0 <= number(i, at) < n for i, n in zip(e.args[1:], e.args[0].shape, strict=True))
    return any(leaves(operand, at) for operand in e.operands)


def held_against_all_points(body: Expr, extents: dict[str, int]) -> None:
    everywhere = [dict(zip(extents, at, strict=True)) for at in product(*map(range, extents.values()))]
    outside = any(leaves(body, at) for at in everywhere)
    event(f"outside: {outside}")
    if outside:
        with pytest.raises(ValueError, match="must be read within its shape"):
            check_reads("C", body, extents)
    else:
        check_reads("C", body, extents)


@settings(max_examples=examples(60), deadline=None)
@given(bodies(), EXTENTS)
def test_a_read_is_refused_exactly_where_some_point_leaves_its_tensor(body: Expr, extents: dict[str, int]) -> None:
    held_against_all_points(body, extents)


@settings(max_examples=examples(60), deadline=None)
@given(guarded_bodies())
def test_conditions_are_counted_for_what_they_are(case: tuple[Expr, dict[str, int]]) -> None:
    held_against_all_points(*case)


@settings(max_examples=examples(60), deadline=None)
@given(INDICES, CONDITIONS, EXTENTS)
def test_bounds_hold_wherever_the_conditions_do(e: Expr, condition: Expr, extents: dict[str, int]) -> None:
    """Bounds without points must never be too narrow, for domains too large to go through have nothing else."""
    inside = [dict(zip(extents, at, strict=True)) for at in product(*map(range, extents.values()))]
    inside = [at for at in inside if number(condition, at)]
    assume(inside)
    bounds = Bounds(extents, [condition])
    low, high = bounds(e)
    assert not bounds.impossible
    assert low <= min(number(e, at) for at in inside) and max(number(e, at) for at in inside) <= high


A, B = te.placeholder((5, 8), name="A"), te.placeholder((3, 8), name="B")
AT, BYTE = te.placeholder((5,), "int32", name="at"), te.placeholder((5,), "uint8", name="byte")
TABLE = te.placeholder((256,), name="table")
REDUCE_AXIS = te.reduce_axis((0, 4), "r")
REFUSED_BODIES: list[tuple[Callable[..., Any], str]] = [
    (
        lambda i, j: A[i, j] + B[i, j],
        r"`B` must be read within its shape \(3, 8\), but C reads its axis 0 at i, which runs from 0 to 4$",
    ),
    (lambda i, j: A[j, i], r"`A` .* \(5, 8\), but C reads its axis 0 at j, which runs from 0 to 7$"),
    (lambda i, j: A[i, j + 1], r"axis 1 at j \+ 1, which runs from 1 to 8$"),
    (lambda i, j: A[-1, j], r"axis 0 at -1, which runs from -1 to -1$"),
    (
        lambda i, j: te.if_then_else(i < 4, B[i, j], 0.0),
        "axis 0 at i, which runs from 0 to 3 where its conditions hold$",
    ),
    (lambda i, j: te.if_then_else(A[i, j] > 0.0, B[i, j], 0.0), "axis 0 at i, which runs from 0 to 4"),
    (lambda i, j: te.if_then_else(i < 3, 0.0, B[i, j]), "from 3 to 4 where its conditions hold$"),
    (lambda i, j: te.if_then_else(te.all(i < 3, B[i, j] > 0.0), 1.0, 0.0), "axis 0 at i, which runs from 0 to 4"),
    (lambda i, j: te.sum(A[i, j + REDUCE_AXIS], axis=REDUCE_AXIS), r"axis 1 at j \+ r, which runs from 0 to 10$"),
    (lambda i, j: TABLE[AT[i]], r"axis 0 at at\[i\], which runs from -2147483648 to 2147483647; te.minimum and"),
    (lambda i, j: te.if_then_else(AT[i] >= 0, TABLE[AT[i]], 0.0), "from 0 to 2147483647 where its conditions hold$"),
    (
        lambda i, j: te.if_then_else(i * (1 << 61) * 2 < 0, B[i, j], 0.0),  # starts again at the other end of int64
        "axis 0 at i, which runs from 2 to 3 where its conditions hold",
    ),
    (
        lambda i, j: TABLE[AT[i + 1] % 256],
        r"`at` must be read within its shape \(5,\), but C reads its axis 0 at i \+ 1",
    ),
    (lambda i, j: A[i, j + REDUCE_AXIS], "`body` of C must be over the axes of its stage .i, j., but got r$"),
]


@pytest.mark.parametrize(("function", "message"), REFUSED_BODIES, ids=[message for _, message in REFUSED_BODIES])
def test_what_leaves_a_tensor_is_refused_with_axis_range_and_shape(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        te.compute((5, 8), function, name="C")


ACCEPTED_BODIES: list[Callable[..., Any]] = [
    lambda i, j: te.if_then_else(i < 3, B[i, j], 0.0),
    lambda i, j: te.if_then_else(2 * i.expr < 5, B[i, j], 0.0),
    lambda i, j: te.if_then_else(te.eq(i, 4), B[i - 2, j], 0.0),
    lambda i, j: te.if_then_else(te.all(i >= 1, A[i, j] > 0.0), A[i - 1, j], 0.0),
    lambda i, j: te.if_then_else(i >= 3, 0.0, te.if_then_else(j < 1, 0.0, B[i, j - 1])),
    lambda i, j: te.if_then_else(i < 3, B[i, j], 0.0) + te.if_then_else(i < 2, B[i, j], 1.0),
    lambda i, j: TABLE[BYTE[i]],
    lambda i, j: TABLE[AT[i] % 256],
    lambda i, j: TABLE[te.minimum(te.maximum(AT[i], 0), 255)],
    lambda i, j: te.if_then_else(te.all(AT[i] >= 0, AT[i] < 256), TABLE[AT[i]], 0.0),
    lambda i, j: te.if_then_else(te.all(AT[i] >= 0, AT[i] < 256), TABLE[AT[i].astype("int64") // 2], 0.0),
    lambda i, j: TABLE[(j.expr.astype("float32") * 0.5).astype("int64")],
]


@pytest.mark.parametrize("function", ACCEPTED_BODIES)
def test_what_conditions_and_data_keep_inside_is_accepted(function: Callable[..., Any]) -> None:
    assert te.compute((5, 8), function, name="C").shape == (5, 8)


def test_an_index_must_be_an_integer() -> None:
    with pytest.raises(TypeError, match="`table` must be indexed with integers, but C has .*: float32"):
        te.compute((5,), lambda i: TABLE[i.expr.astype("float32") * 0.5], name="C")


def test_large_domains_are_decided_by_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A padded window over a huge image has more points than are gone through: its conditions are its indices."""
    monkeypatch.setattr(points, "MOST_POINTS", 0)
    x = te.placeholder((1 << 20, 1 << 20), name="x")
    r, s = te.reduce_axis((0, 7), "r"), te.reduce_axis((0, 7), "s")

    def window(i: Any, j: Any, top: int) -> te.Reduction:
        y, z = i * 2 + r - 3, j // 3 + s - top
        inside = te.all(y >= 0, y < 1 << 20, z >= 0, z < 1 << 20)
        return te.sum(te.if_then_else(inside, x[y, z], 0.0), axis=[r, s])

    te.compute((1 << 20, 1 << 21), lambda i, j: window(i, j, 3), name="W")
    with pytest.raises(ValueError, match="axis 1 at j - 1, which runs from -1 to 1048574"):
        te.compute((1 << 20, 1 << 20), lambda i, j: x[i, j - 1], name="W")


def test_conditions_that_fork_often_are_checked_in_time() -> None:
    """A shared expression of 2**60 paths: what all of them have in common counts."""
    x = te.placeholder((8,), name="x")

    def fork(i: Any, least: int) -> Expr:
        value = te.if_then_else(i >= least, x[i - 1], 0.0)
        for level in range(60):
            value = te.if_then_else(i * 7 % (level + 2) < 1, value + 1.0, value * 2.0)
        return value

    te.compute((8,), lambda i: fork(i, 1), name="F")
    with pytest.raises(ValueError, match="which runs from -1 to"):
        te.compute((8,), lambda i: fork(i, 0), name="F")


def move_read() -> dict[str, Any]:
    """A definition as plain data whose read was moved out of its tensor afterwards."""
    x = te.placeholder((4, 6), name="x")
    data = copy.deepcopy(te_json.to_json([x, te.compute((4, 6), lambda i, j: x[i, j] * 2.0, name="y")]))
    (stage,) = data["stages"]
    stage["axes"][0][1] = 5
    return data


def test_definitions_as_plain_data_are_checked_alike() -> None:
    message = r"`x` must be read within its shape \(4, 6\), but y reads its axis 0 at i, which runs from 0 to 4"
    with pytest.raises(ValueError, match=message):
        te_json.from_json(move_read())
    plain = {"operator": "tensors", "args": {"definition": move_read()}}
    with pytest.raises(ValueError, match=message):
        Workload.from_json(plain)
    trial = Trial(plain, "direct", (), workload_key="y", trace_key="none")
    for answer in (KernelExecutor().build, KernelExecutor().prepare):
        with pytest.raises(TrialFailure, match=message) as caught:
            answer(trial)
        assert caught.value.error is ErrorClass.instantiation


def test_what_was_made_by_hand_does_not_reach_a_kernel() -> None:
    """`build` and `tune` take operations, and there is no operation that reads outside."""
    good = te.compute((3, 8), lambda i, j: A[i, j] + B[i, j], name="C")
    (i, j), body = good.op.axis, good.op.body
    with pytest.raises(ValueError, match="axis 0 at i, which runs from 0 to 4"):
        te.Operation("C", (5, 8), "float32", (te.IterVar("i", 5), j), (), body, inputs=good.op.inputs)
    schedule = te.create_schedule(good.op)
    assert callable(autotune.build(schedule, [A, B, good])) and math.prod(good.shape) == 24 and i.extent == 3
