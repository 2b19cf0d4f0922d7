"""Schedule steps: what each refuses, the facade, and traces that replay from JSON."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from search_space import te
from search_space.ir.expr import walk
from search_space.lower import cleanup, lower
from search_space.schedule.errors import ScheduleError
from search_space.schedule.state import State, initial_state
from search_space.schedule.steps import (
    Annotate,
    CacheRead,
    CacheWrite,
    ComputeAt,
    ComputeInline,
    Fuse,
    Interleave,
    Pack,
    Relayout,
    Reorder,
    Rfactor,
    SetScope,
    Split,
    Step,
    Tensorize,
    Widen,
    step_from_json,
)
from search_space.schedule.trace import Trace
from tests.interpreter import interpret


@pytest.fixture
def state() -> State:
    a = te.placeholder((8, 6), name="A")
    b = te.placeholder((6, 12), name="B", constant=True)
    k = te.reduce_axis((0, 6), "k")
    c = te.compute((8, 12), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((8, 12), lambda i, j: te.maximum(c[i, j], 0.0), name="D")
    return initial_state([d])


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (Split("X", "i", (2,)), "`stage` must be one of C, D, but got stage='X'"),
        (Split("C", "x", (2,)), "`axis` must be a loop of C"),
        (Split("C", "i", (3,)), "`factor` must divide extent, but got factor=3, extent=8"),
        (Split("C", "i", (0,)), "`factor` must be at least 1, but got factor=0"),
        (Split("C", "i", ()), "`factors` must not be empty"),
        (Split("C", "i", (2,), "round"), "`tail` must be one of"),
        (Split("C", "k", (4,), "clamp"), "`tail` must not be clamp on a reduce axis"),
        (Split("C", "k", (2, 2), "peel"), "`factors` must be one number"),
        (Fuse("C", ("i",)), "`axes` must name at least two loops"),
        (Fuse("C", ("i", "k")), "`axes` must be adjacent loops"),
        (Fuse("C", ("j", "k")), "`axes` must be all spatial or all reduced"),
        (Reorder("C", ("i", "i")), "`axes` must not repeat"),
        (Annotate("C", "i", "fast"), "`kind` must be one of"),
        (Annotate("C", "k", "parallel"), "a reduce loop must not be parallel"),
        (ComputeAt("D", "C", "i"), "`stage` must not be an output"),
        (ComputeInline("C"), "a reduction must not be inlined"),
        (ComputeInline("D"), "an output must not be inlined"),
        (Relayout("C", (0, 0)), "`order` must name each of 2 dimensions once, but got order=\\(0, 0\\)"),
        (Relayout("C", (1, 0), -1), "`pad` must not be negative, but got pad=-1"),
        (Relayout("D", (1, 0)), "`stage` must not be an output"),
        (Interleave("C", "i", 2), "`stage` must be a copy whose loops are untouched"),
        (Interleave("D", "i", 2), "`stage` must be a copy whose loops are untouched"),
        (Widen("C"), "`stage` must be of float16 or bfloat16, but got float32 for 'C'"),
        (SetScope("C", "cloud"), "`scope` must be one of"),
        (SetScope("D", "local"), "an output must be global"),
        (CacheWrite("C", "cloud"), "`scope` must be one of"),
        (CacheRead("A", "shared", ("D",)), "`readers` must read A"),
        (Rfactor("C", "i"), "`axis` must be a reduce loop"),
        (Pack("A", ((), ()), ((0, 0), (1, 0))), "`tensor` must be a constant input"),
        (Pack("B", ((),), ((0, 0),)), "`factors` must have one entry a dimension"),
        (Pack("B", ((), (4,)), ((0, 0), (1, 0))), "`order` must name each of"),
    ],
    ids=str,
)
def test_illegal_steps_say_why(state: State, step: Step, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        step.apply(state)


@pytest.mark.parametrize(
    ("axis", "factor", "message"),
    [("k", 2, "`axis` must be a dimension of A.global"), ("d0", 0, "`factor` must be at least 1, but got factor=0")],
)
def test_what_cannot_be_interleaved(state: State, axis: str, factor: int, message: str) -> None:
    copied = CacheRead("A", "global", ("C",)).apply(state)
    with pytest.raises(ScheduleError, match=message):
        Interleave("A.global", axis, factor).apply(copied)


def test_a_widened_stage_is_a_copy_whose_readers_get_the_same_values() -> None:
    a = te.placeholder((3, 5), "float16", name="A")
    half = te.compute((3, 5), lambda i, j: a[i, j] + a[i, j], name="H")
    wide = te.compute((3, 5), lambda i, j: half[i, j].astype("float32") * 3.0, name="C")
    state = initial_state([te.compute((3, 5), lambda i, j: wide[i, j].astype("float16") * half[i, j], name="D")])
    done = Widen("H").apply(state)
    assert done.stage("H").dtype == "float32"
    assert not any(node.op == "cast" for node in walk(done.stage("C").body))
    array = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float16)
    expected, found = (interpret(cleanup(lower(of)), {"A": array})["D"] for of in (state, done))
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(ScheduleError, match="`stage` must be neither a reduction nor an output, but got stage='D'"):
        Widen("D").apply(state)


def test_partial_results_are_of_reduce_loops_that_may_be_fused_but_not_of_split_spatial_ones(state: State) -> None:
    with pytest.raises(ScheduleError, match="`rfactor` must come before spatial axes are split or fused, in C"):
        Rfactor("C", "k").apply(Split("C", "i", (2,)).apply(state))
    a, r, q = te.placeholder((3, 5, 7), name="A"), te.reduce_axis((0, 5), "r"), te.reduce_axis((0, 7), "q")
    summed = initial_state([te.compute((3,), lambda i: te.sum(a[i, r, q], axis=[r, q]), name="S")])
    for step in (Fuse("S", ("r", "q")), Split("S", "r_q", (4,), "guard"), Rfactor("S", "r_q.1")):
        summed = step.apply(summed)
    data = np.arange(105, dtype=np.float32).reshape(3, 5, 7)
    assert np.array_equal(interpret(cleanup(lower(summed)), {"A": data})["S"], data.sum((1, 2)))


@pytest.mark.parametrize("factors", [(2, 1), (2, 2), (1, 2)])
def test_what_a_clamped_block_of_tiles_reads_stays_inside_where_threads_run(factors: tuple[int, ...]) -> None:
    """The last block has fewer tiles than the others, and a region attached to the blocks is as wide for it."""
    a = te.placeholder((5, 4), name="A")
    total = te.compute((5, 4), lambda i, j: a[i, j] + 1.0, name="C")
    start = initial_state([total])
    block = CacheWrite("C", "local").apply(start)
    block = Split("C", "i", factors, "clamp").apply(block)
    block = ComputeAt("C.local", "C", "i.0").apply(block)
    block = Annotate("C.local", "j", "threadIdx.x").apply(block)
    array = np.arange(20, dtype=np.float32).reshape(5, 4)
    found = interpret(lower(block), {"A": array})
    np.testing.assert_array_equal(found["C"], array + 1)


def test_an_unknown_instruction_is_named_in_lowering(state: State) -> None:
    with pytest.raises(ScheduleError, match="`intrinsic` must be one of"):
        lower(Tensorize("C", "j", "no_such_dot").apply(state))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"step": "twist"}, "`step` must be one of"),
        ({"step": ["split"]}, "`step` must be one of"),
        ({"step": "split", "stage": "C"}, "a split step must have"),
        ({"step": "fuse", "stage": 3, "axes": ["i"]}, "`stage` of a fuse step must be a name, but got stage=3"),
        ({"step": "fuse", "stage": "C", "axes": "ij"}, "`axes` of a fuse step must be a list of names"),
        (
            {"step": "split", "stage": "C", "axis": "i", "factors": [2.5], "tail": "exact"},
            "`factors` of a split step must be a list of integers",
        ),
        (
            {"step": "pragma", "stage": "C", "axis": "i", "key": "unroll", "value": True},
            "`value` of a pragma step must be an integer, but got value=True",
        ),
    ],
)
def test_broken_trace_entries_are_refused(data: dict[str, object], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        step_from_json(data)


def test_the_facade_reads_as_the_field_writes_it() -> None:
    m, n, depth = 16, 16, 8
    a, b = te.placeholder((m, depth), name="A"), te.placeholder((n, depth), name="B")
    k = te.reduce_axis((0, depth), "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, k] * b[j, k], axis=k), name="C")
    s = te.create_schedule(c.op)
    local = s.cache_write(c, "local")
    xo, xi = s[c].split(s[c].op.axis[0], factor=4)
    yo, yi = s[c].split(s[c].op.axis[1], factor=8)
    s[c].reorder(xo, yo, xi, yi)
    s[c].bind(xo, te.thread_axis("blockIdx.x"))
    s[local].compute_at(s[c], yo)
    ko, ki = s[local].split(local.op.reduce_axis[0], factor=4)
    s[local].reorder(ko, ki, *local.op.axis)
    text = str(lower(s.state))
    assert "blockIdx.x for C.i.0 in 4" in text and "alloc C.local: float32[4, 8] in local" in text
    again = Trace.from_json(s.trace.to_json())
    assert again == s.trace and str(lower(again.apply(s.initial))) == text


def test_an_illegal_call_leaves_the_schedule_unchanged() -> None:
    x = te.placeholder((8,), name="x")
    y = te.compute((8,), lambda i: x[i] + 1.0, name="y")
    s = te.create_schedule(y.op)
    before = s.trace
    with pytest.raises(ScheduleError):
        s[y].split("i", factor=3, tail="exact")
    assert s.trace is before


@pytest.mark.parametrize("name", ["gemm_tile:1x16x16", "sgemm:4x4x4", "vnni_dot_16x4", "mma_m16n8k16_float16_float16"])
def test_an_instruction_is_known_where_no_rule_has_been_imported(name: str) -> None:
    code = f"from search_space.schedule.intrinsics import get_intrinsic; print(get_intrinsic({name!r}).name)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == f"{name}\n", done.stderr
