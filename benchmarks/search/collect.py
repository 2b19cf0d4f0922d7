"""Measurement of a table: every candidate of a restricted space, in random order, in as many sessions as it takes."""

from __future__ import annotations

import json
import math
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from autotune.tuner.search.base import Candidate
from autotune.tuner.search.population import Frame
from benchmarks.search.replay import FOLDER, ReplayTable, everyone
from benchmarks.search.restrict import Restriction, digest
from benchmarks.search.tasks import SearchTask
from measure.host import describe_host
from measure.interleaved import InterleavedTimer, InterleavedTiming
from measure.journal import Journal
from measure.local import LocalPool
from measure.pool import MeasurePool, Trial, TrialResult
from measure.settings import LocalSettings
from search_space.space import SearchSpace, concrete, generate
from search_space.workloads import Workload
from targets import registry
from targets.base import BuildError, RunError
from targets.vta.kernel import VtaKernel

PARTS = Path("runs") / "search_tables"
"""Folder of unfinished tables."""
ROUND = 64
TURNS = InterleavedTiming(rounds=40, group=320, check=True)
"""Turns of candidates on targets that are timed by a clock."""
CLOSE = 0.95
"""Candidates that reach this share of the best take turns once more, with each other."""
CLOSE_TURNS = InterleavedTiming(rounds=60, group=128)
MOST_CLOSE = 128
"""Most candidates that take turns once more."""
SAMPLE = 24
"""Number of candidates of a simulated task that the ordinary pool measures, too, which checks their output."""
Timing = tuple[float, float, str]
"""Seconds for searches and seconds for judging them, NaN for a failure, and the class of the failure, or `ok`.

On targets that are timed by a clock, they are the fastest of every other burst each.
"""


class Collection:
    """An unfinished table: a journal of measurements, which a later session continues.

    Args:
        task: task to measure.
        folder: folder of unfinished tables.
        command: command that makes the table, for its header.

    Raises:
        ValueError: the journal there is of another space.
    """

    def __init__(self, task: SearchTask, folder: Path = PARTS, command: str = "") -> None:
        self.task, self.command = task, command
        whole = task.make_space()
        self.restriction = task.restriction(whole)
        self.space = self.restriction.apply(whole)
        self.threads = task.threads or self.space.hardware.cores
        self.frame = Frame(self.space)
        self.population = everyone(self.frame)
        self.seconds: dict[int, list[float]] = {}  # place -> a latency for each turn; NaN for a failure
        self.again: dict[int, list[float]] = {}  # the same of the repeat
        self.errors: dict[int, str] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{task.name}.jsonl"
        self._journal = Journal(self.path, _is_json)
        self._read()

    def __len__(self) -> int:
        return len(self.population)

    @cached_property
    def order(self) -> list[int]:
        """Places of all candidates in the order in which they are measured: a slow hour hits no part of the space."""
        return [int(place) for place in np.random.default_rng(0).permutation(len(self))]

    @property
    def missing(self) -> list[int]:
        """Places not measured yet, in order."""
        return [place for place in self.order if place not in self.seconds]

    @property
    def best(self) -> float:
        """Least of all latencies; infinite where nothing has worked."""
        return min((s for s in self.latencies().values() if not math.isnan(s)), default=math.inf)

    def latencies(self) -> dict[int, float]:
        """Returns seconds by candidate: the fastest measured; NaN for a failure."""
        return {place: _fastest(values + self.again[place]) for place, values in self.seconds.items()}

    def close(self) -> list[int]:
        """Lists the indices of the fastest candidates, fastest first."""
        limit = self.best / CLOSE
        found = sorted((seconds, place) for place, seconds in self.latencies().items() if not math.isnan(seconds))
        return [place for seconds, place in found if seconds <= limit][:MOST_CLOSE]

    def keep(self, rows: Sequence[int], timings: Sequence[Timing]) -> None:
        """Writes measurements down, all of them or none."""
        lines = []
        for place, (seconds, again, error) in zip(rows, timings, strict=True):
            self._note(place, seconds, again, error)
            values = [None if math.isnan(value) else value for value in (seconds, again)]
            lines.append({"place": place, "seconds": values[0], "again": values[1], "error": error})
        self._write(*lines)

    def trial(self, row: int) -> Trial:
        """Makes the trial of a candidate."""
        (candidate,) = self.frame.candidates(self.population.take(np.array([row])))
        sketch = self.space.sketches[candidate.sketch]
        return Trial.of(
            self.space.workload,
            sketch.algorithm,
            sketch.trace(candidate.choices),
            target=self.task.target,
            threads=self.threads,
        )

    def table(self) -> ReplayTable:
        """Makes the finished table.

        Raises:
            ValueError: candidates are missing.
        """
        if self.missing:
            raise ValueError(f"a table must have every candidate, but got {len(self.missing)} missing of {len(self)}")
        seconds, again = (
            np.array([_fastest(of[place]) for place in range(len(self))]) for of in (self.seconds, self.again)
        )
        simulated = registry.get(self.task.target).simulated
        provenance = {"host": describe_host(), "date": time.strftime("%Y-%m-%d"), "command": self.command}
        return ReplayTable(
            self.task.name,
            self.task.kind,
            self.task.title,
            self.space.workload,
            self.task.target,
            self.threads,
            "warm",
            self.space.hardware,
            self.restriction,
            seconds,
            dict(Counter(self.errors.values())),
            provenance,
            None if simulated else again,
        )

    def _read(self) -> None:
        lines = [json.loads(line) for _, _, line in self._journal.lines()]
        mine = {"task": self.task.name, "digest": digest(self.space)}
        if not lines:
            self._write(mine)
        elif lines[0] != mine:
            raise ValueError(f"`{self.path}` must be of {mine}, but got {lines[0]}: move it away to begin anew")
        for line in lines[1:]:
            seconds, again = (math.nan if line[name] is None else line[name] for name in ("seconds", "again"))
            self._note(line["place"], seconds, again, line["error"])

    def _write(self, *lines: dict[str, Any]) -> None:
        self._journal.append([json.dumps(line).encode() + b"\n" for line in lines])

    def _note(self, row: int, seconds: float, again: float, error: str) -> None:
        self.seconds.setdefault(row, []).append(seconds)
        self.again.setdefault(row, []).append(again)
        if error != "ok":
            self.errors.setdefault(row, error)


