"""The tape and its machine: what runs in native code is bit for bit what NumPy gives."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.columns import ColumnProgram
from search_space.ir.columns import straight_line
from search_space.ir.tape import Tape, Value

BINARY = ("add", "sub", "mul", "div", "floordiv", "least", "most", "lt", "le", "equals", "select")
VARIABLES = 3


def grow(tape: Tape, steps: list[tuple[str, int, int, int]]) -> list[Value]:
    """Values made by steps (operation, operands by position among the values so far)."""
    values = [tape.variable(i) for i in range(VARIABLES)] + [tape.const(c) for c in (0, 1, 2.5, -3)]
    for name, *places in steps:
        a, b, c = (values[p % len(values)] for p in places)
        positive = b.least(1e6).most(1)
        values.append(
            {
                "add": lambda a=a, b=b: a + b,
                "sub": lambda a=a, b=b: a - b,
                "mul": lambda a=a, b=b: a.least(1e6) * b.least(1e6),
                "div": lambda a=a, b=positive: a / b,
                "floordiv": lambda a=a, b=positive: a // b,
                "least": lambda a=a, b=b: a.least(b),
                "most": lambda a=a, b=b: a.most(b),
                "lt": lambda a=a, b=b: a < b,
                "le": lambda a=a, b=b: a <= b,
                "equals": lambda a=a, b=b: a.equals(b),
                "select": lambda a=a, b=b, c=c: a.otherwise(b, c),
            }[name]()
        )
    return values


STEPS = st.lists(st.tuples(st.sampled_from(BINARY), *[st.integers(0, 60)] * 3), max_size=60)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.integers(1, 150), st.integers(0, 2**32 - 1))
def test_native_is_numpy_bit_for_bit(steps: list[tuple[str, int, int, int]], count: int, seed: int) -> None:
    tape = Tape()
    values = grow(tape, steps)
    program = ColumnProgram(tape, values, VARIABLES)
    columns = np.random.default_rng(seed).integers(0, 40, (VARIABLES, count)).astype(float)
    found = program(columns)
    assert found.shape == (len(steps) + VARIABLES + 4, count)
    np.testing.assert_array_equal(found, straight_line(tape, values)(columns).astype(np.float32))


@settings(max_examples=60, deadline=None)
@given(STEPS, st.lists(st.integers(0, 40), min_size=VARIABLES, max_size=VARIABLES))
def test_numbers_fold_to_what_columns_give(steps: list[tuple[str, int, int, int]], row: list[int]) -> None:
    tape, folded = Tape(), Tape()
    values = grow(tape, steps)
    folded.variable = folded.const  # type: ignore[method-assign,assignment]
    numbers = {0: row[0], 1: row[1], 2: row[2]}
    folded.variable = lambda position: folded.const(numbers[position])  # type: ignore[method-assign]
    expected = [v.number for v in grow(folded, steps)]
    assert all(isinstance(v, float) and math.isfinite(v) for v in expected)
    found = ColumnProgram(tape, values, VARIABLES)(np.array(row, float)[:, None])[:, 0]
    np.testing.assert_array_equal(found, np.array(expected, np.float32))


def test_equal_operations_are_one_node() -> None:
    tape = Tape()
    x, y = tape.variable(0), tape.variable(1)
    assert (x + y) is (y + x) and (x + 0) is x and (x * 1) is x and x.least(x) is x
    assert (x * 0).number == 0.0 and (tape.const(7) // 2).number == 3.0
    assert (x - y) is not (y - x)


def test_columns_of_any_layout_and_no_columns() -> None:
    tape = Tape()
    program = ColumnProgram(tape, [tape.variable(0) + tape.variable(1)], 2)
    wide = np.arange(400.0).reshape(2, 200)
    np.testing.assert_array_equal(program(wide[:, 1::2])[0], wide[0, 1::2] + wide[1, 1::2])
    constant = ColumnProgram(tape, [tape.const(5)], 0)
    np.testing.assert_array_equal(constant(np.empty((0, 3))), [[5.0, 5.0, 5.0]])


def test_a_variable_that_is_an_output_twice() -> None:
    tape = Tape()
    x = tape.variable(0)
    program = ColumnProgram(tape, [x, x + 1, x], 1)
    np.testing.assert_array_equal(program(np.array([[4.0]]))[:, 0], [4.0, 5.0, 4.0])


def test_slots_are_used_again() -> None:
    tape = Tape()
    value = tape.variable(0)
    for i in range(200):
        value = value * 3 + i
    value = value.least(1e30)
    program = ColumnProgram(tape, [value], 1)
    assert program._slots < 260  # its constants, and a few
    column = np.array([[2.0]])
    assert program(column)[0, 0] == pytest.approx(straight_line(tape, [value])(column)[0, 0])
