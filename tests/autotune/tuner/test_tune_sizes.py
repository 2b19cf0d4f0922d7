"""`tune_for_sizes`: searches, what is carried to other sizes, times at all, resuming, an end by the user; bad input."""

from __future__ import annotations

import os
import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.config import Measure
from autotune.tuner.callbacks import Callback, SizeProgress
from autotune.tuner.loop import run_rounds
from autotune.tuner.preparation import prepare_task
from autotune.tuner.schedulers import TaskState
from autotune.tuner.sizes import SizesResult, clock, tune_for_sizes
from autotune.tuner.sizes.carry import InOrder, like_neighbours
from autotune.tuner.sizes.opening import state_at
from autotune.tuner.task import Task
from autotune.tuner.task_tuning import TaskTuning
from autotune.tuner.tuner import settings_for
from measure.database import Database
from measure.provenance import Kind
from search_space import te
from search_space.lower import cleanup, lower
from search_space.workloads import Workload
from targets import registry
from targets.base import Module, RunError
from tests.autotune.fakes import HashPool


def layer(n: Any) -> list[te.Tensor]:
    """n rows times weights."""
    x, w = te.placeholder((n, 24), name="X"), te.placeholder((24, 32), name="W", constant=True)
    k = te.reduce_axis((0, 24), "k")
    return [x, w, te.compute((n, 32), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="Y")]


def tune_layer(sizes: Any, pool: HashPool | None = None, **options: Any) -> SizesResult:
    pool = pool or HashPool()
    return tune_for_sizes(
        layer,
        sizes,
        **{"trials": 5, "seed": 3, "cost_model": "roofline", "measure": Measure(pool=pool, threads=1), **options},
    )


