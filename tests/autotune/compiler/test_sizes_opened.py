"""Traces opened to ranges of a size, and which of many are kept for which sizes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from autotune.tuner.open_traces import open_trace
from autotune.tuner.settings import Settings
from autotune.tuner.sizes.choice import TimedSchedule, choose_schedules, compute_objective, divide_sizes
from autotune.tuner.sizes.opening import Opening, open_program, openings, state_at
from autotune.tuner.task import Task
from autotune.tuner.untimed import select_by_roofline
from costmodel.features.extractor import FeatureExtractor
from search_space import te, workloads
from search_space.ir.expr import lift
from search_space.ir.stmt import substitute_program
from search_space.lower.lowering import rows_apart
from search_space.schedule.errors import ScheduleError
from search_space.schedule.opened import exchange_axes
from search_space.schedule.steps import Annotate, Fuse, Split
from search_space.schedule.trace import Trace
from search_space.space import generate, make_program
from search_space.workloads import Workload
from targets import registry
from targets.cpu.storage import plan_storage
from tests.autotune.tuner.test_tune_sizes import layer
from tests.interpreter import interpret


def sum_rows(n: Any) -> list[te.Tensor]:
    """Sums of n elements each."""
    x, k = te.placeholder((3, n), name="X"), te.reduce_axis((0, n), "k")
    return [x, te.compute((3,), lambda i: te.sum(x[i, k], axis=k), name="Y")]


@pytest.mark.parametrize("factor", [3, 4])
def test_a_factor_that_divided_one_size_is_peeled_at_others(factor: int) -> None:
    trace = Trace((Split("Y", "k", (factor,), "exact"), Annotate("Y", "k.1", "unroll")))
    program = open_program(sum_rows, trace, 1, 20)
    assert f"n // {factor}" in str(program) and "if" not in str(program) and "select" not in str(program)
    for n in (1, factor, 19):
        x = np.random.default_rng(n).standard_normal((3, n), np.float32)
        found = interpret(substitute_program(program, {"n": n}), {"X": x})["Y"]
        np.testing.assert_allclose(found, x.sum(1), rtol=1e-5, atol=1e-5)
    known = open_program(sum_rows, trace, 13, 13)
    assert not known.sizes
    x = np.ones((3, 13), np.float32)
    np.testing.assert_array_equal(interpret(known, {"X": x})["Y"], [13, 13, 13])


def test_a_trace_that_does_not_hold_says_why() -> None:
    trace = Trace((Split("Y", "i", (8,), "clamp"),))
    assert open_program(layer, trace, 8, 20).sizes == {"n": (8, 20)}
    with pytest.raises(ScheduleError, match="`factor` must be at most extent for all sizes where tail=clamp"):
        open_program(layer, trace, 7, 20)
    with pytest.raises(ScheduleError, match="a loop to unroll must run a number of times"):
        open_program(layer, Trace((Annotate("Y", "i", "unroll"),)), 1, 20)
    with pytest.raises(ScheduleError, match="`stage` must be one of"):
        open_program(layer, Trace((Annotate("Z", "i", "unroll"),)), 1, 20)


def test_products_of_bytes_are_instructions_for_any_number_of_rows() -> None:
    target, workload = registry.get("cpu:sapphirerapids"), workloads.matmul(64, 64, 64, dtype="int8")
    sketch = next(s for s in generate(workload, target.hardware).sketches if s.algorithm == "direct")
    choices = np.zeros((1, len(sketch.groups)), np.int32)
    assert sketch.legal(choices).all()

    def define(n: Any) -> list[te.Tensor]:
        a, b = te.placeholder((n, 64), "uint8", "a"), te.placeholder((64, 64), "int8", "b", constant=True)
        r = te.reduce_axis((0, 64), "r")
        x, y = (lambda i: a[i, r].astype("int32")), (lambda j: b[r, j].astype("int32"))
        return [a, b, te.compute((n, 64), lambda i, j: te.sum(x(i) * y(j), axis=r), name="matmul")]

    module = target.build(open_program(define, sketch.trace(choices[0]), 64, 200))
    assert module.sizes == {"n": (64, 200)} and "vpdpbusd" in target.assembly(module)


def attention(n: Any) -> list[te.Tensor]:
    """n queries, keys and values of 16 numbers."""
    q, k, v = (te.placeholder((n, 16), name=name) for name in "QKV")
    d, j, t, r = (te.reduce_axis((0, extent), name) for extent, name in ((16, "d"), (n, "j"), (n, "t"), (n, "r")))
    score = te.compute((n, n), lambda i, c: te.sum(q[i, d] * k[c, d], axis=d), name="score")
    top = te.compute((n,), lambda i: te.max(score[i, j], axis=j), name="top")
    e = te.compute((n, n), lambda i, c: te.exp(score[i, c] - top[i]), name="e")
    total = te.compute((n,), lambda i: te.sum(e[i, t], axis=t), name="total")
    share = te.compute((n, n), lambda i, c: e[i, c] / total[i], name="share")
    return [q, k, v, te.compute((n, 16), lambda i, c: te.sum(share[i, r] * v[r, c], axis=r), name="O")]


def test_sketches_of_attention_hold_for_any_length() -> None:
    target, rng = registry.get("cpu"), np.random.default_rng(0)
    for sketch in generate(Workload.of(attention(64)), target.hardware).sketches[:3]:
        choices = np.stack([rng.integers(len(g.table), size=200) for g in sketch.groups], axis=1).astype(np.int32)
        trace = sketch.trace(choices[sketch.legal(choices)][0])
        kernel = target.load(target.build(open_program(attention, trace, 40, 90)))
        for n in (40, 51, 90):
            workload = Workload.of(attention(n))
            inputs, (rtol, atol) = workload.make_inputs(n), workload.tolerance
            bound = kernel.bind(inputs, fenced=True)
            np.testing.assert_allclose(bound.run(2), workload.reference(*inputs), rtol, atol)
            assert not bound.damage()


def heads(n: Any) -> list[te.Tensor]:
    """Three heads of attention as networks have it: keys turned, and what scales the sums behind them."""
    q, k, v = (
        te.placeholder(shape, name=name)
        for name, shape in zip("QKV", ((3, n, 32), (3, 32, n), (3, n, 32)), strict=True)
    )
    d, j, t, r = (te.reduce_axis((0, extent), name) for extent, name in ((32, "d"), (n, "j"), (n, "t"), (n, "r")))
    score = te.compute((3, n, n), lambda h, i, c: te.sum(q[h, i, d] * k[h, d, c], axis=d), name="score")
    top = te.compute((3, n), lambda h, i: te.max(score[h, i, j], axis=j), name="top")
    e = te.compute((3, n, n), lambda h, i, c: te.exp(score[h, i, c] - top[h, i]), name="e")
    total = te.compute((3, n), lambda h, i: te.sum(e[h, i, t], axis=t), name="total")
    mixed = te.compute((3, n, 32), lambda h, i, c: te.sum(e[h, i, r] * v[h, r, c], axis=r), name="mixed")
    return [q, k, v, te.compute((3, n, 32), lambda h, i, c: mixed[h, i, c] / total[h, i], name="O")]


@pytest.mark.parametrize("found_at", [64, 50])
def test_sums_of_open_attention_stay_in_registers(found_at: int) -> None:
    """Both products keep their sums there, whatever remains of rows and columns; memory takes three times as long."""
    target = registry.get("cpu")
    workload = Workload.of(heads(found_at))
    trace = select_by_roofline(Task("attention", workload), Settings(target, 0)).trace
    for one in (trace, exchange_axes(trace)):
        assert one is not None
        program = open_program(heads, one, found_at, 200)
        storage, _, _ = plan_storage(program)
        scopes = {name: buffer.scope for name, buffer in program.buffers.items()}
        local = [name for name, scope in scopes.items() if scope == "local"]
        assert len(local) > 2 and {storage[name].kind for name in local} == {"register"}
        kernel = target.load(target.build(program))
        for n in (found_at, 97, 200):
            known = Workload.of(heads(n))
            inputs, (rtol, atol) = known.make_inputs(n), known.tolerance
            bound = kernel.bind(inputs, fenced=True)
            np.testing.assert_allclose(bound.run(2), known.reference(*inputs), rtol, atol)
            assert not bound.damage()


def test_rows_that_sizes_make_longer_lie_as_far_apart_as_the_longest() -> None:
    n = te.var("n", 16, 250)
    shape = tuple(map(lift, (2, 5, n)))
    assert [int(extent.value) for extent in rows_apart(shape, "float32")] == [2, 5, 272]  # 17 lines, no whole power
    assert [int(extent.value) for extent in rows_apart(shape, "bfloat16")] == [2, 5, 288]
    assert rows_apart((n, lift(5)), "float32") == (n, lift(5))
    known = tuple(map(lift, (2, 64)))
    assert rows_apart(known, "float32") == known


def test_a_trace_whose_tiles_go_by_columns_computes_the_same() -> None:
    workload, target = workloads.matmul(40, 96, 64), registry.get("cpu")
    inputs, (rtol, atol) = workload.make_inputs(0), workload.tolerance
    rng, found = np.random.default_rng(1), 0
    for sketch in [each for each in generate(workload, target.hardware).sketches if each.groups][:4]:
        choices = np.stack([rng.integers(len(g.table), size=200) for g in sketch.groups], axis=1).astype(np.int32)
        traces = [sketch.trace(row) for row in choices[sketch.legal(choices)][:1]]
        other = exchange_axes(traces[0]) if traces else None
        if other is None:
            continue
        found += 1
        assert other != traces[0] and exchange_axes(other) is not None
        program = make_program(workload, sketch.algorithm, other)
        kernel = target.load(target.build(program))
        np.testing.assert_allclose(kernel.bind(inputs).run(2), workload.reference(*inputs), rtol, atol)
    assert found


def test_there_is_no_other_order_without_two_fused_axes() -> None:
    assert exchange_axes(Trace(())) is None
    assert exchange_axes(Trace((Fuse("Y", ("i", "j")), Annotate("Y", "i_j", "unroll")))) is None
    of_three = exchange_axes(Trace((Fuse("Y", ("i", "j", "k")), Annotate("Y", "i_j_k", "parallel"))))
    assert of_three is not None and of_three.steps[1:] == (
        Fuse("Y", ("k", "i", "j")),
        Annotate("Y", "k_i_j", "parallel"),
    )


def test_the_estimate_charges_an_index_that_sizes_divide() -> None:
    """Scores of a step: one head after the other an element's place is a quotient by the number of keys."""

    def scores(n: Any) -> list[te.Tensor]:
        q, k, r = (
            te.placeholder((12, 64), name="Q"),
            te.placeholder((n, 12, 64), name="K"),
            te.reduce_axis((0, 64), "r"),
        )
        return [q, k, te.compute((12, n), lambda h, j: te.sum(q[h, r] * k[j, h, r], axis=r), name="S")]

    target = registry.get("cpu:znver4")
    trace = Trace((Fuse("S", ("h", "j")), Annotate("S", "h_j", "parallel")))
    other = exchange_axes(trace)
    assert other is not None
    programs = [open_program(scores, each, 64, 1024) for each in (trace, other)]
    assert "// n" in str(programs[0]) and "// n" not in str(programs[1])
    by_head, by_key = (
        FeatureExtractor(program, ("n",), target.hardware, False).roofline(np.array([[512.0]]))[0]
        for program in programs
    )
    assert by_head > by_key


