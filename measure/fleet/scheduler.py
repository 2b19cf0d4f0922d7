"""The scheduler of a fleet: gives trials to builders and devices that come and go, until each trial has its result.

One asyncio loop runs all of it, in whichever thread, so that it needs no locks. Each event (trials come in, an endpoint
joins, answers or is lost) changes the tables and wakes `_start_work`. That starts all work that can be started.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol, cast

from measure.best import BestLatencies
from measure.errors import ErrorClass, OutcomeError, PoolError, failure
from measure.fleet.endpoint import BuildEndpoint, Device, EndpointLost, EndpointRefused
from measure.fleet.members import Host, Member, Work, make_member
from measure.fleet.validation import Judge, judge_remote_answer, now, read_result
from measure.host import machine_name
from measure.notices import NOTICE_SECONDS
from measure.outcome import MOST_TEXT
from measure.pool import TrialResult
from measure.supervisor import Answer

log = logging.getLogger(__name__)

LOSSES = 3
"""Number of machines that are lost with a trial before it is given up: the trial may be what ends them."""


@dataclass(frozen=True)
class FleetSettings:
    """Settings of a fleet.

    Attributes:
        batch: most trials of a target that are built and wait for a device, unless it has more devices. It is also the
            most builds or timings on a host before the other kind goes on.
        start_timeout: seconds for which trials wait for a machine when nothing else goes on.
        close_timeout: seconds for providers and endpoints to end.
    """

    batch: int = 64
    start_timeout: float = 60.0
    close_timeout: float = 10.0

    def __post_init__(self) -> None:
        for name in ("batch", "start_timeout", "close_timeout"):
            if not getattr(self, name) > 0:
                raise ValueError(f"`{name}` must be positive, but got {name}={getattr(self, name)}")


class Provider(Protocol):
    """A source of machines for a fleet."""

    async def provide(self, fleet: Fleet) -> None:
        """Makes endpoints join, and others in place of those that are lost, until it is cancelled.

        A provider with no more to do may return. An exception ends the pool: its results raise a `PoolError` with the
        exception's sentence.
        """


class Fleet:
    """Endpoints and the trials they work on; used from within one event loop.

    Args:
        settings: settings of the fleet.
        report: function that is called with every result, once for each trial.
        fail: function that is called with the reason why the fleet cannot go on.
        judge: function that makes a result of an endpoint's answer, see `measure.fleet.validation`.

    Attributes:
        lacks: reason why a provider brings no machine, by source.
        capacity: number of trials that keeps it busy; 1 if all devices are timed on this very machine, which a search
            would disturb.
    """

    def __init__(
        self,
        settings: FleetSettings,
        report: Callable[[TrialResult], None],
        fail: Callable[[PoolError], None],
        judge: Judge = judge_remote_answer,
    ) -> None:
        self.settings = settings
        self._report, self._fail, self._judge = report, fail, judge
        self.lacks: dict[str, str] = {}
        self._members: dict[BuildEndpoint | Device, Member] = {}
        self._names, self._refused_names = set[str](), set[str]()
        self._hosts: dict[str, Host] = {}
        self._free: dict[bool, dict[str, dict[Member, None]]] = {  # is builder -> target -> members, longest free first
            builds: defaultdict(dict) for builds in (False, True)
        }
        self._waiting: dict[str, deque[Work]] = defaultdict(deque)  # target -> trials to build
        self._run_queues: dict[str, deque[Work]] = defaultdict(deque)  # target -> trials to run
        self._building: Counter[str] = Counter()  # target -> builds under way
        self._devices: Counter[str] = Counter()  # target -> devices
        self._busy: set[Member] = set()
        self._best = BestLatencies()
        self._background: set[asyncio.Task[None]] = set()
        self._providers: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._wake_pending = self._is_closed = self._has_changed = False
        self._contended_hosts: list[Host] = []
        self.capacity = 1
        self._last_loss = ""
        self._news = asyncio.Event()
        self.wanted_targets: frozenset[str] = frozenset()
        """Names of the targets that trials have had so far: machines for others need not be started."""

    def join(self, endpoint: BuildEndpoint | Device) -> None:
        """Adds a machine, which is given work from now on.

        Raises:
            ValueError: another endpoint in the fleet has its name.
        """
        if endpoint.name in self._names:
            raise ValueError(f"`name` must be unique in the fleet, but got name={endpoint.name!r} again")
        host = self._hosts.setdefault(endpoint.host, Host())
        member = make_member(endpoint, host)
        if self.is_refused(endpoint):
            member.targets = frozenset()  # it may stay, but gets no work
        host.add(member)
        self._members[endpoint] = member
        self._names.add(endpoint.name)
        if not member.builds:
            self._devices.update(member.targets)
        self._offer(member)
        self._has_changed = True
        log.info("%s joins", member)
        self._wake()

    def leave(self, endpoint: BuildEndpoint | Device) -> None:
        """Removes and closes a machine; another one gets its work. Does nothing if the machine has left before."""
        member = self._members.pop(endpoint, None)
        if member is None:
            return
        log.info("%s leaves", member)
        self._names.discard(endpoint.name)
        member.host.remove(member)
        if not member.builds:
            self._devices.subtract(member.targets)
        self._withdraw(member)
        self._has_changed = True
        member.departure.set()
        for pending in member.tasks:
            pending.cancel()
        self._forget_host(endpoint.host)
        task = asyncio.get_running_loop().create_task(self._close_endpoint(endpoint))
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        self._wake()

    async def left(self, endpoint: BuildEndpoint | Device) -> None:
        """Waits until a machine has left, by `leave` or a loss; returns at once if it is not in the fleet."""
        if endpoint in self._members:
            await self._members[endpoint].departure.wait()

    def is_refused(self, endpoint: BuildEndpoint | Device) -> bool:
        """Tells whether a machine of this name gave an impossible answer; it gets no more trials."""
        return endpoint.name in self._refused_names

    @property
    def endpoints(self) -> Sequence[BuildEndpoint | Device]:
        """Builders and devices in the fleet now."""
        return tuple(self._members)

    def start(self, providers: Iterable[Provider]) -> None:
        """Starts providers, which bring machines."""
        for provider in providers:
            task = asyncio.get_running_loop().create_task(provider.provide(self))
            self._providers.add(task)
            task.add_done_callback(self._provider_ended)

    def submit(self, works: Iterable[Work]) -> None:
        """Accepts trials."""
        before = self.wanted_targets
        for work in works:
            self._waiting[work.target].append(work)
            self.wanted_targets |= {work.target}
        if self.wanted_targets != before:
            self._news.set()
            self._news = asyncio.Event()
        self._wake()

    async def news(self, timeout: float) -> None:
        """Waits until `wanted` grows, at most `timeout` seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), timeout)

    def cancel(self) -> None:
        """Forgets all trials; cancels the tasks of those under way."""
        self._waiting.clear()
        self._run_queues.clear()
        for member in self._busy:
            for task, work in member.tasks.items():
                work.forgotten = True
                task.cancel()
        self._watch()

    async def wait_settled(self) -> None:
        """Waits until endpoints have ended their work under way."""
        if tasks := [task for member in self._busy for task in member.tasks]:
            await asyncio.wait(tasks)

    async def close(self) -> None:
        """Ends providers and endpoints."""
        self._is_closed = True
        self.cancel()
        for task in self._providers:
            task.cancel()
        await self._wait_for(self._providers)  # until then endpoints may join
        for endpoint in list(self._members):
            self.leave(endpoint)
        await self._wait_for(self._background)

    async def _wait_for(self, tasks: set[asyncio.Task[None]]) -> None:
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self.settings.close_timeout)
            for task in late:
                log.warning("%s did not end within %g s", task.get_coro(), self.settings.close_timeout)

    # Work at endpoints

    def _begin(self, member: Member, work: Work) -> None:
        """Gives a trial to an endpoint."""
        if member.builds:
            self._building[work.target] += 1
            coroutine = cast(BuildEndpoint, member.endpoint).build(work.trial)
        else:
            device = cast(Device, member.endpoint)
            coroutine = device.run(work.trial, work.module, self._best.limit(work.trial))
        self._withdraw(member)
        member.free -= 1
        self._offer(member)
        host = member.host
        host.alone += member.alone
        host.shared += not member.alone
        host.begun_count += member.alone or member.builds
        self._busy.add(member)
        task = asyncio.get_running_loop().create_task(coroutine)
        member.tasks[task] = work
        work.begun_at = now()
        task.add_done_callback(partial(self._end_work, member))

    def _end_work(self, member: Member, task: asyncio.Task[Answer]) -> None:
        """Updates the tables when an endpoint has ended its work on a trial, for whatever reason."""
        work = member.tasks.pop(task)
        if member.builds:
            self._building[work.target] -= 1
        member.host.alone -= member.alone
        member.host.shared -= not member.alone
        if not member.tasks:
            self._busy.discard(member)
        self._withdraw(member)
        member.free += 1
        if not member.departure.is_set():
            self._offer(member)
        self._forget_host(member.endpoint.host)
        try:
            self._settle(member, work, task)
        except Exception as error:  # an invalid answer; asyncio would only log it
            self._give_up(failure(f"{member} must answer or be lost", error))
        if not (self._wake_pending or self._is_closed):
            self._woken_up()  # at once: each turn of the loop costs as much

    def _settle(self, member: Member, work: Work, task: asyncio.Task[Answer]) -> None:
        """Decides from an endpoint's answer what is next for the trial."""
        error = None if task.cancelled() else task.exception()
        gone = member.departure.is_set() and isinstance(error, (EndpointLost, PoolError))
        if task.cancelled() or gone or isinstance(error, KeyboardInterrupt):  # which the loop's runner has seen
            self._requeue(member, work, str(error or "") or "it was taken out of the fleet")
        elif isinstance(error, EndpointRefused):
            self._refuse(member, work, str(error))
        elif isinstance(error, EndpointLost):
            self.leave(member.endpoint)
            self._requeue(member, work, str(error))
        elif isinstance(error, PoolError):
            self._unfit(member, work, error)
        elif isinstance(error, Exception):
            self._give_up(failure(f"{member} must answer or be lost", error))
        elif error is not None:
            raise error
        elif not work.forgotten:
            self._handle_answer(member, work, task.result())

    def _handle_answer(self, member: Member, work: Work, answer: Answer) -> None:
        try:
            result = self._judge(member, work, answer, now() - work.begun_at)
        except OutcomeError as error:
            self._refuse(member, work, str(error))
            return
        if result is None:
            self._run_queues[work.target].append(work)
        else:
            self._best.add(result)
            self._report(result)

    def _requeue(self, member: Member, work: Work, why: str) -> None:
        """Queues a trial again, in front, unless it was lost with too many machines."""
        if work.forgotten:
            return
        work.losses += 1
        self._last_loss = f"{member} was lost: {why}"
        log.warning("%s, with trial %d", self._last_loss, work.index)
        if work.losses < LOSSES:
            (self._waiting if member.builds else self._run_queues)[work.target].appendleft(work)
            return
        message = f"{work.losses} machines were lost with this trial; the last one: {member}: {why}"
        lost = {"error": ErrorClass.lost, "message": message[:MOST_TEXT]}
        self._report(read_result(work, lost, built=member.builds, host=member.description))

    def _refuse(self, member: Member, work: Work, why: str) -> None:
        """Removes an endpoint with an invalid answer for good, without counting a loss of the trial."""
        self._refused_names.add(member.endpoint.name)
        work.losses -= 1
        sentence = f"what it says of a trial must be possible, but {why}; it is given nothing more in this run"
        self._unfit(member, work, PoolError(f"{member}: {sentence}"), sentence)

    def _unfit(self, member: Member, work: Work, error: PoolError, why: str = "") -> None:
        """Removes an endpoint that cannot work; the pool fails if it was the last one for the trial."""
        self.leave(member.endpoint)
        others = [other for other in self._members.values() if other.builds == member.builds]
        if not any(work.target in other.targets for other in others):
            self._give_up(error)
            return
        self._requeue(member, work, why or str(error))

    # Assignment of work

    def _wake(self) -> None:
        if not self._wake_pending and not self._is_closed:
            self._wake_pending = True
            asyncio.get_running_loop().call_soon(self._woken_up)

    def _woken_up(self) -> None:
        self._wake_pending = False
        try:
            self._start_work()
        except Exception as error:  # an invalid endpoint; asyncio would only log it
            self._give_up(failure("an endpoint must be a builder or a device", error))

    def _start_work(self) -> None:
        """Starts all work that can be started."""
        if self._has_changed:
            self._has_changed = False
            self._contended_hosts = [host for host in self._hosts.values() if host.is_contended]
            self.capacity = self._find_capacity()
        for host in self._contended_hosts:
            self._choose_phase(host)
        self._assign(self._run_queues, self._free_device)
        self._assign(self._waiting, self._free_builder)
        self._watch()

    def _assign(self, queues: dict[str, deque[Work]], find: Callable[[str], Member | None]) -> None:
        """Assigns the queues' trials, in the order of submission."""
        served = {target for target, queue in queues.items() if queue}
        while served:
            target = min(served, key=lambda target: queues[target][0].index)
            member = find(target)
            if member is not None:
                self._begin(member, queues[target].popleft())
            if member is None or not queues[target]:
                served.remove(target)

    def _free_device(self, target: str) -> Member | None:
        return next((member for member in self._free[False][target] if member.host.admits(member)), None)

    def _free_builder(self, target: str) -> Member | None:
        """Returns a free builder, preferably on a host where it delays no timing."""
        if not self._room(target):
            return None
        second = None
        for member in self._free[True][target]:
            if member.host.admits(member):
                if not member.host.is_contended:
                    return member
                second = second or member
        return second

    def _room(self, target: str) -> bool:
        """Tells whether more trials should be built: built ones wait only up to the limit of `FleetSettings.batch`."""
        ahead = len(self._run_queues[target]) + self._building[target]
        return ahead < max(self.settings.batch, self._devices[target])

    def _choose_phase(self, host: Host) -> None:
        """Alternates builds and timings on a host, in batches: each change waits for what is under way."""
        ready = any(self._run_queues[target] for member in host.members if member.alone for target in member.targets)
        spent = host.begun_count >= self.settings.batch
        if host.phase == "shared":
            if ready and (spent or not self._can_build(host)):
                host.enter("alone")
        elif not host.alone and (not ready or (spent and self._is_needed(host))):
            host.enter("shared")

    def _can_build(self, host: Host) -> bool:
        targets = {target for member in host.members if member.builds for target in member.targets}
        return any(self._waiting[target] and self._room(target) for target in targets)

    def _is_needed(self, host: Host) -> bool:
        """Tells whether queued trials need work that a host cannot do beside its timings."""
        for member in host.members:
            if not member.alone and not member.builds and any(self._run_queues[target] for target in member.targets):
                return True
        if not self._can_build(host):
            return False
        elsewhere = {
            target
            for member in self._members.values()
            if member.builds and member.host is not host
            if not (member.host.is_contended and member.host.phase == "alone")
            for target in member.targets
        }
        here = {target for member in host.members if member.builds for target in member.targets}
        return any(self._waiting[target] and target not in elsewhere for target in here)

    # Detection of missing machines

    def _watch(self) -> None:
        """Sets the timer while trials wait and no work is under way, which is only possible if a machine is missing."""
        queued = any(self._waiting.values()) or any(self._run_queues.values())
        if self._busy or not queued or self._is_closed:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        elif not self._providers:
            self._give_up(self._want("now that no provider is left to bring one"))
        elif self._timer is None:
            soon = min(NOTICE_SECONDS, self.settings.start_timeout)
            self._timer = asyncio.get_running_loop().call_later(soon, self._notify)

    def _notify(self) -> None:
        """Reports in the log which machine is missing, and goes on waiting."""
        limit = self.settings.start_timeout
        if limit > NOTICE_SECONDS:
            role, target, joined = self._missing(" so far")
            log.warning("waiting for a %s for target=%r, at most %g s; there is %s", role, target, limit, joined)
        self._timer = asyncio.get_running_loop().call_later(max(0.0, limit - NOTICE_SECONDS), self._timed_out)

    def _timed_out(self) -> None:
        self._give_up(self._want(f"within {self.settings.start_timeout:g} s"))

    def _missing(self, until: str = "") -> tuple[str, str, str]:
        """Returns role and target of the missing machine, and a text on joined machines (`until`) and lacks."""
        role, target = next(
            (role, target)
            for role, queues in (("builder", self._waiting), ("device", self._run_queues))
            for target, queue in queues.items()
            if queue and (role == "device" or self._room(target))
        )  # such a queue exists: work of all others would have started
        joined = ", ".join(map(str, self._members.values())) or "none at all"
        return role, target, "; ".join([joined + until, *self.lacks.values()])

    def _want(self, when: str) -> PoolError:
        """Makes an error that says which machine is missing."""
        role, target, joined = self._missing()
        lost = f"; {self._last_loss}" if self._last_loss else ""
        return PoolError(f"the fleet must have a {role} for target={target!r} {when}, but got {joined}{lost}")

    def _give_up(self, error: PoolError) -> None:
        if not self._is_closed:
            self._fail(error)

    def _find_capacity(self) -> int:
        devices = [member for member in self._members.values() if not member.builds and member.targets]
        if all(member.alone and member.endpoint.host == machine_name() for member in devices):
            return 1
        slots = sum(cast(BuildEndpoint, member.endpoint).slots for member in self._members.values() if member.builds)
        return 2 * len(devices) + slots

    def _offer(self, member: Member) -> None:
        if member.free:
            for target in member.targets:
                self._free[member.builds][target][member] = None

    def _withdraw(self, member: Member) -> None:
        for target in member.targets:
            self._free[member.builds][target].pop(member, None)

    def _forget_host(self, name: str) -> None:
        host = self._hosts.get(name)
        if host is not None and not host.members and host.idle:
            del self._hosts[name]

    def _provider_ended(self, task: asyncio.Task[None]) -> None:
        self._providers.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._give_up(failure("a provider must go on", error))
        self._wake()

    async def _close_endpoint(self, endpoint: BuildEndpoint | Device) -> None:
        try:
            await endpoint.close()
        except EndpointLost as error:
            log.info("%s was gone before it was closed: %s", endpoint.name, error)
        except Exception:  # nothing depends on it any more, so a warning is enough
            log.warning("closing %s failed", endpoint.name, exc_info=True)
