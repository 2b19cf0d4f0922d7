"""Conversion of records of runs to database entries: the fastest schedule of each task."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from autotune.tuner.database.entry import Entry, schedule_lanes
from autotune.tuner.database.store import ScheduleDatabase
from autotune.tuner.finals import select_best
from costmodel.dataset.build import machine_name
from measure.record import Record
from search_space.space import generate
from search_space.workloads import Workload
from targets import registry


def select_entries(records: Iterable[Record], note: str = "") -> ScheduleDatabase:
    """Collects the fastest schedule of every workload, target, number of threads and cache state in some records.

    Schedules outside of search spaces, such as those of templates, are left out.

    Args:
        records: records of runs.
        note: text for `made` besides the number of trials and the date.

    Raises:
        ValueError: a workload or target of the records is unknown here.
    """
    families: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        machine = machine_name(record.host, registry.get(record.trial.target).simulated)
        families.setdefault((*record.trial.family, machine), []).append(record)
    entries = []
    for of in families.values():
        entry = _entry(of, note)
        if entry is not None:
            entries.append(entry)
    return ScheduleDatabase(entries)


def _entry(records: Sequence[Record], note: str) -> Entry | None:
    best = select_best(records)
    if best is None:
        return None
    known = (best.record.algorithm, best.record.trace_key)
    same = (r for r in records if (r.algorithm, r.trace_key) == known and r.provenance.choices is not None)
    chosen = next(same, best.record)
    if chosen.provenance.choices is None:
        return None
    trial, target = chosen.trial, registry.get(chosen.trial.target)
    workload = Workload.from_json(trial.workload)
    space = generate(workload, target.hardware, [chosen.algorithm])
    sketch = next((s for s in space.sketches if s.name == chosen.provenance.sketch), None)
    choices = chosen.provenance.choices
    if sketch is None or len(choices) != len(sketch.groups):
        return None
    if any(place >= len(group.table) for place, group in zip(choices, sketch.groups, strict=True)):
        return None
    if sketch.trace(choices).key != chosen.trace_key:
        return None  # sketch rules have changed since
    day = time.strftime("%Y-%m-%d", time.gmtime(chosen.provenance.time)) if chosen.provenance.time else ""
    origin = ", ".join(part for part in (f"{len(records)} records", day, note) if part)
    return Entry(
        workload.to_json(),
        trial.target,
        schedule_lanes(target.hardware),
        trial.threads,
        trial.cache,
        sketch.name,
        sketch.values(choices),
        best.seconds,
        machine_name(chosen.host, target.simulated),
        origin,
    )
