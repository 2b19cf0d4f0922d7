"""The end of a run: luck in one measurement does not decide which candidate is taken."""

import math
from typing import Any

import numpy as np
import pytest

from autotune.tuner.finals import ROUNDS, finalists, is_final, standings
from autotune.tuner.loop import run_rounds
from measure.errors import ErrorClass
from measure.outcome import Outcome
from measure.pool import Trial, TrialResult
from measure.provenance import Kind, Provenance
from measure.record import Record
from tests.autotune import fakes
from tests.measure.helpers import change_record

FAILURE: dict[str, Any] = {"error": ErrorClass.wrong_output, "latencies": (), "seconds": math.nan}


def record(key: str, seconds: float, final: bool = False, algorithm: str = "direct") -> Record:
    trial = Trial({"operator": "fake"}, algorithm, [], workload_key="w", trace_key=key)
    result = TrialResult(trial, 0, Outcome((seconds,), seconds))
    return Record.of(result, Provenance(Kind.final) if final else Provenance(Kind.search, "random", 0))


def test_the_fastest_candidates_are_finalists_each_once() -> None:
    failed = change_record(record("x", 0.1), **FAILURE)
    given = [record("a", 3.0), record("b", 1.0), failed, record("c", 2.0), record("b", 4.0), record("d", 9.0)]
    assert [r.trace_key for r in finalists(given, 3)] == ["b", "c", "a"]
    assert finalists(given, 0) == []


def test_a_candidate_stands_with_the_median_of_its_finals_before_all_that_have_none() -> None:
    lucky = [record("lucky", s, True) for s in (1.5, 1.4, 9.0)]
    steady = [record("steady", s, True) for s in (1.2, 1.1, 1.3)]
    given = [record("lucky", 0.8), record("steady", 1.1), record("third", 0.9), *lucky, *steady]
    assert [(best.seconds, best.record.trace_key) for best in standings(given)] == [
        (1.2, "steady"),
        (1.5, "lucky"),
        (0.9, "third"),
    ]
    out = change_record(steady[0], **FAILURE)
    assert standings([*given[:-3], out, *steady[1:]])[0].record.trace_key == "lucky"


def test_of_equally_fast_candidates_the_same_is_best_in_whatever_order_they_were_timed() -> None:
    finals = [record(key, 1.0, True) for key in "cab"]
    for given in (finals, finals[::-1]):
        assert standings([record("a", 1.1), record("b", 1.0), *given])[0].record.trace_key == "a"
        assert [r.trace_key for r in finalists([record(best.trace_key, 1.0) for best in given], 2)] == ["a", "b"]


def test_what_comes_later_stands_first_only_where_no_trial_was_as_fast() -> None:
    timed = [record("a", 1.0), record("b", 1.1), *(record("a", s, True) for s in (1.4, 1.5, 1.6))]
    assert standings([*timed, record("later", 1.05)])[0].seconds == 1.5  # luck enough to be as fast as `a` was
    first, second = standings([*timed, record("later", 0.9)])[:2]
    assert (first.seconds, first.retimed, second.seconds, second.retimed) == (0.9, False, 1.5, True)


def test_spread_and_halves_are_of_all_timings_of_the_best() -> None:
    samples = [(1.0, 1.0, 1.0, 1.0), (1.5, 1.5, 1.5, 1.5)]
    timings = [change_record(record("a", each[0], True), latencies=each) for each in samples]
    best = standings(timings)[0]
    assert best.spread == pytest.approx(0.5 / 1.25) and best.halves == (1.0, 1.5)
    alone = standings([change_record(record("b", 2.0), spread=0.25)])[0]  # of a report, which keeps one sample
    assert alone.spread == 0.25 and all(map(math.isnan, alone.halves))


class Lucky(fakes.FakePool):
    """Every first measurement of a candidate is wrong by up to a half."""

    def answer(self, trial: Trial) -> float:
        first = sum(t.trace_key == trial.trace_key for t in self.trials) == 1
        luck = np.random.default_rng(int(trial.trace_key[:8], 16)).uniform(0.5, 1.5) if first else 1.0
        return super().answer(trial) * float(luck)


def test_a_run_reports_what_its_choice_really_takes() -> None:
    of = fakes.space()
    (plain,) = run_rounds([fakes.tuning(of, trials=60)], Lucky(of))
    (again,) = run_rounds([fakes.tuning(of, trials=60, finalists=8)], pool := Lucky(of))
    assert plain.best is not None and again.best is not None
    exact = fakes.FakePool(of)
    assert plain.best_seconds < 0.8 * exact.answer(plain.best.to_trial())
    assert again.best_seconds == exact.answer(again.best.to_trial()) <= exact.answer(plain.best.to_trial())
    assert len(again.records) == 60 and len(again.finals) == 8 * ROUNDS and all(map(is_final, again.finals))
    assert len(pool.trials) == 60 + 8 * ROUNDS


def test_a_resumed_run_times_only_what_is_missing() -> None:
    of = fakes.space()
    (first,) = run_rounds([fakes.tuning(of, trials=20, finalists=2)], fakes.FakePool(of))
    task = fakes.tuning(of, trials=20, finalists=2)
    task.replay([*first.records, *first.finals[:-2]])
    (second,) = run_rounds([task], pool := fakes.FakePool(of))
    assert len(pool.trials) == 2 and len(second.finals) == len(first.finals)
    assert second.best_seconds == first.best_seconds
