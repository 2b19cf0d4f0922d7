"""Indices of threads and vectors: regrouping keeps values, and takes lanes out of divisions and comparisons."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search_space.ir.expr import Expr, const, var
from search_space.ir.regroup import Regrouping, pulled_apart, recombine
from tests.interpreter import evaluate
from tests.properties.running import examples

LOOPS = ("block", "thread", "lane")
SCALES = (1, 2, 3, 4, 6, 8, 12, 16)
SUMS = st.tuples(*(st.sampled_from(SCALES) for _ in LOOPS), st.integers(0, 9)).map(
    lambda s: sum((var(n) * c for n, c in zip(LOOPS, s[:3], strict=True)), const(s[3]))
)
EXTENTS = st.tuples(*(st.integers(1, 6) for _ in LOOPS))
NUMBERS = st.integers(1, 24)


def points(extents: tuple[int, ...]) -> list[dict[str, int]]:
    return [dict(zip(LOOPS, p, strict=True)) for p in product(*map(range, extents))]


def same(a: Expr, b: Expr, extents: tuple[int, ...]) -> None:
    for point in points(extents):
        assert evaluate(a, point, {}) == evaluate(b, point, {}), (str(a), str(b), point)


@settings(deadline=None, max_examples=examples(80))
@given(SUMS, SUMS, EXTENTS, NUMBERS, NUMBERS)
def test_values_are_kept(a: Expr, b: Expr, extents: tuple[int, ...], n: int, m: int) -> None:
    simplify = Regrouping({name: const(e) for name, e in zip(LOOPS, extents, strict=True)})
    for e in (a // n, a % n, a // n % m, a // n * n + a % n, (a % n) * m + b // m, a < n, a <= b, a % n < b % m):
        same(e, simplify(e), extents)
    for e in (a // n * n + a % n, (a // n // m * m + a // n % m) * n + a % n, b + a % n):
        same(e, recombine(simplify(e), simplify), extents)
    for e in (a // n, a % n, (a // n - b) // m, (a % n * 3 + b) % m, (a + b // n * 6) // 3 % m):
        same(e, pulled_apart(e, simplify), extents)


def test_the_lanes_of_a_vector_are_taken_out() -> None:
    simplify = Regrouping({"t": const(32), "v": const(4)})
    t, v = var("t"), var("v")
    assert simplify((t * 4 + v) // 8) is simplify(t // 2)
    assert simplify((t * 4 + v) % 8) is simplify(t % 2 * 4 + v)
    assert simplify(t * 4 + v < 52) is simplify(t < 13)
    assert str(simplify(t * 4 + v < 50)) == "t * 4 + v < 50"  # the last vector is cut


def test_what_a_divisor_divides_is_taken_out() -> None:
    simplify = Regrouping({"step": const(4), "t": const(16)})
    step, t = var("step"), var("t")
    assert str(pulled_apart((step * 16 + t) // 4, simplify)) == "step * 4 + t // 4"
    assert str(pulled_apart((step * 16 + t) % 4, simplify)) == "t % 4"
    assert str(pulled_apart((step * 16 + t) // 4 % 8, simplify)) == "(step * 4 + t // 4) % 8"
    still = (step * 6 + t) // 4
    assert pulled_apart(still, simplify) is still


@pytest.mark.parametrize("shape", [(3, 5), (2, 7, 3)])
def test_ravelled_indices_are_put_together(shape: tuple[int, ...]) -> None:
    """Parts of a fused loop that an index puts together again become the loop."""
    simplify = Regrouping({"f": const(1000)})
    f, index, rest = var("f"), const(0), var("f")
    parts: list[Expr] = []
    for extent in reversed(shape[1:]):
        parts.insert(0, rest % extent)
        rest = rest // extent
    for part, extent in zip((rest, *parts), shape, strict=True):
        index = index * extent + part
    assert recombine(simplify(index), simplify) is f
