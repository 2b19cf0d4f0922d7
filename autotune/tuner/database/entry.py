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
        workload_json: workload as JSON; `workload` is made of it on first use, which takes a millisecond.
        target: name of the target.
        lanes: float32 lanes of a vector, which determine the space's tiles.
        threads: number of threads that it ran on.
        cache: state of the caches in timing.
        sketch: name of the sketch in the search space, which begins with the algorithm.
        values: decision variable → number.
        seconds: latency.
        machine: processor and cores that measured it; empty for a simulated target.
        origin: origin as free text: trials, date, commit.
    """

    workload_json: Mapping[str, Any]
    target: str
    lanes: int
    threads: int
    cache: Cache
    sketch: str
    values: Mapping[str, int]
    seconds: float
    machine: str = ""
    origin: str = ""

    def __post_init__(self) -> None:
        """Checks values that JSON does not check.

        Raises:
            DatabaseError: a field has another type, or the time is not positive.
        """
        if not isinstance(self.workload_json, Mapping) or not {"operator", "args"} <= self.workload_json.keys():
            raise DatabaseError(
                f"`workload` of an entry must have an operator and args, but got {self.workload_json!r}"
            )
        for item in ("target", "sketch", "machine", "origin"):
            key, value = _KEYS[item], getattr(self, item)
            if not isinstance(value, str):
                raise DatabaseError(f"`{key}` of an entry must be a text, but got {key}={value!r}")
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
        return _text(self.workload_json), target_kind(self.target), self.lanes, self.threads, self.cache

    @cached_property
    def workload(self) -> Workload:
        """Workload that the schedule is for.

        Raises:
            DatabaseError: the workload is unknown here.
        """
        try:
            return Workload.from_json(dict(self.workload_json))
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
        data = {key: getattr(self, name) for name, key in _KEYS.items()}
        data |= {"workload": dict(self.workload_json), "values": dict(self.values)}
        return json.dumps(data, separators=(",", ":"), ensure_ascii=False)

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
        if unknown := data.keys() - set(_KEYS.values()):
            allowed = ", ".join(sorted(_KEYS.values()))
            raise DatabaseError(f"an entry must have keys among {allowed}, but got {min(unknown)!r:.60}")
        try:
            values = {name: data[key] for name, key in _KEYS.items() if key in data}
            return Entry(**{**values, "values": dict(data["values"])})
        except DatabaseError:
            raise
        except (ValueError, TypeError, KeyError) as error:
            raise DatabaseError(f"an entry must be whole, but {error}") from None


_KEYS = {item.name: item.name for item in fields(Entry)} | {"workload_json": "workload", "origin": "made"}
"""Field → its key in a line."""
_REQUIRED_KEYS = {_KEYS[item.name] for item in fields(Entry) if item.default is MISSING}


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
