"""Every trial ends in exactly one result, and no timing is disturbed, whatever joins, leaves and fails."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from measure.errors import ErrorClass
from measure.fleet.members import Work
from measure.fleet.scheduler import LOSSES, Fleet, FleetSettings
from tests.measure.fleet.endpoints import FakeBuilder, FakeDevice, FixedProvider, make_lost, overlaps, unfit
from tests.measure.helpers import trial

HOSTS = ("north", "south")
TARGETS = (frozenset({"cpu"}), frozenset({"vta"}), frozenset({"cpu", "vta"}))
STEPS = ({}, {}, {"build": "compile"}, {"run": "crash"})


@dataclass(frozen=True)
class Join:
    """A builder or a device comes; the calls numbered in `fatal` end it, the one numbered `unfit` finds it unfit."""

    builds: bool
    host: str
    targets: frozenset[str]
    slots: int
    exclusive: bool
    fatal: frozenset[int]
    unfit: int | None
    turns: int


@dataclass(frozen=True)
class Leave:
    """The endpoint that joined as the `which`th, modulo their number, goes."""

    which: int


@dataclass(frozen=True)
class Submit:
    """Trials come in."""

    steps: tuple[dict, ...]
    target: str


@dataclass(frozen=True)
class Cancel:
    """The cancellation of all trials that have no result yet."""


@dataclass(frozen=True)
class Pass:
    """The loop goes round some times."""

    turns: int


calls = st.frozensets(st.integers(0, 6), max_size=3)
joins = st.builds(
    Join,
    st.booleans(),
    st.sampled_from(HOSTS),
    st.sampled_from(TARGETS),
    st.integers(1, 3),
    st.booleans(),
    calls,
    st.none() | st.integers(0, 4),
    st.integers(0, 9),
)
submits = st.builds(
    Submit, st.lists(st.sampled_from(STEPS), max_size=8).map(tuple), st.sampled_from(["cpu", "vta", "vta:other"])
)
events = st.one_of(
    joins,
    joins,
    submits,
    st.builds(Leave, st.integers(0, 9)),
    st.builds(Pass, st.integers(1, 12)),
    st.builds(Pass, st.integers(1, 12)),
    st.just(Cancel()),
)


def make(event: Join, number: int, notes: list) -> FakeBuilder | FakeDevice:
    """The endpoint of an event."""
    seen = Counter()

    def fault(_):
        seen["calls"] += 1
        if seen["calls"] - 1 in event.fatal:
            return make_lost()
        return unfit() if seen["calls"] - 1 == event.unfit else None

    kind = FakeBuilder if event.builds else FakeDevice
    options = {"slots": event.slots} if event.builds else {"exclusive": event.exclusive}
    return kind(
        f"{kind.__name__}{number}", event.host, event.targets, notes=notes, faults=fault, turns=event.turns, **options
    )


async def play(script, notes):
    """Plays the events; there are machines that stay, so that all trials can end."""
    results, failures, endpoints, submitted = [], [], [], []
    unwanted = set()
    fleet = Fleet(FleetSettings(batch=3), results.append, failures.append)
    fleet.start([FixedProvider()])
    everything = TARGETS[-1]
    staying = [  # so that none that is unfit is the last one
        FakeBuilder("quick builder", "haven", everything, notes=notes, slots=2),
        FakeBuilder("slow builder", "haven", everything, notes=notes, turns=7),
        FakeDevice("simulator", "haven", everything, notes=notes, exclusive=False, turns=11),
        FakeDevice("device", "haven", everything, notes=notes, turns=1),
    ]
    for endpoint in staying:
        fleet.join(endpoint)
    for event in script:
        if isinstance(event, Join):
            endpoints.append(make(event, len(endpoints), notes))
            fleet.join(endpoints[-1])
        elif isinstance(event, Leave) and endpoints:
            fleet.leave(endpoints[event.which % len(endpoints)])
        elif isinstance(event, Submit):
            works = [
                Work(len(submitted) + place, trial(options={"target": event.target}, place=place, **step))
                for place, step in enumerate(event.steps)
            ]
            submitted += works
            fleet.submit(works)
        elif isinstance(event, Cancel):
            fleet.cancel()
            finished = {result.index for result in results}
            unwanted |= {work.index for work in submitted if work.index not in finished}
        elif isinstance(event, Pass):
            for _ in range(event.turns):
                await asyncio.sleep(0)
    for _ in range(5000):
        if len(results) + len(unwanted) == len(submitted):
            break
        await asyncio.sleep(0)
    for _ in range(20):  # nothing may come afterwards
        await asyncio.sleep(0)
    await fleet.close()
    return [work for work in submitted if work.index not in unwanted], results, failures, endpoints


@settings(max_examples=150, deadline=None)
@given(st.lists(events, max_size=25))
def test_every_trial_that_is_wanted_ends_in_exactly_one_result(script):
    notes = []
    submitted, results, failures, endpoints = asyncio.run(play(script, notes))
    assert failures == []
    assert sorted(result.index for result in results) == [work.index for work in submitted]
    by_index = {result.index: result for result in results}
    losses = Counter(id(note.trial) for note in notes if note.ending not in ("ok",))
    for work in submitted:
        result, step = by_index[work.index], work.trial.trace[0]
        assert result.trial is work.trial
        if result.error is ErrorClass.lost:
            assert work.losses == LOSSES
        else:
            assert result.error == step.get("build", step.get("run", "ok"))
        assert losses[id(work.trial)] <= LOSSES  # one that left before the trial had begun leaves no note
    for host in (*HOSTS, "haven"):
        assert overlaps(notes, host) == []
    assert all(endpoint.close_count == 1 and endpoint.busy == 0 for endpoint in endpoints)