def test_a_trace_is_opened_in_the_forms_in_which_it_holds() -> None:
    sizes = (1, 4, 8, 30)
    clamped = Trace((Split("Y", "i", (6,), "clamp"),))
    assert openings(layer, clamped, 8, sizes) == [Opening(clamped, 8, 30)]
    divided = Trace((Split("Y", "i", (4,), "exact"),))
    forms = openings(layer, divided, 8, sizes)  # at full speed from 4 on, and guarded for fewer
    guarded = [Trace((Split("Y", "i", (4,), tail),)) for tail in ("clamp", "guard")]
    assert forms == [Opening(guarded[0], 4, 30), Opening(guarded[1], 1, 30)]
    unrolled = Trace((Annotate("Y", "i", "unroll"),))
    assert openings(layer, unrolled, 4, sizes) == [Opening(unrolled, 4, 4)]  # of a number of times, at that size alone
    assert openings(layer, Trace((Annotate("Z", "i", "unroll"),)), 4, sizes) == []


INF = math.inf


def choose_indices(
    seconds: list[list[float]], weights: list[float], count: int, objective: str, every: Any = None
) -> list[int]:
    everywhere = [not math.isinf(row[0]) for row in seconds] if every is None else every
    return choose_schedules(everywhere, np.array(seconds), np.array(weights), count, objective)


