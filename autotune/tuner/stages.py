"""A schedule at every stage up to machine code, without running it, for `autotune lower`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from autotune.config import ConfigError
from autotune.schedule import Schedule
from autotune.tuner.task import Task
from search_space import strict_json
from search_space.operators.checks import nearest
from search_space.schedule.errors import ScheduleError
from search_space.schedule.trace import Trace
from search_space.space import make_program
from search_space.workloads import Workload
from targets.base import BuildError, Target

BEFORE_CODE = ("schedule", "program")
"""Stages of all targets, which precede those of `Target.stages`."""


def stages(
    workload: Workload, schedule: Schedule, target: Target, names: Sequence[str] = ()
) -> Iterator[tuple[str, str]]:
    """Yields (stage, text) of the wanted stages in order, by default of all.

    Raises:
        ConfigError: the target lacks a stage, the schedule does not fit the workload, or the target has no code for it.
    """
    allowed = (*BEFORE_CODE, *target.stages)
    for name in names:
        if name not in allowed:
            raise ConfigError(f"`--stage` must be one of {', '.join(allowed)}, but got {name!r}")
    names = names or allowed
    if "schedule" in names:
        yield "schedule", f"# {workload.key}\n# algorithm: {schedule.algorithm}\n{schedule.trace}"
    try:
        program = make_program(workload, schedule.algorithm, schedule.trace)
        if "program" in names:
            yield "program", str(program)
        if set(names) - {*BEFORE_CODE}:
            module = target.build(program)
            yield from ((name, text(module)) for name, text in target.stages.items() if name in names)
    except (ScheduleError, BuildError) as error:
        raise ConfigError(f"a schedule must fit its workload and target, but {error}") from None


def task_named(tasks: Sequence[Task], name: str | None) -> Task:
    """Returns the task called `name`; the first one by default.

    Raises:
        ConfigError: there is no such task; names the nearest one.
    """
    by_name = {task.name: task for task in tasks}
    if name is None:
        return tasks[0]
    if name not in by_name:
        raise ConfigError(f"`--task` must be one of {', '.join(by_name)}, but got {name!r}{nearest(name, by_name)}")
    return by_name[name]


def from_file(task: Task, path: Path) -> Schedule:
    """Reads the schedule in a file: a trace as a JSON list, or a summary.json, which has one for each task.

    Raises:
        ConfigError: the file does not exist, has no trace, or has none for this task.
    """
    try:
        data = strict_json.loads(path.read_text(encoding="utf-8"), finite=False)
    except OSError as error:
        raise ConfigError(f"{path}: a trace must be a readable file, but got: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: a trace must be JSON, but {error}") from None
    algorithms: tuple[str, ...] = task.workload.algorithms
    if isinstance(data, dict):
        entry = _entry(task, data, path)
        data, algorithms = entry["trace"], (entry["algorithm"],)
    if not isinstance(data, list) or not all(isinstance(step, dict) for step in data):
        raise ConfigError(f"{path}: a trace must be a list of steps, but got {str(data)[:60]}")
    problems: list[str] = []
    for algorithm in algorithms:
        try:
            trace = Trace.from_json(data)
            make_program(task.workload, algorithm, trace)
            return Schedule(algorithm, trace)
        except ScheduleError as error:
            problems.append(f"{algorithm}: {error}")
    raise ConfigError(f"{path}: a trace must fit {task.workload.key}, but {'; '.join(problems)}")


def _entry(task: Task, document: dict[str, Any], path: Path) -> dict[str, Any]:
    for entry in document.get("tasks", []):
        if entry.get("workload") == task.workload.to_json() and entry.get("trace") is not None:
            return dict(entry)
    raise ConfigError(f"{path}: a summary must hold a trace of {task.workload.key}, but it does not")
