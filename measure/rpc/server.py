"""The server of one device: sessions with leases, jobs with ids, and answers that are kept until they are fetched."""

from __future__ import annotations

import asyncio
import time
import traceback
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, get_args

from measure.errors import ErrorClass, PoolError
from measure.fleet.endpoint import EndpointLost
from measure.fleet.local import LocalDevice
from measure.pool import Trial
from measure.rpc.protocol import (
    MAX_HELD,
    MAX_HOST_SESSIONS,
    MAX_JOBS,
    MAX_LEASE,
    MAX_MESSAGE,
    MAX_MODULES,
    MAX_SESSIONS,
    MAX_TIMEOUT,
    MAX_WAIT,
    ProtocolError,
    get,
)
from measure.rpc.service import Full, Handler, Listen, NotFound, Request, Service
from measure.rpc.settings import Check
from measure.supervisor import Answer, Supervisor

_ROOM = 64 << 10  # bytes reserved for a message's header
_TRIAL_FIELDS = {
    "workload_key": str,
    "trace_key": str,
    "target": str,
    "threads": int,
    "run_timeout": int | float,
}

Reply = tuple[Mapping[str, Any], bytes]
Use = Callable[[Supervisor], Awaitable[Answer]]


@dataclass
class _Job:
    """A piece of work for the device, kept until its answer is forgotten."""

    held_bytes: int  # bytes of its request, then of its answer
    task: asyncio.Task[Answer] | None = None
    running: bool = False


@dataclass
class _Session:
    """A client's claim to its jobs and modules."""

    client: str
    host: str
    lease: float
    expires: float = 0.0  # monotonic seconds
    jobs: dict[str, _Job] = field(default_factory=dict)
    modules: dict[str, bytes] = field(default_factory=dict)

    def renew(self) -> None:
        self.expires = time.monotonic() + self.lease

    def forget(self, name: str) -> None:
        """Forgets a job, and kills it if it is under way; does nothing if it is unknown."""
        job = self.jobs.pop(name, None)
        if job is not None and job.task is not None:
            job.task.cancel()


