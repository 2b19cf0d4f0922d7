"""Collecting registered pools: programs drawn at random, each built, checked and timed in turns with the others.

Here nothing is searched for, and no program is timed more carefully than another: all of a task take turns, for as many
rounds. A later collection repeats all of it at another time, from building each program on. The difference between the
two is the noise of the labels.

For training tasks, programs that a model likes are worth more than as many random ones. The model is wrong about some
of them, and searches meet such programs. `collect.pools_by: model` measures such, beside the pools.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from autotune import run_files
from autotune.config import ConfigError, RunConfig, errors_at
from autotune.lab.collect.collection import Session, kept_tasks, make_requests
from autotune.lab.collect.items import Item, collect_section
from autotune.lab.protocol import REGISTRATION_FILE, Pools, PoolTask, Registration, label_programs
from autotune.run.workloads import make_settings
from autotune.tuner.interrupt import Interrupt
from autotune.tuner.preparation import reusable_records
from autotune.tuner.search.base import NoLegalSchedule
from autotune.tuner.settings import Settings
from autotune.tuner.task_tuning import TaskTuning
from autotune.tuner.tune_tasks import prepare_request
from costmodel.dataset import SHIPPED_DATASET, TaskData
from costmodel.dataset.build import build
from measure.database import Database
from measure.host import describe_host
from measure.interleaved import InterleavedTimer, InterleavedTiming
from measure.pool import Trial, TrialResult
from measure.provenance import Kind
from measure.record import Record
from search_space.extras import require

_Item = TypeVar("_Item")
GROUP = 320
"""Programs that take turns. The more, the longer the time that the bursts of each are spread over."""


@dataclass(frozen=True)
class _Group:
    """Trials that are timed together.

    Attributes:
        task: task of all trials.
        trials: trials to time.
        record: makes the record of a result.
    """

    task: PoolTask
    trials: Sequence[Trial]
    record: Callable[[TrialResult], Record]


def collect_pools(config: RunConfig, minutes: float | None, say: Callable[[str], None]) -> Session:
    """Measures the pools of a registration into `pools` of the run folder, resuming where an earlier session ended.

    Programs that a model has chosen form a plain dataset, in `dataset`.

    Args:
        config: configuration with `collect.pools`.
        minutes: minutes after which no group is begun; None: until everything is measured.
        say: shows a sentence to the user.

    Raises:
        ConfigError: something in the configuration cannot be done.
        DatasetError: the registration cannot be read, or no dataset can be made of the records.
    """
    require("collecting a dataset", "pyarrow")
    path, most, by_model = collect_section(config).pools, collect_section(config).pools_at_most, _by_model(config)
    assert path is not None
    with errors_at("collect.pools"):
        registered = Registration.read(REGISTRATION_FILE if path == SHIPPED_DATASET else Path(path))
        if by_model:
            registered = registered.shorten(most, roles=("train",))
        elif most is not None:
            registered = registered.shorten(most)
    settings = make_settings(config).searching(finalists=0)
    if settings.target.simulated or config.measure.pool != "local":
        raise ConfigError(
            f"pools must be of a target that is timed on this machine, but got target={config.target}, "
            f"measure.pool={config.measure.pool!r}",
            "collect.pools",
        )
    end = None if minutes is None else time.monotonic() + 60 * minutes
    folder = run_files.make_folder(config.folder)
    problems: list[str] = []
    before, measured = 0, 0
    with run_files.claim_folder(folder), Database(config.records_path) as database:
        database.check_compatible(settings.target.name)
        items = [Item(t.name, t.workload, t.programs, dict(t.networks), registered.rounds) for t in registered.tasks]
        tasks = kept_tasks(config, settings, items)
        before = len(database)
        wanted = sum(task.programs * task.collections for task in registered.tasks)
        say(f"{len(items)} tasks, {wanted} measurements; {before} records are there")
        timing = InterleavedTiming(registered.rounds, group=GROUP, check=True)
        with Interrupt() as interrupt, InterleavedTimer(settings.threads, timing, seed=config.seed) as timer:
            for group in _groups(registered, tasks, settings, by_model, database, problems):
                if interrupt.requested or (end is not None and time.monotonic() >= end):
                    break
                results = timer.time(group.trials, lambda: interrupt.requested)
                records = [group.record(result) for result in results]
                database.extend(records)
                measured += len(records)
                failed = sum(not record.ok for record in records)
                say(f"{before + measured}/{wanted}  {group.task.name}" + (f", {failed} failed" if failed else ""))
            stopped = interrupt.requested
        complete = not stopped and not any(True for _ in _groups(registered, tasks, settings, by_model, database, []))
        dataset = None
        if not stopped and len(database):
            say("making the dataset")
            dataset = build(database, tasks)
            if by_model:
                label_programs(registered, dataset).write(folder / "dataset")
            else:
                Pools.write(folder / "pools", registered, dataset)
    total = before + measured if complete else wanted
    return Session(measured, before + measured, total, 0, stopped, dataset, folder, problems)


def _groups(
    registration: Registration,
    tasks: Sequence[TaskData],
    settings: Settings,
    by_model: bool,
    database: Database,
    problems: list[str],
) -> Iterator[_Group]:
    """Lists groups left to time: the first collection of all tasks, then their second one, and so on."""
    last = max(task.collections for task in registration.tasks)
    for collection in range(last):
        for task, data in zip(registration.tasks, tasks, strict=True):
            if collection >= task.collections:
                continue
            records = reusable_records(database, task.workload, settings)
            if collection == 0:
                yield from _draw_groups(task, data, settings, by_model, records, problems)
            else:
                yield from _again(task, records, collection)


def _draw_groups(
    task: PoolTask,
    data: TaskData,
    settings: Settings,
    by_model: bool,
    records: Sequence[Record],
    problems: list[str],
) -> Iterator[_Group]:
    """Lists groups of programs that have no record yet; the drawn programs do not depend on interruptions."""
    there = {record.trace_key for record in records}
    if len(there) >= task.programs:
        return
    tuning = _pool(task, data, settings, by_model)
    trials: list[Trial] = []
    try:
        trials = tuning.propose()  # fewer where the space has no more
    except NoLegalSchedule as error:
        problems.append(f"{task.name}: {error}")
    left = [trial for trial in trials if trial.trace_key not in there]
    for group in _in_groups(left):
        yield _Group(task, group, tuning.record)


def _again(task: PoolTask, records: Sequence[Record], collection: int) -> Iterator[_Group]:
    """Lists groups of programs that were right so far and have fewer than `collection` later records."""
    first: dict[str, Record] = {}
    times: dict[str, int] = {}
    for record in records:
        if record.provenance.kind is Kind.retimed:
            times[record.trace_key] = times.get(record.trace_key, 0) + 1
        elif record.ok:
            first.setdefault(record.trace_key, record)
    left = [record for key, record in first.items() if times.get(key, 0) < collection]
    for group in _in_groups(left):
        yield _Group(task, [record.to_trial() for record in group], _again_record(group))


def _again_record(group: Sequence[Record]) -> Callable[[TrialResult], Record]:
    of, host = {record.trace_key: record for record in group}, describe_host()

    def record(result: TrialResult) -> Record:
        provenance = of[result.trial.trace_key].provenance.again(Kind.retimed, time.time())
        return Record.of(result, provenance, host)

    return record


def _in_groups(items: Sequence[_Item]) -> list[Sequence[_Item]]:
    """Splits a sequence into as few groups as possible, of about equal size.

    Bursts of a small group would be spread over too little time.
    """
    count = -(-len(items) // GROUP)
    ends = [len(items) * place // count for place in range(count + 1)] if count else [0]
    return [items[first:end] for first, end in itertools.pairwise(ends)]


def _pool(task: PoolTask, data: TaskData, settings: Settings, by_model: bool) -> TaskTuning:
    """Returns a tuning that proposes all programs of a task at once."""
    item = Item(task.name, task.workload, task.programs, dict(task.networks))
    how = settings.searching(batch=task.programs)
    (request,) = make_requests(item, data, how, 0.0 if by_model else 1.0)
    return prepare_request(request)


def _by_model(config: RunConfig) -> bool:
    return collect_section(config).pools_by == "model"
