"""The contract of stores of schedules, and of the ordered union of several."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.compiler.cache.kernels import ChoiceStore, KernelCache
from autotune.compiler.cache.store import FolderCache
from autotune.schedule import Schedule
from autotune.schedule_store import MemoryStore, OrderedStores, ScheduledWorkload, ScheduleStore
from autotune.tuner.entry_store import EntryStore
from autotune.tuner.record_store import RecordStore
from measure.outcome import Outcome
from measure.pool import Trial
from measure.provenance import Kind, Provenance
from measure.record import Record
from search_space import workloads
from search_space.schedule.trace import Trace
from targets import registry
from tests.autotune.fakes import settings_with

CPU, OTHER = registry.get("cpu"), registry.get("cpu:haswell")
SOFTMAX, WIDER = workloads.softmax(4, 8), workloads.softmax(4, 16)
ESTIMATE = ScheduledWorkload(SOFTMAX, CPU, Schedule("direct", Trace()), 2e-6, provisional=True)

STORES: dict[str, Callable[[Path], ScheduleStore]] = {
    "memory": lambda folder: MemoryStore(),
    "records": lambda folder: RecordStore((), lambda workload: workload.algorithms),
    "choices": lambda folder: ChoiceStore(KernelCache(FolderCache(folder)), lambda target: {"seed": 0}),
    "entries": lambda folder: EntryStore(settings_with()),
    "union": lambda folder: OrderedStores([EntryStore(settings_with()), MemoryStore()]),
}


def record(seconds: float, algorithm: str = "direct", step: str = "a", kind: Kind = Kind.search) -> Record:
    key = (SOFTMAX.key, f"{algorithm} {step}")
    trial = Trial(SOFTMAX.to_json(), algorithm, (), workload_key=key[0], trace_key=key[1])
    return Record(trial, Outcome((seconds,), seconds), Provenance(kind=kind))


def make_measured(seconds: float, **facts: str) -> ScheduledWorkload:
    return replace(ESTIMATE, seconds=seconds, provisional=False, record=record(seconds, **facts))


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("schedule", [ESTIMATE, make_measured(1e-6)], ids=["estimated", "measured"])
def test_a_store_answers_by_what_it_keeps(name: str, schedule: ScheduledWorkload, tmp_path: Path) -> None:
    store = STORES[name](tmp_path)
    assert not store.best(SOFTMAX, CPU) and not store.best(SOFTMAX, CPU, None)
    keeps = store.add(schedule)
    assert keeps == {"records": not schedule.provisional, "choices": schedule.provisional, "entries": False}.get(
        name, True
    )
    assert list(store.best(SOFTMAX, CPU)) == list(store.best(SOFTMAX, CPU, None)) == [schedule] * keeps
    assert not store.best(SOFTMAX, CPU, 0)
    assert not store.best(SOFTMAX, OTHER) and not store.best(WIDER, CPU)


def test_records_are_ordered_by_what_was_timed_beside_each_other() -> None:
    store = RecordStore([record(3e-6), record(1e-6, step="b"), record(2e-6, step="c")], lambda _: ["direct"])
    assert [each.seconds for each in store.best(SOFTMAX, CPU, 2)] == [1e-6, 2e-6]
    assert store.add(make_measured(4e-6, step="b")) and store.best(SOFTMAX, CPU)[0].seconds == 1e-6
    timed = RecordStore([record(1e-6), record(1.1e-6, step="b")], lambda _: ["direct"])
    assert timed.add(replace(ESTIMATE, record=record(1.5e-6, kind=Kind.final)))
    assert [each.seconds for each in timed.best(SOFTMAX, CPU, None)] == [1.5e-6, 1.1e-6]


def test_an_algorithm_that_is_not_allowed_decides_nothing() -> None:
    """A fast trial of another algorithm must not hold a later trial to be no faster than those timed at the end."""
    records = [record(3e-6), record(5e-6, kind=Kind.final), record(2e-6, step="b")]
    fast = [record(1e-6, "fast"), record(6e-6, "fast", kind=Kind.final)]
    store = RecordStore([*records, *fast], lambda _: ["direct"])
    assert [each.seconds for each in store.best(SOFTMAX, CPU, None)] == [2e-6, 5e-6]
    both = RecordStore([*records, *fast], lambda _: ["direct", "fast"]).best(SOFTMAX, CPU, None)
    assert [each.seconds for each in both] == [5e-6, 6e-6, 2e-6]


def test_the_first_store_that_answers_wins_be_it_slower() -> None:
    slow, fast = MemoryStore([replace(ESTIMATE, seconds=1.0)]), MemoryStore([ESTIMATE])
    assert OrderedStores([MemoryStore(), slow, fast]).best(SOFTMAX, CPU)[0].seconds == 1.0
    assert OrderedStores([]).best(SOFTMAX, CPU) == () and not OrderedStores([]).add(ESTIMATE)


def test_a_schedule_goes_to_the_first_store_that_keeps_it(tmp_path: Path) -> None:
    choices, memory = STORES["choices"](tmp_path), MemoryStore()
    union = OrderedStores([choices, memory])
    assert union.add(ESTIMATE) and choices.best(SOFTMAX, CPU) and not len(memory)
    other = make_measured(1e-6)
    assert union.add(other) and list(memory) == [other]
    assert list(union.best(SOFTMAX, CPU)) == [ESTIMATE]
