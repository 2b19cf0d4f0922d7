"""A remote device programmed by hand: upload a module, run it on arrays, time it, get its output."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from contextlib import suppress
from hashlib import sha256
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from measure.arrays import pack_arrays, unpack_arrays
from measure.closing import Closing
from measure.errors import ErrorClass, PoolError, TrialFailure
from measure.fleet.endpoint import EndpointLost
from measure.outcome import check_latencies, read
from measure.rpc.jobs import JobClient, greet, read_greeting
from measure.rpc.settings import RpcSettings, parse_addresses, read_certificates, read_token
from measure.rpc.transport import CallError, Connection
from measure.supervisor import Answer
from search_space.workloads import Workload
from targets.base import Module

T = TypeVar("T")


class RpcSession(Closing):
    """A worker's device for use by hand; a context manager, whose methods block and belong to one thread.

    Args:
        address: `HOST:PORT` of the worker.
        settings: token, patience.

    Raises:
        PoolError: the worker refuses this client, or does not answer, or the server is not a worker.
    """

    def __init__(self, address: str, settings: RpcSettings) -> None:
        self.address, self.settings = address, settings
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"session at {address}", daemon=True)
        self._thread.start()
        self._is_closed = False
        try:
            self._jobs = self._wait(self._connect())
            self._alive: Future[None] = asyncio.run_coroutine_threadsafe(self._keep_alive(), self._loop)
        except BaseException:
            self._stop()
            raise

    @classmethod
    def open(
        cls, url: str, token_file: str | os.PathLike[str], tls_ca: str | os.PathLike[str] | None = None
    ) -> RpcSession:
        """Opens a session at the worker `rpc://HOST:PORT`.

        Args:
            url: address of the worker.
            token_file: file with its token.
            tls_ca: PEM file of certificates that sign the worker's; None: connections are not encrypted.

        Raises:
            ValueError: `url` is not of this form, or names several places.
            PoolError: see the class, or a file cannot be read.
        """
        addresses = parse_addresses(url)
        if len(addresses) != 1:
            raise ValueError(f"`url` must be of one worker, but got {len(addresses)}")
        ca = None if tls_ca is None else read_certificates(tls_ca, "tls_ca")
        return cls(addresses[0].address, RpcSettings(read_token(token_file), ca))

    @property
    def target(self) -> str:
        """Target that the device runs, as `targets.registry.get` takes it."""
        return self._jobs.greeting.target

    @property
    def description(self) -> Mapping[str, Any]:
        """Description of the machine."""
        return self._jobs.greeting.description

    def upload(self, module: Module | bytes) -> RemoteKernel:
        """Uploads a built module to the device, which keeps it as long as the session.

        Raises:
            PoolError: the module did not arrive.
        """
        data = module if isinstance(module, bytes) else module.to_bytes()
        kernel = RemoteKernel(self, self._jobs, data)
        self._wait(self._jobs.ready(kernel.bring))
        return kernel

    def close(self) -> None:
        """Ends the session, whose modules are forgotten. May be called twice."""
        if self._is_closed:
            return
        self._alive.cancel()
        self._wait(self._jobs.close())
        self._stop()

    def perform(self, request: Mapping[str, Any], blob: bytes, kernel: RemoteKernel) -> Answer:
        """Lets the device do a job with an uploaded kernel; see `JobClient.perform`.

        Raises:
            PoolError: the device is gone.
        """
        return self._wait(self._jobs.perform(request, blob, kernel.bring))

    async def _connect(self) -> JobClient:
        connection = Connection(self.address, self.settings)
        reply = await greet(connection, self.settings)
        if reply["role"] != "device":
            raise PoolError(f"`place` must be that of a worker, but {self.address} is a {reply['role']}")
        return JobClient(connection, read_greeting(reply), self.settings, f"the device at {self.address}")

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(self.settings.lease / 3)
            with suppress(CallError):  # the next job reports it
                await self._jobs.renew()

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine in the session's loop and returns its result."""
        if self._is_closed:
            coroutine.close()
            raise PoolError("a session must be open to work, but got closed=True")
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
        except (CallError, EndpointLost) as error:
            raise PoolError(f"a device must answer, but {error}") from None

    def _stop(self) -> None:
        self._is_closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class RemoteKernel:
    """A module on a device; `RpcSession.upload` makes it.

    Attributes:
        digest: SHA-256 of the module.
    """

    def __init__(self, session: RpcSession, jobs: JobClient, module: bytes) -> None:
        self.digest = sha256(module).hexdigest()
        self._session, self._jobs, self._module = session, jobs, module
        self._module_session: str | None = None  # name of the session that has the module

    def run(self, *inputs: NDArray[Any], threads: int | None = None, timeout: float = 10.0) -> NDArray[Any]:
        """Runs the kernel once on inputs.

        Args:
            inputs: inputs as the module's `sources` describe them.
            threads: number of threads that it runs on; None: all.
            timeout: seconds until the kernel is killed.

        Returns:
            The output.

        Raises:
            TrialFailure: the kernel failed; its `error` says how.
            PoolError: the device is gone.
        """
        return self._call(list(inputs), None, 0, 0, threads, timeout)[0]

    def run_seeded(
        self, workload: Workload, seed: int, threads: int | None = None, timeout: float = 10.0
    ) -> NDArray[Any]:
        """Runs the kernel as `run`, on the workload's random inputs of a seed, which are made on the device."""
        return self._call(None, workload, seed, 0, threads, timeout)[0]

    def time(
        self, *inputs: NDArray[Any], iterations: int = 10, threads: int | None = None, timeout: float = 10.0
    ) -> NDArray[np.float64]:
        """Measures the seconds of `iterations` executions, `(iterations,)`, on the device, after one to warm up."""
        return self._call(list(inputs), None, 0, iterations, threads, timeout)[1]

    def time_seeded(
        self, workload: Workload, seed: int, iterations: int = 10, threads: int | None = None, timeout: float = 10.0
    ) -> NDArray[np.float64]:
        """Measures as `time`, on the workload's random inputs of a seed, which are made on the device."""
        return self._call(None, workload, seed, iterations, threads, timeout)[1]

    async def bring(self, session: str) -> None:
        """Uploads the module to a session, unless the session has it."""
        if self._module_session != session:
            await self._jobs.upload(session, self.digest, self._module)
            self._module_session = session

    def _call(
        self,
        inputs: list[NDArray[Any]] | None,
        workload: Workload | None,
        seed: int,
        iterations: int,
        threads: int | None,
        timeout: float,
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        described, blob = (None, b"") if inputs is None else pack_arrays(inputs)
        call = {
            "module": self.digest,
            "arrays": described,
            "workload": None if workload is None else workload.to_json(),
            "seed": seed,
            "iterations": iterations,
            "threads": threads,
            "timeout": timeout,
        }
        answer = self._session.perform({"kind": "call", "call": call}, blob, self)
        if answer.error is not ErrorClass.ok:
            raise TrialFailure(answer.error, str(answer.header.get("message", "")))
        try:
            (output,) = unpack_arrays([answer.header.get("output")], answer.blob)
            latencies = read(answer.header)[0].get("latencies", ())
            if iterations:
                check_latencies(latencies)
            return output, np.array(latencies, np.float64)
        except ValueError as error:
            raise PoolError(f"a device must answer with its output, but: {error}") from None
