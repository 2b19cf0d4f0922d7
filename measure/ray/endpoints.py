"""Endpoints of the fleet whose work is done by Ray actors."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from measure.errors import PoolError
from measure.fleet.endpoint import EndpointLost, EndpointRefused
from measure.pool import Trial
from measure.supervisor import Answer
from measure.wire import pack, unpack

_JOBS = itertools.count()


class _ActorEndpoint:
    """Base of builders and devices: asks one actor, until it is gone."""

    def __init__(self, name: str, host: str, targets: frozenset[str], actor: Any) -> None:
        self.name, self.host, self.targets = name, host, targets
        self._actor = actor

    async def _ask(self, header: Mapping[str, Any], blob: bytes = b"") -> Answer:
        job = next(_JOBS)
        try:
            frame = await self._actor.work.remote(pack({"job": job, **header}, blob))
        except RayTaskError:
            raise  # a fault in our own code
        except RayError as error:  # the actor died, or its node with the answer
            raise EndpointLost(f"its Ray actor is gone: {cause(error)}") from None
        except asyncio.CancelledError:
            self._actor.cancel.remote(job)
            raise
        reply, module = unpack(frame)
        if "refused" in reply:
            raise EndpointRefused(reply["refused"])
        if "lost" in reply:
            raise EndpointLost(reply["lost"])
        if "fault" in reply:
            raise PoolError(f"{self.name}: {reply['fault']}")
        return Answer(reply, module)

    async def close(self) -> None:
        """Ends the actor and its work; may be called twice."""
        dismiss(self._actor)


class RayBuilder(_ActorEndpoint):
    """A builder on one Ray node; see `measure.fleet.endpoint.BuildEndpoint`."""

    def __init__(self, name: str, host: str, targets: frozenset[str], slots: int, actor: Any) -> None:
        super().__init__(name, host, targets, actor)
        self.slots = slots

    async def build(self, trial: Trial) -> Answer:
        """Compiles a trial; see the protocol."""
        return await self._ask({"trial": trial.to_json()})


class RayDevice(_ActorEndpoint):
    """A device that belongs to a Ray actor; see `measure.fleet.endpoint.Device`."""

    def __init__(
        self,
        name: str,
        host: str,
        targets: frozenset[str],
        exclusive: bool,
        description: Mapping[str, Any],
        actor: Any,
    ) -> None:
        super().__init__(name, host, targets, actor)
        self.exclusive = exclusive
        self.description = description

    async def run(self, trial: Trial, module: bytes, best_seconds: float | None) -> Answer:
        """Checks and times a built trial; see the protocol."""
        return await self._ask({"trial": trial.to_json(), "best_seconds": best_seconds}, module)


class ProxiedDevice(RayDevice):
    """A remote device that is reached through a Ray actor, which may serve several.

    Args:
        number: number of the device in the actor.
        facts: plain description of the device by the actor.
        actor: see `measure.ray.proxy`.
    """

    def __init__(self, number: int, facts: Mapping[str, Any], actor: Any) -> None:
        super().__init__(
            f"{facts['name']} by ray",
            facts["host"],
            frozenset(facts["targets"]),
            facts["exclusive"],
            facts["description"],
            actor,
        )
        self.number = number

    async def run(self, trial: Trial, module: bytes, best_seconds: float | None) -> Answer:
        """Checks and times a built trial; see the protocol."""
        header = {"device": self.number, "trial": trial.to_json(), "best_seconds": best_seconds}
        return await self._ask(header, module)

    async def close(self) -> None:
        """Releases the device; the actor goes on for the other devices."""
        if ray.is_initialized():
            self._actor.drop.remote(self.number)


def dismiss(actor: Any) -> None:
    """Ends an actor, unless it or Ray has ended already."""
    if ray.is_initialized():
        ray.kill(actor)


def cause(error: Exception) -> str:
    """Returns the message of one of Ray's errors, without the traceback of the actor that it may contain."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return lines[-1] if "creation task" in lines[0] else lines[0]
