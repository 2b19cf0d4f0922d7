"""Outcomes that a measurement may have, and ones that no machine can have."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from measure import bounds, outcome
from measure.errors import ErrorClass, OutcomeError
from measure.outcome import Outcome
from measure.pool import TrialResult
from measure.replay import ReplayPool
from measure.timing import TICK, TimingPolicy, measure
from search_space import workloads
from tests.measure.helpers import change_record, record, trial

NAN = math.nan
LIES = [
    ({"latencies": ()}, "`latencies` must hold a sample"),
    ({"latencies": (1e-3, 0.0)}, "`latencies` must be finite and at least 1e-10 seconds, but got 0.0"),
    ({"latencies": (1e-3, NAN)}, "`latencies` must be finite and at least 1e-10 seconds, but got nan"),
    ({"seconds": 2e-3}, "`seconds` must be the median of `latencies`, 0.001, but got seconds=0.002"),
    ({"seconds": NAN}, "`seconds` must be the median"),
    ({"error": ErrorClass.crash}, "`latencies` and `seconds` must be empty where error=crash"),
    ({"spread": -0.1}, "`spread` must be finite and not negative, but got spread=-0.1"),
    ({"spread": math.inf}, "`spread` must be finite"),
    ({"build_seconds": -1.0}, "`build_seconds` must be finite and not negative"),
    ({"run_seconds": math.inf}, "`run_seconds` must be finite and not negative"),
    ({"max_error": -1.0}, "`max_error` must not be negative"),
    ({"rotation_bytes": -1}, "`rotation_bytes` must not be negative"),
    ({"metrics": {"cycles": math.inf}}, "`metrics` must be finite numbers by name, but got 'cycles'=inf"),
    ({"metrics": dict.fromkeys(map(str, range(65)), 1)}, "`metrics` must be at most 64 numbers, but got 65"),
]


@pytest.mark.parametrize(("lie", "sentence"), LIES)
def test_neither_a_result_nor_a_record_can_be_made_of_a_lie(lie, sentence):
    right = TrialResult(trial(), 0, Outcome((1e-3,), 1e-3, spread=0.0))
    for true in (right, record(1e-3)):
        with pytest.raises(OutcomeError, match=sentence):
            dataclasses.replace(true, outcome=dataclasses.replace(true.outcome, **lie))


@given(st.lists(st.floats(1e-10, 1e3), min_size=1, max_size=40))
def test_the_median_is_that_of_numpy(latencies):
    assert outcome.median(tuple(latencies)) == np.median(latencies)
    TrialResult(trial(), 0, Outcome(tuple(latencies), float(np.median(latencies))))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"threads": 0}, "`threads` must be from 1 to .*, but got threads=0"),
        ({"seed": -1}, "`seed` must be at least 0"),
        ({"order": -1}, "`order` must be at least 0"),
        ({"time": NAN}, "`time` must be Unix seconds, but got time=nan"),
        ({"time": 1e300}, "`time` must be Unix seconds"),
        ({"cache": "cold"}, "`cache` must be one of warm, network, but got cache='cold'"),
        ({"note": "9" * 5000}, "`note` must have at most 4000 characters"),
        ({"strategy": "9" * 5000}, "`strategy` must have at most 4000 characters"),
        ({"choices": (1, -1)}, "`choices` must be indices into decision groups, but got choice=-1"),
    ],
)
def test_a_records_own_fields_have_their_ranges(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        change_record(record(), **changes)


def test_no_machine_is_faster_than_its_kind_can_be():
    product = workloads.matmul(m=1024, n=1024, k=1024).to_json()
    for target, threads in (
        ("cpu", 1),
        ("cpu:znver4", 64),
        ("c", 1),
        ("cuda:sm_90", 1),
        ("vta", 1),
        ("vta:nowhere.json", 1),
    ):
        least = bounds.least_seconds(product, target, threads)
        assert 0 < least < 1e-2
        bounds.check_possible(product, target, threads, least)
        with pytest.raises(OutcomeError, match="`seconds` must be at least .* for this workload"):
            bounds.check_possible(product, target, threads, least / 2)
    assert bounds.least_seconds(product, "c", 1) == bounds.least_seconds(product, "cpu", 1)
    assert bounds.least_seconds(product, "cpu", 4) == bounds.least_seconds(product, "cpu", 1) / 4
    assert bounds.least_seconds({"operator": "mine", "args": {}}, "cpu", 1) == 0.0
    with pytest.raises(OutcomeError, match="`workload` must be one of its operator, but: `matmul` must be given"):
        bounds.least_seconds({"operator": "matmul", "args": {"m": 3}}, "cpu", 1)


def test_a_sample_below_the_clocks_tick_counts_as_a_tick():
    found = measure(lambda iterations: np.zeros(iterations), TimingPolicy(max_samples=20))
    assert found.seconds == TICK and set(found.latencies) == {TICK} and found.spread == 0.0
    negative = measure(lambda iterations: np.full(iterations, -1e-3), TimingPolicy(max_samples=20))
    with pytest.raises(OutcomeError, match="`latencies` must be finite and at least"):
        TrialResult(trial(), 0, Outcome(negative.latencies, negative.seconds))


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.inf])
def test_a_replay_table_holds_latencies(seconds):
    with pytest.raises(ValueError, match="`table` must hold latencies, but .*trace_key=a"):
        ReplayPool({"a": seconds})
