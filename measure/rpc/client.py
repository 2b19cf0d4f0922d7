"""A device of a fleet that is served elsewhere: built trials go over the network, answers come back."""

from __future__ import annotations

import asyncio
import os
import platform
import time
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from measure.arrays import unpack_arrays
from measure.check import Oracle
from measure.errors import ErrorClass, PoolError
from measure.fleet.endpoint import EndpointLost
from measure.interface import load_executor
from measure.pool import Trial
from measure.rpc.protocol import MAX_WAIT, ProtocolError, get
from measure.rpc.settings import Check, RpcSettings
from measure.rpc.transport import Busy, CallError, Connection, Forgotten, Refused, Rejected, Unreachable
from measure.workplace import Answer

_SUBMISSIONS = 5
"""Times that a trial is submitted anew to a server that has forgotten it."""
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
    except (Refused, Rejected, Forgotten, ProtocolError) as error:
        raise PoolError(f"`pool` must be a worker or tracker that knows us, but {error}") from None
    return reply


def read_greeting(reply: Mapping[str, Any]) -> Greeting:
    """A worker's reply to Hello.

    Raises:
        PoolError: it is not what a worker says.
    """
    kinds: dict[str, type[Any]] = {
        **dict.fromkeys(("name", "key", "target", "host", "session", "instance"), str),
        "exclusive": bool,
        "description": dict,
    }
    try:
        return Greeting(**{name: get(reply, name, kind) for name, kind in kinds.items()})
    except ProtocolError as error:
        raise PoolError(f"a worker must say what it is, but: {error}") from None


