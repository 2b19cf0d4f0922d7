"""Lock files: the schedule of every task of a network, as text that is stored beside the model and reviewed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.config import ConfigError
from autotune.schedule import Schedule
from autotune.schedule_store import MemoryStore, ScheduledWorkload
from autotune.tuner.settings import Settings
from autotune.tuner.task import Task
from search_space.schedule.errors import ScheduleError
from search_space.schedule.trace import Trace

NAME = "schedules.lock"
"""Name of the file in a run folder."""
SCHEMA = "autotune.lock/1"
_KEYS = {"algorithm", "trace", "seconds", "target"}


def lock_text(schedules: Iterable[ScheduledWorkload]) -> str:
    """Returns the lock file of a network's schedules: JSON, by the workloads' keys in order, a line for each step."""
    entries = {
        each.workload.key: {
            "algorithm": each.algorithm,
            "seconds": float(f"{each.seconds:.4g}"),
            "target": each.target.name,
            "trace": each.trace.to_json(),
        }
        for each in schedules
    }
    lines = [f'{{\n "schema": {json.dumps(SCHEMA)},\n "tasks": {{']
    lines.append(",\n".join(_entry(key, entries[key]) for key in sorted(entries)))
    return "\n".join([*lines, " }\n}\n"])


def _entry(key: str, entry: Mapping[str, Any]) -> str:
    head = [f"   {json.dumps(name)}: {json.dumps(entry[name])}" for name in ("algorithm", "seconds", "target")]
    steps = ",\n".join(f"    {json.dumps(step, sort_keys=True)}" for step in entry["trace"])
    return f"  {json.dumps(key)}: {{\n" + ",\n".join([*head, f'   "trace": [\n{steps}\n   ]']) + "\n  }"


def read_lock(path: Path, tasks: Sequence[Task], settings: Settings) -> MemoryStore:
    """Reads the schedules of a network's tasks.

    Args:
        path: path of the lock file.
        tasks: tasks of the network, which must be exactly those of the file.
        settings: settings with the target of the schedules.

    Raises:
        ConfigError: the file is no lock file, or is for other tasks or another target.
    """
    document = _document(path)
    task_by_key = {task.workload.key: task for task in tasks}
    for what, keys in (
        ("missing", task_by_key.keys() - document.keys()),
        ("unknown", document.keys() - task_by_key.keys()),
    ):
        if keys:
            raise ConfigError(
                f"`lock` must have the tasks of the network, but in {path} {len(keys)} are {what}, such as {min(keys)}"
            )
    return MemoryStore(_read(path, key, document[key], task, settings) for key, task in task_by_key.items())


def read_keys(path: Path) -> frozenset[str]:
    """Reads the keys of the workloads that a lock file has schedules of.

    Raises:
        ConfigError: the file is no lock file.
    """
    return frozenset(_document(path))


def _document(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"`lock` must be a file that can be read, but got {path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise ConfigError(f"`lock` must be a JSON file, but got {path}") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA or not isinstance(data.get("tasks"), dict):
        got = data.get("schema") if isinstance(data, dict) else type(data).__name__
        raise ConfigError(f"`lock` must be of schema {SCHEMA} with its tasks, but {path} has {got!s:.80}")
    return dict(data["tasks"])


def _read(path: Path, key: str, entry: Any, task: Task, settings: Settings) -> ScheduledWorkload:
    if not isinstance(entry, dict) or set(entry) != _KEYS:
        raise ConfigError(f"a task of `lock` must have {', '.join(sorted(_KEYS))}, but in {path} it has not: {key}")
    target = settings.of(task).target
    if entry["target"] != target.name:
        raise ConfigError(f"`lock` must be for {target.name}, but in {path} {key} is for {entry['target']!s:.80}")
    if entry["algorithm"] not in task.workload.algorithms:
        names = ", ".join(task.workload.algorithms)
        raise ConfigError(f"the algorithm of {key} must be one of {names}, but {path} has {entry['algorithm']!s:.80}")
    seconds = entry["seconds"]
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < math.inf:
        raise ConfigError(f"seconds of {key} must be a positive number, but {path} has {seconds!s:.80}")
    try:
        schedule = Schedule(entry["algorithm"], Trace.from_json(entry["trace"]))
    except (ScheduleError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(f"the trace of {key} must be a list of schedule steps, but in {path}: {error}") from None
    return ScheduledWorkload(task.workload, target, schedule, float(seconds))