def test_schedules_are_chosen_by_the_objective() -> None:
    everywhere, small, large = [4.0, 4, 4], [3.0, 9, 9], [INF, 1, 2]
    every = [large, small, everywhere]
    assert choose_indices(every, [1, 1, 2], 1, "mean") == [2]
    assert sorted(choose_indices(every, [1, 1, 2], 2, "mean")) == [0, 1]  # the one for all is exchanged
    assert choose_indices(every, [1000, 1, 1], 1, "mean") == [1]
    assert sorted(choose_indices([[1e-6, 9.0], [2e-6, 1.0]], [1, 1], 2, "mean")) == [1]  # who is small counts little,
    assert sorted(choose_indices([[1e-6, 9.0], [2e-6, 1.0]], [1, 1], 2, "geomean")) == [0, 1]  # unless ratios count
    one = [[1.0, INF], [3.0, 1.0]]  # the first for its size alone
    assert choose_indices(one, [1, 1], 1, "geomean", [False, True]) == [1]
    assert choose_indices(one, [1, 1], 2, "geomean", [False, True]) == [1, 0]
    assert choose_indices([[1.0, 1.0], [0.9999, 1.0]], [1, 1], 2, "geomean") == [1]  # the second would save too little


def test_objectives_are_means_over_the_distribution() -> None:
    weights, seconds, best = np.array([1.0, 3.0]), np.array([4.0, 8.0]), np.array([2.0, 8.0])
    assert compute_objective("mean", weights, seconds, best) == pytest.approx(7.0)
    assert compute_objective("geomean", weights, seconds, best) == pytest.approx(2**0.25)


