"""A session of collecting: rounds of all tasks in turn, so that an interrupted session leaves a balanced dataset."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from autotune import run_files
from autotune.config import ConfigError, RunConfig, errors_at
from autotune.lab.collect.items import Item, collect_section, list_items
from autotune.lab.collect.retiming import Retiming, retime
from autotune.run.workloads import make_settings
from autotune.tuner.callbacks import Callback
from autotune.tuner.pools import check_runnable, make_pool
from autotune.tuner.preparation import reusable_records
from autotune.tuner.schedulers import TaskScheduler, TaskState
from autotune.tuner.search.base import SearchStrategy
from autotune.tuner.settings import Settings
from autotune.tuner.task import Task
from autotune.tuner.task_tuning import TaskTuning
from autotune.tuner.tune_tasks import Need, TaskRequest, tune_tasks
from costmodel.dataset import Dataset, DatasetError, TaskData
from costmodel.dataset.build import build, machine_name
from costmodel.dataset.dataset import task_from_json, task_to_json
from measure.database import Database
from measure.host import describe_host
from measure.record import Record
from search_space.extras import require
from search_space.space import generate

TASKS = "tasks.json"
"""File beside the records: further facts of the tasks, and the hardware of the first session."""
RANDOM = "random"


@dataclass(frozen=True)
class Session:
    """Counts and paths at the end of a collecting session.

    Attributes:
        measurements: times that it measured a program.
        trials: programs that are in the records now.
        total: programs to measure in all.
        left: programs of those in the records that are to be timed again still.
        interrupted: whether Ctrl-C ended it.
        dataset: made of the records; None after Ctrl-C.
        folder: the run folder; the dataset is in `dataset` there.
        problems: tasks without a legal schedule, a sentence each.
    """

    measurements: int
    trials: int
    total: int
    left: int
    interrupted: bool
    dataset: Dataset | None
    folder: Path
    problems: Sequence[str]

    @property
    def complete(self) -> bool:
        """Tells whether there is nothing left to measure."""
        return self.trials >= self.total and not self.left


class BalancedScheduler(TaskScheduler):
    """A scheduler of tasks that gives the next round to the least finished one, and ends at a time.

    Args:
        end: `time.monotonic()` after which no round is begun; None: none.

    Attributes:
        tasks: tasks by the numbers that `choose` returns.
    """

    def __init__(self, end: float | None = None) -> None:
        self.tasks: Sequence[TaskTuning] = ()
        self._end = end

    def over(self, tasks: Sequence[TaskTuning]) -> BalancedScheduler:
        """Takes the tasks in and returns itself."""
        self.tasks = tasks
        return self

    def choose(self, tasks: Sequence[TaskState]) -> int | None:
        if self._end is not None and time.monotonic() >= self._end:
            return None
        open_ = [number for number, state in enumerate(tasks) if not state.done]
        return min(open_, key=lambda n: len(self.tasks[n].records) / self.tasks[n].total, default=None)


def collect(
    config: RunConfig,
    minutes: float | None = None,
    callbacks: Sequence[Callback] = (),
    say: Callable[[str], None] = lambda text: None,
) -> Session:
    """Measures programs of every task of a collection, resuming where an earlier session ended, and makes a dataset.

    Args:
        config: configuration with `collect`.
        minutes: minutes until the session ends; None: when everything is measured.
        callbacks: listeners of the run.
        say: shows a sentence to the user.

    Raises:
        ConfigError: something in the configuration cannot be done.
        MeasureError: records that cannot be used, or a pool that cannot start.
        DatasetError: no dataset can be made of the records.
    """
    require("collecting a dataset", "pyarrow")
    share = collect_section(config).random_share
    if config.search.strategy == RANDOM:
        raise ConfigError(f"a collection must have a guided strategy, but got {RANDOM!r}", "search.strategy")
    settings = make_settings(config).searching(finalists=0)
    check_runnable(config.measure, [settings.target])
    end = None if minutes is None else time.monotonic() + 60 * minutes
    folder = run_files.make_folder(config.folder)
    with errors_at("measure.pool"):
        pool = make_pool(config.measure)
    with run_files.claim_folder(folder), Database(config.records_path) as database:
        database.check_compatible(settings.target.name)
        items, tasks = _items_and_tasks(config, settings)
        if any(item.rounds for item in items):
            _check_rounds(config, settings)
        say(f"{len(items)} tasks, {sum(item.programs for item in items)} programs; {len(database)} records are there")
        requests = [
            request
            for item, task in zip(items, tasks, strict=True)
            for request in make_requests(item, task, settings, share)
        ]
        before, balanced = len(database), BalancedScheduler(end)
        with pool:  # it keeps others from timing while it is open
            results = tune_tasks(requests, pool, database, schedule=balanced.over, callbacks=callbacks, say=say)
        tunings = balanced.tasks
        interrupted = any(result.interrupted for result in results)
        retimings, timed = _retimings(items, tunings, database), 0
        if not interrupted and all(tuning.done for tuning in tunings):
            timed, interrupted = retime(retimings, database, end, say)
        measured = len(database) - before
        dataset = None
        if not interrupted and len(database):
            say("making the dataset")
            dataset = build(database, tasks_beside(config.records_path))  # of earlier sessions, too
            dataset.write(folder / "dataset")
    left = sum(len(task.records) for task in retimings) - timed
    trials = sum(len(tuning.records) for tuning in tunings)
    return Session(
        measured,
        trials,
        sum(tuning.total for tuning in tunings),
        left,
        interrupted,
        dataset,
        folder,
        [f"{result.name}: {result.problem}" for result in results if result.problem],
    )


def make_requests(item: Item, task: TaskData, settings: Settings, share: float) -> list[TaskRequest]:
    """Requests the random half of an item's programs, and the guided half; neither uses measurements of the other.

    Args:
        item: task to measure.
        task: `item` as datasets describe it, its hardware included.
        settings: settings of the guided search.
        share: share of the programs that is drawn at random.
    """
    space = generate(item.workload, task.hardware)
    at_random = round(share * item.programs)
    halves = []
    for strategy, trials in ((RANDOM, at_random), (settings.search.strategy, item.programs - at_random)):
        if trials:
            options = {} if strategy == RANDOM else settings.search.options
            fresh = settings.searching(strategy=strategy, options=options, database="none", starts=0)
            how = replace(fresh, trials=trials)
            name = item.name if strategy == RANDOM else f"{item.name} ({strategy})"
            halves.append(
                TaskRequest(
                    Task(name, item.workload),
                    how,
                    space,
                    need=Need.NOTHING,
                    guided=strategy != RANDOM,
                    reusable=partial(_is_by, strategy),
                )
            )
    return halves


def _is_by(strategy: str | type[SearchStrategy], record: Record) -> bool:
    return record.provenance.strategy == strategy


def _check_rounds(config: RunConfig, settings: Settings) -> None:
    """Refuses interleaved timing where there is nothing to time on this machine.

    Raises:
        ConfigError: the target is simulated, or another machine measures.
    """
    if settings.target.simulated:
        raise ConfigError(f"must be 0 for a simulated target, but got it for {config.target}", "collect.rounds")
    if config.measure.pool != "local":
        raise ConfigError(f"must be 0 unless the pool is local, but got {config.measure.pool!r}", "collect.rounds")


def _retimings(items: Sequence[Item], tunings: Sequence[TaskTuning], database: Database) -> list[Retiming]:
    """Lists the programs to time again, of every task that wants it."""
    rounds = {item.workload.key: item.rounds for item in items}
    tasks: dict[str, TaskTuning] = {}
    for tuning in tunings:
        tasks.setdefault(tuning.task.workload.key, tuning)  # the random half has the task's own name
    return [
        Retiming.of(tuning, reusable_records(database, tuning.task.workload, tuning.settings), rounds[key])
        for key, tuning in tasks.items()
        if rounds[key]
    ]


def tasks_beside(records: Path) -> list[TaskData]:
    """Reads the tasks that a collection wrote beside its records; none where records come from elsewhere.

    Raises:
        DatasetError: the file is not such a list.
    """
    return list(_SavedState.read(records.parent / TASKS).tasks)


@dataclass(frozen=True)
class _SavedState:
    """The contents of the file of tasks beside the records.

    Attributes:
        source: origin of the items; while it does not change, networks need not be imported again.
        items: items of the latest session.
        tasks: tasks of all sessions, with the hardware of the first.
    """

    source: dict[str, Any]
    items: tuple[Item, ...]
    tasks: tuple[TaskData, ...]

    @classmethod
    def read(cls, path: Path) -> _SavedState:
        """Reads the file; no tasks if it does not exist."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            tasks = {item["key"]: task_from_json(item) for item in data["tasks"]}
            items = [
                Item(tasks[key].name, tasks[key].workload, n, dict(tasks[key].networks), rounds)
                for key, n, rounds in data["items"]
            ]
            return cls(data["source"], tuple(items), tuple(tasks.values()))
        except FileNotFoundError:
            return cls({}, (), ())
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DatasetError(f"{path}: tasks must be as `autotune collect` writes them, but {error!r}") from error

    def write(self, path: Path) -> None:
        """Writes the file."""
        keys = {task.workload.key: task.key for task in self.tasks}
        document = {
            "source": self.source,
            "items": [[keys[item.workload.key], item.programs, item.rounds] for item in self.items],
            "tasks": [task_to_json(task) for task in self.tasks],
        }
        run_files.write_json(document, path)


