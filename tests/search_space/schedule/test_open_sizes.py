"""Sizes that stay open: one loop program computes what programs of each size do, and what cannot hold is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.handwritten import lower
from search_space import te
from search_space.ir.stmt import LoopProgram, substitute_program
from search_space.ir.verify import VerifyError, verify
from search_space.schedule.errors import ScheduleError
from search_space.schedule.intrinsics import get_intrinsic
from tests.interpreter import interpret

LOW, HIGH = 4, 21
GOLDEN = """\
kernel(A: float32[n, 8], B: float32[n, 8]) -> B
  size n from 4 to 21
  for B.i.0 in (n + 3) // 4:
    for B.i.1 in 4:
      for B.j in 8:
        B[B.i.1 + min(B.i.0 * 4, n - 4), B.j] = A[B.i.1 + min(B.i.0 * 4, n - 4), B.j] * 2.0"""


def product(tail: str, rows: int, sum_tail: str, steps: int) -> LoopProgram:
    """(n, k) x (k, 5) with its rows and its sum in tiles."""
    n, k = te.var("n", LOW, HIGH), te.var("k", LOW, HIGH)
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, 5), name="B")
    r = te.reduce_axis((0, k), "r")
    c = te.compute((n, 5), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    s = te.create_schedule(c.op)
    s[c].split(c.op.axis[0], rows, tail=tail)
    s[c].split(r, steps, tail=sum_tail)
    return lower(s, [a, b, c])


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(("guard", "clamp", "peel")),
    st.integers(1, LOW),
    st.sampled_from(("guard", "peel")),
    st.integers(1, 6),
    st.integers(LOW, HIGH),
    st.integers(LOW, HIGH),
)
def test_one_program_is_right_at_every_size(tail: str, rows: int, sum_tail: str, steps: int, n: int, k: int) -> None:
    program = product(tail, rows, sum_tail, steps)
    verify(program, open_sizes=True)
    assert program.sizes == {"n": (LOW, HIGH), "k": (LOW, HIGH)}
    rng = np.random.default_rng(n * HIGH + k)
    a, b = rng.standard_normal((n, k), np.float32), rng.standard_normal((k, 5), np.float32)
    at = substitute_program(program, {"n": n, "k": k})
    assert not at.sizes
    np.testing.assert_allclose(interpret(at, {"A": a, "B": b})["C"], a @ b, rtol=1e-4, atol=1e-5)


def make_doubling() -> tuple[te.Tensor, te.Tensor]:
    a = te.placeholder((te.var("n", LOW, HIGH), 8), name="A")
    return a, te.compute(a.shape, lambda i, j: a[i, j] * 2.0, name="B")


def test_the_text_of_a_program_names_its_sizes() -> None:
    a, b = make_doubling()
    s = te.create_schedule(b.op)
    s[b].split(b.op.axis[0], 4, tail="clamp")
    assert str(lower(s, [a, b])) == GOLDEN


@pytest.mark.parametrize(
    ("tail", "factor", "message"),
    [
        ("clamp", 5, "`factor` must be at most extent for all sizes where tail=clamp, but got factor=5, extent=n"),
        ("exact", 2, "`factor` must divide extent, but got factor=2, extent=n"),
    ],
)
def test_a_tail_that_some_size_breaks_is_refused(tail: str, factor: int, message: str) -> None:
    a, b = make_doubling()
    s = te.create_schedule(b.op)
    s[b].split(b.op.axis[0], factor, tail=tail)
    with pytest.raises(ScheduleError, match=message):
        lower(s, [a, b])


def test_a_factor_of_what_is_reduced_apart_must_divide_every_size() -> None:
    n = te.var("n", LOW, HIGH)
    a, r = te.placeholder((n,), name="A"), te.reduce_axis((0, n), "r")
    c = te.compute((1,), lambda _: te.sum(a[r], axis=r), name="C")
    s = te.create_schedule(c.op)
    outer, _ = s[c].split(r, 2, tail="exact")
    with pytest.raises(ScheduleError, match="`factor` must divide extent, but got factor=2, extent=n"):
        s.rfactor(c, outer)


@pytest.mark.parametrize("rows", [20, te.var("n", 16, 40)], ids=str)
def test_an_instruction_does_not_run_over_the_rest_of_a_peeled_loop(rows: Any) -> None:
    a, b, r = te.placeholder((rows, 12), name="A"), te.placeholder((12, 16), name="B"), te.reduce_axis((0, 12), "r")
    c = te.compute((rows, 16), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    s = te.create_schedule(c.op)
    _, inner = s[c].split(c.op.axis[0], 8, tail="peel")
    s[c].tensorize(inner, get_intrinsic("sgemm:8x16x12"))
    with pytest.raises(ScheduleError, match=r"must run over extents \(8, 16, 12\), but got i.1="):
        lower(s, [a, b, c])


def test_what_divides_whatever_the_size_is_exact() -> None:
    n = te.var("n", 1, 9)
    a, lead = te.placeholder((n * 4,), name="A"), te.placeholder((n,), name="lead")
    b = te.compute((n * 4,), lambda i: a[i] + lead[i // 4], name="B")
    s = te.create_schedule(b.op)
    s[b].split(b.op.axis[0], 4)
    assert "if" not in str(lower(s, [a, lead, b]))


def test_written_out_loops_need_numbers() -> None:
    a, b = make_doubling()
    s = te.create_schedule(b.op)
    s[b].unroll(b.op.axis[0])
    with pytest.raises(ScheduleError, match=r"a loop to unroll must run a number of times .*, but B.i runs n"):
        lower(s, [a, b])


def test_definitions_are_held_against_all_sizes() -> None:
    n, m = te.var("n", 1, 1 << 20), te.var("m", 1, 1 << 20)
    a = te.placeholder((n, m), name="A")
    te.compute((n + 2, m), lambda i, j: te.if_then_else(te.all(i >= 1, i < n + 1), a[i - 1, j], 0.0), name="padded")
    te.compute((n, m), lambda n, j: a[n, j] / m.astype("float32"), name="of_its_name")
    with pytest.raises(ValueError, match=r"`A` must be read within its shape \(n, m\) for all sizes, but C reads its"):
        te.compute((m, n), lambda i, j: a[i, j], name="C")
    with pytest.raises(ValueError, match="sizes of one name must have one range"):
        te.compute((te.var("n", 1, 5),), lambda i: a[i, 0], name="D")


def test_sizes_are_found_in_inputs_and_stay_out_of_constants() -> None:
    n = te.var("n", 1, 8)
    with pytest.raises(ValueError, match="`shape` of the constant W must be numbers, but got the size n"):
        te.placeholder((n,), name="W", constant=True)
    with pytest.raises(ValueError, match="must be 1 <= low <= high"):
        te.var("n", 0, 8)
    a = te.placeholder((8,), name="A")
    c = te.compute((n,), lambda i: a[i], name="C")
    with pytest.raises(ScheduleError, match="a size must be the extent of an axis of an input, but n is of none"):
        te.create_schedule(c.op)


def test_other_targets_are_not_given_open_sizes() -> None:
    a, b = make_doubling()
    with pytest.raises(VerifyError, match="shapes of kernel must be numbers here, but got the size n"):
        verify(lower(te.create_schedule(b.op), [a, b]))
