"""interpreter(unscheduled) == interpreter(scheduled) == kernel, on random traces of every primitive."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from search_space.ir.expr import substitute
from search_space.ir.stmt import Constraint, substitute_program
from search_space.lower import cleanup, lower
from search_space.schedule.errors import ScheduleError
from search_space.schedule.state import State
from search_space.schedule.trace import Trace
from targets.base import BuildError
from targets.registry import get
from tests.properties.programs import PROGRAMS, initial, inputs
from tests.properties.running import MOST_STORES, examples, no_code, run_compiled, run_interpreter, same, stores
from tests.properties.traces import anything, random_trace, symbolic

CASES = [(name, dtype) for name, (_, dtypes) in PROGRAMS.items() for dtype in dtypes]


class HypothesisDraw:
    """Decisions of hypothesis, which shrinks them."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data

    def pick(self, options: Sequence[Any]) -> Any:
        return options[self.data.draw(st.integers(0, len(options) - 1))]


@cache
def start(name: str, dtype: str) -> tuple[State, dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """The unscheduled state, its inputs, and the outputs the interpreter finds."""
    state = initial(name, dtype)
    arrays = inputs(state, 0)
    return state, arrays, run_interpreter(lower(state), arrays)


def holds(constraint: Constraint, numbers: dict[str, int]) -> bool:
    """Tells whether a candidate's numbers keep a legality rule."""
    left, right = (substitute(e, numbers).value for e in (constraint.left, constraint.right))
    return bool(left <= right)


@pytest.mark.parametrize(("name", "dtype"), CASES)
@settings(deadline=None, print_blob=True, max_examples=examples(8), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_schedule_changes_no_result(name: str, dtype: str, data: st.DataObject) -> None:
    state, arrays, wanted = start(name, dtype)
    trace, scheduled = random_trace(HypothesisDraw(data), state)
    note(str(trace))
    try:
        program = lower(scheduled)
    except ScheduleError:
        assume(False)
    note(str(program))
    assume(stores(program.body) <= MOST_STORES)
    assert str(lower(Trace.from_json(trace.to_json()).apply(state))) == str(program)
    tidy = cleanup(program)
    for output, found in run_interpreter(program, arrays).items():
        same(found, wanted[output], program.buffers[output].dtype, "interpreter, scheduled")
    for output, found in run_interpreter(tidy, arrays).items():
        same(found, wanted[output], program.buffers[output].dtype, "interpreter, tidied")
    try:
        outputs = run_compiled(get("cpu"), tidy, arrays)
    except BuildError as error:
        if not no_code(error):
            raise
        assume(False)  # another is drawn
    for output, found in outputs.items():
        same(found, wanted[output], program.buffers[output].dtype, "kernel")


@pytest.mark.parametrize("name", PROGRAMS)
@settings(deadline=None, print_blob=True, max_examples=examples(10), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_symbolic_lowering_is_concrete_lowering(name: str, data: st.DataObject) -> None:
    """Decision variables substituted after lowering: the same outputs, buffer sizes and legality as before it."""
    dtype = PROGRAMS[name][1][0]
    state, arrays, wanted = start(name, dtype)
    trace, scheduled = random_trace(HypothesisDraw(data), state)
    general, numbers = symbolic(trace)
    note(str(trace))
    try:
        concrete = lower(scheduled)
    except ScheduleError:
        concrete = None
    try:
        program = lower(general.apply(state))
    except ScheduleError:
        assert concrete is None, "what is legal with numbers must be legal with decision variables"
        assume(False)
    legal = all(holds(c, numbers) for c in program.constraints)
    assert legal == (concrete is not None), "the constraints must say which candidates are legal"
    if concrete is None:
        return  # the constraints said so, too
    assume(stores(concrete.body) <= MOST_STORES)
    found, expected = cleanup(substitute_program(program, numbers)), cleanup(concrete)
    sizes = [{n: tuple(map(str, b.shape)) for n, b in p.buffers.items()} for p in (found, expected)]
    if name != "flatten":  # a concrete divisor may be proved to divide what a clamped symbol is not known to be
        assert sizes[0] == sizes[1]
    for output, array in run_interpreter(found, arrays).items():
        same(array, wanted[output], expected.buffers[output].dtype, "symbolic")


@settings(deadline=None, print_blob=True, max_examples=examples(200))
@given(st.data())
def test_illegal_steps_raise_schedule_errors_only(data: st.DataObject) -> None:
    """Steps with names and numbers from anywhere: a ScheduleError, a state, or a program, and no other exception."""
    state, _, _ = start(*data.draw(st.sampled_from(CASES)))
    choose = HypothesisDraw(data)
    try:
        for _ in range(choose.pick((1, 2, 3))):
            state = anything(choose, state).apply(state)
        lower(state)
    except ScheduleError as error:
        assert "must" in str(error)
