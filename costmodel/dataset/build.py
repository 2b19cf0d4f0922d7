"""From records of measurements to a dataset, and from several datasets to one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from costmodel.dataset import symbolic
from costmodel.dataset.dataset import Dataset, Measured, Program, SketchData, TaskData, digest_of
from costmodel.dataset.errors import DatasetError
from measure.provenance import Kind
from measure.record import Record
from search_space.schedule.errors import ScheduleError
from search_space.schedule.trace import Trace
from search_space.space import SearchSpace, generate
from search_space.workloads import Workload
from targets import registry

_RANDOM = "random"
"""Strategy that draws its programs, and how they are told from others."""
_RETIMED = (Kind.final, Kind.retimed)
"""Records that time a known program again."""

Family = tuple[str, str, int, str]
"""Workload key, target, threads and cache state: what latencies compare within."""


def build(records: Iterable[Record], tasks: Sequence[TaskData] = ()) -> Dataset:
    """The dataset of some records.

    Each program is in it once, with the samples of every time that it was measured right; programs stand in the order
    of their searches' trials. Where the search space of
    its workload still gives a program from the choices in its record, only its decisions are kept; any other is kept
    with a schedule of its own.

    Args:
        records: in the order in which they were measured.
        tasks: what is known of them besides: names, networks, and the hardware as it was taken then; what is missing
            is taken from the record and from the target as it is on this machine.

    Raises:
        DatasetError: no records, or of a workload or target that is not known here.
    """
    known = {_family_of_task(task): task for task in tasks}
    found: dict[Family, _Builder] = {}
    for record in records:
        family = record.trial.family
        if family not in found:
            found[family] = _Builder(_task_of(record, known.get(family)))
        found[family].add(record)
    if not found:
        raise DatasetError("`records` must hold at least one measurement, but got none")
    order = {family: place for place, family in enumerate(known)}
    families = sorted(found, key=lambda family: order.get(family, len(order)))
    return Dataset({found[family].task: found[family].measured for family in families})


def merge(datasets: Sequence[Dataset]) -> Dataset:
    """One dataset of several; a program that stands in more than one has the samples of all, the same ones once.

    Tasks of one key are one task, with the hardware of the first and the networks of all.
    """
    merged: dict[str, tuple[TaskData, Measured]] = {}
    for data in datasets:
        for task in data.tasks:
            own = data.measured(task)
            if task.key not in merged:
                merged[task.key] = task, own
                continue
            first, into = merged[task.key]
            merged[task.key] = dataclasses.replace(first, networks={**task.networks, **first.networks}), into
            places = [into.sketch(sketch) for sketch in own.sketches]
            for program in own.programs:
                into.programs.append(dataclasses.replace(program, sketch=places[program.sketch]))
            into.programs = _once(into.programs)
    return Dataset(dict(merged.values()))


def machine_of(host: Mapping[str, Any], simulated: bool) -> str:
    """How a task names the machine that measured it; simulators are the same everywhere."""
    return "" if simulated else f"{host.get('cpu', 'unknown')}, {host.get('cores', '?')} cores"


class _Builder:
    """Programs of one task."""

    def __init__(self, task: TaskData) -> None:
        self.task = task
        self._space: SearchSpace | None = None
        self._sketches: dict[str, int] = {}  # name in the space -> its place in `_of`
        self._places: dict[int, int] = {}  # digest -> place in `_of` of the first program that is fine, else the first
        self._of = Measured()

    @property
    def measured(self) -> Measured:
        """What was added, in an order that does not depend on which trial of a round was finished first."""
        found, places = Measured(), list[int]()
        for program in _once(sorted(self._of.programs, key=lambda p: (p.order, p.origin, p.seed))):
            if program.sketch not in places:
                places.append(program.sketch)
            found.programs.append(dataclasses.replace(program, sketch=places.index(program.sketch)))
        found.sketches = [self._of.sketches[place] for place in places]
        return found

    def add(self, record: Record) -> None:
        digest = _digest(record)
        if record.provenance.kind in _RETIMED and digest in self._places:
            known = self._of.programs[self._places[digest]]
            if record.ok and known.ok:
                samples = np.concatenate([known.latencies, np.array(record.latencies, np.float32)])
                self._of.programs[self._places[digest]] = dataclasses.replace(known, latencies=samples)
            return
        known_at = self._places.get(digest)
        if known_at is None or (record.ok and not self._of.programs[known_at].ok):
            self._places[digest] = len(self._of.programs)
        sketch, values = self._decisions(record) or self._concrete(record)
        self._of.programs.append(
            Program(
                sketch,
                values,
                np.array(record.latencies if record.ok else (), np.float32),
                str(record.error),
                _RANDOM if record.provenance.strategy == _RANDOM else "search",
                record.provenance.order,
                record.trial.seed,
                digest,
            )
        )

    def _decisions(self, record: Record) -> tuple[int, tuple[int, ...]] | None:
        """Sketch and decisions by the record's choices; None where they make another program today."""
        choices = record.provenance.choices
        if choices is None:
            return None
        if self._space is None:
            self._space = generate(self.task.workload, self.task.hardware)
        sketch = next((s for s in self._space.sketches if s.name == record.provenance.sketch), None)
        if sketch is None or len(choices) != len(sketch.groups):
            return None
        if any(choice >= len(group.table) for choice, group in zip(choices, sketch.groups, strict=True)):
            return None
        if sketch.trace(choices).key != record.trace_key:
            return None
        if sketch.name not in self._sketches:
            text = symbolic.to_text(sketch.steps)
            self._sketches[sketch.name] = self._of.sketch(
                SketchData(sketch.name, sketch.algorithm, text, sketch.columns)
            )
        return self._sketches[sketch.name], tuple(sketch.values(choices).values())

    def _concrete(self, record: Record) -> tuple[int, tuple[int, ...]]:
        try:
            trace = Trace.from_json(record.trial.trace)
        except ScheduleError as error:
            raise DatasetError(f"`trace` of a record must be a schedule, but {error}") from None
        if digest_of(trace) != _digest(record):
            raise DatasetError(f"`trace_key` must be that of the record's trace, but got {record.trace_key!r}")
        return self._of.sketch(SketchData(record.provenance.sketch, record.algorithm, symbolic.to_text(trace), ())), ()


