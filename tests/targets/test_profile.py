"""Profiles: tables by share, arrays of seconds, and traces in Chrome's format."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from targets.profile import Profile

STEPS = [
    {"title": "relu", "workload": "elementwise(relu)", "kernel": "a"},
    {"title": "conv <1>", "workload": "conv2d(" + "n" * 80 + ")", "kernel": "b", "flops": 6_000_000},
    {"title": "gru", "workload": "matmul()", "kernel": "c", "flops": 1_000_000, "trips": 4},
    {"title": "idle", "workload": "copy()", "kernel": "d", "flops": 0},
]
SECONDS = np.array([[1.0, 6.0, 3.0, 0.0], [1.0, 6.0, 3.0, 0.0], [9.0, 60.0, 30.0, 0.0]]) * 1e-3


@pytest.fixture
def profile() -> Profile:
    return Profile("net", STEPS, SECONDS)


def test_rows_are_sorted_by_share_with_rates_where_operations_are_known(profile: Profile) -> None:
    rows = profile.rows
    assert [(row.step, row.name) for row in rows] == [(1, "conv <1>"), (2, "gru"), (0, "relu"), (3, "idle")]
    assert [row.share for row in rows] == pytest.approx([0.6, 0.3, 0.1, 0.0])
    assert rows[0].gflops == pytest.approx(1.0) and rows[1].gflops == pytest.approx(4 / 3)  # all trips of a loop
    assert rows[2].gflops is None and rows[3].gflops is None


def test_it_is_shown_as_a_table(profile: Profile) -> None:
    title, head, first, *rest = repr(profile).splitlines()
    assert title == "Profile of net: 4 steps, 10.000 ms, median of 3"
    assert head.split() == ["name", "workload", "ms", "share", "GFLOP/s"]
    assert first.startswith("conv <1>  conv2d(nnn") and first.split()[-3:] == ["6.000", "60.0%", "1.0"]
    assert len(rest) == 3 and len({len(line) for line in rest}) == 1
    assert "<td>conv &lt;1&gt;</td>" in profile._repr_html_() and "<th>GFLOP/s</th>" in profile._repr_html_()


def test_many_rows_end_in_one_for_the_rest() -> None:
    seconds = np.linspace(1, 2, 50)[None] * 1e-3
    found = repr(Profile("net", [STEPS[0]] * 50, seconds)).splitlines()
    assert len(found) == 2 + 30 + 1 and found[-1].split()[:2] == ["20", "more"]


def test_numpy_takes_it_as_the_array_that_it_was(profile: Profile) -> None:
    assert profile.shape == (3, 4) and len(profile) == 3
    np.testing.assert_array_equal(np.median(profile, axis=0), np.median(SECONDS, axis=0))
    np.testing.assert_array_equal(profile[0], SECONDS[0])
    np.testing.assert_array_equal(profile[:, [1, 2]], SECONDS[:, [1, 2]])
    assert (profile >= 0).all() and not (profile * 2 - profile - SECONDS).any()
    np.testing.assert_array_equal(np.add.reduce(profile), SECONDS.sum(axis=0))


def test_no_inference_has_no_rows() -> None:
    empty = Profile("net", STEPS, np.empty((0, 4)))
    assert empty.rows == [] and "0.000 ms, median of 0" in repr(empty)


def test_a_trace_has_steps_one_after_the_other(profile: Profile, tmp_path: Path) -> None:
    data = json.loads(profile.to_chrome_trace(tmp_path / "trace.json").read_text())
    assert data["traceEvents"][0]["args"] == {"name": "net"}
    events = [event for event in data["traceEvents"] if event["ph"] == "X"]
    assert [event["name"] for event in events] == ["relu", "conv <1>", "gru"] * 3  # what took no time is left out
    assert events[0]["ts"] == 0.0 and events[1]["args"]["gflops"] == pytest.approx(1.0)
    for event, after in pairwise(events):
        assert after["ts"] == pytest.approx(event["ts"] + event["dur"])
    assert events[-1]["ts"] + events[-1]["dur"] == pytest.approx(SECONDS.sum() * 1e6)
