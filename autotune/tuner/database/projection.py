"""Projection of a schedule of one workload to a candidate for another: the nearest numbers in its tables."""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

from autotune.tuner.database.entry import Entry
from autotune.tuner.search.base import Candidate
from search_space.schedule.errors import ScheduleError
from search_space.sketch.tables import DecisionGroup
from search_space.space import SearchSpace

ROWS = 4
"""Number of rows of each decision's table that are tried, the nearest first."""
MOST = 4096
"""Largest number of their combinations."""


def project(entry: Entry, space: SearchSpace) -> Candidate | None:
    """Returns the legal candidate nearest to an entry's numbers, in the sketch of its name; None without one.

    For an entry of the same workload and machine it is the schedule itself. Distances are of logarithms, so that tiles
    of 12 and 16 are as far apart as of 24 and 32.
    """
    sketch_number = next((i for i, sketch in enumerate(space.sketches) if sketch.name == entry.sketch), None)
    if sketch_number is None:
        return None
    sketch = space.sketches[sketch_number]
    named = {column for group in sketch.groups for column in group.columns}
    if entry.values and named and not named & entry.values.keys():
        return None  # a sketch of this name with other decisions, from an earlier version
    near = [_nearest(group, entry) for group in sketch.groups]
    count = max(1, ROWS)
    while count > 1 and count ** len(near) > MOST:
        count -= 1
    listed = list(product(*(range(min(count, len(rows))) for rows, _ in near)))
    combinations = np.array(listed, np.int64).reshape(len(listed), len(near))  # without groups there is one combination
    far = np.zeros(len(combinations))
    choices = np.zeros((len(combinations), len(near)), np.int32)
    for group, (rows, distances) in enumerate(near):
        choices[:, group] = rows[combinations[:, group]]
        far += distances[combinations[:, group]]
    try:
        legal = sketch.legal(choices)
    except ScheduleError:
        return None
    if not legal.any():
        return None
    best = int(np.argmin(np.where(legal, far, np.inf)))
    return Candidate(sketch_number, tuple(choices[best].tolist()))


def _nearest(group: DecisionGroup, entry: Entry) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Finds the rows of a table nearest to an entry's numbers, at most `ROWS`, and their distances, nearest first."""
    far = np.zeros(len(group.table))
    for column, name in enumerate(group.columns):
        if name in entry.values:
            far += np.abs(np.log2(1.0 + np.abs(group.table[:, column])) - np.log2(1.0 + abs(entry.values[name])))
            far += (group.table[:, column] < 0) != (entry.values[name] < 0)
    order = np.argsort(far, kind="stable")[:ROWS]
    return order, far[order]