class RpcDevice:
    """A device behind an RPC server.

    A connection that is cut is made anew, and the trial's answer fetched then; a server that was started anew gets the
    trial again. When neither works for `settings.patience` seconds the device is lost.

    Args:
        place: `HOST:PORT` of the worker.
        greeting: what it said.
        settings: token, time-outs.
        check: where outputs are checked; None: as in the settings.
        connection: to the worker; made here where there is none.

    Attributes:
        name, host, targets, exclusive, description: see `measure.fleet.endpoint.Device`.
        place: of the worker.
        idle: set while no trial is under way.
        recalled: whether the device is to take no more trials.
    """

    def __init__(
        self,
        place: str,
        greeting: Greeting,
        settings: RpcSettings,
        check: Check | None = None,
        connection: Connection | None = None,
    ) -> None:
        self.place, self.settings, self.check = place, settings, check or settings.check
        self.name = f"{greeting.key or greeting.name} at {place}"
        self.host, self.exclusive = greeting.host, greeting.exclusive
        self.targets = frozenset({greeting.target.partition(":")[0]})
        self.description: Mapping[str, Any] = {**greeting.description, "device": self.name, "target": greeting.target}
        self.idle = asyncio.Event()
        self.idle.set()
        self.recalled = False
        self._connection = connection or Connection(place, settings)
        self._session: str | None = greeting.session
        self._fetched: list[str] = []
        self._references = _References(settings)
        self._doubtful = False  # whether the process over there may have been damaged
        self._closed = False

    @classmethod
    async def connect(cls, place: str, settings: RpcSettings, check: Check | None = None) -> RpcDevice:
        """A device that answers.

        Raises:
            PoolError: it refuses this client, or is no worker.
            Unreachable: nobody answers.
        """
        connection = Connection(place, settings)
        try:
            reply = await greet(connection, settings)
            if reply["role"] != "device":
                raise PoolError(f"`place` must be that of a worker, but {place} is a {reply['role']}")
            return cls(place, read_greeting(reply), settings, check, connection)
        except BaseException:
            connection.close()
            raise

    async def run(self, trial: Trial, module: bytes, best_seconds: float | None) -> Answer:
        """Checks and times a built trial over there.

        Raises:
            EndpointLost: the device does not answer any more, or cannot work.
        """
        if self._closed or self.recalled:
            raise EndpointLost(f"{self.name} was {'closed' if self._closed else 'recalled by the tracker'}")
        self.idle.clear()
        try:
            if self.check == "device":
                return await self._run(trial, module, best_seconds)
            return await self._run_and_check(trial, module, best_seconds)
        finally:
            self.idle.set()

    async def close(self) -> None:
        """Ends the session, and with it what the device does for us; may be called twice."""
        if self._closed:
            return
        self._closed = True
        if self._session is not None:
            with suppress(CallError):  # else the lease runs out
                await self._connection.call("Close", {"session": self._session}, timeout=1.0)
        self._connection.close()

    async def _run_and_check(self, trial: Trial, module: bytes, best_seconds: float | None) -> Answer:
        """The same with the comparison here; what fails in a process that may be damaged is tried once more."""
        for attempt in range(2):
            answer = await self._run(trial, module, best_seconds, fresh=self._doubtful)
            self._doubtful = answer.error is ErrorClass.wrong_output
            if answer.error is not ErrorClass.ok:
                return answer
            checked = await asyncio.to_thread(self._references.check, trial, answer)
            self._doubtful = checked.error is ErrorClass.wrong_output
            if not self._doubtful or answer.header.get("first") or attempt:
                return checked
        raise AssertionError("the second attempt returns")

    async def _run(self, trial: Trial, module: bytes, best_seconds: float | None, fresh: bool = False) -> Answer:
        job = uuid.uuid4().hex
        request = {
            "job": job,
            "kind": "trial",
            "trial": trial.to_json(),
            "best_seconds": best_seconds,
            "check": self.check,
            "fresh": fresh,
        }
        submitted, submissions = None, 0  # the session that has the job
        heard = time.monotonic()
        try:
            while True:
                try:
                    session = await self._open()
                    if submitted != session:
                        submissions += 1
                        if submissions > _SUBMISSIONS:
                            raise EndpointLost(f"{self.name} has forgotten a trial {_SUBMISSIONS} times")
                        await self._submit(session, request, module)
                        submitted = session
                    pause = min(MAX_WAIT, self.settings.lease / 3)
                    limit = pause + self.settings.call_timeout
                    reply, blob = await self._connection.call(
                        "Poll", {"session": session, "job": job, "wait": pause}, timeout=limit
                    )
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
                if reply.get("state") in ("waiting", "running"):
                    continue
                self._fetched = [job]
                return self._answer(reply, blob)
        except Rejected as error:
            return Answer({"error": ErrorClass.unknown, "message": str(error)})
        except (CallError, PoolError) as error:
            raise EndpointLost(str(error)) from None
        except asyncio.CancelledError:
            if submitted is not None and not self._closed:
                self._connection.tell("Cancel", {"session": submitted, "job": job})
            raise

    def _answer(self, reply: Mapping[str, Any], blob: bytes) -> Answer:
        if reply.get("state") != "done":
            raise EndpointLost(f"{self.name} cannot work: {reply.get('message', reply.get('state'))}")
        try:
            answer = Answer(get(reply, "header", dict), blob)
            if answer.error is ErrorClass.ok:
                get(answer.header, "seconds", float)
        except ValueError as error:
            raise EndpointLost(f"{self.name} must answer with a measurement, but: {error}") from None
        return answer

    async def _open(self) -> str:
        if self._session is None:
            greeting = read_greeting(await greet(self._connection, self.settings))
            if greeting.target.partition(":")[0] not in self.targets:
                raise EndpointLost(f"{self.name} has become a device for {greeting.target}")
            self._session = greeting.session
        return self._session

    async def _submit(self, session: str, request: Mapping[str, Any], module: bytes) -> None:
        fetched, self._fetched = self._fetched, []
        limit = self.settings.call_timeout + len(module) / _BYTES_PER_SECOND
        await self._connection.call("Submit", {**request, "session": session, "fetched": fetched}, module, limit)


class _References:
    """Compares outputs that have travelled with references made here; keeps those used last."""

    def __init__(self, settings: RpcSettings) -> None:
        self._settings = settings
        self._oracles: OrderedDict[tuple[str, int], Oracle] = OrderedDict()

    def check(self, trial: Trial, answer: Answer) -> Answer:
        """The answer with the comparison in it; or with an error in place of its times."""
        try:
            (output,) = unpack_arrays([answer.header["output"]], answer.blob)
            comparison = self._oracle(trial).compare(output)
        except (KeyError, ValueError) as error:
            return Answer({"error": ErrorClass.unknown, "message": f"an output must be comparable, but: {error}"})
        if not comparison.ok:
            found = {"message": comparison.message, "max_error": comparison.max_error}
            return Answer({"error": ErrorClass.wrong_output, **found})
        return Answer({**answer.header, "max_error": comparison.max_error})

    def _oracle(self, trial: Trial) -> Oracle:
        key = (trial.workload_key, trial.seed)
        if key not in self._oracles:
            task = load_executor(self._settings.executor).prepare(trial)
            if task.expected is None:
                raise ValueError("`prepare` must give a reference, but got none")
            self._oracles[key] = Oracle(task.expected, task.rtol, task.atol)
        self._oracles.move_to_end(key)
        while len(self._oracles) > 1 and sum(o.nbytes for o in self._oracles.values()) > self._settings.task_bytes:
            self._oracles.popitem(last=False)
        return self._oracles[key]