def _once(programs: Sequence[Program]) -> list[Program]:
    """Each program once: as the first that is fine stands, with the samples of all that are; else the first."""
    kept: dict[int, Program] = {}
    for program in programs:
        known = kept.get(program.digest)
        if known is None or (program.ok and not known.ok):
            kept[program.digest] = program
        elif program.ok and not np.array_equal(program.latencies, known.latencies):
            samples = np.concatenate([known.latencies, program.latencies])
            kept[program.digest] = dataclasses.replace(known, latencies=samples)
    return list(kept.values())


def _digest(record: Record) -> int:
    try:
        return int.from_bytes(bytes.fromhex(record.trace_key[:16]), "big", signed=True)
    except ValueError:
        raise DatasetError(f"`trace_key` must be a SHA-256 in hexadecimal, but got {record.trace_key!r}") from None


def _family_of_task(task: TaskData) -> Family:
    return task.workload.key, task.target, task.threads, task.cache


def _task_of(record: Record, known: TaskData | None) -> TaskData:
    """What is known of a record's task, or what it says itself with the hardware as its target has it here."""
    if known is not None:
        machine = machine_of(record.host, simulated=not known.machine)
        return dataclasses.replace(known, machine=machine)  # a fleet measures elsewhere
    try:
        workload, target = Workload.from_json(record.trial.workload), registry.get(record.target)
    except ValueError as error:
        raise DatasetError(f"records must be of workloads and targets that are known here, but {error}") from error
    machine = machine_of(record.host, target.simulated)
    trial = record.trial
    return TaskData(workload.key, workload, trial.target, machine, trial.threads, trial.cache, target.hardware)
