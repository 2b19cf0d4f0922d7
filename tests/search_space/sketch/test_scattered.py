"""Sums of rows that indices select take time for each index, not for each pair of an index and a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import autotune
from search_space import te
from search_space.ir.expr import Expr
from search_space.ir.stmt import For, LoopProgram, Stmt, Store, children
from search_space.lower.selected import assume_iterations, select_iterations
from search_space.machines.cpu.scattered import BLOCKS, FEWEST_SUMS
from search_space.sketch.generate import derive
from search_space.space import generate, make_program, unscheduled_state
from search_space.workloads import Workload, matmul
from targets import registry
from tests.gpu import candidates
from tests.interpreter import interpret
from tests.native import run_program

OPTIONS: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck), "max_examples": 25}


def scatter(shape: tuple[int, ...], rows: int, row: tuple[int, ...], dtype: str = "int64") -> Workload:
    """Sums slopes (shape..., row...) with the same index into a table (rows, row...); negative ones from the end."""
    slopes, indices = te.placeholder((*shape, *row), name="slopes"), te.placeholder(shape, dtype, "indices")
    axes = [te.reduce_axis((0, extent), f"n{dim}") for dim, extent in enumerate(shape)]

    def element(at: Expr, *inner: Expr) -> Expr:
        index = indices[tuple(axes)].astype("int64")
        index = te.minimum(te.maximum(te.if_then_else(index < 0, index + rows, index), 0), rows - 1)
        return te.sum(te.if_then_else(te.eq(index, at.expr), slopes[(*axes, *inner)], 0.0), axis=axes)

    return Workload.of([slopes, indices, te.compute((rows, *row), element, name="table")])


def make_first_program(workload: Workload, target: str = "cpu") -> LoopProgram:
    """Makes a program of the first sketch: the only one of a scatter."""
    sketch, *_ = generate(workload, registry.get(target).hardware).sketches
    return make_program(workload, sketch.algorithm, sketch.trace(candidates.legal(sketch, 1, 0)[0]))


def add_rows(slopes: NDArray[np.float32], indices: NDArray[np.int64], rows: int) -> NDArray[np.float32]:
    """Adds rows one after another in float32, as NumPy does."""
    table = np.zeros((rows, *slopes.shape[indices.ndim :]), np.float32)
    limited = np.clip(np.where(indices < 0, indices + rows, indices), 0, rows - 1)
    np.add.at(table, limited.reshape(-1), slopes.reshape(-1, *table.shape[1:]))
    return table


SHAPES = st.sampled_from([(1,), (7,), (30,), (4, 5)])
ROWS = st.sampled_from([(), (3,), (16,), (37,), (2, 20), (64,)])


@given(SHAPES, st.integers(1, 130), ROWS, st.sampled_from(["int32", "int64"]), st.integers(0, 99))
@settings(**OPTIONS)
def test_rows_are_added_in_the_order_of_their_indices(
    shape: tuple[int, ...], rows: int, row: tuple[int, ...], dtype: str, seed: int
) -> None:
    assume(row or rows >= FEWEST_SUMS)
    rng, workload = np.random.default_rng(seed), scatter(shape, rows, row, dtype)
    slopes = rng.standard_normal((*shape, *row), np.float32)
    indices = rng.integers(-rows - 2, rows + 2, shape).astype(dtype)
    program, expected = make_first_program(workload), add_rows(slopes, indices, rows)
    np.testing.assert_array_equal(run_program(registry.get("cpu"), program, [slopes, indices])[0], expected)
    selected = interpret(select_iterations(program), {"slopes": slopes, "indices": indices})["table"]
    np.testing.assert_array_equal(selected, expected)


def test_code_in_c_adds_the_same_rows() -> None:
    target = registry.get("c")
    if target.unavailable():
        pytest.skip(target.unavailable())
    rng, workload = np.random.default_rng(0), scatter((9,), 21, (20,))
    slopes, indices = rng.standard_normal((9, 20), np.float32), rng.integers(-21, 21, 9)
    program = make_first_program(workload, "c")
    np.testing.assert_array_equal(run_program(target, program, [slopes, indices])[0], add_rows(slopes, indices, 21))


def test_a_special_value_reaches_its_row_alone() -> None:
    slopes, indices = np.ones((3, 20), np.float32), np.array([4, 2, 4])
    slopes[1] = np.nan
    table = run_program(registry.get("cpu"), make_first_program(scatter((3,), 40, (20,))), [slopes, indices])[0]
    assert np.isnan(table[2]).all()
    assert table[4].tolist() == [2.0] * 20
    assert np.isfinite(np.delete(table, 2, 0)).all()


def count_terms(stmt: Stmt, around: int = 1) -> int:
    """Counts the terms that the sums of a program look at: the iterations of the loops around them."""
    if isinstance(stmt, For):
        return count_terms(stmt.body, around * int(stmt.extent.value))
    if isinstance(stmt, Store):
        return around if stmt.reducer else 0
    return sum(count_terms(child, around) for child in children(stmt))


@pytest.mark.parametrize("rewrite", [select_iterations, assume_iterations])
def test_no_index_is_compared_with_each_row(rewrite: Callable[[LoopProgram], LoopProgram]) -> None:
    program = make_first_program(scatter((50,), 1000, (32,)))
    blocks = BLOCKS * registry.get("cpu").hardware.cores
    assert count_terms(program.body) == 50 * 1000 * 32
    assert count_terms(rewrite(program).body) == 50 * blocks * 32


def test_a_few_sums_have_other_rules() -> None:
    hardware = registry.get("cpu").hardware
    applied = [
        derive(unscheduled_state(scatter((1 << 16,), rows, ()), "direct"), hardware).applied_rules
        for rows in (FEWEST_SUMS - 1, FEWEST_SUMS)
    ]
    assert ["scattered_sums" in rules for rules in applied] == [False, True]


def test_lanes_never_add_to_one_element_at_once() -> None:
    """A vector over the terms has several that select the same element: their sum is the horizontal one."""
    indices, x = te.placeholder((8,), "int64", "indices"), te.placeholder((8,), name="x")
    n = te.reduce_axis((0, 8), "n")
    table = te.compute((4,), lambda i: te.sum(te.if_then_else(te.eq(indices[n], i.expr), x[n], 0.0), axis=n), name="t")
    schedule = te.create_schedule(table.op)
    schedule[table].reorder(n, table.op.axis[0])
    schedule[table].vectorize(n)
    kernel, out = autotune.build(schedule, [indices, x, table], target="cpu"), np.zeros(4, np.float32)
    kernel(np.array([0, 0, 0, 1, 1, 2, 2, 2]), np.ones(8, np.float32), out)
    assert out.tolist() == [3, 2, 3, 0]


def test_no_index_is_read_that_a_condition_guards() -> None:
    """The last block has rows past the end, whose index does not exist."""
    indices, x = te.placeholder((24,), "int64", "indices"), te.placeholder((7, 24), name="x")
    n = te.reduce_axis((0, 7), "n")

    def element(row: te.IterVar, at: te.IterVar) -> Expr:
        return te.sum(te.if_then_else(te.eq(indices[row], at.expr), x[n, row], 0.0), axis=n)

    table = te.compute((24, 10), element, name="t")
    schedule = te.create_schedule(table.op)
    row, at = schedule[table].op.axis
    outer, inner = schedule[table].split(row, factor=16, tail="guard")
    schedule[table].reorder(outer, n, inner, at)
    program = autotune.lower(schedule, [indices, x, table])
    inputs = {"indices": np.zeros(24, np.int64), "x": np.ones((7, 24), np.float32)}
    expected = np.zeros((24, 10), np.float32)
    expected[:, 0] = 7
    np.testing.assert_array_equal(interpret(select_iterations(program), inputs)["t"], expected)


def test_other_programs_stay_as_they_are() -> None:
    workload = matmul(8, 8, 8)
    sketch = generate(workload, registry.get("cpu").hardware).sketches[0]
    program = make_program(workload, sketch.algorithm, sketch.trace(candidates.legal(sketch, 1, 0)[0]))
    assert select_iterations(program) is program
    assert assume_iterations(program) is program
