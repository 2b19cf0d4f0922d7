"""interpreter(unscheduled) == interpreter(scheduled) == kernel at sizes that were open when it was built."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st

from search_space.ir.stmt import substitute_program
from search_space.ir.verify import verify
from search_space.lower import cleanup, lower
from search_space.schedule.errors import ScheduleError
from targets.base import BuildError
from targets.registry import get
from tests.native import run_module
from tests.properties.open_programs import OPEN, draw_sizes, initial, inputs
from tests.properties.running import MOST_STORES, examples, no_code, run_interpreter, same, stores
from tests.properties.test_random_traces import HypothesisDraw
from tests.properties.traces import random_trace

CASES = [(name, dtype) for name, (_, dtypes) in OPEN.items() for dtype in dtypes]


@pytest.mark.parametrize(("name", "dtype"), CASES)
@settings(deadline=None, print_blob=True, max_examples=examples(6), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_one_kernel_is_right_at_every_size(name: str, dtype: str, data: st.DataObject) -> None:
    state, choose = initial(name, dtype), HypothesisDraw(data)
    trace, scheduled = random_trace(choose, state)
    note(str(trace))
    try:
        program = cleanup(lower(scheduled))
    except ScheduleError:
        assume(False)
    note(str(program))
    verify(program, open_sizes=True)
    try:
        module = get("cpu").build(program)
    except BuildError as error:
        if not no_code(error):
            raise
        assume(False)
    for _ in range(2):
        sizes = draw_sizes(choose)
        note(str(sizes))
        arrays = inputs(state, sizes, 0)
        wanted = run_interpreter(substitute_program(lower(state), sizes), arrays)
        given = [arrays[source.name] for source in module.sources]
        outputs = dict(zip(module.outputs, run_module(get("cpu"), module, given, text=str(program)), strict=True))
        for output, found in outputs.items():
            same(found, wanted[output], program.buffers[output].dtype, "kernel")
        known = substitute_program(program, sizes)
        if stores(cleanup(known).body) <= MOST_STORES:
            for output, found in run_interpreter(known, arrays).items():
                same(found, wanted[output], program.buffers[output].dtype, "interpreter, scheduled")
