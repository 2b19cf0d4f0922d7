"""Rounds of several tasks at once, for pools of many machines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.tuner.callbacks import Callback
from autotune.tuner.interrupt import Interrupt
from autotune.tuner.loop import run_rounds
from autotune.tuner.schedulers import Gradient
from measure.database import Database
from measure.errors import ErrorClass, PoolError
from measure.outcome import Outcome
from measure.pool import TrialResult
from tests.autotune import fakes

BATCH = 16


class Wide(fakes.FakePool):
    """Wants so many trials outstanding; notes how many there were at each submission, and of which tasks."""

    def __init__(self, of: fakes.FakeSpace, capacity: int, **options) -> None:
        super().__init__(of, **options)
        self._capacity = capacity
        self.starts: list[tuple[str, set[str]]] = []

    @property
    def capacity(self) -> int:
        return self._capacity

    def submit(self, trials) -> None:
        if trials:
            self.starts.append((trials[0].workload_key, {trial.workload_key for _, trial in self._waiting}))
        super().submit(trials)


def several(count: int = 4, **options):
    of = fakes.space()
    return [
        fakes.tuning(
            replace(of, workload=fakes.FakeWorkload(f"w{place}")), name=f"t{place}", seed=place, batch=BATCH, **options
        )
        for place in range(count)
    ]


def keys(results):
    return [[record.trace_key for record in result.records] for result in results]


def test_a_pool_that_wants_one_trial_gets_one_round_at_a_time():
    pool = Wide(fakes.space(), 1)
    run_rounds(several(), pool)
    assert len(pool.starts) == 12 and all(not beside for _, beside in pool.starts)


@pytest.mark.parametrize("capacity", [2, 40, 1000])
def test_rounds_of_other_tasks_are_begun_beside_and_change_no_task(capacity):
    """A task's proposals depend on its own results alone."""
    pool = Wide(fakes.space(), capacity)
    wide = run_rounds(several(), pool)
    assert keys(wide) == keys(run_rounds(several(), fakes.FakePool(fakes.space())))
    assert [[record.provenance.order for record in result.records] for result in wide] == [list(range(40))] * 4
    assert all(key not in beside for key, beside in pool.starts)  # one round of a task at a time
    most = max(len(beside) for _, beside in pool.starts)
    assert most == min(3, (capacity - 1) // BATCH + 1)


@pytest.mark.parametrize("budget", [50, 90, 100])
def test_a_budget_is_kept_with_rounds_under_way(budget):
    pool = Wide(fakes.space(), 1000)
    results = run_rounds(several(trials=1000), pool, scheduler=Gradient(), budget=budget)
    assert sum(len(result.records) for result in results) == budget == len(pool.trials)


def test_a_task_without_a_schedule_holds_nothing_up():
    barren = fakes.tuning(replace(fakes.barren(), workload=fakes.FakeWorkload("barren")), name="barren")
    results = run_rounds([barren, *several(2)], Wide(fakes.space(), 1000))
    assert [len(result.records) for result in results] == [0, 40, 40] and results[0].problem


def test_two_tasks_that_are_the_same_share_no_result():
    of = fakes.space()
    twins = [fakes.tuning(of, name="t", batch=BATCH) for _ in range(2)]
    one, other = run_rounds(twins, Wide(of, 1000))
    assert keys([one]) == keys([other]) and len(one.records) == 40


def test_somebody_else_may_want_an_end():
    done = []
    results = run_rounds(several(), Wide(fakes.space(), 1, on_results=done.append), stop=lambda: len(done) > 20)
    assert 0 < sum(len(result.records) for result in results) < 4 * 40
    assert all(result.interrupted for result in results)


def test_an_interrupt_keeps_what_every_round_has(tmp_path, monkeypatch):
    stops = []
    monkeypatch.setattr(Interrupt, "__enter__", lambda self: stops.append(self) or self)

    def stop(count: int) -> None:
        if count == 50:
            stops[-1].press()

    with Database(tmp_path / "records.jsonl") as database:
        results = run_rounds(several(), Wide(fakes.space(), 1000, on_results=stop), database)
        assert sum(len(result.records) for result in results) == 50 == len(database)
    assert all(result.interrupted for result in results)
    assert all(len(result.records) < 40 for result in results)


def test_progress_counts_the_trials_of_all_rounds():
    class Counts(Callback):
        def __init__(self) -> None:
            self.trials, self.rounds = [], []

        def on_trial(self, progress, record) -> None:
            self.trials.append(progress)

        def on_round(self, progress) -> None:
            self.rounds.append(progress)

    counts = Counts()
    run_rounds(several(), Wide(fakes.space(), 1000), callbacks=[counts])
    assert [progress.trials for progress in counts.trials] == list(range(1, 161))
    assert {progress.total for progress in counts.trials} == {160}
    for name in ("t0", "t1", "t2", "t3"):
        assert [p.task_trials for p in counts.trials if p.task == name] == list(range(1, 41))
        assert [p.task_trials for p in counts.rounds if p.task == name] == [16, 32, 40]
        best = [p.best_seconds for p in counts.trials if p.task == name]
        assert best == sorted(best, reverse=True)


def test_the_time_of_rounds_adds_up_to_that_of_the_run():
    results = run_rounds(several(), Wide(fakes.space(), 1000, on_results=lambda done: sum(range(20000))))
    alone = run_rounds(several(), fakes.FakePool(fakes.space(), on_results=lambda done: sum(range(20000))))
    spent = [sum(result.phases["measure"] for result in run) for run in (results, alone)]
    assert 0.2 < spent[0] / spent[1] < 5.0


def test_a_result_of_no_round_is_refused():
    class Astray(fakes.FakePool):
        def results(self, timeout=None):
            return [replace(result, trial=stranger) for result in super().results(timeout)]

    of = fakes.space()
    stranger = next(iter(fakes.tuning(of, name="t", seed=9).propose()))
    stranger = replace(stranger, workload_key="another")
    with pytest.raises(PoolError, match="`results` must be of trials that were submitted, but got trace_key="):
        run_rounds([fakes.tuning(of, name="t", batch=BATCH)], Astray(of))
    assert TrialResult(stranger, 0, Outcome(error=ErrorClass.crash)).host == {}


def test_orders_go_on_after_those_of_a_round_that_was_cut_short():
    of = fakes.space()
    (whole,) = run_rounds([fakes.tuning(of, trials=32, batch=BATCH)], fakes.FakePool(of))
    some = [record for record in whole.records if record.provenance.order not in (3, 17, 18)]
    task = fakes.tuning(of, trials=48, batch=BATCH)
    task.replay(some)
    (result,) = run_rounds([task], fakes.FakePool(of))
    assert len({record.provenance.order for record in result.records}) == 48 == len(result.records)
