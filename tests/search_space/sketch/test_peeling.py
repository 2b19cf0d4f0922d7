"""The last iteration of loops of vectors apart: the same results, and masks there alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search_space import te
from search_space.ir.expr import Expr
from search_space.ir.stmt import For, LoopProgram, Store, walk_stmt
from search_space.lower import cleanup, lower
from search_space.lower.peeling import MOST_WRITTEN, peel_last_iterations
from search_space.schedule.steps import Annotate, Split
from targets import registry
from tests.interpreter import interpret
from tests.native import run_program


def make_doubling(count: int, unroll: int, lanes: int = 4) -> LoopProgram:
    """y = 2 x of so many elements, some vectors in each iteration."""
    x = te.placeholder((count,), name="x")
    s = te.create_schedule(te.compute((count,), lambda i: 2 * x[i], name="y").op)
    s.apply(Split("y", "i", (unroll, lanes), "guard"))
    s.apply(Annotate("y", "i.1", "unroll"))
    s.apply(Annotate("y", "i.2", "vectorize"))
    return cleanup(lower(s.state))


def checks(program: LoopProgram) -> int:
    return sum(isinstance(s, Store) and s.predicate is not None for s in walk_stmt(program.body))


def serial(program: LoopProgram) -> list[int]:
    return [int(s.extent.value) for s in walk_stmt(program.body) if isinstance(s, For) and s.kind == "serial"]


@given(st.integers(1, 90), st.integers(1, 5))
@settings(deadline=None)
def test_the_same_is_computed(count: int, unroll: int) -> None:
    program, x = make_doubling(count, unroll), np.arange(count, dtype=np.float32)
    made = peel_last_iterations(program)
    np.testing.assert_array_equal(interpret(made, {"x": x})["y"], 2 * x)
    target = registry.get("cpu")
    np.testing.assert_array_equal(run_program(target, program, [x], 1)[0], 2 * x)


def test_only_the_last_iteration_is_checked() -> None:
    program = make_doubling(69, 2)
    assert serial(program) == [9] and checks(program) == 1
    made = peel_last_iterations(program)
    assert serial(made) == [8] and checks(made) == 1
    (loop,) = (s for s in walk_stmt(made.body) if isinstance(s, For) and s.kind == "serial")
    assert all(s.predicate is None for s in walk_stmt(loop) if isinstance(s, Store))


def test_what_has_nothing_to_check_stays() -> None:
    program = make_doubling(64, 2)
    assert str(peel_last_iterations(program)) == str(program)


def test_a_loop_whose_copy_would_be_long_stays() -> None:
    program = make_doubling(4 * (MOST_WRITTEN + 1) * 3 - 1, MOST_WRITTEN + 1)
    assert serial(peel_last_iterations(program)) == serial(program) == [3]


@pytest.mark.parametrize("axis", [0, 1])
def test_checks_of_several_loops(axis: int) -> None:
    """Checks of more iterations than the last, and checks that depend on another loop as well, stay as they are."""
    x = te.placeholder((10, 10), name="x")

    def body(i: Expr, j: Expr) -> Expr:
        return te.if_then_else(i + j < 10, x[i, j], 0.0) if axis else te.if_then_else(j < 7, x[i, j], 0.0)

    s = te.create_schedule(te.compute((10, 10), body, name="y").op)
    s.apply(Split("y", "j", (4,), "guard"))
    s.apply(Annotate("y", "j.1", "vectorize"))
    program, data = cleanup(lower(s.state)), np.arange(100, dtype=np.float32).reshape(10, 10)
    made = peel_last_iterations(program)
    assert serial(made) == [10, 3]
    i, j = np.indices((10, 10))
    wanted = np.where(i + j < 10 if axis else j < 7, data, 0)
    np.testing.assert_array_equal(interpret(made, {"x": data})["y"], wanted)
