"""What runs in Ray's processes: a thin actor around a `BlockingWorker`, spoken to with frames of `measure.wire`."""

from __future__ import annotations

import os
import queue
from collections.abc import Mapping
from typing import Any, Literal

from measure.blocking_worker import BlockingWorker, Cancelled
from measure.errors import PoolError
from measure.host import allowed_cores, describe_host, machine_name
from measure.hostlock import HostLock
from measure.pool import Trial
from measure.ray.settings import workplace_from_json
from measure.wire import pack, unpack

_PHASES: dict[str, str] = {"build": "build", "share": "build", "run": "time"}


class Actor:
    """Builds or runs trials, a few at a time, each in a disposable child process of its own.

    While a trial is built, or run on a simulator, the host's lock is held shared; while it is timed, alone.

    Args:
        role: `build`, `run` for timings that nothing may disturb, or `share` for runs beside other work.
        settings: plain form of the `LocalSettings` of the workplaces.
        slots: trials at a time.
        number: of this actor among its like on the host, which says on which core a `share` works.
    """

    def __init__(
        self, role: Literal["build", "run", "share"], settings: Mapping[str, Any], slots: int = 1, number: int = 0
    ) -> None:
        self._role, self._slots = role, slots
        self._description = describe_host()
        if role == "share":
            cores = allowed_cores()
            os.sched_setaffinity(0, {cores[number % len(cores)]})
        chosen = workplace_from_json(settings)
        self._free: queue.SimpleQueue[tuple[BlockingWorker, HostLock]] = queue.SimpleQueue()
        for _ in range(slots):
            place = BlockingWorker("build" if role == "build" else "run", chosen)
            self._free.put((place, HostLock(chosen.host_lock)))
        self._cancelled: set[int] = set()

    def describe(self) -> dict[str, Any]:
        """Which process and host this is, and a description for the records."""
        return {"pid": os.getpid(), "host": machine_name(), "slots": self._slots, "description": self._description}

    def work(self, frame: bytes) -> bytes:
        """Builds or runs a trial.

        Args:
            frame: header `job` (a number to cancel it by), `trial` and, for runs, `best_seconds`; blob: the module.

        Returns:
            Header and blob of the `Answer`; or `cancelled`; or `fault`, a sentence on why no child can be started.
        """
        request, module = unpack(frame)
        job, trial = request["job"], Trial.from_json(request["trial"])
        place, lock = self._free.get()
        try:
            while not lock.acquire(_PHASES[self._role], 0.1):
                if job in self._cancelled:
                    raise Cancelled
            if self._role == "build":
                answer = place.build(trial, lambda: job in self._cancelled)
            else:
                answer = place.run(trial, module, request["best_seconds"], lambda: job in self._cancelled)
        except Cancelled:
            return pack({"cancelled": True})
        except PoolError as error:
            return pack({"fault": str(error)})
        finally:
            self._cancelled.discard(job)
            lock.release()
            self._free.put((place, lock))
        return pack(answer.header, answer.blob)

    def cancel(self, job: int) -> None:
        """Kills the child that works on a job."""
        self._cancelled.add(job)
