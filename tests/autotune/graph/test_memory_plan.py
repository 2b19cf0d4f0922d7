"""Memory plans: nothing alive together shares memory, and little is wasted."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.graph.memory_plan import ALIGNMENT, Interval, lower_bound, plan


@st.composite
def intervals(draw: st.DrawFn) -> list[Interval]:
    count = draw(st.integers(1, 12))
    found = []
    for number in range(count):
        first = draw(st.integers(0, 10))
        found.append(Interval(f"v{number}", draw(st.integers(1, 5000)), first, first + draw(st.integers(0, 5))))
    return found


@settings(max_examples=200, deadline=None)
@given(intervals())
def test_values_alive_together_lie_apart(values: list[Interval]) -> None:
    found = plan(values)
    for place, a in enumerate(values):
        start = found.offsets[a.name]
        assert start % ALIGNMENT == 0
        assert start + a.nbytes <= found.nbytes
        for b in values[place + 1 :]:
            if a.first <= b.last and b.first <= a.last:
                other = found.offsets[b.name]
                assert start + a.nbytes <= other or other + b.nbytes <= start


@settings(max_examples=100, deadline=None)
@given(intervals())
def test_the_arena_is_no_smaller_than_the_bound_and_no_larger_than_all(values: list[Interval]) -> None:
    found = plan(values)
    padded = sum(-(-v.nbytes // ALIGNMENT) * ALIGNMENT for v in values)
    assert lower_bound(values) <= found.nbytes <= padded
    alive = [sum(v.nbytes for v in values if v.first <= step <= v.last) for step in {v.first for v in values}]
    assert lower_bound(values) == max(alive, default=0)


def test_a_chain_needs_two_buffers() -> None:
    chain = [Interval(f"v{i}", 1024, i, i + 1) for i in range(10)]
    assert plan(chain).nbytes == 2048


def test_nothing_needs_nothing() -> None:
    assert plan([]).nbytes == 0
