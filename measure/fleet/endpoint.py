"""Interface between the fleet's scheduler and a machine: builders and devices, asked by coroutines, with plain data.

A new kind of machine is a class with these methods and a provider that makes it join the fleet. A call may be cancelled
(`asyncio`'s way): the endpoint kills the trial, lets the cancellation pass, and is asked again later. It raises only
`EndpointLost`, or `PoolError` if the machine is there but cannot work. Endpoints are compared by identity.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from measure.pool import Trial
from measure.supervisor import Answer


class EndpointLost(Exception):
    """The endpoint is gone, with the trial it had; the scheduler gives the trial to another one.

    It never means that the trial failed: if a kernel ends its own process, the endpoint returns an `Answer` with an
        error.
    """


class EndpointRefused(EndpointLost):
    """The endpoint gave an impossible answer: its trial goes elsewhere, and it gets no other trial in this run."""


class BuildEndpoint(Protocol):
    """An endpoint that compiles trials.

    Attributes:
        name: unique in the fleet, for messages.
        host: name of the machine; builds and exclusive timings on one host never run at the same time.
        targets: names of the targets that it builds for, without variants: `cpu`, `vta`.
        slots: number of builds at a time.
    """

    name: str
    host: str
    targets: frozenset[str]
    slots: int

    async def build(self, trial: Trial) -> Answer:
        """Compiles a trial; the answer's blob is the module.

        Raises:
            EndpointLost: the builder is gone.
        """

    async def close(self) -> None:
        """Ends the builder; a build under way is lost. May be called twice."""


class Device(Protocol):
    """An endpoint that runs built trials, one at a time.

    Attributes:
        name: unique in the fleet; records name the device that made them.
        host: name of the machine that the device is attached to, see `BuildEndpoint`.
        targets: names of the targets whose modules it runs, without variants.
        exclusive: whether work on the same host disturbs timings; a simulator's are not disturbed.
        description: description of the machine, for the records; plain data.
    """

    name: str
    host: str
    targets: frozenset[str]
    exclusive: bool
    description: Mapping[str, Any]

    async def run(self, trial: Trial, module: bytes, best_seconds: float | None) -> Answer:
        """Checks and times a built trial.

        Args:
            trial: the trial.
            module: machine code that a builder returned.
            best_seconds: latency to beat; None if unknown.

        Raises:
            EndpointLost: the device is gone.
        """

    async def close(self) -> None:
        """Releases the device; kills what it runs. May be called twice."""