def tiles(rows: int, low: int, seconds: dict[int, float], high: int = 40) -> TimedSchedule:
    """A schedule whose work is a number of tiles."""
    return TimedSchedule(Opening(Trace(()), low, high), seconds, lambda n: -(-n // rows) * float(rows))


def test_a_size_between_others_runs_by_what_is_estimated_there() -> None:
    five, eight = tiles(5, 1, {1: 5, 8: 10, 40: 40}), tiles(8, 8, {8: 8, 40: 40})
    found = divide_sizes([1, 8, 40], [five, eight])
    by_size = {n: place for low, high, place in found for n in range(low, high + 1)}
    assert sorted(by_size) == list(range(1, 41)) and len(found) == len({low for low, _, _ in found})
    assert all(by_size[n] == 0 for n in range(1, 8))  # where the other does not hold
    assert by_size[8] == 1 and by_size[9] == by_size[10] == 0  # 16 rows for 9 in tiles of 8, 10 in tiles of 5
    assert by_size[16] == 1


def test_a_schedule_of_one_size_runs_there_alone() -> None:
    every, one = tiles(1, 1, {1: 2, 4: 8, 9: 18}, 9), tiles(4, 4, {4: 1.0}, 4)
    assert divide_sizes([1, 4, 9], [every, one]) == [(1, 3, 0), (4, 4, 1), (5, 9, 0)]
    assert divide_sizes([4], [one]) == [(4, 4, 0)]


def test_a_program_without_a_size_is_estimated_like_one_of_that_size() -> None:
    hardware = registry.get("cpu").hardware
    open_sizes, known = (open_trace(Trace(()), state_at(layer, low, high, "n")) for low, high in ((2, 64), (8, 8)))
    alone = known.seconds(np.zeros((0, 3)), hardware, False, 1)
    np.testing.assert_allclose(alone, open_sizes.seconds(np.full((1, 3), 8.0), hardware, False, 1), rtol=0.01)
