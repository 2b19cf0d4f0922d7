"""Makes Ray's nodes join the fleet: a builder on each, a device for each unit of the custom resources."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from measure.errors import PoolError
from measure.ray.actors import Actor
from measure.ray.cluster import connect
from measure.ray.kinds import KINDS, resource_of
from measure.ray.settings import RaySettings, workplace_to_json
from targets.registry import TARGETS

if TYPE_CHECKING:
    from measure.fleet.scheduler import Fleet
    from measure.ray.endpoints import RayBuilder, RayDevice

log = logging.getLogger(__name__)

_RESTART = 0.5
"""Seconds before an actor that has died is made again."""
_TRIES = 3
"""Actors that may die in a row without ever having come up."""
_BUILDER = "builder"


@dataclass(frozen=True)
class Post:
    """An actor that ought to be there.

    Attributes:
        node: Ray's id of the node.
        address: of the node, for messages.
        kind: a name of `KINDS`, or `builder`.
        number: among its like on the node.
        slots: trials at a time.
    """

    node: str
    address: str
    kind: str
    number: int = 0
    slots: int = 1

    @property
    def name(self) -> str:
        """Unique in the cluster, for messages and records."""
        return f"ray:{self.address}/{self.node[:6]}/{self.kind}{self.number}"


def posts_of(node: dict[str, Any], wanted: frozenset[str]) -> list[Post]:
    """The actors that a node of `ray.nodes()` ought to have for trials of the targets `wanted`."""
    if not node["Alive"]:
        return []
    resources, address, key = node["Resources"], node["NodeManagerAddress"], node["NodeID"]
    cores = int(resources.get("CPU", 0))
    builder = [Post(key, address, _BUILDER, slots=cores)] if cores else []
    return builder + [
        Post(key, address, name, number)
        for name, kind in KINDS.items()
        if kind.targets & wanted
        for number in range(int(resources.get(resource_of(name), 0)))
    ]


class RayProvider:
    """Keeps the fleet's endpoints in step with the nodes of a Ray cluster.

    Devices join when a trial of their target is there, so a run costs no processes for targets that it does not use.

    Args:
        address: of the cluster, see `connect`; None: a Ray is started on this host.
        settings: how.
    """

    def __init__(self, address: str | None = None, settings: RaySettings | None = None) -> None:
        self.address = address
        self.settings = settings or RaySettings()

    async def provide(self, fleet: Fleet) -> None:
        """Runs until it is cancelled.

        Raises:
            PoolError: Ray cannot be started or reached, or no actor comes up.
        """
        disconnect = await asyncio.to_thread(connect, self.address, self.settings)
        filled: dict[Post, asyncio.Task[None]] = {}
        try:
            while True:
                posts = await self._posts(fleet)
                for post in posts - filled.keys():
                    filled[post] = asyncio.create_task(self._fill(fleet, post))
                for post in filled.keys() - posts:
                    filled.pop(post).cancel()
                _check(fleet, filled)
                await fleet.news(self.settings.poll)
        finally:
            for task in filled.values():
                task.cancel()
            await asyncio.gather(*filled.values(), return_exceptions=True)
            await asyncio.to_thread(disconnect)

    async def _posts(self, fleet: Fleet) -> set[Post]:
        import ray

        nodes: Sequence[dict[str, Any]] = await asyncio.to_thread(ray.nodes)
        return {post for node in nodes for post in posts_of(node, fleet.wanted)}

    async def _fill(self, fleet: Fleet, post: Post) -> None:
        """Has an actor at its post, and another one whenever it has died.

        Raises:
            PoolError: none comes up.
        """
        from ray.exceptions import RayError

        from measure.ray.endpoints import dismiss, first_line

        failures = 0
        while True:
            actor = self._actor(post)
            endpoint = None
            try:
                endpoint = _endpoint(post, await actor.describe.remote(), actor)
                fleet.join(endpoint)
                failures = 0
                await fleet.left(endpoint)
            except RayError as error:
                failures += 1
                if failures == _TRIES:
                    raise PoolError(f"{post.name} must come up, but: {first_line(error)}") from error
            finally:
                if endpoint is not None:
                    fleet.leave(endpoint)
                dismiss(actor)
            await asyncio.sleep(_RESTART)

    def _actor(self, post: Post) -> Any:
        """Asks Ray for an actor; it waits until the node has the resource left."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        options: dict[str, Any] = {"resources": {}}
        role = "build"
        if post.kind != _BUILDER:
            kind = KINDS[post.kind]
            role = "run" if kind.exclusive else "share"
            options = {"resources": {resource_of(post.kind): 1}, **kind.options}
        slots = post.slots
        if role == "build" and self.settings.workplace.builders is not None:
            slots = self.settings.workplace.builders
        return (
            ray.remote(Actor)
            .options(
                num_cpus=0,
                max_restarts=0,
                max_task_retries=0,
                max_concurrency=2 * slots + 2,  # what was cancelled may still be ending
                scheduling_strategy=NodeAffinitySchedulingStrategy(post.node, soft=False),
                **options,
            )
            .remote(role, workplace_to_json(self.settings.workplace), slots, post.number)
        )


def _endpoint(post: Post, about: dict[str, Any], actor: Any) -> RayBuilder | RayDevice:
    from measure.ray.endpoints import RayBuilder, RayDevice

    if post.kind == _BUILDER:
        return RayBuilder(post.name, about["host"], frozenset(TARGETS), about["slots"], actor)
    kind = KINDS[post.kind]
    return RayDevice(post.name, about["host"], kind.targets, kind.exclusive, about["description"], actor)


def _check(fleet: Fleet, filled: dict[Post, asyncio.Task[None]]) -> None:
    """Raises the error of a post that could not be filled; a warning does where others are."""
    for task in filled.values():
        if task.done() and (error := task.exception()) is not None:
            if not isinstance(error, PoolError) or not fleet.endpoints:
                raise error
