"""Programs of a task as configurations of parameters, for tuners that know nothing of schedules."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from autotune.lab.dataset.measured_space import MeasuredSpace
from costmodel.dataset.dataset import Dataset, TaskData
from costmodel.dataset.errors import DatasetError
from search_space.parameters import Parameter, ParameterSpace

SKETCH = "sketch"


def of_task(data: Dataset, name: str) -> MeasuredSpace:
    """Describes a task's measured programs as a space of parameters.

    One parameter names the sketch. The others are the decision variables of all sketches, 0 where a sketch has no such
    variable.

    Args:
        data: dataset that has the task.
        name: name or key of the task.

    Raises:
        DatasetError: no such task, or several of this name.
    """
    task = _task(data, name)
    sketches, programs = data.sketches(task), data.programs(task)
    # A program may be measured several times: its last result counts.
    last = {(program.sketch, program.values): program for program in programs}
    latest = list(last.values())
    if not latest:
        raise DatasetError(f"a task must have programs, but {task.name} has none")
    columns = list(dict.fromkeys(column for sketch in sketches for column in sketch.columns))
    places = [[columns.index(column) for column in sketch.columns] for sketch in sketches]
    table = np.zeros((len(latest), len(columns)), np.int64)
    for row, program in enumerate(latest):
        table[row, places[program.sketch]] = program.values
    titles = [sketch.name for sketch in sketches]
    if len(set(titles)) != len(titles):
        titles = [f"{place}:{title}" for place, title in enumerate(titles)]
    chosen = [titles[program.sketch] for program in latest]
    parameters = [Parameter(SKETCH, tuple(dict.fromkeys(chosen)))]
    rows = [np.array([parameters[0].values.index(title) for title in chosen])]
    for column, title in zip(table.T, _identifiers(columns), strict=True):
        values, indices = np.unique(column, return_inverse=True)
        parameters.append(Parameter(title, tuple(values.tolist())))
        rows.append(indices)
    space = ParameterSpace(re.sub(r"\W+", "_", task.name), tuple(parameters))
    return MeasuredSpace(
        space,
        np.stack(rows, axis=1).astype(np.int32),
        [program.latencies.astype(np.float64) for program in latest],
        [program.error for program in latest],
        np.zeros(len(latest)),
        np.zeros(len(latest)),
    )


def _task(data: Dataset, name: str) -> TaskData:
    matches = [task for task in data.tasks if name in (task.name, task.key)]
    if len(matches) == 1:
        return matches[0]
    if not matches:
        shown = ", ".join(dict.fromkeys(task.name for task in data.tasks[:5]))
        raise DatasetError(f"`task` must be one of {len(data.tasks)} tasks ({shown}, ...), but got task={name!r}")
    keys = "; ".join(task.key for task in matches)
    raise DatasetError(f"`task` must name one task, but {name!r} is of {len(matches)}: {keys}")


def _identifiers(columns: Sequence[str]) -> list[str]:
    """Converts column names to unique identifiers, which other tuners accept as names of parameters."""
    used = {SKETCH}
    names = []
    for column in columns:
        plain = re.sub(r"\W", "_", column)
        plain = plain if plain.isidentifier() else f"p_{plain}"
        unique, count = plain, 1
        while unique in used:
            unique, count = f"{plain}_{count}", count + 1
        used.add(unique)
        names.append(unique)
    return names
