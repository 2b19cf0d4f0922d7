"""The builder under the facade and the sketch rules: each primitive gives the next schedule and what it made."""

from __future__ import annotations

import numpy as np
import pytest

import autotune
from search_space import te
from search_space.schedule.builder import ScheduleBuilder
from search_space.schedule.errors import ScheduleError
from search_space.schedule.state import State, initial_state
from search_space.schedule.trace import Trace
from tests.properties.running import run_interpreter


@pytest.fixture
def start() -> ScheduleBuilder:
    a, b = te.placeholder((12, 8), name="a"), te.placeholder((8, 20), name="b", constant=True)
    r = te.reduce_axis((0, 8), "r")
    c = te.compute((12, 20), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")
    return ScheduleBuilder(initial_state([c]))


def replay(end: ScheduleBuilder, start: ScheduleBuilder) -> State:
    return Trace.from_json(end.trace.to_json()).apply(start.state)


def test_loops_are_those_that_the_steps_made(start: ScheduleBuilder) -> None:
    (i, j), (r,) = start.stage("c").spatial, start.stage("c").reduction
    done, (i0, i1) = start.split("c", i, (4,))
    done, (j0, j1, lanes) = done.split("c", j, (2, 4), "guard")
    assert done.stage("c").leaves == (i0, i1, j0, j1, lanes, r)
    done = done.reorder("c", i0, j0, i1, j1, lanes)
    done, block = done.fuse("c", (i0, j0))
    done = done.parallel("c", block).in_registers("c", (i1, j1, lanes)).pragma("c", r, "prefetch_bytes", 64)
    assert done.stage("c").leaves == (block, i1, j1, lanes, r)
    assert dict(done.stage("c").kinds) == {block: "parallel", i1: "unroll", j1: "unroll", lanes: "vectorize"}
    assert replay(done, start) == done.state and start.trace == Trace()


def test_loops_and_factors_are_given_one_by_one_or_in_a_list(start: ScheduleBuilder) -> None:
    one, _ = start.split("c", "i", 4)
    several, _ = start.split("c", "i", [4])
    assert one.state == several.state
    i0, i1, j, r = one.stage("c").leaves
    assert one.reorder("c", j, i0, i1, r).state == one.reorder("c", [j, i0, i1, r]).state
    assert one.fuse("c", i0, i1)[0].state == one.fuse("c", (i0, i1))[0].state
    a, b = te.placeholder((12, 8), name="a"), te.placeholder((12, 8), name="b")
    sums = te.compute((12, 8), lambda y, x: a[y, x] + b[y, x], name="sums")
    views = [te.create_schedule(sums.op) for _ in range(2)]
    y, x = sums.op.axis
    views[0][sums].reorder(x, y)
    views[1][sums].reorder([x, y])
    views[0][sums].fuse(x, y)
    views[1][sums].fuse((x, y))
    assert views[0].state == views[1].state


def test_one_loop_alone_is_fused_by_no_step(start: ScheduleBuilder) -> None:
    done, loop = start.fuse("c", ("i",))
    assert loop == "i" and done is start
    assert start.compute_inline() == start


def test_stages_are_those_that_the_steps_made(start: ScheduleBuilder) -> None:
    done, sums = start.cache_write("c", "local")
    done, copy = done.cache_read("a", "shared", sums)
    assert {s.name for s in done.state.stages} == {"c", sums, copy}
    assert done.stage("c").reads() == (sums,) and copy in done.stage(sums).reads()
    done, (_, part) = done.split(sums, done.stage(sums).reduction[0], (4,))
    done, partial = done.rfactor(sums, part)
    assert done.stage(partial).spatial[-1] == part and done.stage(sums).reduction == (part,)
    done = done.compute_at(copy, partial, done.stage(partial).leaves[0]).set_scope(partial, "local")
    done = done.relayout(partial, (2, 0, 1), 1).pack("b", ((), (4,)), ((1, 0), (0, 0), (1, 1)))
    assert replay(done, start) == done.state


def test_a_subclass_keeps_what_it_adds(start: ScheduleBuilder) -> None:
    class NamedBuilder(ScheduleBuilder):
        pass

    done, _ = NamedBuilder(start.state).split("c", "i", (3,))
    assert isinstance(done, NamedBuilder)


def test_what_is_illegal_changes_nothing(start: ScheduleBuilder) -> None:
    with pytest.raises(ScheduleError, match="`factor` must divide extent, but got factor=5, extent=12"):
        start.split("c", "i", (5,))
    with pytest.raises(ScheduleError, match="`axes` must be adjacent"):
        start.fuse("c", ("i", "r"))
    assert start.trace == Trace()


@pytest.mark.parametrize("factor", [1, 5, 7])
def test_a_stage_inside_of_a_fused_loop_reads_no_row_past_the_last_one(factor: int) -> None:
    a, b = te.placeholder((5, 9), "int64", "a"), te.placeholder((9, 7), "int64", "b")
    k = te.reduce_axis((0, 9), "k")
    c = te.compute((5, 7), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    schedule = te.create_schedule(c.op)
    sums = schedule.cache_write(c, "local")
    fused = schedule[c].fuse(*c.op.axis)
    outer, _ = schedule[c].split(fused, factor=factor)
    schedule[sums].compute_at(schedule[c], outer)
    schedule[sums].bind(sums.op.axis[0], te.thread_axis("blockIdx.x"))
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-9, 9, shape) for shape in ((5, 9), (9, 7))]
    (result,) = run_interpreter(autotune.lower(schedule, [a, b, c]), dict(zip("ab", arrays, strict=True))).values()
    np.testing.assert_array_equal(result, arrays[0] @ arrays[1])