def collect(
    task: SearchTask, folder: Path = PARTS, tables: Path = FOLDER, jobs: int = 1, limit: int | None = None
) -> ReplayTable | None:
    """Measures the missing candidates of a task's table, and writes it if none is missing then.

    On a simulated target the timing simulator runs by itself, in `jobs` processes. The ordinary pool measures a sample
    as well, and checks its output. Everywhere else candidates are checked and timed in turns, and the fastest of them
    once more.

    Args:
        task: task to measure.
        folder: folder of unfinished tables.
        tables: folder of finished tables.
        jobs: processes that simulate.
        limit: candidates to measure in this session; None: all.

    Returns:
        The table; None where candidates are missing still.

    Raises:
        RuntimeError: a sampled candidate computes something wrong, or takes another time in the ordinary pool.
    """
    collection = Collection(task, folder, f"python -m benchmarks.search collect --task {task.name}")
    wanted = collection.missing[:limit]
    if registry.get(task.target).simulated:
        _simulate_all(collection, wanted, jobs)
        if not collection.missing:
            _check_sample(collection)
    else:
        _time_in_turns(collection, wanted, TURNS)
        if not collection.missing:
            _time_in_turns(collection, collection.close(), CLOSE_TURNS)
    if collection.missing:
        return None
    table = collection.table()
    table.save(tables)
    return table


def simulate(space: SearchSpace, target: str, candidate: Candidate) -> Timing:
    """Simulates the time of a candidate, which is deterministic; computes no output."""
    sketch = space.sketches[candidate.sketch]
    vta = registry.get(target)
    try:
        kernel = vta.load(vta.build(concrete(sketch, sketch.values(candidate.choices))))
    except (BuildError, RunError) as error:
        return math.nan, math.nan, "build" if isinstance(error, BuildError) else "crash"
    assert isinstance(kernel, VtaKernel)
    try:
        return kernel.seconds, kernel.seconds, "ok"
    except RunError:
        return math.nan, math.nan, "crash"


