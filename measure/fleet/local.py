"""Builder and device on the host of the program that uses them: disposable child processes.

Builds hold the host's lock in its shared mode, timings of an exclusive device in its exclusive mode. So they do not
disturb runs of other processes on the host either.
"""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from measure.errors import PoolError
from measure.fleet.endpoint import EndpointLost
from measure.fleet.scheduler import Fleet
from measure.host import allowed_cores, cores_for, describe_host, machine_name
from measure.hostlock import HostLock
from measure.pool import Trial
from measure.settings import LocalSettings
from measure.supervisor import Answer, Supervisor
from targets import registry

_POLL = 0.005
"""Seconds between two attempts to take the host's lock while others hold it."""


class LocalEndpoint:
    """Child processes of one role, which work at once, holding the host's lock.

    Args:
        role: role of the children.
        slots: number of children.
        settings: executor, limits of time and memory, the file of the host's lock.
        name: unique in the fleet.
        targets: names of targets.
        phase: phase for which the lock is held, see `HostLock.acquire`; None: the lock is not taken.
        bound: whether children end with the thread that starts them, however it ends; otherwise with their socket.

    Attributes:
        workers: supervisors of the children.
        settings, name, host, targets: see the arguments and `measure.fleet.endpoint`.
    """

    def __init__(
        self,
        role: Literal["build", "run"],
        slots: int,
        settings: LocalSettings | None,
        name: str,
        targets: frozenset[str],
        phase: Literal["build", "time"] | None,
        bound: bool = True,
    ) -> None:
        self.settings = settings or LocalSettings()
        self.host = machine_name()
        self.name, self.targets, self._phase = name, targets, phase
        self.workers = [Supervisor(role, self.settings, os.getpid() if bound else None) for _ in range(slots)]
        self._idle = self.workers[::-1]
        self._room = asyncio.Semaphore(slots)  # cancelled work may still be ending
        self._lock = HostLock(self.settings.host_lock)
        self._working: set[asyncio.Task[Any]] = set()
        self._holding = 0
        self._is_closed = False

    async def work(self, use: Callable[[Supervisor], Awaitable[Answer]]) -> Answer:
        """Calls `use` with a worker of its own, while the host's lock is held as far as the phase asks for it.

        Raises:
            EndpointLost: the endpoint was closed.
            PoolError: a child process cannot be started.
        """
        self._check_open()
        task = asyncio.current_task()
        assert task is not None
        self._working.add(task)
        try:
            async with self._room:
                worker = self._idle.pop()
                try:
                    await self._hold()
                    return await use(worker)
                finally:
                    self._idle.append(worker)
                    self._release()
        except asyncio.CancelledError:
            if not self._is_closed:
                raise
            task.uncancel()
            raise EndpointLost(f"{self.name} was closed") from None
        finally:
            self._working.discard(task)

    async def close(self) -> None:
        """Ends the children and their work; may be called twice."""
        self._is_closed = True
        for task in self._working:
            task.cancel()
        for _ in self.workers:
            await self._room.acquire()
        for worker in self.workers:
            worker.retire()
            self._room.release()
        self._lock.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise EndpointLost(f"{self.name} must be open to work, but got closed=True")

    async def _hold(self) -> None:
        self._holding += 1
        while self._phase is not None and not self._lock.acquire(self._phase, 0.0):
            await asyncio.sleep(_POLL)

    def _release(self) -> None:
        self._holding -= 1
        if not self._holding:
            self._lock.release()


class LocalBuilder(LocalEndpoint):
    """A builder of trials on this host, for every registered target.

    Args:
        slots: number of builds at a time; None: as in the settings, or one per core.
        settings: executor, limits of time and memory, the file of the host's lock.
        name: unique in the fleet.
        targets: names of targets; None: all of `targets.registry`.
        device: device whose process is started beside the first builds.
        bound: see `LocalEndpoint`.

    Attributes:
        name, host, targets, slots: see `measure.fleet.endpoint.BuildEndpoint`.
    """

    def __init__(
        self,
        slots: int | None = None,
        settings: LocalSettings | None = None,
        name: str = "",
        targets: frozenset[str] | None = None,
        device: HostDevice | None = None,
        bound: bool = True,
    ) -> None:
        settings = settings or LocalSettings()
        self.slots = slots or settings.builders or len(allowed_cores())
        self._device = device
        name = name or f"builder on {platform.node()}"
        super().__init__("build", self.slots, settings, name, targets or frozenset(registry.TARGETS), "build", bound)

    def warm_up(self) -> bool:
        """Starts the children if the host's lock is free, and then holds it until something is built."""
        free = self._lock.acquire("build", 0.0)
        for worker in self.workers if free else ():
            worker.start()
        return free

    async def build(self, trial: Trial) -> Answer:
        """Compiles a trial; see the protocol and `work`."""

        async def use(worker: Supervisor) -> Answer:
            if self._device is not None:
                self._device.come_up(trial.threads)
            return await worker.build(trial)

        return await self.work(use)


class LocalBuilders:
    """A provider of one `LocalBuilder`, which is made when the fleet starts.

    Args:
        slots, settings: arguments of the builder.
    """

    def __init__(self, slots: int | None = None, settings: LocalSettings | None = None) -> None:
        self.slots, self.settings = slots, settings

    async def provide(self, fleet: Fleet) -> None:
        """Keeps a builder in the fleet; replaces one that leaves."""
        while True:
            builder = LocalBuilder(self.slots, self.settings)
            fleet.join(builder)
            await fleet.left(builder)
            await asyncio.sleep(1.0)


class HostDevice(LocalEndpoint):
    """A device that runs built trials on this host, each on its own target.

    Args:
        settings: executor, timing, limits of time and memory, the file of the host's lock.
        name: unique in the fleet.
        targets: names of targets.
        phase, bound: see `LocalEndpoint`.

    Attributes:
        name, host, targets, exclusive, description: see `measure.fleet.endpoint.Device`.
    """

    def __init__(
        self,
        settings: LocalSettings | None,
        name: str,
        targets: frozenset[str],
        phase: Literal["build", "time"] | None = "time",
        bound: bool = True,
    ) -> None:
        super().__init__("run", 1, settings, name, targets, phase, bound)
        self.exclusive = phase == "time"
        self.description: Mapping[str, Any] = {}

    def come_up(self, threads: int) -> None:
        """Starts the child process, on the cores for so many threads, unless it runs already."""
        (worker,) = self.workers
        if worker.pid is None:
            worker.start(cores_for(threads))

    async def run(self, trial: Trial, module: bytes, best_seconds: float | None) -> Answer:
        """Checks and times a built trial; see the protocol and `work`."""
        return await self.work(lambda worker: worker.run(self.own(trial), module, best_seconds))

    def own(self, trial: Trial) -> Trial:
        """Returns the trial as this device runs it; subclasses replace its target."""
        return trial


class LocalDevice(HostDevice):
    """A device that runs built trials on this host, on one target, whatever variant of it they name.

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
        name, targets = name or f"{spec} on {platform.node()}", frozenset({spec.partition(":")[0]})
        super().__init__(settings, name, targets, None if target.simulated else "time")
        self.description = {**describe_host(), "device": self.name, "target": spec}

    async def start(self) -> None:
        """Starts the child process.

        Raises:
            EndpointLost: the device was closed.
        """
        self._check_open()
        self.workers[0].start()

    def own(self, trial: Trial) -> Trial:
        """Returns the trial for this device's target."""
        return replace(trial, target=self.spec)
