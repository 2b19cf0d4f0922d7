"""Database entry of a schedule: its workload, machine, decisions and time."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cached_property
from typing import Any, get_args

from measure.pool import Cache
from search_space.hardware import Hardware
from search_space.workloads import Workload

EntryKey = tuple[str, str, int, int, str]
"""Workload's JSON, kind of target, lanes, threads and cache state: schedules with the same value compete."""


class DatabaseError(ValueError):
    """A database of schedules that cannot be read, or an illegal entry."""


@dataclass(frozen=True)
class Entry:
    """Fastest schedule that one search has found.

    Attributes:
        described: workload as JSON; `workload` is made of it on first use, which takes a millisecond.
        target: name of the target.
        lanes: float32 lanes of a vector, which determine the space's tiles.
        threads: number of threads that it ran on.
        cache: state of the caches in timing.
        sketch: name of the sketch in the search space, which begins with the algorithm.
        values: decision variable → number.
        seconds: latency.
        machine: processor and cores that measured it; empty for a simulated target.
        made: origin as free text: trials, date, commit.
    """

    described: Mapping[str, Any]
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
        """Checks values that JSON does not check.

        Raises:
            DatabaseError: a field has another type, or the time is not positive.
        """
        if not isinstance(self.described, Mapping) or not {"operator", "args"} <= self.described.keys():
            raise DatabaseError(f"`workload` of an entry must have an operator and args, but got {self.described!r}")
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
        """Algorithm that the sketch schedules."""
        return self.sketch.partition(":")[0]

    @cached_property
    def lookup_key(self) -> EntryKey:
        """Key of the entry in a database."""
        return _text(self.described), target_kind(self.target), self.lanes, self.threads, self.cache

    @cached_property
    def workload(self) -> Workload:
        """Workload that the schedule is for.

        Raises:
            DatabaseError: the workload is unknown here.
        """
        try:
            return Workload.from_json(dict(self.described))
        except (ValueError, TypeError, KeyError) as error:
            raise DatabaseError(f"an entry must be whole, but {error}") from None

    def check_workload(self) -> None:
        """Makes the workload, which `from_json` leaves as JSON.

        Raises:
            DatabaseError: the workload is unknown here.
        """
        self.workload  # noqa: B018 (kept as it is made)

    def to_line(self) -> str:
        """Formats the entry as a line of JSON."""
        data = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "described"}
        data["values"] = dict(self.values)
        return json.dumps({"workload": dict(self.described), **data}, separators=(",", ":"), ensure_ascii=False)

    @staticmethod
    def from_json(data: Any) -> Entry:
        """Reads the entry that `to_line` wrote.

        Raises:
            DatabaseError: the data is no entry.
        """
        if not isinstance(data, dict):
            raise DatabaseError(f"an entry must be a JSON object, but got {data!r:.60}")
        if lacking := _REQUIRED_KEYS - data.keys():
            raise DatabaseError(f"an entry must have {', '.join(sorted(_REQUIRED_KEYS))}, but lacks {min(lacking)}")
        if unknown := data.keys() - _KEYS:
            allowed = ", ".join(sorted(_KEYS))
            raise DatabaseError(f"an entry must have keys among {allowed}, but got {min(unknown)!r:.60}")
        try:
            given = {**data, "described": data["workload"], "values": dict(data["values"])}
            given.pop("workload")
            return Entry(**given)
        except DatabaseError:
            raise
        except (ValueError, TypeError, KeyError) as error:
            raise DatabaseError(f"an entry must be whole, but {error}") from None


_KEYS = {"workload"} | {item.name for item in fields(Entry) if item.name != "described"}
_REQUIRED_KEYS = _KEYS - {item.name for item in fields(Entry) if item.default is not MISSING}


def make_entry_key(workload: Workload, target: str, lanes: int, threads: int, cache: str) -> EntryKey:
    """Makes the key of entries in a database."""
    return _text(workload.to_json()), target_kind(target), lanes, threads, cache


def target_kind(target: str) -> str:
    """Names the kind of targets that share schedules: all CPUs of equal lanes, named ones included."""
    kind = target.partition(":")[0]
    return kind if kind == "cpu" else target


def _text(description: Mapping[str, Any]) -> str:
    """Formats JSON such that equal data yields equal text."""
    return json.dumps(description, sort_keys=True, separators=(",", ":"))


def schedule_lanes(hardware: Hardware) -> int:
    """Returns the lanes by which schedules of a machine are stored; at least 1."""
    return max(1, hardware.float_lanes)
