"""Kernels that seem right: each is machine code in a real worker, and each is found out."""

from __future__ import annotations

import pytest

from measure.errors import ErrorClass
from measure.interleaved import InterleavedTimer, InterleavedTiming
from measure.local import LocalPool
from measure.pool import Trial
from measure.settings import LocalSettings
from measure.timing import TimingPolicy
from measure.worker import Runner
from tests.measure.lying_executor import SIZE, LyingExecutor, twice

EXECUTOR = "tests.measure.lying_executor:LyingExecutor"
PAGE = 4096 // 4
AFTER = "after timing, `output` must match the reference"


def trial(lie: str, dtype: str = "float32", constant: bool = False, cache: str = "warm", **step: object) -> Trial:
    workload = twice(dtype, constant)
    trace = [{"step": "fake", "lie": lie, **step}]
    keys = {"workload_key": workload.key, "trace_key": repr(sorted(trace[0].items()))}
    return Trial(workload.to_json(), "direct", trace, threads=1, cache=cache, **keys)


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return LocalSettings(builders=1, executor=EXECUTOR, host_lock=str(tmp_path_factory.mktemp("lock") / "host.lock"))


HONEST = [
    trial("none"),
    trial("none", "int32"),
    trial("none", constant=True),
    trial("none", constant=True, cache="network"),
]
SEEN_LIES = [
    (trial("wrong later"), AFTER),
    (trial("wrong later", from_call=40), AFTER),
    (trial("idle later"), AFTER),
    (trial("idle later", from_call=40), AFTER),
    (trial("idle later", constant=True, cache="network"), AFTER),
    (trial("remembers"), "`output` must match the reference"),
    (trial("remembers", from_call=2, dtype="int32"), "`output` must match the reference"),
    (trial("writes behind", place=SIZE), "it changed 4 bytes behind `y`"),
    (trial("writes behind", place=-1), "it changed 4 bytes in front of `y`"),
    (trial("writes behind", place=SIZE, array="x"), "it changed 4 bytes behind `x`"),
    (trial("writes behind", place=-300, array="x"), "it changed 4 bytes in front of `x`"),
    (trial("writes behind", place=-1, array="workspace"), "it changed 4 bytes in front of `workspace`"),
    (trial("reads behind", place=SIZE, array="x"), "got nan"),
    (trial("reads behind", place=-1, array="x"), "got nan"),
    (trial("workspace"), "got nan"),
    (trial("workspace", "int32"), "`output` must match the reference"),
    (trial("complement", "int32"), "`output` must match the reference"),
    (trial("maximum"), AFTER),
]
CRASHES = [
    trial("writes behind", place=SIZE + 16),
    trial("writes behind", place=SIZE - PAGE - 16),
    trial("reads on", place=SIZE + 16, array="x"),
    trial("reads on", place=2 * 16, array="workspace"),
    trial("none", constant=True, packed=SIZE + 16),
]


def play(trial_given: Trial, check: bool = True) -> dict[str, object]:
    """The worker's answer to a trial, timed as long as the winner of a search."""
    executor = LyingExecutor()
    timing = TimingPolicy(budget_seconds=0.0, min_samples=50).to_json()
    request = {"trial": trial_given.to_json(), "timing": timing, "check": check}
    header, _ = Runner(executor, 1 << 20).handle(request, executor.build(trial_given), lambda: None)
    return header


@pytest.mark.parametrize("honest", HONEST)
def test_honest_kernels_are_believed(honest):
    found = play(honest)
    assert "error" not in found and found["max_error"] == 0.0
    assert "error" not in play(honest, check=False)


@pytest.mark.parametrize(("lie", "message"), SEEN_LIES)
def test_a_lie_is_a_wrong_output(lie, message):
    found = play(lie)
    assert found["error"] is ErrorClass.wrong_output and message in found["message"] and "latencies" not in found


def test_what_is_not_written_after_the_timing_is_seen_where_the_reference_is_elsewhere():
    found = play(trial("idle later", "int32", from_call=40), check=False)
    assert found["error"] is ErrorClass.wrong_output
    assert f"must be written whole, but got {SIZE} of {SIZE} elements that were not" in found["message"]


def test_what_leaves_its_arrays_far_ends_its_process_alone(settings):
    with LocalPool(settings) as pool:
        *lied, wrong, honest = pool.run([*CRASHES, SEEN_LIES[0][0], HONEST[0]])
    for result in lied:
        assert result.error is ErrorClass.crash and "SIGSEGV" in result.message
    assert wrong.error is ErrorClass.wrong_output and wrong.latencies == () and honest.ok


def test_kernels_in_turns_are_checked_as_well(settings):
    trials = [HONEST[0], trial("idle later"), trial("maximum"), trial("writes behind", place=SIZE), HONEST[2]]
    with InterleavedTimer(1, InterleavedTiming(rounds=2, check=True), settings) as timer:
        results = timer.time(trials)
    assert [result.error is ErrorClass.wrong_output for result in results] == [False, True, True, True, False]
    assert all(result.ok for result in (results[0], results[4]))
