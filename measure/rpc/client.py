"""A device of a fleet that is served elsewhere: it receives built trials over the network, and returns answers."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from measure.arrays import unpack_arrays
from measure.check import Oracle
from measure.errors import ErrorClass, PoolError
from measure.fleet.endpoint import EndpointLost, EndpointRefused
from measure.interface import load_executor
from measure.output_check import References
from measure.pool import TaskKey, Trial
from measure.rpc.jobs import Greeting, JobClient, greet, read_greeting
from measure.rpc.settings import Check, RpcSettings
from measure.rpc.transport import Connection
from measure.supervisor import Answer


class RpcDevice:
    """A device behind an RPC server.

    Args:
        address: `HOST:PORT` of the worker.
        greeting: description of the worker by itself.
        settings: token, time-outs.
        check: place where outputs are compared; None: as in the settings.
        connection: connection to the worker; None: a new one.

    Attributes:
        name, host, targets, exclusive, description: see `measure.fleet.endpoint.Device`.
        address: `HOST:PORT` of the worker.
        idle: event that is set while no trial is under way.
        is_recalled: whether the device is to take no more trials.
    """

    def __init__(
        self,
        address: str,
        greeting: Greeting,
        settings: RpcSettings,
        check: Check | None = None,
        connection: Connection | None = None,
    ) -> None:
        self.address, self.settings, self.check = address, settings, check or settings.check
        self.name = f"{greeting.key or greeting.name} at {address}"
        self.host, self.exclusive = greeting.host, greeting.exclusive
        self.targets = frozenset({greeting.target.partition(":")[0]})
        self.description: Mapping[str, Any] = {**greeting.description, "device": self.name, "target": greeting.target}
        self.idle = asyncio.Event()
        self.idle.set()
        self.is_recalled = False
        self._jobs = JobClient(connection or Connection(address, settings), greeting, settings, self.name)
        self._references = _References(settings)
        self._doubtful = False  # whether the remote process may be damaged
        self._is_closed = False

    @classmethod
    async def connect(cls, address: str, settings: RpcSettings, check: Check | None = None) -> RpcDevice:
        """Connects to a device.

        Raises:
            PoolError: the server refuses this client, or is not a worker.
            Unreachable: the server does not answer.
        """
        connection = Connection(address, settings)
        try:
            reply = await greet(connection, settings)
            if reply["role"] != "device":
                raise PoolError(f"`place` must be that of a worker, but {address} is a {reply['role']}")
            return cls(address, read_greeting(reply), settings, check, connection)
        except BaseException:
            connection.close()
            raise

    async def run(self, trial: Trial, module: bytes, best_seconds: float | None) -> Answer:
        """Checks and times a built trial on the remote device.

        Raises:
            EndpointRefused: the device's answer is not an outcome.
            EndpointLost: the device does not answer any more, or cannot work.
        """
        if self._is_closed or self.is_recalled:
            raise EndpointLost(f"{self.name} was {'closed' if self._is_closed else 'recalled by the tracker'}")
        self.idle.clear()
        try:
            if self.check == "device":
                return await self._run(trial, module, best_seconds)
            return await self._run_and_check(trial, module, best_seconds)
        finally:
            self.idle.set()

    async def close(self) -> None:
        """Ends the session, and with it the device's work for this client; may be called twice."""
        self._is_closed = True
        await self._jobs.close()

    async def _run_and_check(self, trial: Trial, module: bytes, best_seconds: float | None) -> Answer:
        """Runs a trial remotely and compares its output here.

        A failure in a process that an earlier kernel may have damaged is tried once more, in a fresh process.
        """
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
        request = {
            "kind": "trial",
            "trial": trial.to_json(),
            "best_seconds": best_seconds,
            "check": self.check,
            "fresh": fresh,
        }
        return await self._jobs.perform(request, module)


class _References:
    """References made here that received outputs are compared with; keeps those used last."""

    def __init__(self, settings: RpcSettings) -> None:
        self._settings = settings
        self._oracles: OrderedDict[TaskKey, Oracle] = OrderedDict()

    def check(self, trial: Trial, answer: Answer) -> Answer:
        """Returns the answer with the comparison added, or an error in place of its times.

        Raises:
            EndpointRefused: the answer has no output.
        """
        try:
            (output,) = unpack_arrays([answer.header.get("output")], answer.blob)
        except ValueError as error:
            raise EndpointRefused(f"an output must come with the times, but: {error}") from None
        try:
            comparison = self._oracle(trial).compare(output)
        except ValueError as error:
            return Answer({"error": ErrorClass.unknown, "message": f"an output must be comparable, but: {error}"})
        if not comparison.ok:
            found = {"message": comparison.message, "max_error": comparison.max_error}
            return Answer({"error": ErrorClass.wrong_output, **found})
        return Answer({**answer.header, "max_error": comparison.max_error})

    def _oracle(self, trial: Trial) -> Oracle:
        key = trial.task_key
        if key not in self._oracles:
            task = load_executor(self._settings.executor).prepare(trial)
            if task.expected is None:
                raise ValueError("`prepare` must give a reference, but got none")
            self._oracles[key] = References(task).last  # the transferred output was computed after the timing
        self._oracles.move_to_end(key)
        while len(self._oracles) > 1 and sum(o.nbytes for o in self._oracles.values()) > self._settings.task_bytes:
            self._oracles.popitem(last=False)
        return self._oracles[key]
