"""The tracker: who gets which device, and what becomes of those of the dead. Servers and clients in one loop."""

from __future__ import annotations

import asyncio
import signal
import uuid
from contextlib import asynccontextmanager

import pytest

from measure.rpc.serve import _register
from measure.rpc.service import Listen
from measure.rpc.tracker import Tracker
from measure.rpc.transport import Connection, RequestRejection
from tests.measure.rpc.processes import TOKEN, Process, settings

LEASE = 0.6


@asynccontextmanager
async def tracker(lease=LEASE):
    served = Tracker(Listen("127.0.0.1:0", TOKEN), lease)
    place = await served.start()
    try:
        yield Client(place)
    finally:
        await served.close()


class Client:
    """Speaks to a tracker as workers and clients do."""

    def __init__(self, address):
        self.line = Connection(address, settings())

    async def register(self, *names, key="board"):
        """Devices at ports 1, 2, ... that stay for a lease; their instances are their names."""
        for name in names:
            await self._ask("Register", instance=name, key=key, host="10.0.0.1", port=int(name))

    async def ask(self, client, key="board", priority=0, wait=0.0, request=None):
        reply = await self._ask(
            "Ask", request=request or uuid.uuid4().hex, client=client, key=key, priority=priority, wait=wait
        )
        return reply.get("lease"), reply.get("place")

    async def renew(self, *leases):
        reply = await self._ask("Renew", client="x", leases=list(leases))
        return reply["recalled"], reply["lost"]

    async def release(self, lease, is_broken=False):
        await self._ask("Release", lease=lease, broken=is_broken)

    async def _ask(self, method, **header):
        return (await self.line.call(method, header))[0]


def address(name):
    return f"10.0.0.1:{name}"


def test_devices_are_given_out_by_key_once():
    async def scenario():
        async with tracker() as client:
            await client.register("1", key="phone")
            await client.register("2", key="board")
            assert (await client.ask("a", "tablet")) == (None, None)
            lease, found = await client.ask("a", "board")
            assert found == address(2)
            assert (await client.ask("b", "board", request="b")) == (None, None)
            assert (await client.ask("b", ""))[1] == address(1)  # any
            await client.release(lease)
            assert (await client.ask("b", "board", request="b"))[1] == address(2)

    asyncio.run(scenario())


def test_who_asks_for_a_key_that_nothing_has_is_told_those_that_there_are():
    async def scenario():
        async with tracker() as client:
            asked = {"client": "a", "priority": 0, "wait": 0.0}
            assert await client._ask("Ask", request="1", key="", **asked) == {"keys": []}
            await client.register("1", "2", key="phone")
            await client.register("3", key="board")
            assert await client._ask("Ask", request="2", key="tablet", **asked) == {"keys": ["board", "phone"]}
            await client.ask("b", "board")
            assert await client._ask("Ask", request="3", key="board", **asked) == {}  # it is only busy

    asyncio.run(scenario())


def test_asking_twice_is_asking_once():
    async def scenario():
        async with tracker() as client:
            await client.register("1", "2")
            first = await client.ask("a", request="same")
            assert await client.ask("a", request="same") == first
            assert (await client.ask("a", request="other"))[1] == address(2)

    asyncio.run(scenario())


def test_those_who_wait_are_served_by_priority_and_then_in_order():
    async def scenario():
        async with tracker() as client:
            await client.register("1")
            lease = (await client.ask("holder", priority=9))[0]
            waits = []
            for name, priority in (("low", 0), ("first", 5), ("second", 5)):
                waits.append(asyncio.create_task(client.ask(name, priority=priority, wait=2.0)))
                await asyncio.sleep(0.05)
            for expected in (1, 2, 0):
                await client.release(lease)
                lease = (await asyncio.wait_for(waits[expected], 1.0))[0]
                assert sum(task.done() for task in waits) == (1, 2, 0).index(expected) + 1

    asyncio.run(scenario())


def test_a_higher_priority_recalls_a_device_and_a_lower_one_does_not():
    async def scenario():
        async with tracker(2.0) as client:
            await client.register("1", "2")
            leases = [(await client.ask("a", priority=1))[0] for _ in range(2)]
            assert await client.ask("b", priority=0) == (None, None)
            assert await client.renew(*leases) == ([], [])
            assert await client.ask("c", priority=2, request="c") == (None, None)
            recalled, lost = await client.renew(*leases)
            assert len(recalled) == 1 and lost == []
            await client.ask("c", priority=2, request="c")
            assert await client.renew(*leases) == (recalled, [])  # one is enough
            await client.release(recalled[0])
            assert (await client.ask("c", priority=2, request="c"))[0] is not None

    asyncio.run(scenario())


def test_clients_of_one_priority_share_as_evenly_as_can_be():
    async def scenario():
        async with tracker(2.0) as client:
            await client.register("1", "2", "3")
            leases = [(await client.ask("a"))[0] for _ in range(3)]
            assert await client.ask("b", request="b1") == (None, None)
            (recalled,), _ = await client.renew(*leases)
            await client.release(recalled)
            assert (await client.ask("b", request="b1"))[0] is not None
            assert await client.ask("b", request="b2") == (None, None)
            left = [lease for lease in leases if lease != recalled]
            assert await client.renew(*left) == ([], [])  # two and one

    asyncio.run(scenario())


