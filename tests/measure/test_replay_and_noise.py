"""Replay from a table, noise over any pool, and the registry of pools."""

from __future__ import annotations

import math

import numpy as np
import pytest

from measure import registry
from measure.errors import ErrorClass
from measure.local import LocalPool
from measure.outcome import Outcome
from measure.pool import Trial, TrialResult
from measure.provenance import Provenance
from measure.record import Record
from measure.replay import ReplayError, ReplayPool
from tests.measure.helpers import record, trial
from tests.measure.noise import NoisyPool


def table(count=20):
    return {trial(number=place).trace_key: 1e-3 * (1 + place) for place in range(count)}


def test_answers_come_from_the_table():
    first, second = ReplayPool(table()).run([trial(number=4), trial(number=0)])
    assert first.seconds == 5e-3 and first.latencies == (5e-3,) and second.seconds == 1e-3


def test_a_trial_outside_the_table_is_an_error_and_takes_nothing_in():
    pool = ReplayPool(table(1))
    with pytest.raises(ReplayError, match=r"`trace` must be in the replay table of 1 entries, but got trace_key=\w+"):
        pool.submit([trial(number=0), trial(number=7)])
    assert pool.outstanding == 0


def test_nan_in_the_table_is_a_failure():
    (result,) = ReplayPool({trial().trace_key: math.nan}).run([trial()])
    assert result.error is ErrorClass.unknown and result.latencies == ()


def test_records_answer_with_all_they_know_and_by_workload():
    crashed = Record.of(TrialResult(trial(number=1), 0, Outcome(error=ErrorClass.crash, message="died")), Provenance())
    fast = Record.of(TrialResult(trial({"m": 1}), 0, Outcome((1e-3, 2e-3), 1.5e-3, spread=0.3)), Provenance())
    slow = Record.of(TrialResult(trial({"m": 2}), 0, Outcome((9e-3,), 9e-3, spread=0.0)), Provenance())
    pool = ReplayPool.from_records([crashed, fast, slow])
    results = pool.run([trial({"m": 2}), trial({"m": 1}), trial(number=1)])
    assert [result.seconds for result in results[:2]] == [9e-3, 1.5e-3]
    assert results[1].latencies == (1e-3, 2e-3) and results[1].spread == 0.3
    assert results[2].error is ErrorClass.crash and results[2].message == "died"
    with pytest.raises(ReplayError):
        pool.submit([trial({"m": 1}, options={"threads": 2})])


def noisy(seed, trials, **options):
    pool = NoisyPool(ReplayPool(table()), np.random.default_rng(seed), **options)
    return pool.run(trials)


def test_noise_follows_the_seed_and_has_the_stated_size():
    trials = [trial(number=place % 20) for place in range(400)]
    one, again, other = (noisy(seed, trials, relative=0.1) for seed in (0, 0, 1))
    assert one == again and one != other
    clean = ReplayPool(table()).run(trials)
    factors = np.log([noise.seconds / true.seconds for noise, true in zip(one, clean, strict=True)])
    assert abs(factors.mean()) < 0.02 and factors.std() == pytest.approx(0.1, rel=0.15)
    assert all(result.latencies == (result.seconds,) for result in one)


def test_noise_depends_on_the_order_of_submission_alone():
    trials = [trial(number=place) for place in range(6)]
    whole = noisy(0, trials)
    pool = NoisyPool(ReplayPool(table()), np.random.default_rng(0))
    pool.submit(trials[:4])
    pool.submit(trials[4:])
    assert pool.results() == whole


def test_made_up_failures_have_the_stated_share():
    failed = [result for result in noisy(0, [trial(number=0)] * 500, failures=0.2) if not result.ok]
    assert 60 < len(failed) < 140 and math.isnan(failed[0].seconds)
    assert noisy(0, [trial(number=0)] * 10, relative=0.0)[3].seconds == 1e-3


@pytest.mark.parametrize("options", [{"relative": -1}, {"failures": 1.5}, {"relative": math.nan}])
def test_impossible_noise_is_refused(options):
    with pytest.raises(ValueError, match=r"`\w+` must"):
        NoisyPool(ReplayPool({}), np.random.default_rng(0), **options)


def test_pools_by_name():
    assert registry.get("local") is LocalPool and registry.get("replay") is ReplayPool
    names = ", ".join(sorted(registry.POOLS))
    with pytest.raises(ValueError, match=f"`pool` must be one of {names}, but got pool='loca'; did you mean 'local'"):
        registry.get("loca")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"threads": 0}, "`threads` must be from 1 to .*, but got threads=0"),
        ({"cache": "cold"}, "`cache` must be one of warm, network, but got cache='cold'"),
        ({"run_timeout": 0}, "`run_timeout` must be positive seconds, but got run_timeout=0"),
        ({"build_timeout": math.nan}, "`build_timeout` must be positive seconds"),
        ({"best_seconds": -1.0}, "`best_seconds` must be positive or None"),
    ],
)
def test_an_impossible_trial_is_refused(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        trial(options=options)


def test_a_trial_survives_json():
    tried = trial(size=3, options={"threads": 2, "best_seconds": 1e-3})
    assert Trial.from_json(tried.to_json()) == tried
    assert record().to_trial().workload_key == trial().workload_key
