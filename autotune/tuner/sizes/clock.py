"""Timing of kernels of open size at listed sizes; each time becomes a record of that size's workload."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.tuner.callbacks import Callback, SizeProgress
from autotune.tuner.finals import ROUNDS
from autotune.tuner.preparation import reusable_records
from autotune.tuner.settings import Settings
from autotune.tuner.sizes.choice import TimedSchedule
from autotune.tuner.sizes.opening import Define, Opening, build_module, lower_opening
from measure.child import ChildError
from measure.database import Database
from measure.errors import ErrorClass
from measure.host import describe_host
from measure.hostlock import POLL_SECONDS, HostLock
from measure.outcome import Outcome
from measure.pool import Trial
from measure.provenance import Kind, Provenance
from measure.record import Record
from measure.settings import LocalSettings
from measure.timing_process import TimingProcess
from search_space.workloads import Workload
from targets.base import BuildError, RunError

NEAR = 1.15
"""Ratio to the fastest time at a size up to which a schedule is timed again."""

PATIENCE = 60.0
"""Seconds after which a schedule is timed even if other processes on this host build or time."""

MOST_AGAIN = 12
"""Largest number of schedules that are timed again at a size."""

LOCAL = LocalSettings(task_bytes=1 << 40)
"""Settings of the timing process: it keeps the references of all sizes, which each schedule is compared with."""


class Clock:
    """Timer of schedules at all sizes for which they hold, in a separate process that checks their outputs.

    Args:
        define: definition that they compute, by its size.
        workloads: workloads by size, as named in records.
        settings: settings of the run.
        size: name of the size.
        database: database that times are added to, as final timings of a search (`Kind.final`), and that has those of
            an earlier run; None: no database.
        callbacks: listeners, which get each time.
        resume: whether to reuse times of the database.
    """

    def __init__(
        self,
        define: Define,
        workloads: Mapping[int, Workload],
        settings: Settings,
        size: str = "n",
        database: Database | None = None,
        callbacks: Sequence[Callback] = (),
        resume: bool = True,
    ) -> None:
        self._define, self._workloads, self._settings, self._size = define, workloads, settings, size
        self._database, self._callbacks = database, callbacks
        self._fastest = dict.fromkeys(workloads, math.inf)
        self._modules: dict[Opening, bytes | None] = {}
        self._timing_count = self._total = 0
        self._times: dict[tuple[int, str], list[float]] = {}  # (size, trace key) -> seconds by round
        for n, workload in workloads.items() if resume else ():
            for record in reusable_records(database, workload, settings):
                if record.ok and record.provenance.kind is Kind.final:
                    self._times.setdefault((n, record.trace_key), []).append(record.seconds)

    @cached_property
    def _host(self) -> dict[str, Any]:
        return dict(describe_host())

    def time_all(self, openings: Sequence[Opening], stop: Callable[[], bool] = lambda: False) -> list[TimedSchedule]:
        """Times schedules; returns those with code, each with its times at the listed sizes for which it holds.

        All are timed once, and those near the fastest at a size again, in rounds, such that a slow phase of the machine
        does not affect all timings of one; the median counts.

        Args:
            openings: schedules in the order in which they are timed.
            stop: function that tells whether the caller wants an end; schedules not yet timed at all of their sizes are
                then left out.

        Raises:
            RunError: a kernel's outputs are wrong, or it ends its process.
            PoolError: the timing process cannot be started.
        """
        pairs = [(opening, n) for opening in openings for n in self._opened_sizes(opening)]
        with closing(HostLock()) as lock, TimingProcess("run", self._settings.threads, LOCAL) as process:
            for number in range(ROUNDS):
                self._round(self._near(pairs, number) if number else pairs, number, lock, process, stop)
        timed: list[TimedSchedule] = []
        for opening in openings:
            seconds = {n: self._seconds(opening, n, ROUNDS) for n in self._opened_sizes(opening)}
            if all(map(math.isfinite, seconds.values())):
                timed.append(TimedSchedule(opening, seconds, self._work(opening)))
        return timed

    def _opened_sizes(self, opening: Opening) -> list[int]:
        return [n for n in self._workloads if opening.low <= n <= opening.high]

    def _seconds(self, opening: Opening, n: int, rounds: int) -> float:
        """Returns the median seconds of the first so many rounds; infinite without times."""
        times = self._times.get((n, opening.trace.key), [])[:rounds]
        return median(times) if times else math.inf

    def _near(self, pairs: Sequence[tuple[Opening, int]], rounds: int) -> list[tuple[Opening, int]]:
        """Lists the few schedules near the fastest at each size, of those timed in all of the first so many rounds."""
        by_size: dict[int, list[tuple[float, Opening]]] = {}
        for opening, n in pairs:
            if len(self._times.get((n, opening.trace.key), [])) >= rounds:
                by_size.setdefault(n, []).append((self._seconds(opening, n, rounds), opening))
        near: set[tuple[Opening, int]] = set()
        for n, ranked in by_size.items():
            ranked.sort(key=lambda pair: pair[0])
            near |= {(opening, n) for took, opening in ranked[:MOST_AGAIN] if took <= NEAR * ranked[0][0]}
        return [pair for pair in pairs if pair in near]

    def _round(
        self,
        pairs: Sequence[tuple[Opening, int]],
        number: int,
        lock: HostLock,
        process: TimingProcess,
        stop: Callable[[], bool],
    ) -> None:
        """Adds missing times up to this round; between schedules other processes on this host may build."""
        self._total += len(pairs)
        last: Opening | None = None
        for opening, n in pairs:
            if stop():
                return
            times = self._times.setdefault((n, opening.trace.key), [])
            if len(times) <= number:
                module = self._module(opening)
                if module is None:
                    self._total -= 1
                    continue
                if opening is not last:
                    last = opening
                    lock.release()
                    end = time.monotonic() + PATIENCE
                    while not lock.acquire("time", POLL_SECONDS) and not stop() and time.monotonic() < end:
                        pass
                times.append(self._time_call(process, module, opening, n))
            self._fastest[n] = min(self._fastest[n], times[number])
            self._timing_count += 1
            progress = SizeProgress(self._timing_count, self._total, self._size, n, times[number], self._fastest[n])
            for callback in self._callbacks:
                callback.on_size(progress)
        lock.release()

    def _module(self, opening: Opening) -> bytes | None:
        """Builds the machine code of a schedule; returns None if it cannot."""
        if opening not in self._modules:
            try:
                module = build_module(self._define, opening, self._settings.target.name, self._size)
                self._modules[opening] = module.to_bytes()
            except BuildError:
                self._modules[opening] = None
        return self._modules[opening]

    def _time_call(self, process: TimingProcess, module: bytes, opening: Opening, n: int) -> float:
        """Times a call at a size after its output was checked, and records it; infinite after a time-out."""
        trial = self._trial(self._workloads[n], opening)
        # Passed beside the trial, in which it would make the target refuse spills: this schedule may be the only one
        # for all sizes.
        best = None if math.isinf(self._fastest[n]) else self._fastest[n]
        request = {"trial": trial.to_json(), "timing": LOCAL.timing.to_json(), "best_seconds": best}
        try:
            answer = process.ask(request, module, trial.run_timeout)
        except ChildError as error:
            if error.death.error is ErrorClass.run_timeout:
                return math.inf
            raise RunError(f"a kernel must run, but at {self._size} = {n} its process {error.death.how}") from error
        if "error" in answer:
            said = f"at {self._size} = {n} it does not: {answer['message']}"
            raise RunError(f"a kernel must compute its definition, but {said}")
        if self._database is not None:
            first, last = answer["span"]
            facts = {name: answer[name] for name in ("max_error", "rotation_bytes", "metrics")}
            outcome = Outcome.of_samples(tuple(answer["latencies"]), run_seconds=last - first, host=self._host, **facts)
            self._database.append(Record(trial, outcome, self._provenance(opening)))
        return float(answer["seconds"])

    def _trial(self, workload: Workload, opening: Opening) -> Trial:
        settings = self._settings
        return Trial.of(
            workload,
            workload.algorithms[0],
            opening.trace,
            target=settings.target.name,
            threads=settings.threads,
            cache=settings.measure.cache,
            seed=settings.seed,
        )

    def _provenance(self, opening: Opening) -> Provenance:
        note = f"of one kernel for {self._size} from {opening.low} to {opening.high}"
        return Provenance(Kind.final, time=time.time(), note=note)

    def _work(self, opening: Opening) -> Callable[[NDArray[np.int64]], NDArray[np.float64]]:
        """Makes a function of the size that returns the roofline's estimate."""
        opened, settings = lower_opening(self._define, opening, self._size), self._settings
        cold = settings.measure.cache == "network"

        def work(sizes: NDArray[np.int64]) -> NDArray[np.float64]:
            columns = np.broadcast_to(sizes.astype(np.float64), (len(opened.program.sizes), len(sizes)))
            return opened.seconds(columns, settings.target.hardware, cold, settings.threads)

        return work