def _items_and_tasks(config: RunConfig, settings: Settings) -> tuple[tuple[Item, ...], list[TaskData]]:
    """Lists the items to measure and their tasks, which are written beside the records for the next session.

    Raises:
        ConfigError: items that cannot be made, or a collection that was begun on another machine.
    """
    kept = _SavedState.read(config.records_path.parent / TASKS)
    source = _source(config)
    items = kept.items if kept.source == source else tuple(list_items(config))
    return items, kept_tasks(config, settings, items)


def kept_tasks(config: RunConfig, settings: Settings, items: Sequence[Item]) -> list[TaskData]:
    """Describes items as tasks of a dataset, and writes these beside the records for the next session.

    Raises:
        ConfigError: a collection that was begun on another machine.
    """
    path = config.records_path.parent / TASKS
    previous = _SavedState.read(path)
    target = settings.target
    machine = machine_name(describe_host(), target.simulated)
    if others := {task.machine for task in previous.tasks} - {machine}:
        raise ConfigError(
            f"{path}: a collection must go on on the machine that it was begun on, {', '.join(sorted(others))}, "
            f"but this is {machine}"
        )
    known_hardware = (task.hardware for task in previous.tasks if task.target == target.name)
    hardware = next(known_hardware, target.hardware)
    how = (target.name, machine, settings.threads, settings.measure.cache, hardware)
    tasks = [TaskData(item.name, item.workload, *how, item.networks) for item in items]
    every = {**{task.key: task for task in previous.tasks}, **{task.key: task for task in tasks}}
    _SavedState(_source(config), tuple(items), tuple(every.values())).write(path)
    return tasks


def _source(config: RunConfig) -> dict[str, Any]:
    """Returns the parts of a configuration that decide the items of a collection."""
    return config.model_dump(mode="json", include={"collect", "network", "target", "seed"})
