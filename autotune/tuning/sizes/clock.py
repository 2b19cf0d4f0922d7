"""Times kernels of open size at the sizes that matter; each time becomes a record of that size's workload."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import cached_property, partial
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.tuning.callbacks import Callback, SizeProgress
from autotune.tuning.finals import ROUNDS
from autotune.tuning.preparation import reusable_records
from autotune.tuning.settings import Settings
from autotune.tuning.sizes.choice import Timed
from autotune.tuning.sizes.opening import Define, Opening, built, lowered
from measure.database import Database
from measure.host import describe_host
from measure.hostlock import POLL_SECONDS, HostLock
from measure.outcome import Outcome
from measure.pool import Trial
from measure.provenance import Kind, Provenance
from measure.record import Record
from measure.timing import TimingPolicy, rotation_copies
from measure.timing import measure as timed
from search_space.workloads import Workload
from targets.base import BuildError, Kernel, RunError

NEAR = 1.15
"""Times the fastest at a size: what takes no longer is timed again."""

PATIENCE = 60.0
"""Seconds after which a schedule is timed though others on this host build or time."""

MOST_AGAIN = 12
"""Schedules that are timed again at a size."""

Task = tuple[list[NDArray[Any]], NDArray[Any]]
"""Inputs, and what the reference makes of them."""


class Clock:
    """Times schedules at all sizes that they hold for, in this process.

    Args:
        define: what they compute, by its size.
        workloads: by size, as records name them.
        settings: of the run.
        size: name of the size.
        database: where times are written down, as timings at the end of a search (`Kind.final`), and where those that
            an earlier run took are found; None: nowhere.
        callbacks: told of each time.
        resume: whether times that are found there are not taken again.
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
        self._tasks: dict[int, Task] = {}
        self._kernels: dict[Opening, Kernel | None] = {}
        self._done = self._total = 0
        self._times: dict[tuple[int, str], list[float]] = {}  # of a trace at a size, by round
        for n, workload in workloads.items() if resume else ():
            for record in reusable_records(database, workload, settings):
                if record.ok and record.provenance.kind is Kind.final:
                    self._times.setdefault((n, record.trace_key), []).append(record.seconds)

    @cached_property
    def _host(self) -> dict[str, Any]:
        return dict(describe_host())

    def time_all(self, openings: Sequence[Opening], stop: Callable[[], bool] = lambda: False) -> list[Timed]:
        """Those for which there is code, each with its times at the listed sizes that it holds for.

        All are timed once, and those that are not far behind the fastest at a size some more, in rounds, so that what
        slows the machine for a while does not strike all timings of one; of several the median counts.

        Args:
            openings: in the order in which they are timed.
            stop: whether somebody wants an end; what is not timed at all of its sizes by then is left out.

        Raises:
            RunError: a kernel computes something else than the definition.
        """
        pairs = [(opening, n) for opening in openings for n in self._sizes_of(opening)]
        with closing(HostLock()) as lock:
            for number in range(ROUNDS):
                self._round(self._near(pairs, number) if number else pairs, number, lock, stop)
        found: list[Timed] = []
        for opening in openings:
            seconds = {n: self._seconds(opening, n, ROUNDS) for n in self._sizes_of(opening)}
            if all(map(math.isfinite, seconds.values())):
                found.append(Timed(opening, seconds, self._work(opening)))
        return found

    def _sizes_of(self, opening: Opening) -> list[int]:
        return [n for n in self._workloads if opening.low <= n <= opening.high]

    def _seconds(self, opening: Opening, n: int, rounds: int) -> float:
        """By what the first so many rounds say; infinite where that is nothing."""
        times = self._times.get((n, opening.trace.key), [])[:rounds]
        return median(times) if times else math.inf

    def _near(self, pairs: Sequence[tuple[Opening, int]], rounds: int) -> list[tuple[Opening, int]]:
        """The few fastest at each size that are not far behind, of those timed in all of the first so many rounds."""
        by_size: dict[int, list[tuple[float, Opening]]] = {}
        for opening, n in pairs:
            if len(self._times.get((n, opening.trace.key), [])) >= rounds:
                by_size.setdefault(n, []).append((self._seconds(opening, n, rounds), opening))
        near: set[tuple[Opening, int]] = set()
        for n, found in by_size.items():
            found.sort(key=lambda pair: pair[0])
            near |= {(opening, n) for took, opening in found[:MOST_AGAIN] if took <= NEAR * found[0][0]}
        return [pair for pair in pairs if pair in near]

    def _round(
        self, pairs: Sequence[tuple[Opening, int]], number: int, lock: HostLock, stop: Callable[[], bool]
    ) -> None:
        """Times what has fewer times than this round is to leave; between schedules others on this host may build."""
        self._total += len(pairs)
        last: Opening | None = None
        for opening, n in pairs:
            if stop():
                return
            times = self._times.setdefault((n, opening.trace.key), [])
            if len(times) <= number:
                kernel = self._kernel(opening)
                if kernel is None:
                    self._total -= 1
                    continue
                if opening is not last:
                    last = opening
                    lock.release()
                    end = time.monotonic() + PATIENCE
                    while not lock.acquire("time", POLL_SECONDS) and not stop() and time.monotonic() < end:
                        pass
                times.append(self._timed(kernel, opening, n))
            self._fastest[n] = min(self._fastest[n], times[number])
            self._done += 1
            progress = SizeProgress(self._done, self._total, self._size, n, times[number], self._fastest[n])
            for callback in self._callbacks:
                callback.on_size(progress)
        lock.release()

    def _kernel(self, opening: Opening) -> Kernel | None:
        """None where there is no code."""
        if opening not in self._kernels:
            try:
                self._kernels[opening] = built(self._define, opening, self._settings.target.name, self._size)
            except BuildError:
                self._kernels[opening] = None
        return self._kernels[opening]

    def _timed(self, kernel: Kernel, opening: Opening, n: int) -> float:
        """Of a call at one of the sizes, once its output is checked; written down."""
        workload, settings, policy = self._workloads[n], self._settings, TimingPolicy()
        if n not in self._tasks:
            inputs = workload.make_inputs(settings.seed)
            self._tasks[n] = inputs, workload.reference(*inputs)
        inputs, expected = self._tasks[n]
        start = time.perf_counter()
        bound = kernel.bind(inputs, self._copies(workload, inputs, policy))
        rtol, atol = workload.tolerance
        output = bound.run(settings.threads)
        if not np.allclose(output.astype(np.float64), expected.astype(np.float64), rtol, atol, equal_nan=True):
            raise RunError(f"a kernel must compute its definition, but at {self._size} = {n} it does not")
        best = None if math.isinf(self._fastest[n]) else self._fastest[n]
        timing = timed(partial(bound.time, threads=settings.threads), policy, best)
        if self._database is not None:
            spent = time.perf_counter() - start
            outcome = Outcome.of_samples(timing.latencies, run_seconds=spent, host=self._host)
            self._database.append(Record(self._trial(workload, opening), outcome, self._provenance(opening)))
        return timing.seconds

    def _copies(self, workload: Workload, inputs: Sequence[NDArray[Any]], policy: TimingPolicy) -> int:
        """Sets of constants, of which there are several where they are to be cold."""
        pairs = zip(inputs, workload.inputs, strict=True)
        constant_bytes = sum(array.nbytes for array, spec in pairs if spec.constant)
        if self._settings.measure.cache != "network" or not constant_bytes:
            return 1
        return max(2, rotation_copies(constant_bytes, self._settings.target.cache_bytes, policy.rotation_bytes))

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
        """The roofline's estimate as a function of the size."""
        opened, settings = lowered(self._define, opening, self._size), self._settings
        cold = settings.measure.cache == "network"

        def work(sizes: NDArray[np.int64]) -> NDArray[np.float64]:
            columns = np.broadcast_to(sizes.astype(np.float64), (len(opened.program.sizes), len(sizes)))
            return opened.seconds(columns, settings.target.hardware, cold, settings.threads)

        return work
