"""Results that an endpoint makes of an actor's answers, without Ray."""

from __future__ import annotations

import asyncio
import threading

import pytest
from ray.exceptions import ActorDiedError, ObjectLostError

from measure.errors import PoolError
from measure.fleet.endpoint import EndpointLost
from measure.ray.endpoints import ProxiedDevice, RayBuilder, RayDevice
from measure.ray.pool import RayPool
from measure.ray.provider import list_posts
from measure.ray.resources import RPC, local_resources, ray_demand, resource_name
from measure.wire import pack, unpack
from targets.registry import TARGETS
from tests.measure.helpers import trial


class Actor:
    """Answers with a frame, or raises."""

    def __init__(self, answer):
        self.answer, self.frames = answer, []
        self.work = self.cancel = self

    async def remote(self, frame):
        self.frames.append(frame)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_providers_begin_when_the_pool_is_entered():
    class Provider:
        begin_event = threading.Event()

        async def provide(self, fleet):
            self.begin_event.set()

    pool = RayPool()
    pool.providers = (Provider(),)
    with pool:
        assert Provider.begin_event.wait(10)


def device(answer):
    return RayDevice("board", "here", frozenset({"cpu"}), True, {}, Actor(answer))


@pytest.mark.parametrize("error", [ActorDiedError(), ObjectLostError("0" * 56, None, "")])
def test_whatever_ray_loses_is_a_lost_endpoint(error):
    with pytest.raises(EndpointLost, match="its Ray actor is gone"):
        asyncio.run(device(error).run(trial(), b"", None))


def test_answers_faults_and_losses_are_told_apart():
    asked = device(pack({"seconds": 1.0}, b"blob"))
    answer = asyncio.run(asked.run(trial(seconds=3), b"module", 0.5))
    assert (answer.header["seconds"], answer.blob) == (1.0, b"blob")
    header, module = unpack(asked._actor.frames[0])
    assert (header["trial"], header["best_seconds"], module) == (trial(seconds=3).to_json(), 0.5, b"module")
    with pytest.raises(PoolError, match="board: no child"):
        asyncio.run(device(pack({"fault": "no child"})).run(trial(), b"", None))
    with pytest.raises(EndpointLost, match="it has left"):
        asyncio.run(device(pack({"lost": "it has left"})).run(trial(), b"", None))


def test_a_proxied_device_says_which_it_is():
    facts = {"name": "a", "host": "h", "targets": ["vta"], "exclusive": False, "description": {}}
    proxied = ProxiedDevice(7, facts, Actor(pack({})))
    asyncio.run(proxied.run(trial(), b"", None))
    assert unpack(proxied._actor.frames[0])[0]["device"] == 7 and proxied.targets == {"vta"}


def test_two_questions_never_share_a_number():
    actor = Actor(pack({}))
    for _ in range(2):
        asyncio.run(RayBuilder("b", "h", frozenset({"cpu"}), 1, actor).build(trial()))
    assert len({unpack(frame)[0]["job"] for frame in actor.frames}) == 2


def test_a_node_has_what_its_resources_say():
    node = {
        "Alive": True,
        "NodeID": "abcdef0",
        "NodeManagerAddress": "10.0.0.1",
        "Resources": {"CPU": 3.0, "autotune_cpu": 1.0, "autotune_vta": 2.0, "memory": 1e9},
    }

    def kinds(names, **changes):
        return sorted(
            (post.kind, post.number, post.slots) for post in list_posts({**node, **changes}, frozenset(names))
        )

    assert kinds({"vta"}) == [("builder", 0, 3), ("vta", 0, 1), ("vta", 1, 1)]
    assert kinds({"cpu"}, Resources={"autotune_cpu": 1.0}) == [("cpu", 0, 1)]  # --num-cpus 0: no builder
    assert kinds({"cpu", "vta"}, Alive=False) == [] and kinds(()) == [("builder", 0, 3)]
    assert kinds({"cuda"}, Resources={"GPU": 2.0}) == [("cuda", 0, 1), ("cuda", 1, 1)]
    assert {resource_name(name) for name in TARGETS} - {"GPU"} | {RPC} == set(local_resources())


def test_actors_ask_for_what_their_kind_is_counted_by():
    assert ray_demand("vta") == {"resources": {"autotune_vta": 1}}
    assert ray_demand("cuda") == {"num_gpus": 1}
