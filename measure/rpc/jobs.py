"""Jobs at a worker: submitted once, asked for until their answers are there, whatever becomes of the connection."""

from __future__ import annotations

import asyncio
import os
import platform
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any

from measure.errors import ErrorClass, OutcomeError, PoolError
from measure.fleet.endpoint import EndpointLost, EndpointRefused
from measure.outcome import read
from measure.rpc.protocol import MAX_WAIT, ProtocolError, check_description, get
from measure.rpc.settings import RpcSettings
from measure.rpc.transport import Busy, CallError, Connection, Forgotten, Garbled, Refused, Rejected, Unreachable
from measure.supervisor import Answer

_SUBMISSIONS = 5
"""Times that a job is submitted anew to a server that has forgotten it."""
_BYTES_PER_SECOND = 256 << 10
"""Slowest network on which a module arrives in time."""


@dataclass(frozen=True)
class Greeting:
    """What a worker says of itself.

    Attributes:
        name: of the device.
        key: by which it is asked for; may be empty.
        target: that it runs, as `targets.registry.get` takes it.
        host: of the machine, see `measure.host.machine_name`.
        exclusive: see `measure.fleet.endpoint.Device`.
        description: of the machine, for records.
        session: name of the session that was opened.
        instance: of the server's life.
    """

    name: str
    key: str
    target: str
    host: str
    exclusive: bool
    description: Mapping[str, Any]
    session: str
    instance: str


def client_name() -> str:
    """This process, for people who look at a worker's or tracker's clients."""
    return f"{platform.node()}:{os.getpid()}"


async def greet(connection: Connection, settings: RpcSettings) -> Mapping[str, Any]:
    """Opens a session at a worker, or learns that this is a tracker: the reply, whose `role` says which.

    Raises:
        PoolError: the server refuses this client.
        Unreachable: it does not answer.
        Busy: it has as many sessions as it takes.
    """
    try:
        reply, _ = await connection.call("Hello", {"client": client_name(), "lease": settings.lease})
        get(reply, "role", str)
    except (Refused, Garbled, Rejected, Forgotten, ProtocolError) as error:
        raise PoolError(f"`pool` must be a worker or tracker that knows us, but {error}") from None
    return reply


def read_greeting(reply: Mapping[str, Any]) -> Greeting:
    """A worker's reply to Hello.

    Raises:
        PoolError: it is not what a worker says.
    """
    kinds: dict[str, type[Any]] = {item.name: str for item in fields(Greeting)}
    kinds |= {"exclusive": bool, "description": dict}
    try:
        greeting = Greeting(**{name: get(reply, name, kind) for name, kind in kinds.items()})
        check_description(greeting.description)
        return greeting
    except ProtocolError as error:
        raise PoolError(f"a worker must say what it is, but: {error}") from None