def test_a_dead_clients_devices_are_free_again():
    async def scenario():
        async with tracker() as client:
            await client.register("1")
            lease = (await client.ask("dead"))[0]
            heart = asyncio.create_task(beat(client, "1"))
            assert await client.ask("alive", request="w") == (None, None)
            assert (await client.ask("alive", request="w", wait=3 * LEASE))[1] == address(1)
            assert await client.renew(lease) == ([], [lease])
            heart.cancel()

    asyncio.run(scenario())


def test_one_who_renews_keeps_its_device():
    async def scenario():
        async with tracker() as client:
            await client.register("1")
            lease = (await client.ask("a"))[0]
            for _ in range(6):
                await asyncio.sleep(LEASE / 3)
                await client.register("1")
                assert await client.renew(lease) == ([], [])
            assert await client.ask("b") == (None, None)

    asyncio.run(scenario())


async def beat(client, name):
    while True:
        await client.register(name)
        await asyncio.sleep(LEASE / 3)


def test_a_silent_worker_is_given_to_nobody_and_its_lease_is_lost():
    async def scenario():
        async with tracker() as client:
            await client.register("1")
            lease = (await client.ask("a"))[0]
            await asyncio.sleep(1.5 * LEASE)
            assert await client.renew(lease) == ([], [lease])
            assert await client.ask("b") == (None, None)

    asyncio.run(scenario())


def test_a_device_that_a_client_found_broken_is_given_out_again_when_it_says_that_it_lives():
    async def scenario():
        async with tracker() as client:
            await client.register("1")
            await client.release((await client.ask("a"))[0], is_broken=True)
            assert await client.ask("b", request="b") == (None, None)
            await client.register("1")
            assert (await client.ask("b", request="b"))[1] == address(1)

    asyncio.run(scenario())


def test_a_worker_started_anew_takes_the_place_of_its_former_self():
    async def scenario():
        async with tracker() as client:
            await client.register("1")
            lease = (await client.ask("a"))[0]
            await client._ask("Register", instance="new", key="board", host="10.0.0.1", port=1)
            assert await client.renew(lease) == ([], [lease])
            assert (await client.ask("b"))[1] == address(1)

    asyncio.run(scenario())


def test_a_worker_behind_a_wildcard_is_found_by_where_it_calls_from_and_withdraws_at_its_end():
    async def scenario():
        async with tracker() as client:
            line = Connection(client.line.address, settings())
            duty = asyncio.create_task(_register(line, "w", "board", "0.0.0.0:4711"))
            lease, found = await client.ask("a", wait=2.0)
            assert found == "127.0.0.1:4711"
            await asyncio.sleep(1.5 * LEASE)
            duty.cancel()
            await asyncio.gather(duty, return_exceptions=True)
            await client.release(lease)
            assert await client.ask("b") == (None, None)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("method", "header", "sentence"),
    [
        ("Renew", {"client": "a", "leases": [1]}, "`leases` must be names of leases"),
        (
            "Ask",
            {"request": "r", "key": "k", "client": "a", "priority": 1.5, "wait": 0.0},
            "`priority` must be of type int",
        ),
        ("Register", {"instance": "i"}, "`port` must be of type int, but got port=None"),
    ],
)
def test_requests_that_make_no_sense_are_told_why(method, header, sentence):
    async def scenario():
        async with tracker() as client:
            with pytest.raises(RequestRejection, match=sentence):
                await client.line.call(method, header)

    asyncio.run(scenario())


def test_the_process_says_where_it_listens_and_ends_when_it_is_told_to(tmp_path):
    process = Process(tmp_path, "tracker")
    try:
        assert process.line == f"tracking devices on {process.address}"
        assert process.terminate(signal.SIGTERM) == 0
    finally:
        process.end()


NOWHERE = ("../..", "a/b", "a b", "::1", "[::1", "[no]", "-a", "a..b", "a@b", "10.0.0.1:80", "x" * 254)


@pytest.mark.parametrize(("host", "port"), [*((host, 80) for host in NOWHERE), *(("h", n) for n in (-5, 0, 65536))])
def test_a_worker_that_is_nowhere_is_not_registered(host, port):
    async def scenario():
        async with tracker() as client:
            with pytest.raises(RequestRejection, match="`host:port` must be HOST:PORT, but got|at most 200 characters"):
                await client._ask("Register", instance="x", key="board", host=host, port=port)
            with pytest.raises(RequestRejection, match="`key` must be 1 to 200 letters, digits"):
                await client._ask("Register", instance="x", key="a/b", host="10.0.0.1", port=1)
            for number, right in enumerate(("board-1.lab.example", "[2001:db8::1]", "")):
                await client._ask("Register", instance=f"r{number}", key="", host=right, port=80)
                assert (await client.ask("one", key=""))[1] == f"{right or '127.0.0.1'}:80"

    asyncio.run(scenario())
