"""Lock files: the schedule of every task of a network, as text that is kept beside the model and reviewed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.config import ConfigError
from autotune.network.selection import Chosen
from autotune.schedule import Schedule
from autotune.tuning.settings import Settings
from autotune.tuning.task import Task
from search_space.schedule.errors import ScheduleError
from search_space.schedule.trace import Trace

NAME = "schedules.lock"
"""In a run folder."""
SCHEMA = "autotune.lock/1"
_KEYS = {"algorithm", "trace", "seconds", "target"}


def lock_text(tasks: Sequence[Task], chosen: Mapping[str, tuple[Schedule, float]], settings: Settings) -> str:
    """The lock file of a network: JSON, tasks by their keys in order, a line for each step of a schedule.

    Args:
        tasks: of the network.
        chosen: schedule of each and its seconds, by the workload's key: measured, or by the roofline.
        settings: of the run.
    """
    found = {}
    for task in tasks:
        schedule, seconds = chosen[task.workload.key]
        found[task.workload.key] = {
            "algorithm": schedule.algorithm,
            "seconds": float(f"{seconds:.4g}"),
            "target": settings.of(task).target.name,
            "trace": schedule.trace.to_json(),
        }
    lines = [f'{{\n "schema": {json.dumps(SCHEMA)},\n "tasks": {{']
    lines.append(",\n".join(_entry(key, found[key]) for key in sorted(found)))
    return "\n".join([*lines, " }\n}\n"])


def _entry(key: str, entry: Mapping[str, Any]) -> str:
    head = [f"   {json.dumps(name)}: {json.dumps(entry[name])}" for name in ("algorithm", "seconds", "target")]
    steps = ",\n".join(f"    {json.dumps(step, sort_keys=True)}" for step in entry["trace"])
    return f"  {json.dumps(key)}: {{\n" + ",\n".join([*head, f'   "trace": [\n{steps}\n   ]']) + "\n  }"


def read_lock(path: Path, tasks: Sequence[Task], settings: Settings) -> Chosen:
    """Schedules of a network's tasks and their seconds, by the workload's key.

    Args:
        path: of the lock file.
        tasks: of the network: those that the file has, and no other.
        settings: for which target they are wanted.

    Raises:
        ConfigError: a file that is none, or one of other tasks or of another target.
    """
    document = _document(path)
    known = {task.workload.key: task for task in tasks}
    for what, keys in (("missing", known.keys() - document.keys()), ("unknown", document.keys() - known.keys())):
        if keys:
            raise ConfigError(
                f"`lock` must have the tasks of the network, but in {path} {len(keys)} are {what}, such as {min(keys)}"
            )
    return {key: _read(path, key, document[key], task, settings) for key, task in known.items()}


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


def _read(path: Path, key: str, entry: Any, task: Task, settings: Settings) -> tuple[Schedule, float]:
    if not isinstance(entry, dict) or set(entry) != _KEYS:
        raise ConfigError(f"a task of `lock` must have {', '.join(sorted(_KEYS))}, but in {path} it has not: {key}")
    target = settings.of(task).target.name
    if entry["target"] != target:
        raise ConfigError(f"`lock` must be for {target}, but in {path} {key} is for {entry['target']!s:.80}")
    if entry["algorithm"] not in task.workload.algorithms:
        names = ", ".join(task.workload.algorithms)
        raise ConfigError(f"the algorithm of {key} must be one of {names}, but {path} has {entry['algorithm']!s:.80}")
    seconds = entry["seconds"]
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < math.inf:
        raise ConfigError(f"seconds of {key} must be a positive number, but {path} has {seconds!s:.80}")
    try:
        return Schedule(entry["algorithm"], Trace.from_json(entry["trace"])), float(seconds)
    except (ScheduleError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(f"the trace of {key} must be a list of schedule steps, but in {path}: {error}") from None
