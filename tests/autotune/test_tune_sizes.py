"""`tune_for_sizes`: a search for each size, schedules opened to ranges, the mean of all; and what is refused."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from autotune.config import Measure
from autotune.tuning import sizes as tuning
from autotune.tuning.sizes import Part, opened, tune_for_sizes
from search_space import te, workloads
from search_space.ir.stmt import substitute_program
from search_space.schedule.errors import ScheduleError
from search_space.schedule.steps import Annotate, Split
from search_space.schedule.trace import Trace
from search_space.space import generate
from search_space.workloads import Workload
from targets import registry
from targets.base import RunError
from tests.autotune.fakes import HashPool
from tests.interpreter import interpret


def layer(n: Any) -> list[te.Tensor]:
    """n rows times weights."""
    x, w = te.placeholder((n, 24), name="X"), te.placeholder((24, 32), name="W", constant=True)
    k = te.reduce_axis((0, 24), "k")
    return [x, w, te.compute((n, 32), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="Y")]


def summed(n: Any) -> list[te.Tensor]:
    """Sums of n elements each."""
    x, k = te.placeholder((3, n), name="X"), te.reduce_axis((0, n), "k")
    return [x, te.compute((3,), lambda i: te.sum(x[i, k], axis=k), name="Y")]


def test_schedules_of_some_sizes_make_kernels_of_all() -> None:
    given = {"cost_model": "roofline", "measure": Measure(pool=HashPool(), threads=1)}
    result = tune_for_sizes(layer, {60: 1, 1: 3, 9: 1}, trials=5, seed=3, schedules=3, search_at=[60, 1], **given)
    assert list(result.weights) == [1, 9, 60] == list(result.seconds) and list(result.tuned) == [1, 60]
    assert all(len(tuned.records) == 5 for tuned in result.tuned.values())
    ranges = [(part.low, part.high) for part in result.parts]
    assert ranges[0][0] == 1 and ranges[-1][1] == 60 and len({part.trace.key for part in result.parts}) <= 3
    assert all(before[1] + 1 == after[0] for before, after in pairwise(ranges))
    wanted = (3 * result.seconds[1] + result.seconds[9] + result.seconds[60]) / 5
    assert result.mean_seconds == pytest.approx(wanted) and wanted > 0
    rng = np.random.default_rng(0)
    w = rng.standard_normal((24, 32), np.float32)
    for n in (1, 2, 8, 9, 10, 35, 59, 60):
        x, y = rng.standard_normal((n, 24), np.float32), np.zeros((n, 32), np.float32)
        result.kernel(x, w, y)
        np.testing.assert_allclose(y, x @ w, rtol=1e-4, atol=1e-4)
    with pytest.raises(RunError, match="n from"):
        result.kernel(np.zeros((61, 24), np.float32), w, np.zeros((61, 32), np.float32))


@pytest.mark.parametrize("factor", [3, 4])
def test_a_factor_that_divided_one_size_is_peeled_at_others(factor: int) -> None:
    trace = Trace((Split("Y", "k", (factor,), "exact"), Annotate("Y", "k.1", "unroll")))
    program = opened(summed, trace, 1, 20)
    assert f"n // {factor}" in str(program) and "if" not in str(program) and "select" not in str(program)
    for n in (1, factor, 19):
        x = np.random.default_rng(n).standard_normal((3, n), np.float32)
        found = interpret(substitute_program(program, {"n": n}), {"X": x})["Y"]
        np.testing.assert_allclose(found, x.sum(1), rtol=1e-5, atol=1e-5)
    known = opened(summed, trace, 13, 13)
    assert not known.sizes
    x = np.ones((3, 13), np.float32)
    np.testing.assert_array_equal(interpret(known, {"X": x})["Y"], [13, 13, 13])


def test_a_trace_that_does_not_hold_says_why() -> None:
    trace = Trace((Split("Y", "i", (8,), "clamp"),))
    assert opened(layer, trace, 8, 20).sizes == {"n": (8, 20)}
    with pytest.raises(ScheduleError, match="`factor` must be at most extent for all sizes where tail=clamp"):
        opened(layer, trace, 7, 20)
    with pytest.raises(ScheduleError, match="a loop to unroll must run a number of times"):
        opened(layer, Trace((Annotate("Y", "i", "unroll"),)), 1, 20)
    with pytest.raises(ScheduleError, match="`stage` must be one of"):
        opened(layer, Trace((Annotate("Z", "i", "unroll"),)), 1, 20)


def test_products_of_bytes_are_instructions_for_any_number_of_rows() -> None:
    target, workload = registry.get("cpu:sapphirerapids"), workloads.matmul(64, 64, 64, dtype="int8")
    sketch = next(s for s in generate(workload, target.hardware).sketches if s.algorithm == "direct")
    choices = np.zeros((1, len(sketch.groups)), np.int32)
    assert sketch.legal(choices).all()

    def define(n: Any) -> list[te.Tensor]:
        a, b = te.placeholder((n, 64), "uint8", "a"), te.placeholder((64, 64), "int8", "b", constant=True)
        r = te.reduce_axis((0, 64), "r")
        body = lambda i, j: te.sum(a[i, r].astype("int32") * b[r, j].astype("int32"), axis=r)  # noqa: E731
        return [a, b, te.compute((n, 64), body, name="matmul")]

    module = target.build(opened(define, sketch.trace(choices[0]), 64, 200))
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
        kernel = target.load(target.build(opened(attention, trace, 40, 90)))
        for n in (40, 51, 90):
            workload = Workload.of(attention(n))
            inputs, (rtol, atol) = workload.make_inputs(n), workload.tolerance
            bound = kernel.bind(inputs, fenced=True)
            np.testing.assert_allclose(bound.run(2), workload.reference(*inputs), rtol, atol)
            assert not bound.damage()


def candidate(least: int, *seconds: float) -> tuning._Candidate:
    return tuning._Candidate(Trace((Split("Y", "i", (least,), "clamp"),)), least, seconds)


def test_kernels_are_chosen_by_the_mean_over_the_distribution() -> None:
    inf = float("inf")
    everywhere, small, large = candidate(1, 4, 4, 4), candidate(2, 3.99, 5, 5), candidate(10, inf, 1, 2)
    weights = {5: 1.0, 11: 1.0, 100: 2.0}
    every = [large, small, everywhere]
    assert tuning._chosen(every, weights, 1) == [everywhere]
    assert tuning._chosen(every, weights, 3) == [everywhere, large]  # the third would save less than a hundredth
    assert tuning._chosen(every, {5: 1000.0, 11: 1.0, 100: 1.0}, 1) == [small]
    parts = tuning._parts(list(weights), [everywhere, large, large])
    assert parts == (Part(5, 9, everywhere.trace), Part(10, 100, large.trace))  # not from (5 + 11) // 2 on
    assert tuning._parts([5, 11], [everywhere, everywhere]) == (Part(5, 11, everywhere.trace),)
    assert [p.high for p in tuning._parts([1, 9, 31], [small, everywhere, small])] == [5, 20, 31]


@pytest.mark.parametrize(
    ("sizes", "options", "message"),
    [
        ([], {}, "`sizes` must not be empty, but got none"),
        ([4, 0], {}, "`sizes` must be integers of at least 1, but got 0"),
        ([4.5], {}, "`sizes` must be integers of at least 1, but got 4.5"),
        ({4: 0.0}, {}, "a weight of `sizes` must be positive, but got 0.0 for 4"),
        ([4], {"schedules": 0}, "`schedules` must be at least 1, but got schedules=0"),
        ([4], {"finals": 0}, "`finals` must be at least 1, but got finals=0"),
        ([4, 8], {"search_at": [5]}, r"`search_at` must be some of the sizes \[4, 8\], but got \[5\]"),
        ([4, 8], {"search_at": []}, r"`search_at` must be some of the sizes \[4, 8\], but got \[\]"),
    ],
)
def test_what_is_no_distribution_is_refused(sizes: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tune_for_sizes(layer, sizes, **options)
