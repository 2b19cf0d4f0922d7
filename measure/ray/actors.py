"""Code of Ray's processes: thin actors around endpoints, which exchange frames of `measure.wire`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any, Literal

from measure.errors import PoolError
from measure.fleet.endpoint import EndpointLost, EndpointRefused
from measure.fleet.local import HostDevice, LocalBuilder
from measure.host import allowed_cores, describe_host, machine_name
from measure.pool import Trial
from measure.ray.settings import workplace_from_json
from measure.supervisor import Answer
from measure.wire import pack, unpack


class Jobs:
    """An actor's jobs under way, each with a number to cancel it by."""

    def __init__(self) -> None:
        self._running: dict[int, asyncio.Task[Answer]] = {}

    async def perform(self, job: int, work: Coroutine[Any, Any, Answer]) -> bytes:
        """Performs a job.

        Returns:
            Header and blob of the `Answer`; or one of `lost`, why the endpoint is gone; `refused`, why its answer is
            impossible; `cancelled`; or `fault`, a sentence on why it cannot work.
        """
        self._running[job] = asyncio.create_task(work)
        try:
            answer = await self._running[job]
        except asyncio.CancelledError:
            return pack({"cancelled": True})
        except EndpointRefused as error:
            return pack({"refused": str(error)})
        except EndpointLost as error:
            return pack({"lost": str(error)})
        except PoolError as error:
            return pack({"fault": str(error)})
        finally:
            self._running.pop(job).cancel()
        return pack(answer.header, answer.blob)

    async def cancel(self, job: int) -> None:
        """Stops a job, and kills the process that works on it."""
        with suppress(KeyError):
            self._running[job].cancel()


class Actor(Jobs):
    """An actor that builds or runs trials, a few at a time, each in a disposable child process.

    While a trial is built, or run on a simulator, the host's lock is held shared; while it is timed, exclusively.

    Args:
        role: `build`, `run` for timings that nothing may disturb, or `share` for runs beside other work.
        settings: plain form of the `LocalSettings` of the child processes.
        slots: number of trials at a time.
        number: index of this actor among those of its role on the host, which selects the core of a `share`.
    """

    def __init__(
        self, role: Literal["build", "run", "share"], settings: Mapping[str, Any], slots: int = 1, number: int = 0
    ) -> None:
        super().__init__()
        self._description = describe_host()
        if role == "share":
            cores = allowed_cores()
            os.sched_setaffinity(0, {cores[number % len(cores)]})
        self._slots, chosen = slots, workplace_from_json(settings)
        self._endpoint: LocalBuilder | HostDevice
        if role == "build":
            self._endpoint = LocalBuilder(slots, chosen)
        else:
            self._endpoint = HostDevice(chosen, role, frozenset(), "time" if role == "run" else "build")

    async def describe(self) -> dict[str, Any]:
        """Returns process id, host and slots of the actor, and a description for the records."""
        return {"pid": os.getpid(), "host": machine_name(), "slots": self._slots, "description": self._description}

    async def work(self, frame: bytes) -> bytes:
        """Builds or runs a trial.

        Args:
            frame: header `job` (its number), `trial` and, for runs, `best_seconds`; blob: the module.

        Returns:
            See `Jobs.perform`.
        """
        request, module = unpack(frame)
        trial = Trial.from_json(request["trial"])
        if isinstance(self._endpoint, LocalBuilder):
            return await self.perform(request["job"], self._endpoint.build(trial))
        return await self.perform(request["job"], self._endpoint.run(trial, module, request["best_seconds"]))
