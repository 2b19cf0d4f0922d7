"""Replay tables: the latency of every candidate of a restricted search space; searches see nothing outside of them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.tuner.search.base import Candidate
from autotune.tuner.search.population import Frame, Population
from benchmarks.search.restrict import Restriction, digest, legal_rows
from costmodel.features import FeatureExtractor, get_extractor
from measure.pool import Cache
from measure.replay import ReplayError
from search_space.hardware import Hardware
from search_space.ir.stmt import LoopProgram
from search_space.space import SearchSpace, generate
from search_space.workloads import Workload

FOLDER = Path(__file__).resolve().parent / "tables"
FORMAT = 1


class TableError(ValueError):
    """A table that cannot be read, or that is of another search space than today's."""


@dataclass(frozen=True, eq=False)
class ReplayTable:
    """A task, its restricted space, and the seconds of each legal candidate.

    Attributes:
        name: name of the task.
        kind: class of the task.
        title: title in tables and pictures.
        workload, target, threads, cache: computation that was measured, and how.
        hardware: limits of the machine as they were taken then; the space and the features depend on them.
        restriction: restriction of the workload's space.
        seconds: (candidates,), sketches in order, each in the order of `legal_rows`; NaN for a failure. Searches see
            them.
        again: seconds of a repeat that no search sees, by which searches are judged; None for simulated targets, whose
            repeat would be equal.
        errors: class of failure -> how many.
        provenance: host, date and command.
    """

    name: str
    kind: str
    title: str
    workload: Workload
    target: str
    threads: int
    cache: Cache
    hardware: Hardware
    restriction: Restriction
    seconds: NDArray[np.float64]
    errors: Mapping[str, int]
    provenance: Mapping[str, Any]
    again: NDArray[np.float64] | None = None

    @cached_property
    def space(self) -> SearchSpace:
        """The restricted space, as today's sketch rules make it."""
        used = {name.partition(":")[0] for name in self.restriction.sketches}
        algorithms = [name for name in self.workload.algorithms if name in used]
        return self.restriction.apply(generate(self.workload, self.hardware, algorithms))

    @cached_property
    def frame(self) -> Frame:
        """Frame of the space."""
        return Frame(self.space)

    @cached_property
    def population(self) -> Population:
        """Every candidate, in the order of `seconds`."""
        return everyone(self.frame)

    @property
    def judging_seconds(self) -> NDArray[np.float64]:
        """(candidates,) seconds by which searches are judged."""
        return self.seconds if self.again is None else self.again

    @property
    def best(self) -> float:
        """Seconds of the fastest candidate, as searches are judged: the best known."""
        return float(np.nanmin(self.judging_seconds))

    def good(self, share: float) -> int:
        """Counts candidates that reach a share of the best known, best seconds / seconds."""
        return int(np.count_nonzero(self.judging_seconds <= self.best / share))

    def random_trials(self, share: float) -> float:
        """Computes trials that drawing without replacement needs on average until one reaches `share` of the best."""
        return (len(self.seconds) + 1) / (self.good(share) + 1)

    def look_up(self, candidates: Sequence[Candidate]) -> NDArray[np.int64]:
        """Finds the indices of candidates in `seconds` and `judged`: (candidates,).

        Raises:
            ReplayError: a candidate that is not in the table; no other one substitutes it.
        """
        asked = self.frame.population(candidates)
        lengths = [len(self.frame.sketches[c.sketch].groups) for c in candidates]
        inside = (asked.rows >= 0) & (asked.rows < self.frame.lengths[asked.sketches])
        sizes = np.array([len(c.choices) for c in candidates]) == np.array(lengths)
        keys = self.frame.keys(asked)
        indices = np.minimum(np.searchsorted(self._sorted_keys, keys), len(self._sorted_keys) - 1)
        known = inside.all(axis=1) & sizes & (self._sorted_keys[indices] == keys)
        if not known.all():
            wrong = candidates[int(np.argmin(known))]
            raise ReplayError(
                f"`candidate` must be in the replay table of {len(self.seconds)} candidates of {self.name}, "
                f"but got sketch={self.frame.sketches[wrong.sketch].name}, choices={wrong.choices}"
            )
        return self._order[indices]

    def extractor(self, program: LoopProgram, columns: Sequence[str], hardware: Hardware) -> FeatureExtractor:
        """Makes the feature extractor of a sketch of the space."""
        return get_extractor(program, columns, hardware, self.cache == "network", self.threads)

    @cached_property
    def _order(self) -> NDArray[np.intp]:
        return np.argsort(self.frame.keys(self.population), kind="stable")

    @cached_property
    def _sorted_keys(self) -> NDArray[Any]:
        return self.frame.keys(self.population)[self._order]

    def save(self, folder: Path = FOLDER) -> Path:
        """Writes `folder/NAME.json`: latencies in microseconds, null for a failure."""
        again = {} if self.again is None else {"microseconds_again": _values(self.again)}
        document = {
            "format": FORMAT,
            "name": self.name,
            "kind": self.kind,
            "title": self.title,
            "workload": self.workload.to_json(),
            "target": self.target,
            "threads": self.threads,
            "cache": self.cache,
            "hardware": asdict(self.hardware),
            "restriction": self.restriction.to_json(),
            "digest": digest(self.space),
            "made": dict(self.provenance),
            "errors": dict(self.errors),
            "microseconds": _values(self.seconds),
            **again,
        }
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.json"
        lines = [f"{json.dumps(key)}: {_dumps(value)}" for key, value in document.items()]
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        return path

    @staticmethod
    def load(path: Path) -> ReplayTable:
        """Reads a file of `save`, and checks it against today's search space.

        Raises:
            TableError: another format, or a sketch rule that has changed since.
        """
        data = json.loads(path.read_text(encoding="utf-8"))
        if data.get("format") != FORMAT:
            raise TableError(f"`format` of {path.name} must be {FORMAT}, but got format={data.get('format')!r}")
        table = ReplayTable(
            data["name"],
            data["kind"],
            data["title"],
            Workload.from_json(data["workload"]),
            data["target"],
            data["threads"],
            data["cache"],
            Hardware.from_json(data["hardware"]),
            Restriction.from_json(data["restriction"]),
            _seconds(data["microseconds"]),
            data["errors"],
            data["made"],
            _seconds(data["microseconds_again"]) if "microseconds_again" in data else None,
        )
        try:
            current = digest(table.space)
        except ValueError as error:
            current = str(error)
        if current != data["digest"]:
            raise TableError(
                f"`{path.name}` must be of today's search space, but got digest={data['digest']}, and now it is "
                f"{current}: a sketch rule has changed; make it again with "
                f"`python -m benchmarks.search collect --task {table.name}`"
            )
        return table


def everyone(frame: Frame) -> Population:
    """Lists every legal candidate of a space, sketches in order."""
    parts = [frame.of(place, legal_rows(sketch)) for place, sketch in enumerate(frame.sketches)]
    return Population.concatenate([frame.empty(), *parts])


def _values(seconds: NDArray[np.float64]) -> list[float | int | None]:
    return [None if math.isnan(s) else _short(s) for s in seconds.tolist()]


def _seconds(values: Sequence[float | int | None]) -> NDArray[np.float64]:
    return np.array([math.nan if value is None else value * 1e-6 for value in values])


def _short(seconds: float) -> float | int:
    """Rounds to microseconds of six digits and at least a nanosecond: far finer than any measurement."""
    value = seconds * 1e6
    digits = max(3, 5 - math.floor(math.log10(value)))
    short = round(value, digits)
    return int(short) if short == int(short) else short


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
