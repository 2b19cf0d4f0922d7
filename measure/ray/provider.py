"""Provider of Ray's nodes: a builder on each, and a device for each unit of the custom resources."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from measure.errors import PoolError
from measure.ray.actors import Actor
from measure.ray.cluster import connect
from measure.ray.proxy import ProxyActor
from measure.ray.resources import RPC, ray_demand, resource_name
from measure.ray.settings import ProxySettings, RaySettings, workplace_to_json
from targets import registry

if TYPE_CHECKING:
    from measure.fleet.scheduler import Fleet
    from measure.ray.endpoints import RayBuilder, RayDevice

log = logging.getLogger(__name__)

_RESTART = 0.5
"""Seconds before an actor that has died is replaced."""
_TRIES = 3
"""Number of actors at a post that may die in a row before one has started."""
_BUILDER, _PROXY = "builder", "proxy"


@dataclass(frozen=True)
class Post:
    """An actor that should exist.

    Attributes:
        node: Ray's id of the node.
        address: address of the node, for messages.
        kind: name of a target, `builder`, or `proxy`, which runs on whatever node Ray chooses.
        number: index among the actors of its kind on the node.
        slots: number of trials at a time.
    """

    node: str
    address: str
    kind: str
    number: int = 0
    slots: int = 1

    @property
    def name(self) -> str:
        """Name that is unique in the cluster, for messages and records."""
        return f"ray:{self.address}/{self.node[:6]}/{self.kind}{self.number}"


def list_posts(node: dict[str, Any], target_names: frozenset[str]) -> list[Post]:
    """Lists the actors that a node of `ray.nodes()` should have; devices only for the targets `target_names`."""
    if not node["Alive"]:
        return []
    resources, address, key = node["Resources"], node["NodeManagerAddress"], node["NodeID"]
    cores = int(resources.get("CPU", 0))
    builder = [Post(key, address, _BUILDER, slots=cores)] if cores else []
    return builder + [
        Post(key, address, name, number)
        for name in registry.TARGETS
        if name in target_names
        for number in range(int(resources.get(resource_name(name), 0)))
    ]


class RayProvider:
    """A provider that keeps the fleet's endpoints in step with the nodes of a Ray cluster.

    Devices join when the fleet has a trial of their target, so that unused targets cost no processes.

    Args:
        address: address of the cluster, see `connect`; None: a Ray is started on this host.
        settings: settings of the actors.
        proxy: RPC devices to run on, in place of the nodes' own devices; None: the nodes' own.
    """

    def __init__(
        self,
        address: str | None = None,
        settings: RaySettings | None = None,
        proxy: ProxySettings | None = None,
    ) -> None:
        self.address, self.proxy = address, proxy
        self.settings = settings or RaySettings()

    async def provide(self, fleet: Fleet) -> None:
        """Keeps endpoints joined until it is cancelled.

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
                _check(filled)
                await fleet.news(self.settings.poll)
        finally:
            for task in filled.values():
                task.cancel()
            await asyncio.gather(*filled.values(), return_exceptions=True)
            await asyncio.to_thread(disconnect)

    async def _posts(self, fleet: Fleet) -> set[Post]:
        import ray

        nodes: Sequence[dict[str, Any]] = await asyncio.to_thread(ray.nodes)
        wanted = fleet.wanted_targets if self.proxy is None else frozenset()
        addresses = [] if self.proxy is None else self.proxy.addresses.split(",")
        proxies = {Post("", address.strip(), _PROXY, number) for number, address in enumerate(addresses)}
        return proxies | {post for node in nodes for post in list_posts(node, wanted)}

    async def _fill(self, fleet: Fleet, post: Post) -> None:
        """Keeps an actor at its post, and replaces it whenever it has died.

        Raises:
            PoolError: no actor starts.
        """
        from ray.exceptions import RayError

        from measure.ray.endpoints import cause, dismiss

        failures = 0
        while True:
            actor = self._actor(post)
            try:
                news = await (actor.devices.remote([]) if post.kind == _PROXY else actor.describe.remote())
                failures = 0
                if post.kind == _PROXY:
                    await _fill_with_devices(fleet, actor, news)
                else:
                    await _fill_with_one(fleet, _endpoint(post, news, actor))
            except RayError as error:
                failures += 1
                log.warning("%s died: %s", post.name, cause(error))
                if failures == _TRIES:
                    raise PoolError(f"{post.name} must come up, but: {cause(error)}") from error
            finally:
                dismiss(actor)
            await asyncio.sleep(_RESTART)

    def _actor(self, post: Post) -> Any:
        """Asks Ray for an actor, which starts once the node has the resource left."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        common: dict[str, Any] = {"num_cpus": 0, "max_restarts": 0, "max_task_retries": 0}
        if post.kind == _PROXY:
            assert self.proxy is not None
            options = {**common, "resources": {RPC: 1}}
            return ray.remote(ProxyActor).options(**options).remote(post.address, self.proxy.settings)
        role, slots = "build", self.settings.workplace.builders or post.slots
        if post.kind != _BUILDER:
            role, slots = "share" if registry.get(post.kind).simulated else "run", 1
            common.update(ray_demand(post.kind))
        options = {
            **common,
            "max_concurrency": 2 * slots + 2,  # cancelled calls may still be ending
            "scheduling_strategy": NodeAffinitySchedulingStrategy(post.node, soft=False),
        }
        workplace = workplace_to_json(self.settings.workplace)
        return ray.remote(Actor).options(**options).remote(role, workplace, slots, post.number)


async def _fill_with_one(fleet: Fleet, endpoint: RayBuilder | RayDevice) -> None:
    """Keeps an endpoint in the fleet until it is lost."""
    try:
        fleet.join(endpoint)
        await fleet.left(endpoint)
    finally:
        fleet.leave(endpoint)


async def _fill_with_devices(fleet: Fleet, actor: Any, news: dict[str, Any]) -> None:
    """Keeps the devices behind a proxy actor in the fleet, until the actor is lost.

    Raises:
        PoolError: the actor can reach no device.
        RayError: the actor is lost.
    """
    from measure.ray.endpoints import ProxiedDevice

    devices: dict[int, ProxiedDevice] = {}
    try:
        while True:
            if "fault" in news:
                raise PoolError(news["fault"])
            current = news["devices"]
            for number in devices.keys() - current.keys():
                fleet.leave(devices.pop(number))
            for number in current.keys() - devices.keys():
                devices[number] = ProxiedDevice(number, current[number], actor)
                fleet.join(devices[number])
            news = await actor.devices.remote(list(current))
    finally:
        for device in devices.values():
            fleet.leave(device)


def _endpoint(post: Post, about: dict[str, Any], actor: Any) -> RayBuilder | RayDevice:
    from measure.ray.endpoints import RayBuilder, RayDevice

    if post.kind == _BUILDER:
        return RayBuilder(post.name, about["host"], frozenset(registry.TARGETS), about["slots"], actor)
    exclusive = not registry.get(post.kind).simulated
    return RayDevice(post.name, about["host"], frozenset({post.kind}), exclusive, about["description"], actor)


def _check(tasks: dict[Post, asyncio.Task[None]]) -> None:
    """Raises the error of a post that cannot be filled if there is no other post of its kind."""
    for post, task in tasks.items():
        if task.done() and (error := task.exception()) is not None:
            others = [other for other, filling in tasks.items() if other.kind == post.kind and not filling.done()]
            if not isinstance(error, PoolError) or not others:
                raise error