def check_kernel(result: SizesResult, sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    w = rng.standard_normal((24, 32), np.float32)
    for n in sizes:
        x, y = rng.standard_normal((n, 24), np.float32), np.zeros((n, 32), np.float32)
        result.kernel(x, w, y)
        np.testing.assert_allclose(y, x @ w, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("objective", ["geomean", "mean"])
def test_schedules_of_some_sizes_make_kernels_of_all(objective: Any) -> None:
    result = tune_layer({60: 1, 1: 3, 9: 1}, schedules=3, search_at=[60, 1], carried=0, objective=objective)
    assert list(result.weights) == [1, 9, 60] == list(result.seconds) and list(result.search_results) == [1, 60]
    assert all(len(of.records) == 5 for of in result.search_results.values()) and result.trials == 10
    ranges = [(part.low, part.high) for part in result.parts]
    assert ranges[0][0] == 1 and ranges[-1][1] == 60 and 1 <= len(result.schedules) <= 3
    assert all(before[1] + 1 == after[0] for before, after in pairwise(ranges))
    wanted = (3 * result.seconds[1] + result.seconds[9] + result.seconds[60]) / 5
    assert result.mean_seconds == pytest.approx(wanted) and wanted > 0
    over = [result.seconds[n] / result.best[n] for n in (1, 9, 60)]
    assert min(over) >= 1 and result.mean_ratio == pytest.approx((over[0] ** 3 * over[1] * over[2]) ** 0.2)
    check_kernel(result, (1, 2, 8, 9, 10, 35, 59, 60))
    with pytest.raises(RunError, match=r"61, 24"):
        result.kernel(np.zeros((61, 24), np.float32), np.zeros((24, 32), np.float32), np.zeros((61, 32), np.float32))


def test_the_summary_says_for_each_size_its_time_and_its_schedule() -> None:
    result = tune_layer([1, 4, 30], search_at=[1, 30], carried=4)
    found = result.summary()
    assert (
        [row["at"] for row in found["sizes"]] == [1, 4, 30]
        and found["objective"] == "geomean"
        and not found["interrupted"]
    )
    for row in found["sizes"]:
        assert row["ratio"] == pytest.approx(row["seconds"] / row["best_seconds"]) and row["ratio"] >= 1
        assert result.schedules[row["schedule"]].trace == result.find_range(row["at"]).trace
    assert len(found["traces"]) == len(result.schedules) and found["parts"][-1]["high"] == 30
    text = repr(result)
    assert text.startswith(
        f"SizesResult of n from 1 to 30: {len(result.schedules)} schedules, {result.trials} trials\n"
    )
    assert all(f"\n  n={n}: " in text for n in (1, 4, 30))
    with pytest.raises(ValueError, match="`n` must be 1 to 30, but got 31"):
        result.find_range(31)


def test_what_was_measured_is_kept_and_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, sizes = tmp_path / "records.jsonl", [1, 5, 20]
    pool = HashPool()
    first = tune_layer(sizes, pool, records=path, search_at=[1, 20], carried=4)
    assert len(pool.trials) == first.trials == 5 + 4 + 5
    with Database(path, readonly=True) as database:
        for n in sizes:
            records = list(database.records(Workload.of(layer(n)).key, registry.get("cpu").name))
            times = [record.seconds for record in records if record.provenance.kind is Kind.final]
            assert min(times) <= first.best[n] <= first.seconds[n] in times  # a median of three
            assert len(records) - len(times) == len(first.search_results[n].records)

    def never(*arguments: Any) -> None:
        raise AssertionError("timed again")

    monkeypatch.setattr(clock.TimingProcess, "ask", never)
    again = HashPool()
    second = tune_layer(sizes, again, records=path, search_at=[1, 20], carried=4)
    assert not again.trials
    assert second.seconds == first.seconds and second.best == first.best and second.parts == first.parts


class NotingCallback(Callback):
    """Notes times as they come, and ends the run after so many."""

    def __init__(self, last: int = -1) -> None:
        self.steps: list[SizeProgress] = []
        self._last = last

    def on_size(self, progress: SizeProgress) -> None:
        self.steps.append(progress)
        if len(self.steps) == self._last:
            os.kill(os.getpid(), signal.SIGINT)


def test_times_are_told_as_they_come() -> None:
    noted = NotingCallback()
    tune_layer([2, 7], callbacks=[noted], carried=0)
    assert [progress.timing_count for progress in noted.steps] == list(range(1, len(noted.steps) + 1))
    assert noted.steps[-1].timing_count == noted.steps[-1].total
    assert {progress.size for progress in noted.steps} == {2, 7}
    assert all(progress.best_seconds <= progress.seconds for progress in noted.steps)


def plus_one(n: Any) -> list[te.Tensor]:
    """Another thing to compute, of the same arrays."""
    x, w, y = layer(n)
    return [x, w, te.compute((n, 32), lambda i, j: y[i, j] + 1.0, name="Z")]


@pytest.mark.parametrize("fault", ["another", "nothing"])
def test_a_kernel_that_is_wrong_ends_the_tuning_with_a_sentence(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    code = clock.build_module

    def wrong(define: Any, opening: Any, target: str, size: str) -> Module:
        if fault == "another":
            plain = cleanup(lower(state_at(plus_one, opening.low, opening.high, size)))
            return registry.get(target).build(plain)
        module = code(define, opening, target, size)
        return Module.from_bytes(module.to_bytes()[:-200])  # no code that can be loaded

    monkeypatch.setattr(clock, "build_module", wrong)
    with pytest.raises(RunError, match=r"a kernel must compute its definition, but at n = \d+ it does not: "):
        tune_layer([2, 7], carried=0)


def test_an_end_by_the_user_keeps_what_was_timed() -> None:
    noted = NotingCallback(2)  # of the first schedule, which holds for both sizes
    result = tune_layer([2, 7], callbacks=[noted], carried=0)
    assert result.interrupted and len(noted.steps) == 2 and len(result.schedules) == 1
    assert "trials, interrupted\n" in repr(result)
    check_kernel(result, (2, 5, 7))
    with pytest.raises(KeyboardInterrupt):  # nothing holds for all sizes yet
        tune_layer([2, 7], callbacks=[NotingCallback(1)], carried=0)


def test_a_search_that_is_ended_makes_kernels_of_what_it_found() -> None:
    pool = HashPool(lambda done: os.kill(os.getpid(), signal.SIGINT) if done == 3 else None)
    result = tune_layer([2, 7], pool, carried=0, trials=40)
    assert result.interrupted and result.trials < 80
    check_kernel(result, (2, 7))


def of_size(n: int) -> TaskTuning:
    settings = settings_for(registry.get("cpu"), 12, 0, cost_model="roofline", measure=Measure(threads=1))
    return prepare_task(Task(f"n{n}", Workload.of(layer(n))), settings.searching(finalists=0))


@pytest.mark.parametrize("n", [3, 9, 60])
def test_candidates_are_carried_with_factors_that_fit(n: int) -> None:
    source, other = of_size(40), of_size(n)
    run_rounds([source], HashPool())
    found = like_neighbours(other, n, {40: source, n: other}, 6, 2, np.random.default_rng(0))
    assert 1 <= len(found) <= 6 and len(set(found)) == len(found)
    best = min(source.records, key=lambda record: record.seconds)
    (known,) = [s for s in source.space.sketches if s.name == best.provenance.sketch]
    same = {g.name for g in known.groups}
    assert best.provenance.choices is not None
    wanted = known.values(best.provenance.choices)
    for candidate in found:
        sketch = other.space.sketches[candidate.sketch]
        assert sketch.legal(np.array([candidate.choices], np.int32)).all()
    first = other.space.sketches[found[0].sketch]
    assert first.name == known.name and {g.name for g in first.groups} == same
    tables = {g.name: g.table for g in known.groups}
    for group, choice in zip(first.groups, found[0].choices, strict=True):
        if np.array_equal(tables[group.name], group.table):  # what the size says nothing of stays
            assert group.table[choice].tolist() == [wanted[column] for column in group.columns]


def test_nothing_is_carried_from_nothing() -> None:
    empty, other = of_size(40), of_size(9)
    assert like_neighbours(other, 9, {40: empty, 9: other}, 6, 2, np.random.default_rng(0)) == []


def test_sizes_that_are_searched_come_first() -> None:
    def task(*history: float, done: bool = False) -> TaskState:
        return TaskState(1, 1, "", history, done)

    order = InOrder(2)
    assert order.choose([task(1.0), task(), task(), task()]) == 1
    assert order.choose([task(1.0), task(done=True), task(), task()]) == 0
    assert order.choose([task(done=True), task(done=True), task(1.0), task()]) == 2
    assert order.choose([task(done=True)]) is None


@pytest.mark.parametrize(
    ("sizes", "options", "message"),
    [
        ([], {}, "`sizes` must not be empty, but got none"),
        ([4, 0], {}, "`sizes` must be integers of at least 1, but got 0"),
        ([4.5], {}, "`sizes` must be integers of at least 1, but got 4.5"),
        ({4: 0.0}, {}, "a weight of `sizes` must be positive, but got 0.0 for 4"),
        ([4], {"schedules": 0}, "`schedules` must be at least 1, but got schedules=0"),
        ([4], {"finals": 0}, "`finals` must be at least 1, but got finals=0"),
        ([4], {"carried": -1}, "`carried` must be at least 0, but got carried=-1"),
        ([4], {"trials": 0}, "`trials` must be at least 1, but got trials=0"),
        ([4], {"objective": "median"}, "`objective` must be one of geomean, mean, but got 'median'"),
        ([4, 8], {"search_at": [5]}, r"`search_at` must be some of the sizes \[4, 8\], but got \[5\]"),
        ([4, 8], {"search_at": []}, r"`search_at` must be some of the sizes \[4, 8\], but got \[\]"),
    ],
)
def test_what_is_no_distribution_is_refused(sizes: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tune_for_sizes(layer, sizes, **options)