def _simulate_all(collection: Collection, rows: Sequence[int], jobs: int) -> None:
    parts = [rows[first : first + ROUND] for first in range(0, len(rows), ROUND)]
    members = [collection.frame.candidates(collection.population.take(np.array(part, int))) for part in parts]
    for part, found in zip(parts, _in_processes(collection, members, jobs), strict=True):
        collection.keep(part, found)
        _say(collection)


def _in_processes(collection: Collection, parts: Sequence[Sequence[Candidate]], jobs: int) -> Iterator[list[Timing]]:
    target = collection.task.target
    if jobs == 1:
        yield from ([simulate(collection.space, target, candidate) for candidate in part] for part in parts)
        return
    workload, restriction = collection.space.workload.to_json(), collection.restriction.to_json()
    start = (dict(workload), restriction, target)
    with ProcessPoolExecutor(jobs, get_context("spawn"), _prepare, start) as processes:
        yield from processes.map(_simulate_part, parts)


_SPACE: list[tuple[SearchSpace, str]] = []
"""Space and target of a process of `_in_processes`."""


def _prepare(workload: dict[str, Any], restriction: dict[str, Any], target: str) -> None:
    whole = generate(Workload.from_json(workload), registry.get(target).hardware)
    _SPACE[:] = [(Restriction.from_json(restriction).apply(whole), target)]


def _simulate_part(candidates: Sequence[Candidate]) -> list[Timing]:
    ((space, target),) = _SPACE
    return [simulate(space, target, candidate) for candidate in candidates]


def _check_sample(collection: Collection) -> None:
    """Checks some candidates, the fastest among them, by the ordinary pool."""
    worked = [number for number in collection.order if not math.isnan(_fastest(collection.seconds[number]))]
    sample = [*collection.close()[:4], *worked[: SAMPLE - 4]]
    with TemporaryDirectory() as folder:  # a lock of its own: nothing is timed by a clock, so nobody need wait
        pool = LocalPool(LocalSettings(builders=1, host_lock=f"{folder}/lock"))
        with pool:
            found = _results(collection, sample, pool)
    for number, result in zip(sample, found, strict=True):
        expected = _fastest(collection.seconds[number])
        if not result.ok or not math.isclose(result.seconds, expected, rel_tol=1e-9):
            raise RuntimeError(
                f"a simulated candidate must be right and take {expected} s in the ordinary pool, too, but got "
                f"place={number}, error={result.error.name}, seconds={result.seconds}: {result.message}"
            )


def _time_in_turns(collection: Collection, rows: Sequence[int], turns: InterleavedTiming) -> None:
    for first in range(0, len(rows), turns.group):
        part = rows[first : first + turns.group]
        with InterleavedTimer(collection.threads, turns) as timer:
            results = timer.time([collection.trial(place) for place in part])
        collection.keep(part, [(*_every_other(result), result.error.name) for result in results])
        _say(collection)


def _every_other(result: TrialResult) -> tuple[float, float]:
    """Returns the fastest of the even bursts, and of the odd ones, which share none of their noise."""
    if not result.ok:
        return math.nan, math.nan
    return min(result.latencies[::2]), min(result.latencies[1::2])


def _results(collection: Collection, rows: Sequence[int], pool: MeasurePool) -> list[TrialResult]:
    """Measures candidates, and returns results in the order of `rows`."""
    pool.submit([collection.trial(place) for place in rows])
    found: list[TrialResult] = []
    while pool.outstanding:
        found += pool.results()
    return sorted(found, key=lambda result: result.index)


def _say(collection: Collection) -> None:
    best = collection.best
    shown = f"{best * 1e6:.2f} µs" if math.isfinite(best) else "nothing worked"
    near = sum(seconds <= best / 0.98 for seconds in collection.latencies().values())
    done = f"{len(collection.seconds)} of {len(collection)}"
    sys.stderr.write(f"{collection.task.name}: {done}, best {shown}, {near} within 2 %\n")


def _fastest(values: Sequence[float]) -> float:
    """Returns the fastest of a candidate's measurements; NaN if one failed."""
    return math.nan if any(math.isnan(value) for value in values) else min(values)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True
