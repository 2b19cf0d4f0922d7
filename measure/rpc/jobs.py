"""Jobs at a worker: submitted once, polled until their answers are ready, even if the connection breaks."""

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
from measure.rpc.transport import (
    Busy,
    CallError,
    ClientRefusal,
    Connection,
    GarbledAnswer,
    RequestRejection,
    UnknownSubject,
    Unreachable,
)
from measure.supervisor import Answer

_SUBMISSIONS = 5
"""Maximum number of submissions of a job to servers that have forgotten it."""
_BYTES_PER_SECOND = 256 << 10
"""Bytes per second of the slowest network on which a module arrives in time."""


@dataclass(frozen=True)
class Greeting:
    """Description of a worker by itself.

    Attributes:
        name: name of the device.
        key: key by which clients ask for it; may be empty.
        target: target that it runs, as `targets.registry.get` takes it.
        host: name of the machine, see `measure.host.machine_name`.
        exclusive: see `measure.fleet.endpoint.Device`.
        description: description of the machine, for records.
        session: name of the session that was opened.
        instance: random name of the server's life.
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
    """Returns a name of this process for people who look at a worker's or tracker's clients."""
    return f"{platform.node()}:{os.getpid()}"


async def greet(connection: Connection, settings: RpcSettings) -> Mapping[str, Any]:
    """Opens a session at a worker, or greets a tracker; the reply's `role` tells which.

    Raises:
        PoolError: the server refuses this client.
        Unreachable: the server does not answer.
        Busy: the server has reached its limit of sessions.
    """
    try:
        reply, _ = await connection.call("Hello", {"client": client_name(), "lease": settings.lease})
        get(reply, "role", str)
    except (ClientRefusal, GarbledAnswer, RequestRejection, UnknownSubject, ProtocolError) as error:
        raise PoolError(f"`pool` must be a worker or tracker that knows us, but {error}") from None
    return reply


def read_greeting(reply: Mapping[str, Any]) -> Greeting:
    """Reads a worker's reply to Hello.

    Raises:
        PoolError: the reply is not one of a worker.
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

    A broken connection is opened again, and the job's answer fetched then; a restarted server gets the job again.
    If neither works for `settings.patience` seconds, the device is lost.

    Args:
        connection: connection to the worker.
        greeting: description of the worker by itself, with the first session.
        settings: patience, time-outs.
        name: name of the device, for messages.

    Attributes:
        greeting: see the arguments; its session is the first one.
    """

    def __init__(self, connection: Connection, greeting: Greeting, settings: RpcSettings, name: str) -> None:
        self.greeting, self.name, self.settings = greeting, name, settings
        self._connection = connection
        self._session: str | None = greeting.session
        self._fetched_jobs: list[str] = []
        self._is_closed = False

    async def perform(
        self,
        request: Mapping[str, Any],
        blob: bytes = b"",
        before: Callable[[str], Awaitable[None]] | None = None,
    ) -> Answer:
        """Lets the worker do a job.

        Args:
            request: fields of `Submit`, without session and job.
            blob: bytes of the request.
            before: coroutine function called with the session's name before the job is submitted.

        Raises:
            EndpointRefused: the worker's answer is not an outcome.
            EndpointLost: the worker does not answer any more, or cannot work.
        """
        job = uuid.uuid4().hex
        submitted, submissions = None, 0  # session that has the job, and number of submissions
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
                except UnknownSubject:
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
                    self._fetched_jobs = [job]
                    return self._answer(reply, answer)
        except RequestRejection as error:
            return Answer({"error": ErrorClass.unknown, "message": str(error)})
        except GarbledAnswer as error:
            raise EndpointRefused(str(error)) from None
        except (CallError, PoolError) as error:
            raise EndpointLost(str(error)) from None
        except asyncio.CancelledError:
            if submitted is not None and not self._is_closed:
                self._connection.tell("Cancel", {"session": submitted, "job": job})
            raise

    async def ready(self, before: Callable[[str], Awaitable[None]]) -> None:
        """Opens a session unless there is one, and awaits `before` with its name.

        Raises:
            CallError: the worker does not answer.
            PoolError: the worker refuses this client.
        """
        await before(await self._open())

    async def upload(self, session: str, digest: str, module: bytes) -> None:
        """Stores a module in a session; a second call with the same module has no effect.

        Raises:
            CallError: the module did not arrive.
        """
        limit = self.settings.call_timeout + len(module) / _BYTES_PER_SECOND
        await self._connection.call("Upload", {"session": session, "digest": digest}, module, limit)

    async def renew(self) -> None:
        """Extends the lease of the session, which must stay open while it has no job.

        Raises:
            CallError: the worker did not get the message.
        """
        if self._session is not None:
            await self._connection.call("Renew", {"session": self._session})

    async def close(self) -> None:
        """Ends the session, and with it the worker's jobs for this client; may be called twice."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._session is not None:
            with suppress(CallError):  # if this fails, the lease expires
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
        data = {**request, "session": session, "fetched": self._fetched_jobs}
        await self._connection.call("Submit", data, blob, limit)
        self._fetched_jobs = []

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