class JobClient:
    """A session at a worker.

    A connection that is cut is made anew, and the job's answer fetched then; a server that was started anew gets the
    job again. When neither works for `settings.patience` seconds the device is lost.

    Args:
        connection: to the worker.
        greeting: what the worker said.
        settings: patience, time-outs.
        name: of the device, for messages.

    Attributes:
        greeting: see there; of the first session.
    """

    def __init__(self, connection: Connection, greeting: Greeting, settings: RpcSettings, name: str) -> None:
        self.greeting, self.name, self.settings = greeting, name, settings
        self._connection = connection
        self._session: str | None = greeting.session
        self._fetched: list[str] = []
        self._closed = False

    async def perform(
        self,
        request: Mapping[str, Any],
        blob: bytes = b"",
        before: Callable[[str], Awaitable[None]] | None = None,
    ) -> Answer:
        """Lets the worker do a job.

        Args:
            request: of `Submit`, without session and job.
            blob: that goes with it.
            before: is awaited before the job is submitted, with the name of the session.

        Raises:
            EndpointRefused: the worker answers what is no outcome.
            EndpointLost: it does not answer any more, or cannot work.
        """
        job = uuid.uuid4().hex
        submitted, submissions = None, 0  # the session that has the job
        heard = time.monotonic()
        try:
            while True:
                try:
                    session = await self._open()
                    if submitted != session:
                        submissions += 1
                        if submissions > _SUBMISSIONS:
                            raise EndpointLost(f"{self.name} has forgotten a job {_SUBMISSIONS} times")
                        if before is not None:
                            await before(session)
                        await self._submit(session, {**request, "job": job}, blob)
                        submitted = session
                    reply, answer = await self._poll(session, job)
                except Forgotten:
                    self._session = submitted = None
                    heard = time.monotonic()
                    continue
                except (Unreachable, Busy) as error:
                    silence = time.monotonic() - heard
                    if silence > self.settings.patience:
                        raise EndpointLost(f"{self.name} was silent for {silence:.1f} s: {error}") from None
                    await asyncio.sleep(self.settings.retry_pause)
                    continue
                heard = time.monotonic()
                if reply.get("state") not in ("waiting", "running"):
                    self._fetched = [job]
                    return self._answer(reply, answer)
        except Rejected as error:
            return Answer({"error": ErrorClass.unknown, "message": str(error)})
        except Garbled as error:
            raise EndpointRefused(str(error)) from None
        except (CallError, PoolError) as error:
            raise EndpointLost(str(error)) from None
        except asyncio.CancelledError:
            if submitted is not None and not self._closed:
                self._connection.tell("Cancel", {"session": submitted, "job": job})
            raise

    async def ready(self, before: Callable[[str], Awaitable[None]]) -> None:
        """Has a session and awaits `before` with its name.

        Raises:
            CallError: the worker does not answer.
            PoolError: it refuses us.
        """
        await before(await self._open())

    async def upload(self, session: str, digest: str, module: bytes) -> None:
        """Leaves a module with a session; twice is once.

        Raises:
            CallError: it did not arrive.
        """
        limit = self.settings.call_timeout + len(module) / _BYTES_PER_SECOND
        await self._connection.call("Upload", {"session": session, "digest": digest}, module, limit)

    async def renew(self) -> None:
        """Says that we are alive; for a session that is to stay while there is no job.

        Raises:
            CallError: the worker does not hear it.
        """
        if self._session is not None:
            await self._connection.call("Renew", {"session": self._session})

    async def close(self) -> None:
        """Ends the session, and with it what the worker does for us; may be called twice."""
        if self._closed:
            return
        self._closed = True
        if self._session is not None:
            with suppress(CallError):  # else the lease runs out
                await self._connection.call("Close", {"session": self._session}, timeout=1.0)
        self._connection.close()

    async def _open(self) -> str:
        if self._session is None:
            greeting = read_greeting(await greet(self._connection, self.settings))
            if greeting.target != self.greeting.target:
                raise EndpointLost(f"{self.name} has become a device for {greeting.target}")
            self._session = greeting.session
        return self._session

    async def _submit(self, session: str, request: Mapping[str, Any], blob: bytes) -> None:
        limit = self.settings.call_timeout + len(blob) / _BYTES_PER_SECOND
        data = {**request, "session": session, "fetched": self._fetched}
        await self._connection.call("Submit", data, blob, limit)
        self._fetched = []

    async def _poll(self, session: str, job: str) -> tuple[dict[str, Any], bytes]:
        wait = min(MAX_WAIT, self.settings.lease / 3)
        limit = wait + self.settings.call_timeout
        return await self._connection.call("Poll", {"session": session, "job": job, "wait": wait}, timeout=limit)

    def _answer(self, reply: Mapping[str, Any], blob: bytes) -> Answer:
        if reply.get("state") != "done":
            raise EndpointLost(f"{self.name} cannot work: {reply.get('message', reply.get('state'))!s:.1000}")
        try:
            header = get(reply, "header", dict)
            read(header)
        except (ProtocolError, OutcomeError) as error:
            raise EndpointRefused(str(error)) from None
        return Answer(header, blob)
