"""A fleet as a measuring pool, whose event loop runs in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from measure.errors import PoolError, failure
from measure.fleet.members import Work
from measure.fleet.scheduler import Fleet, FleetSettings, Provider
from measure.fleet.validation import Judge, judge_remote_answer
from measure.notices import notice_if_slow
from measure.pool import MeasurePool, Trial, TrialResult

log = logging.getLogger(__name__)

_THREADS = 256
"""Maximum number of blocking calls that endpoints may have under way by `asyncio.to_thread`."""

_GATHER = 0.005
"""Seconds for which results are gathered, as each time that the caller's thread wakes up, it interrupts the loop's."""


class FleetPool(MeasurePool):
    """A pool that measures trials on the machines that its providers bring.

    `warm_up` or the first `submit` starts them.

    Args:
        providers: providers of builders and devices.
        settings: settings of the scheduler.
        judge: function that makes results of answers, see `measure.fleet.validation`.
    """

    _target = ""  # of all trials, as endpoints see them; empty: each trial's own

    def __init__(
        self, providers: Sequence[Provider], settings: FleetSettings | None = None, judge: Judge = judge_remote_answer
    ) -> None:
        self.providers = tuple(providers)
        self.settings = settings or FleetSettings()
        self._fleet = Fleet(self.settings, self._take, self._fail, judge)
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._thread: threading.Thread | None = None
        self._fresh: list[TrialResult] = []  # used by the loop alone
        self._condition = threading.Condition()  # guards the attributes below
        self._results: list[TrialResult] = []
        self._outstanding = 0
        self._failure: PoolError | None = None
        self._submitted_count = 0
        self._is_closed = False

    def warm_up(self, threads: int) -> None:
        """Lets the machines come up."""
        self._start()

    def submit(self, trials: Sequence[Trial]) -> None:
        """Hands trials to the fleet.

        Raises:
            PoolError: the pool is closed, or its fleet has failed.
        """
        if self._is_closed:
            raise PoolError("`submit` must be called on an open pool, but got closed=True")
        self._raise_failure()
        works = [Work(self._submitted_count + index, trial, self._target) for index, trial in enumerate(trials)]
        self._submitted_count += len(works)
        with self._condition:
            self._outstanding += len(works)
        self._start()
        self._loop.call_soon_threadsafe(self._fleet.submit, works)

    @property
    def outstanding(self) -> int:
        """Number of submitted trials whose results were not returned yet."""
        return self._outstanding

    @property
    def capacity(self) -> int:
        """Two trials for each device and one for each builder; see `Fleet.capacity`."""
        return self._fleet.capacity

    def results(self, timeout: float | None = None) -> list[TrialResult]:
        """Waits for results; see the base class.

        Raises:
            PoolError: the fleet cannot go on, and all results that there were have been returned.
        """
        self._wait(timeout)
        with self._condition:
            done, self._results = self._results, []
            self._outstanding -= len(done)
        if not done and self._outstanding:
            self._raise_failure()
        return done

    def cancel(self) -> None:
        """Forgets unfinished trials; the endpoints stop them."""
        if self._outstanding and not self._is_closed:
            self._finish(self._cancel())

    def close(self) -> None:
        """Ends providers and endpoints, and the loop's thread; may be called twice."""
        if self._is_closed:
            return
        self._is_closed = True
        limit = 3 * self.settings.close_timeout  # providers, endpoints, blocking calls
        with notice_if_slow(f"waiting for the machines of the fleet to end, at most {limit:g} s"):
            self._end(limit)
        with self._condition:
            self._results.clear()
            self._outstanding = 0
            self._condition.notify_all()

    # Driving the loop, here by a thread of its own

    def _start(self) -> None:
        if self._thread is None and not self._is_closed:
            self._thread = threading.Thread(target=self._serve, name="fleet", daemon=True)
            self._thread.start()

    def _wait(self, timeout: float | None) -> None:
        """Waits until there are results, a failure or no outstanding trials, at most `timeout` seconds."""
        with self._condition:
            self._condition.wait_for(self._has_news, timeout)

    def _has_news(self) -> bool:
        return bool(self._results or self._failure or not self._outstanding)

    def _end(self, limit: float) -> None:
        """Ends the loop within `limit` seconds, and whatever lives in it."""
        if self._thread is None:
            self._loop.close()
            return
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(limit)
        if self._thread.is_alive():
            log.warning("the fleet did not end within %g s; what it waits for is left alone", limit)

    def _serve(self) -> None:
        """Runs the loop in the pool's thread, until the pool is closed."""
        self._loop.set_default_executor(ThreadPoolExecutor(_THREADS, "fleet"))
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._live())

    async def _live(self) -> None:
        try:
            self._fleet.start(self.providers)
            await self._stopping.wait()
        except Exception as error:  # nothing joins this thread, so report it by the results
            self._fail(failure("a provider must start", error))
            await self._stopping.wait()
        await self._fleet.close()

    def _finish(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Runs a coroutine in the loop, and waits until it is done."""
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    # Functions that run in the loop

    async def _cancel(self) -> None:
        self._flush()
        self._fleet.cancel()
        with self._condition:
            self._outstanding = len(self._results)
            self._condition.notify_all()

    def _take(self, result: TrialResult) -> None:
        self._fresh.append(result)
        if len(self._fresh) == 1:
            self._loop.call_later(_GATHER, self._flush)

    def _flush(self) -> None:
        with self._condition:
            self._results += self._fresh
            self._fresh.clear()
            self._condition.notify_all()

    def _fail(self, error: PoolError) -> None:
        self._flush()
        with self._condition:
            self._failure = self._failure or error
            self._condition.notify_all()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise PoolError(str(self._failure)) from (self._failure.__cause__ or self._failure)