class RpcServer(Service):
    """A server of one device for clients that have the token.

    Jobs of all sessions run one at a time, first come, first served.

    Args:
        device: device that runs the jobs.
        listen: address and credentials of the server.
        key: key by which clients ask for the device.

    Attributes:
        instance: random name of this server's life; a restart changes it.
    """

    def __init__(self, device: LocalDevice, listen: Listen, key: str = "") -> None:
        self.device, self.key = device, key
        self.instance = uuid.uuid4().hex
        self._sessions: dict[str, _Session] = {}
        self._turn = asyncio.Lock()  # wakes its waiters in the order of arrival
        handlers: dict[str, Handler] = {
            "Hello": self._hello,
            "Submit": self._submit,
            "Poll": self._poll,
            "Cancel": self._cancel,
            "Upload": self._upload,
            "Renew": self._renew,
            "Close": self._close,
        }
        super().__init__(listen, handlers)

    async def start(self) -> str:
        """Begins to serve; returns `HOST:PORT` with the actual port.

        Raises:
            PoolError: the address is not available, or the device's process cannot start.
        """
        await self.device.start()
        return await super().start()

    async def close(self) -> None:
        """Ends the jobs and the device's process; may be called twice."""
        await super().close()
        for session in list(self._sessions):
            self._drop(session)
        await self.device.close()

    async def _hello(self, request: Request) -> Reply:
        if len(self._sessions) >= MAX_SESSIONS:
            raise Full(f"a worker must have at most {MAX_SESSIONS} sessions, but got one more")
        if sum(session.host == request.host for session in self._sessions.values()) >= MAX_HOST_SESSIONS:
            raise Full(f"a worker must have at most {MAX_HOST_SESSIONS} sessions of one host, but got one more")
        lease = min(max(request.get("lease", float), 0.1), MAX_LEASE)
        session = _Session(request.get("client", str), request.host, lease)
        session.renew()
        name = uuid.uuid4().hex
        self._sessions[name] = session
        return {
            "role": "device",
            "session": name,
            "instance": self.instance,
            "lease": lease,
            "key": self.key,
            "name": self.device.name,
            "target": self.device.spec,
            "host": self.device.host,
            "exclusive": self.device.exclusive,
            "description": dict(self.device.description),
        }, b""

    async def _submit(self, request: Request) -> Reply:
        session = self._session(request)
        name = request.get("job", str)
        for fetched in request.get("fetched", list):
            session.forget(str(fetched))
        if name in session.jobs:  # the reply to the first submission was lost
            return {}, b""
        if len(session.jobs) >= MAX_JOBS:
            answered = [name for name, job in session.jobs.items() if job.task is not None and job.task.done()]
            if not answered:
                raise Full(f"a session must have at most {MAX_JOBS} jobs under way, but got one more")
            del session.jobs[answered[0]]  # an answer that is not fetched by now is not wanted
        self._make_room(len(request.blob))
        kind = request.get("kind", str)
        if kind == "trial":
            use = self._trial(request)
        elif kind == "call":
            use = self._kernel_call(request, session)
        else:
            raise ProtocolError(f"`kind` must be trial or call, but got kind={kind!r}")
        job = session.jobs[name] = _Job(len(request.blob))
        job.task = asyncio.create_task(self._work(job, use))
        return {}, b""

    async def _poll(self, request: Request) -> Reply:
        session = self._session(request)
        job = self._job(session, request)
        assert job.task is not None
        wait = min(max(request.get("wait", float), 0.0), MAX_WAIT)
        await asyncio.wait({job.task}, timeout=wait)
        session.renew()
        if not job.task.done():
            return {"state": "running" if job.running else "waiting"}, b""
        if job.task.cancelled():
            raise NotFound("the job was cancelled")
        error = job.task.exception()
        if error is not None:
            if not isinstance(error, PoolError | EndpointLost):
                traceback.print_exception(error)  # our own fault: the client goes elsewhere, so log it here
            return {"state": "broken", "message": str(error)}, b""
        answer = job.task.result()
        return {"state": "done", "header": answer.header}, answer.blob

    async def _cancel(self, request: Request) -> Reply:
        session = self._session(request)
        session.forget(request.get("job", str))
        return {}, b""

    async def _upload(self, request: Request) -> Reply:
        session = self._session(request)
        digest = request.get("digest", str)
        if digest != sha256(request.blob).hexdigest():
            raise ProtocolError(f"`digest` must be the SHA-256 of the module, but got digest={digest!r}")
        if digest not in session.modules:
            if len(session.modules) >= MAX_MODULES:
                raise Full(f"a session must have at most {MAX_MODULES} modules, but got one more")
            self._make_room(len(request.blob))
            session.modules[digest] = request.blob
        return {}, b""

    async def _renew(self, request: Request) -> Reply:
        self._session(request)
        return {}, b""

    async def _close(self, request: Request) -> Reply:
        self._drop(request.get("session", str))
        return {}, b""

    def _trial(self, request: Request) -> Use:
        plain = request.get("trial", dict)
        for name, kind in _TRIAL_FIELDS.items():
            if not isinstance(plain.get(name), kind) or not plain[name]:
                raise ProtocolError(f"`trial` must have a {name}, but got {name}={plain.get(name)!r:.80}")
        try:
            trial = Trial.from_json(plain)
        except (TypeError, ValueError) as error:
            raise ProtocolError(f"`trial` must be a trial, but: {error}") from None
        own = self.device.spec.partition(":")[0]
        if trial.target.partition(":")[0] != own:
            raise ProtocolError(f"`target` must be one of {own} here, but got target={trial.target!r}")
        if trial.run_timeout > MAX_TIMEOUT:
            raise ProtocolError(f"`run_timeout` must be at most {MAX_TIMEOUT:g}, but got {trial.run_timeout}")
        best = None if request.header.get("best_seconds") is None else request.get("best_seconds", float)
        check, fresh = request.get("check", str), request.get("fresh", bool)
        if check not in get_args(Check):
            raise ProtocolError(f"`check` must be one of {', '.join(get_args(Check))}, but got check={check!r}")
        own_trial, module = self.device.own(trial), request.blob

        def use(worker: Supervisor) -> Awaitable[Answer]:
            if fresh:
                worker.retire()
            return worker.run(own_trial, module, best, check == "device")

        return use

    def _kernel_call(self, request: Request, session: _Session) -> Use:
        call = dict(request.get("call", dict))
        digest, timeout = get(call, "module", str), get(call, "timeout", float)
        if digest not in session.modules:
            raise NotFound(f"`module` must be uploaded first, but got module={digest!r}")
        if not 0 < timeout <= MAX_TIMEOUT:
            raise ProtocolError(f"`timeout` must be positive and at most {MAX_TIMEOUT:g}, but got timeout={timeout}")
        module = session.modules[digest]
        call |= {"module_bytes": len(module), "target": self.device.spec}
        blob = module + request.blob
        return lambda worker: worker.call({"call": call}, blob, timeout)

    async def _work(self, job: _Job, use: Use) -> Answer:
        async with self._turn:
            job.running = True
            answer = await self.device.work(use)
        if len(answer.blob) > MAX_MESSAGE - _ROOM:
            message = f"an output must have at most {MAX_MESSAGE - _ROOM} bytes to travel, but got {len(answer.blob)}"
            answer = Answer({"error": ErrorClass.unknown, "message": message})
        job.held_bytes = len(answer.blob)
        return answer

    def _session(self, request: Request) -> _Session:
        name = request.get("session", str)
        if name not in self._sessions:
            raise NotFound("the session is not known here; its lease has run out, or the worker was started anew")
        session = self._sessions[name]
        session.renew()
        return session

    def _job(self, session: _Session, request: Request) -> _Job:
        name = request.get("job", str)
        if name not in session.jobs:
            raise NotFound(f"the job is not known here: {name!r}")
        return session.jobs[name]

    def _make_room(self, nbytes: int) -> None:
        used = sum(
            sum(job.held_bytes for job in session.jobs.values()) + sum(map(len, session.modules.values()))
            for session in self._sessions.values()
        )
        if used + nbytes > MAX_HELD:
            raise Full(f"a worker must hold at most {MAX_HELD} bytes for its clients, but got {used + nbytes}")

    def _drop(self, name: str) -> None:
        session = self._sessions.pop(name, None)
        if session is not None:
            for job in list(session.jobs):
                session.forget(job)

    def expire(self) -> None:
        """Kills the jobs of clients whose lease has run out."""
        now = time.monotonic()
        for name in [name for name, session in self._sessions.items() if session.expires < now]:
            self._drop(name)
