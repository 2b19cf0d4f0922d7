"""Conversion of measured records to a dataset, and merging of datasets."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from costmodel.dataset import symbolic
from costmodel.dataset.dataset import Dataset, Program, SketchData, TaskData, TaskMeasurements, trace_digest
from costmodel.dataset.errors import DatasetError
from measure.provenance import Kind
from measure.record import Record
from search_space.schedule.errors import ScheduleError
from search_space.schedule.trace import Trace
from search_space.space import SearchSpace, generate
from search_space.workloads import Workload
from targets import registry

_RANDOM = "random"
"""Name of the strategy that draws programs at random."""
_RETIMED_KINDS = (Kind.final, Kind.retimed)
"""Kinds of records that time a known program again."""

Family = tuple[str, str, int, str]
"""Workload key, target, threads and cache state, which comparable latencies share."""


def build(records: Iterable[Record], tasks: Sequence[TaskData] = ()) -> Dataset:
    """Builds the dataset of some records.

    It has each program once, with the samples of all its successful measurements, in the order of the trials of its
    search. If the current search space yields the same program from the choices in its record, only its decisions are
    stored. Otherwise the program has a schedule of its own.

    Args:
        records: records in the order of measurement.
        tasks: names, networks, and the hardware at the time of measurement, if known. Missing tasks are made of the
            record and of the target on this machine.

    Raises:
        DatasetError: there are no records, or one is of a workload or target that is unknown here.
    """
    described = {_family_of_task(task): task for task in tasks}
    builders: dict[Family, _TaskBuilder] = {}
    for record in records:
        family = record.trial.family
        if family not in builders:
            builders[family] = _TaskBuilder(_make_task(record, described.get(family)))
        builders[family].add(record)
    if not builders:
        raise DatasetError("`records` must hold at least one measurement, but got none")
    order = {family: place for place, family in enumerate(described)}
    families = sorted(builders, key=lambda family: order.get(family, len(order)))
    return Dataset({builders[family].task: builders[family].measurements for family in families})


def merge(datasets: Sequence[Dataset]) -> Dataset:
    """Merges datasets; a program of several has the samples of all, equal ones once.

    Tasks with one key become one task, with the hardware of the first and the networks of all.
    """
    merged: dict[str, tuple[TaskData, TaskMeasurements]] = {}
    for data in datasets:
        for task in data.tasks:
            own = data.copy_measurements(task)
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


def machine_name(host: Mapping[str, Any], simulated: bool) -> str:
    """Returns a task's name of the machine that measured it; it is empty for simulators, which agree everywhere."""
    return "" if simulated else f"{host.get('cpu', 'unknown')}, {host.get('cores', '?')} cores"


class _TaskBuilder:
    """Programs of one task that are being collected."""

    def __init__(self, task: TaskData) -> None:
        self.task = task
        self._space: SearchSpace | None = None
        self._sketches: dict[str, int] = {}  # name in the space -> index in `_of`
        self._indices: dict[int, int] = {}  # digest -> index in `_of` of its first successful program, else its first
        self._of = TaskMeasurements()

    @property
    def measurements(self) -> TaskMeasurements:
        """Sketches and programs added so far, in an order independent of which trial of a round ended first."""
        collected, indices = TaskMeasurements(), list[int]()
        for program in _once(sorted(self._of.programs, key=lambda p: (p.order, p.origin, p.seed))):
            if program.sketch not in indices:
                indices.append(program.sketch)
            collected.programs.append(dataclasses.replace(program, sketch=indices.index(program.sketch)))
        collected.sketches = [self._of.sketches[place] for place in indices]
        return collected

    def add(self, record: Record) -> None:
        digest = _digest(record)
        if record.provenance.kind in _RETIMED_KINDS and digest in self._indices:
            known = self._of.programs[self._indices[digest]]
            if record.ok and known.ok:
                samples = np.concatenate([known.latencies, np.array(record.latencies, np.float32)])
                self._of.programs[self._indices[digest]] = dataclasses.replace(known, latencies=samples)
            return
        known_at = self._indices.get(digest)
        if known_at is None or (record.ok and not self._of.programs[known_at].ok):
            self._indices[digest] = len(self._of.programs)
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
        """Finds sketch and decisions by the record's choices; None if they do not yield its program today."""
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
        if trace_digest(trace) != _digest(record):
            raise DatasetError(f"`trace_key` must be that of the record's trace, but got {record.trace_key!r}")
        return self._of.sketch(SketchData(record.provenance.sketch, record.algorithm, symbolic.to_text(trace), ())), ()


def _once(programs: Sequence[Program]) -> list[Program]:
    """Lists each program once: the first successful one with the samples of all successful ones, else the first."""
    merged: dict[int, Program] = {}
    for program in programs:
        earlier = merged.get(program.digest)
        if earlier is None or (program.ok and not earlier.ok):
            merged[program.digest] = program
        elif program.ok and not np.array_equal(program.latencies, earlier.latencies):
            samples = np.concatenate([earlier.latencies, program.latencies])
            merged[program.digest] = dataclasses.replace(earlier, latencies=samples)
    return list(merged.values())


def _digest(record: Record) -> int:
    try:
        return int.from_bytes(bytes.fromhex(record.trace_key[:16]), "big", signed=True)
    except ValueError:
        raise DatasetError(f"`trace_key` must be a SHA-256 in hexadecimal, but got {record.trace_key!r}") from None


def _family_of_task(task: TaskData) -> Family:
    return task.workload.key, task.target, task.threads, task.cache


def _make_task(record: Record, earlier: TaskData | None) -> TaskData:
    """Returns the known task on the record's machine, or makes one of the record and the target's hardware here."""
    if earlier is not None:
        machine = machine_name(record.host, simulated=not earlier.machine)
        return dataclasses.replace(earlier, machine=machine)  # a fleet may measure on another machine
    try:
        workload, target = Workload.from_json(record.trial.workload), registry.get(record.target)
    except ValueError as error:
        raise DatasetError(f"records must be of workloads and targets that are known here, but {error}") from error
    machine = machine_name(record.host, target.simulated)
    trial = record.trial
    return TaskData(workload.key, workload, trial.target, machine, trial.threads, trial.cache, target.hardware)
