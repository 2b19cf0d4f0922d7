"""Tuning of several tasks: which failures end it, which pool is used and closed, and when it stops."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotune.config import Measure
from autotune.tuner import preparation, settings, tune_tasks
from autotune.tuner.result import AllTrialsFailed
from autotune.tuner.search.base import NoLegalSchedule
from autotune.tuner.settings import Settings
from autotune.tuner.task import Task
from autotune.tuner.tune_tasks import Need, TaskRequest, TuningStop
from measure.errors import ErrorClass
from measure.outcome import Outcome
from search_space import workloads
from tests.autotune import fakes

GOOD, BARREN = workloads.matmul(24, 32, 16), workloads.matmul(25, 33, 17)


class FailingPool(fakes.HashPool):
    """No trial works."""

    def results(self, timeout: float | None = None) -> Any:
        failed = Outcome(error=ErrorClass.wrong_output, message="it is wrong")
        return [replace(result, outcome=failed) for result in super().results(timeout)]


def request(workload: Any = GOOD, need: Need = Need.SPACE, pool: Any = "local", trials: int = 4) -> TaskRequest:
    measure = Measure(pool=pool, threads=1)
    return TaskRequest(Task(workload.key, workload), Settings(trials=trials, measure=measure), need=need)


@pytest.fixture
def barren(monkeypatch: pytest.MonkeyPatch) -> None:
    """One workload has no legal candidate."""
    real = preparation.generate
    monkeypatch.setattr(
        preparation, "generate", lambda w, *given: fakes.barren() if w.key == BARREN.key else real(w, *given)
    )


@pytest.mark.parametrize("need", [Need.SPACE, Need.RESULT])
def test_a_task_without_a_legal_candidate_is_named(barren: None, need: Need) -> None:
    pool = fakes.HashPool()
    with pytest.raises(NoLegalSchedule) as caught:
        tune_tasks.tune_tasks([request(), request(BARREN, need)], pool)
    assert caught.value.task == BARREN.key and pool.outstanding == 0


def test_a_search_says_once_that_it_has_no_learned_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "missing", lambda what, *modules: f"{what} must have a package")
    told: list[str] = []
    tune_tasks.tune_tasks([request(), request(BARREN, Need.NOTHING)], fakes.HashPool(), say=told.append)
    untold = [replace(request(), guided=False), request(trials=0)]
    tune_tasks.tune_tasks(untold, fakes.HashPool(), say=told.append)
    assert len(told) == 1 and told[0].endswith(": the cost model lightgbm must have a package")


def test_a_task_that_needs_nothing_is_passed_over(barren: None) -> None:
    first, second = tune_tasks.tune_tasks([request(), request(BARREN, Need.NOTHING)], fakes.HashPool())
    assert len(first.records) == 4 and not second.records and "legal schedule" in second.problem


@pytest.mark.parametrize("need", Need)
def test_only_a_needed_result_is_missed(need: Need) -> None:
    if need is Need.RESULT:
        with pytest.raises(AllTrialsFailed, match="it is wrong"):
            tune_tasks.tune_tasks([request(need=need)], FailingPool())
    else:
        (result,) = tune_tasks.tune_tasks([request(need=need)], FailingPool())
        assert result.best is None and len(result.records) == 4


def test_a_pool_of_its_own_is_closed_and_others_stay_open(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Closing] = []

    class Closing(fakes.HashPool):
        is_closed = False

        def close(self) -> None:
            self.is_closed = True

    def make(measure: Measure) -> Any:
        if not isinstance(measure.pool, str):
            return measure.pool
        made.append(Closing())
        return made[-1]

    monkeypatch.setattr(tune_tasks, "make_pool", make)
    tune_tasks.tune_tasks([request()])
    assert [pool.is_closed for pool in made] == [True]
    for given, named in ((Closing(), "local"), (None, Closing())):
        tune_tasks.tune_tasks([request(pool=named)], given)
        assert not (given or named).is_closed
    assert len(made) == 1


def test_stopping_before_the_first_trial_is_told() -> None:
    answers = iter([False, True])
    with pytest.raises(TuningStop):
        tune_tasks.tune_tasks([request(), request(BARREN)], fakes.HashPool(), stop=lambda: next(answers))


def test_nothing_asked_for_is_nothing_tuned() -> None:
    assert tune_tasks.tune_tasks([]) == []
