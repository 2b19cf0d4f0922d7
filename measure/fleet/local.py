"""Builder and device on the host of the program that uses them: disposable child processes, called from threads.

Builds hold the host's lock in its shared mode, timings of an exclusive device in its exclusive mode, so that they keep
out of the way of other programs on the host, too.
"""

from __future__ import annotations

import asyncio
import platform
import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from measure.blocking_worker import Answer, BlockingWorker, Cancelled
from measure.errors import PoolError
from measure.fleet.endpoint import EndpointLost
from measure.fleet.scheduler import Fleet
from measure.host import allowed_cores, describe_host, machine_name
from measure.hostlock import HostLock
from measure.pool import Trial
from measure.settings import LocalSettings
from targets import registry

_POLL = 0.2
"""Seconds of waiting for the host's lock after which a cancelled call is noticed."""

T = TypeVar("T")


class _Calls:
    """Blocking calls from coroutines: one thread a slot; a call that is cancelled finds out and ends soon."""

    def __init__(self, name: str, slots: int) -> None:
        self._name = name
        self._threads = ThreadPoolExecutor(slots, thread_name_prefix=name)
        self._closing = threading.Event()

    async def call(self, work: Callable[[Callable[[], bool]], T]) -> T:
        """Result of `work`, which asks its argument now and then whether it is still wanted."""
        if self._closing.is_set():
            raise EndpointLost(f"{self._name} must be open to work, but got closed=True")
        unwanted = threading.Event()
        future = self._threads.submit(work, lambda: unwanted.is_set() or self._closing.is_set())
        try:
            return await asyncio.wrap_future(future)
        except Cancelled:
            raise EndpointLost(f"{self._name} was closed") from None
        finally:
            unwanted.set()

    async def close(self) -> None:
        """Ends what is under way."""
        self._closing.set()
        await asyncio.to_thread(self._threads.shutdown)


class LocalBuilder:
    """Builds trials on this host, for every target that is registered.

    Args:
        slots: builds at a time; None: one a core.
        settings: executor, limits of time and memory, the file of the host's lock.
        name: unique in the fleet.
        targets: names of targets; None: all of `targets.registry`.

    Attributes:
        name, host, targets, slots: see `measure.fleet.endpoint.Builder`.
    """

    def __init__(
        self,
        slots: int | None = None,
        settings: LocalSettings | None = None,
        name: str = "",
        targets: frozenset[str] | None = None,
    ) -> None:
        self.settings = settings or LocalSettings()
        self.host = machine_name()
        self.name = name or f"builder on {platform.node()}"
        self.targets = frozenset(registry.TARGETS) if targets is None else targets
        self.slots = slots or self.settings.builders or len(allowed_cores())
        self._calls = _Calls(self.name, self.slots)
        self._idle: queue.SimpleQueue[tuple[BlockingWorker, HostLock]] = queue.SimpleQueue()  # as many as threads
        self._places = [
            (BlockingWorker("build", self.settings), HostLock(self.settings.host_lock)) for _ in range(self.slots)
        ]
        for place in self._places:
            self._idle.put(place)

    async def build(self, trial: Trial) -> Answer:
        """Compiles a trial; the answer's blob is the module.

        Raises:
            EndpointLost: the builder was closed.
            PoolError: no child process can be started.
        """

        def work(unwanted: Callable[[], bool]) -> Answer:
            worker, lock = place = self._idle.get()
            try:
                _hold(lock, "build", unwanted)
                return worker.build(trial, unwanted)
            finally:
                lock.release()
                self._idle.put(place)

        return await self._calls.call(work)

    async def close(self) -> None:
        """Ends the children; may be called twice."""
        await self._calls.close()
        for worker, lock in self._places:
            worker.close()
            lock.close()


class LocalBuilders:
    """Provider of one `LocalBuilder`, which is made when the fleet starts.

    Args:
        slots, settings: of the builder.
    """

    def __init__(self, slots: int | None = None, settings: LocalSettings | None = None) -> None:
        self.slots, self.settings = slots, settings

    async def provide(self, fleet: Fleet) -> None:
        """Keeps a builder in the fleet; one that leaves is replaced."""
        while True:
            builder = LocalBuilder(self.slots, self.settings)
            fleet.join(builder)
            await fleet.left(builder)
            await asyncio.sleep(1.0)


class LocalDevice:
    """Runs built trials on this host.

    Args:
        spec: the target, as `targets.registry.get` takes it.
        settings: executor, timing, limits of time and memory, the file of the host's lock.
        name: unique in the fleet.

    Raises:
        PoolError: this host cannot run the target's kernels.

    Attributes:
        spec: the target.
        name, host, targets, exclusive, description: see `measure.fleet.endpoint.Device`.
    """

    def __init__(self, spec: str = "cpu", settings: LocalSettings | None = None, name: str = "") -> None:
        self.spec = spec
        target = registry.get(spec)
        if why := target.unavailable():
            raise PoolError(why)
        self.settings = settings or LocalSettings()
        self.host = machine_name()
        self.name = name or f"{spec} on {platform.node()}"
        self.targets = frozenset({spec.partition(":")[0]})
        self.exclusive = not target.simulated
        self.description: Mapping[str, Any] = {**describe_host(), "device": self.name, "target": spec}
        self._calls = _Calls(self.name, 1)
        self._worker = BlockingWorker("run", self.settings)
        self._lock = HostLock(self.settings.host_lock)

    async def start(self) -> None:
        """Has a child process at hand.

        Raises:
            EndpointLost: the device was closed.
        """
        await self._calls.call(lambda unwanted: self._worker.start())

    async def run(self, trial: Trial, module: bytes, best_seconds: float | None) -> Answer:
        """Checks and times a built trial, on this device's own target, whatever variant the trial says.

        Raises:
            EndpointLost: the device was closed.
            PoolError: no child process can be started.
        """
        own = self.own(trial)
        return await self.work(lambda worker, unwanted: worker.run(own, module, best_seconds, unwanted))

    def own(self, trial: Trial) -> Trial:
        """The trial for this device's target."""
        return replace(trial, target=self.spec)

    async def work(self, use: Callable[[BlockingWorker, Callable[[], bool]], Answer]) -> Answer:
        """Lets `use` have the worker for itself, and the host where that matters.

        Args:
            use: is called in a thread with the worker, and with what says whether the call is unwanted by now.
        """

        def work(unwanted: Callable[[], bool]) -> Answer:
            try:
                if self.exclusive:
                    _hold(self._lock, "time", unwanted)
                return use(self._worker, unwanted)
            finally:
                self._lock.release()

        return await self._calls.call(work)

    async def close(self) -> None:
        """Ends the child; may be called twice."""
        await self._calls.close()
        self._worker.close()
        self._lock.close()


def _hold(lock: HostLock, phase: str, unwanted: Callable[[], bool]) -> None:
    while not lock.acquire(phase, _POLL):
        if unwanted():
            raise Cancelled
