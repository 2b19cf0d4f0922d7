"""A schedule that was found: for what, on what, its decisions, and what it took."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, get_args

from measure.pool import Cache
from search_space.hardware import Hardware
from search_space.workloads import Workload

Place = tuple[str, str, int, int, str]
"""Key of the workload, target, lanes, threads and cache state: schedules of one place compete."""


class DatabaseError(ValueError):
    """A database of schedules that cannot be read, or an entry that cannot be one."""


@dataclass(frozen=True)
class Entry:
    """The fastest schedule that one search has found.

    Attributes:
        workload: what it computes.
        target: name of the target.
        lanes: float32 lanes of a vector, which the space's tiles go by.
        threads: that it ran on.
        cache: state of the caches in timing.
        sketch: its name in the search space, which begins with the algorithm.
        values: decision variable → number.
        seconds: that it took.
        machine: processor and cores that measured it; empty for a simulated target.
        made: how: trials, date, commit; free text.
    """

    workload: Workload
    target: str
    lanes: int
    threads: int
    cache: Cache
    sketch: str
    values: Mapping[str, int]
    seconds: float
    machine: str = ""
    made: str = ""

    def __post_init__(self) -> None:
        """Checks what JSON does not.

        Raises:
            DatabaseError: a field of another type, or a time that is none.
        """
        for item, kind in {"target": str, "sketch": str, "machine": str, "made": str}.items():
            if not isinstance(getattr(self, item), kind):
                raise DatabaseError(f"`{item}` of an entry must be a text, but got {item}={getattr(self, item)!r}")
        if self.cache not in get_args(Cache):
            raise DatabaseError(
                f"`cache` of an entry must be one of {', '.join(get_args(Cache))}, but got {self.cache!r}"
            )
        for item in ("lanes", "threads"):
            value = getattr(self, item)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise DatabaseError(f"`{item}` of an entry must be a whole number from 1, but got {item}={value!r}")
        if not isinstance(self.seconds, int | float) or not 0 < self.seconds < math.inf:
            raise DatabaseError(f"`seconds` of an entry must be positive, but got seconds={self.seconds!r}")
        numbers = all(isinstance(v, int) and not isinstance(v, bool) for v in self.values.values())
        if not numbers or not all(isinstance(name, str) for name in self.values):
            raise DatabaseError(f"`values` of an entry must be whole numbers by name, but got {dict(self.values)!r}")

    @property
    def algorithm(self) -> str:
        """That the sketch schedules."""
        return self.sketch.partition(":")[0]

    @cached_property
    def place(self) -> Place:
        """What it is looked up by."""
        return place_of(self.workload, self.target, self.lanes, self.threads, self.cache)

    def to_line(self) -> str:
        """The entry as a line of JSON."""
        data = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "workload"}
        data["values"] = dict(self.values)
        return json.dumps({"workload": self.workload.to_json(), **data}, separators=(",", ":"), ensure_ascii=False)

    @staticmethod
    def from_json(data: Any) -> Entry:
        """The entry that `to_line` wrote.

        Raises:
            DatabaseError: it is none.
        """
        try:
            values = dict(data["values"])
            return Entry(**{**data, "workload": Workload.from_json(data["workload"]), "values": values})
        except DatabaseError:
            raise
        except (ValueError, TypeError, KeyError) as error:
            raise DatabaseError(f"an entry must be whole, but {error}") from None


def place_of(workload: Workload, target: str, lanes: int, threads: int, cache: str) -> Place:
    """What entries are looked up by."""
    return workload.key, target, lanes, threads, cache


def lanes_of(hardware: Hardware) -> int:
    """Lanes by which schedules of a machine are kept; at least 1."""
    return max(1, hardware.float_lanes)
