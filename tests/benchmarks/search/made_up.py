"""A table over the tiny task's space whose latencies are made up: nothing is simulated."""

from __future__ import annotations

import numpy as np

from benchmarks.search.replay import ReplayTable
from search_space.space import SearchSpace
from tests.benchmarks.search.tiny import TINY


def make_seconds(space: SearchSpace, count: int) -> np.ndarray:
    """Distinct latencies with one best and a failure; the rest fall along the order of the table."""
    values = 1e-3 * (1 + np.abs(np.arange(count) - count // 3) / count)
    values[2] = np.nan
    return values


def table(**changes) -> ReplayTable:
    """The table; `changes` are other fields."""
    whole = TINY.make_space()
    restriction = TINY.restriction(whole)
    count = 168
    fields = {
        "name": TINY.name,
        "kind": TINY.kind,
        "title": TINY.title,
        "workload": TINY.make(),
        "target": "vta",
        "threads": 1,
        "cache": "warm",
        "hardware": whole.hardware,
        "restriction": restriction,
        "seconds": make_seconds(whole, count),
        "errors": {"crash": 1},
        "provenance": {"host": {}, "date": "2026-01-01", "command": "python -m benchmarks.search collect --task tiny"},
    }
    made = ReplayTable(**{**fields, **changes})
    assert len(made.population) == count
    return made
