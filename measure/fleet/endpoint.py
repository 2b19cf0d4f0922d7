"""What the fleet's scheduler needs of a machine: builders and devices, asked by coroutines, with plain data.

A new kind of machine is a class with these methods and a provider that makes it join the fleet. A call may be cancelled
(`asyncio`'s way): the endpoint kills the trial, lets the cancellation pass, and is asked again later. It raises nothing
but `EndpointLost`, or `PoolError` where the machine is there but cannot work; endpoints are told apart by identity.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from measure.pool import Trial
from measure.supervisor import Answer


class EndpointLost(Exception):
    """The endpoint is gone, with the trial it had; the trial is given to another one.

    It never says that the trial failed: what a kernel did to its own process is an `Answer` with an error.
    """


class EndpointRefused(EndpointLost):
    """The endpoint answers what no honest one can: its trial goes elsewhere, and it gets no other one in this run."""


class Builder(Protocol):
    """Compiles trials.

    Attributes:
        name: unique in the fleet, for messages.
        host: of the machine; builds and exclusive timings on one host are never at the same time.
        targets: names of the targets that it builds for, without variants: `cpu`, `vta`.
        slots: builds at a time.
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
        """Ends it; a build under way is lost. May be called twice."""


class Device(Protocol):
    """Runs built trials, one at a time.

    Attributes:
        name: unique in the fleet; records say on which device they were made.
        host: of the machine it hangs on, see `Builder`.
        targets: names of the targets whose modules it runs, without variants.
        exclusive: whether timings are disturbed by work beside them on the same host; simulators' are not.
        description: of the machine, for the records; plain data.
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
            module: as a builder gave it.
            best_seconds: latency to beat; None: not known.

        Raises:
            EndpointLost: the device is gone.
        """

    async def close(self) -> None:
        """Lets go of it; what it runs is killed. May be called twice."""
