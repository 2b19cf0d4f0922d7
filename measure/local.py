"""Pool on this host: a fleet of one builder and one device, which has the host to itself while a kernel is timed.

The fleet's loop runs inside `results` alone, in the caller's thread. While a kernel is timed this process sleeps, and
while the caller works no kernel is timed that it would disturb.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Coroutine
from typing import Any

from measure.errors import PoolError
from measure.fleet.local import HostDevice, LocalBuilder
from measure.fleet.pool import FleetPool
from measure.fleet.scheduler import FleetSettings
from measure.fleet.validation import judge_local_answer
from measure.pool import TrialResult
from measure.settings import LocalSettings

_ANY = "any target"


class LocalPool(FleetPool):
    """A pool that measures trials in child processes of this host, one at a time, even for simulated targets.

    Args:
        settings: settings of measurement; the defaults suit a machine that is otherwise idle.

    Attributes:
        builder, device: endpoints of the pool.
    """

    _target = _ANY

    def __init__(self, settings: LocalSettings | None = None) -> None:
        settings = settings or LocalSettings()
        super().__init__((), FleetSettings(settings.batch), judge_local_answer)
        targets = frozenset({_ANY})
        self.device = HostDevice(settings, "device", targets, bound=False)
        self.builder = LocalBuilder(None, settings, "builder", targets, self.device, bound=False)
        self._finish(self._join())

    def warm_up(self, threads: int) -> None:
        """Starts the children, unless another run is timing something on this host."""
        if self.builder.warm_up():
            self.device.come_up(threads)

    async def _join(self) -> None:
        self._fleet.join(self.builder)
        self._fleet.join(self.device)

    async def _cancel(self) -> None:
        await super()._cancel()
        await self._fleet.wait_settled()

    def _start(self) -> None:
        """Does nothing: the loop runs only while the caller waits for it."""

    def _wait(self, timeout: float | None) -> None:
        end = math.inf if timeout is None else time.monotonic() + timeout
        while not self._has_news():
            timer = None if timeout is None else self._loop.call_at(end, self._loop.stop)
            self._run()
            if timer is not None:
                timer.cancel()
            if time.monotonic() >= end:
                break

    def _end(self, limit: float) -> None:
        self._finish(self._fleet.close())
        self._loop.close()

    def _finish(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(coroutine)
        task.add_done_callback(lambda _: self._loop.stop())
        while not task.done():
            self._run()
        task.result()

    def _run(self) -> None:
        """Runs the loop until it is stopped; in another thread if this one runs a loop already, as in a notebook."""
        if not _runs_loop():
            self._loop.run_forever()
            return
        thread = threading.Thread(target=self._loop.run_forever)
        thread.start()
        try:
            thread.join()
        except KeyboardInterrupt:
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            raise

    def _take(self, result: TrialResult) -> None:
        self._results.append(result)
        self._loop.stop()  # the next trial begins when the caller waits for it

    def _fail(self, error: PoolError) -> None:
        super()._fail(error)
        self._loop.stop()


def _runs_loop() -> bool:
    """Tells whether this thread is running an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
