"""Validation of endpoints: each answer is a result that can be written and read again, or it is not believed."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from measure.errors import OutcomeError, PoolError
from measure.fleet.members import Host, Work, make_member
from measure.fleet.pool import FleetPool
from measure.fleet.scheduler import Fleet
from measure.fleet.validation import judge_remote_answer
from measure.provenance import Provenance
from measure.record import Record
from measure.supervisor import Answer
from tests.measure.fleet.endpoints import FakeBuilder, FakeDevice, FixedProvider, Script
from tests.measure.helpers import trial

TRUE = {"latencies": [1e-3], "seconds": 1e-3, "spread": 0.0, "max_error": 0.0, "span": [0.0, 0.1]}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
LATENCIES = st.floats(allow_nan=True) | st.floats(1e-12, 1.0) | st.integers(-1, 10**400)
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "error": st.sampled_from(["ok", "crash", "lost", "none"]) | JSON,
        "message": st.text(st.characters(), max_size=30) | JSON,
        "latencies": st.lists(LATENCIES, max_size=4) | JSON,
        "seconds": LATENCIES | JSON,
        "spread": LATENCIES | JSON,
        "max_error": LATENCIES | JSON,
        "rotation_bytes": st.integers() | JSON,
        "metrics": st.dictionaries(st.text(st.characters(), max_size=5), LATENCIES, max_size=3) | JSON,
        "span": st.lists(LATENCIES, min_size=2, max_size=2) | JSON,
        "more": JSON,
    },
)


@settings(deadline=None, max_examples=200)
@given(HEADERS | HEADERS.map(lambda header: {**TRUE, **header}), st.sampled_from(["builder", "device"]))
def test_any_answer_is_a_result_that_can_be_written_or_is_refused(header, role):
    """The header is as it comes over a wire, where JSON has NaN, halves of characters and integers of any length."""
    endpoint = FakeBuilder("it") if role == "builder" else FakeDevice("it")
    work = Work(0, trial())
    try:
        result = judge_remote_answer(
            make_member(endpoint, Host()), work, Answer(json.loads(json.dumps(header)), b"module"), 1.0
        )
    except OutcomeError as error:
        assert str(error).isprintable() and "must" in str(error)
        return
    if result is None:
        assert work.module == b"module"
        return
    record = Record.of(result, Provenance(time=0.0))
    again = Record.from_line(record.to_line())
    assert again.error is result.error and (again.seconds == result.seconds or not result.ok)
    assert not result.ok or 0 < sum(result.latencies) < 2.0


class LyingDevice(FakeDevice):
    """Answers what it was told to say, once, and the truth from then on."""

    lie: dict

    async def run(self, trial, module, best_seconds):
        lie, self.lie = self.lie, TRUE
        return Answer(lie)


def make_liar(name, lie):
    device = LyingDevice(name, host=name)
    device.lie = {**TRUE, **lie}
    return device


def test_a_trial_that_meets_many_liars_is_not_lost():
    liars = [make_liar(f"liar{number}", {"seconds": -1.0}) for number in range(6)]
    honest = FakeDevice("honest", host="honest", seconds=0.02)
    with FleetPool([FixedProvider(FakeBuilder("builder"), *liars, honest)]) as pool:
        results = pool.run([trial(place=place) for place in range(8)])
    assert all(result.ok and result.host["device"] == "honest" for result in results)
    assert all(liar.close_count for liar in liars)


def test_a_refused_machine_that_comes_again_has_no_work():
    """Its provider need not know: it waits, as for any machine that has nothing to do."""
    joined = []

    async def script(fleet: Fleet) -> None:
        fleet.join(FakeBuilder("builder"))
        fleet.join(FakeDevice("honest", host="honest", seconds=0.01))
        while True:
            joined.append(make_liar("liar", {"latencies": [float("nan")]}))
            fleet.join(joined[-1])
            await fleet.left(joined[-1])
            assert fleet.is_refused(joined[-1])
            await asyncio.sleep(0.001)

    with FleetPool([Script(script)]) as pool:
        assert all(result.ok for result in pool.run([trial(place=place) for place in range(20)]))
    assert len(joined) == 2 and joined[0].lie is TRUE and joined[1].lie is not TRUE


def test_a_builder_whose_answer_is_none_ends_the_run_with_a_sentence():
    class Odd(FakeBuilder):
        async def build(self, trial):
            return Answer({"span": "soon"})

    sentence = "builder odd .* must be possible, but `span` must be a start and an end"
    with FleetPool([FixedProvider(Odd("odd"), FakeDevice("device"))]) as pool, pytest.raises(PoolError, match=sentence):
        pool.run([trial()])
