"""Steadiness of timings, and the work of others on the machine."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from measure import steadiness
from measure.steadiness import DISAGREE, busy_cores, compute_spread, disagreement, half_medians, tell_if_busy

TIMES = st.lists(st.floats(1e-9, 10.0), min_size=1, max_size=40)


@given(TIMES)
def test_spread_is_that_of_the_quartiles(seconds):
    low, middle, high = np.quantile(seconds, (0.25, 0.5, 0.75))
    assert compute_spread(seconds) == pytest.approx((high - low) / middle)
    assert compute_spread([seconds[0]] * 9) == 0 and math.isnan(compute_spread([]))


@given(TIMES, st.floats(1.2, 10.0))
def test_halves_disagree_where_the_machine_changed(seconds, factor):
    steady = [seconds[0]] * 10
    assert disagreement(half_medians(steady)) == 0
    changed = [*steady, *(factor * each for each in steady)]
    assert disagreement(half_medians(changed)) == pytest.approx(factor - 1) and factor - 1 > DISAGREE
    assert disagreement(half_medians(seconds[:5])) == 0  # of few timings nothing is said
    assert disagreement(half_medians([math.nan] * 8)) == 0


def collect_messages():
    said = []
    tell_if_busy(said.append)
    return said


def test_who_keeps_the_cores_busy_is_counted(tmp_path, monkeypatch):
    stat = tmp_path / "stat"
    monkeypatch.setattr(steadiness, "_STAT", stat)
    monkeypatch.setattr(steadiness, "allowed_cores", lambda: (0, 2))
    monkeypatch.setattr(steadiness.os, "getloadavg", lambda: (3.0, 3.0, 3.0))

    def counts(busy, idle):
        core = f"{busy} 0 0 {idle} 5 0 0 0 0 0"
        return f"cpu 1 2 3 4 5 6 7 8 9 10\ncpu0 {core}\ncpu1 999 0 0 0 0 0 0 0 0 0\ncpu2 {core}\nintr 5\n"

    def look(seconds, busy, idle):
        stat.write_text(counts(100 + busy, 200 + idle))

    for busy, idle, cores in ((15, 5, 1.5), (1, 19, 0.1), (0, 20, 0.0), (0, 0, 0.0)):
        stat.write_text(counts(100, 200))
        monkeypatch.setattr(steadiness.time, "sleep", lambda seconds, b=busy, i=idle: look(seconds, b, i))
        assert busy_cores() == pytest.approx(cores)
        stat.write_text(counts(100, 200))
        assert collect_messages() == (
            ["the machine is busy: others use 1.5 of 2 cores, so timings are slower and less certain"]
            if busy == 15
            else []
        )
    stat.unlink()
    assert busy_cores() == 0.0
    monkeypatch.setattr(steadiness.os, "getloadavg", lambda: (0.1, 3.0, 3.0))
    monkeypatch.setattr(steadiness.time, "sleep", lambda seconds: pytest.fail("an idle machine is not looked at"))
    assert busy_cores() == 0.0
