"""The scheduler of a fleet: gives trials to builders and devices that come and go, until each trial has its result.

One asyncio loop does it all, so there are no locks: whatever happens (trials come in, an endpoint joins, answers or is
lost) changes the tables and wakes `_start_work`, which starts whatever can be started.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

from measure.best import BestLatencies
from measure.errors import ErrorClass, OutcomeError, PoolError, failure
from measure.fleet.door import let_in, now
from measure.fleet.endpoint import Builder, Device, EndpointLost, EndpointRefused
from measure.fleet.seats import Host, Seat, Work, seat_of
from measure.host import machine_name
from measure.outcome import MOST_TEXT
from measure.patience import PATIENCE
from measure.pool import TrialResult
from measure.station import result_of
from measure.workplace import Answer

log = logging.getLogger(__name__)

LOSSES = 3
"""A trial that was lost with so many machines is given up: it may be what ends them."""


@dataclass(frozen=True)
class FleetSettings:
    """How a fleet is used.

    Attributes:
        batch: most trials of a target that are built and wait for a device, unless it has more devices; and most
            builds or timings on a host before the other kind has its turn.
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
    """Brings machines into a fleet."""

    async def provide(self, fleet: Fleet) -> None:
        """Makes endpoints join, and others in place of those that are lost, until it is cancelled.

        One that has no more to do may return. An exception ends the pool: whoever waits for results gets a `PoolError`
        with its sentence.
        """


class Fleet:
    """Endpoints and the trials they work on; used from within one event loop.

    Args:
        settings: see there.
        report: told every result, once for each trial.
        fail: told why the fleet cannot go on.

    Attributes:
        capacity: trials that keep it busy; 1 where all devices are timed on this very machine, as search would disturb.
    """

    def __init__(
        self, settings: FleetSettings, report: Callable[[TrialResult], None], fail: Callable[[PoolError], None]
    ) -> None:
        self.settings = settings
        self._report, self._fail = report, fail
        self._seats: dict[Builder | Device, Seat] = {}
        self._names: set[str] = set()
        self._refused: set[str] = set()  # names
        self._hosts: dict[str, Host] = {}
        self._free: dict[bool, dict[str, dict[Seat, None]]] = {  # whether it builds -> target -> in order of freeing
            builds: defaultdict(dict) for builds in (False, True)
        }
        self._waiting: dict[str, deque[Work]] = defaultdict(deque)  # target -> to be built
        self._built: dict[str, deque[Work]] = defaultdict(deque)  # target -> to be run
        self._building: Counter[str] = Counter()  # target -> builds under way
        self._devices: Counter[str] = Counter()  # target -> devices
        self._busy: set[Seat] = set()
        self._best = BestLatencies()
        self._background: set[asyncio.Task[None]] = set()
        self._providers: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._woken = self._closed = self._changed = False
        self._contended: list[Host] = []
        self.capacity = 1
        self._last_loss = ""
        self._news = asyncio.Event()
        self.wanted: frozenset[str] = frozenset()
        """Names of the targets that trials have had so far: machines for others need not be started."""

    def join(self, endpoint: Builder | Device) -> None:
        """Takes a machine in; it is given work from now on.

        Raises:
            ValueError: another endpoint in the fleet has its name.
        """
        if endpoint.name in self._names:
            raise ValueError(f"`name` must be unique in the fleet, but got name={endpoint.name!r} again")
        host = self._hosts.setdefault(endpoint.host, Host())
        seat = seat_of(endpoint, host)
        if self.refused(endpoint):
            seat.targets = frozenset()  # it may stay, and has no work
        host.add(seat)
        self._seats[endpoint] = seat
        self._names.add(endpoint.name)
        if not seat.builds:
            self._devices.update(seat.targets)
        self._offer(seat)
        self._changed = True
        log.info("%s joins", seat)
        self._wake()

    def leave(self, endpoint: Builder | Device) -> None:
        """Takes a machine out: what it does is given to another one, and it is closed. Nothing if it left before."""
        seat = self._seats.pop(endpoint, None)
        if seat is None:
            return
        log.info("%s leaves", seat)
        self._names.discard(endpoint.name)
        seat.host.remove(seat)
        if not seat.builds:
            self._devices.subtract(seat.targets)
        self._withdraw(seat)
        self._changed = True
        seat.gone.set()
        for task in seat.tasks:
            task.cancel()
        self._forget_host(endpoint.host)
        self._in_background(self._close_endpoint(endpoint))
        self._wake()

    async def left(self, endpoint: Builder | Device) -> None:
        """Waits until a machine has left, by `leave` or because it was lost; at once if it is not in the fleet."""
        if endpoint in self._seats:
            await self._seats[endpoint].gone.wait()

    def refused(self, endpoint: Builder | Device) -> bool:
        """Whether a machine of this name was not believed: it gets no more trials."""
        return endpoint.name in self._refused

    @property
    def endpoints(self) -> Sequence[Builder | Device]:
        """What is in the fleet now."""
        return tuple(self._seats)

    def start(self, providers: Iterable[Provider]) -> None:
        """Lets providers bring machines."""
        for provider in providers:
            task = asyncio.get_running_loop().create_task(provider.provide(self))
            self._providers.add(task)
            task.add_done_callback(self._provider_ended)

    def submit(self, works: Iterable[Work]) -> None:
        """Takes trials in."""
        before = self.wanted
        for work in works:
            self._waiting[_target(work)].append(work)
            self.wanted |= {_target(work)}
        if self.wanted != before:
            self._news.set()
            self._news = asyncio.Event()
        self._wake()

    async def news(self, timeout: float) -> None:
        """Waits until there is more in `wanted`, at most `timeout` seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), timeout)

    def cancel(self) -> None:
        """Forgets all trials; what is under way is told so by cancelling its coroutine."""
        self._waiting.clear()
        self._built.clear()
        for seat in self._busy:
            for task, work in seat.tasks.items():
                work.forgotten = True
                task.cancel()
        self._watch()

    async def close(self) -> None:
        """Ends providers and endpoints."""
        self._closed = True
        self.cancel()
        for task in self._providers:
            task.cancel()
        await self._wait_for(self._providers)  # until then endpoints may join
        for endpoint in list(self._seats):
            self.leave(endpoint)
        await self._wait_for(self._background)

    async def _wait_for(self, tasks: set[asyncio.Task[None]]) -> None:
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self.settings.close_timeout)
            for task in late:
                log.warning("%s did not end within %g s", task.get_coro(), self.settings.close_timeout)

    # What happens at an endpoint

    def _begin(self, seat: Seat, work: Work) -> None:
        """Gives a trial to an endpoint."""
        if seat.builds:
            self._building[_target(work)] += 1
            coroutine = cast(Builder, seat.endpoint).build(work.trial)
        else:
            device = cast(Device, seat.endpoint)
            coroutine = device.run(work.trial, work.module, self._best.limit(work.trial))
        self._withdraw(seat)
        seat.free -= 1
        self._offer(seat)
        host = seat.host
        host.alone += seat.alone
        host.shared += not seat.alone
        host.begun += seat.alone or seat.builds
        self._busy.add(seat)
        task = asyncio.get_running_loop().create_task(coroutine)
        seat.tasks[task] = work
        work.begun = now()
        task.add_done_callback(partial(self._ended, seat))

    def _ended(self, seat: Seat, task: asyncio.Task[Answer]) -> None:
        """Takes note that an endpoint is done with a trial, one way or another."""
        work = seat.tasks.pop(task)
        if seat.builds:
            self._building[_target(work)] -= 1
        seat.host.alone -= seat.alone
        seat.host.shared -= not seat.alone
        if not seat.tasks:
            self._busy.discard(seat)
        self._withdraw(seat)
        seat.free += 1
        if not seat.gone.is_set():
            self._offer(seat)
        self._forget_host(seat.endpoint.host)
        self._wake()
        try:
            self._settle(seat, work, task)
        except Exception as error:  # an answer that is none; in a callback it would go unseen
            self._broken(seat, error)

    def _settle(self, seat: Seat, work: Work, task: asyncio.Task[Answer]) -> None:
        """Makes of an endpoint's answer what comes next for the trial."""
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or (seat.gone.is_set() and isinstance(error, (EndpointLost, PoolError))):
            self._lost(seat, work, str(error or "it was taken out of the fleet"))
        elif isinstance(error, EndpointRefused):
            self._refuse(seat, work, str(error))
        elif isinstance(error, EndpointLost):
            self.leave(seat.endpoint)
            self._lost(seat, work, str(error))
        elif isinstance(error, PoolError):
            self._unfit(seat, work, error)
        elif isinstance(error, Exception):
            self._broken(seat, error)
        elif error is not None:
            raise error
        elif not work.forgotten:
            self._answered(seat, work, task.result())

    def _answered(self, seat: Seat, work: Work, answer: Answer) -> None:
        try:
            result = let_in(seat, work, answer, now() - work.begun)
        except OutcomeError as error:
            self._refuse(seat, work, str(error))
            return
        if result is None:
            self._built[_target(work)].append(work)
            return
        self._best.add(result)
        self._report(result)

    def _lost(self, seat: Seat, work: Work, why: str) -> None:
        """Queues a trial again, in front, unless it has cost too many machines."""
        if work.forgotten:
            return
        work.losses += 1
        self._last_loss = f"{seat} was lost: {why}"
        log.warning("%s, with trial %d", self._last_loss, work.index)
        if work.losses < LOSSES:
            (self._waiting if seat.builds else self._built)[_target(work)].appendleft(work)
            return
        message = f"{work.losses} machines were lost with this trial; the last one: {seat}: {why}"
        lost = {"error": ErrorClass.lost, "message": message[:MOST_TEXT]}
        self._report(result_of(work, lost, built=seat.builds, host=seat.description))

    def _refuse(self, seat: Seat, work: Work, why: str) -> None:
        """An endpoint that is not to be believed leaves for good; the trial is not to blame, however many it meets."""
        self._refused.add(seat.endpoint.name)
        work.losses -= 1
        told = f"what it says of a trial must be possible, but {why}; it is given nothing more in this run"
        self._unfit(seat, work, PoolError(f"{seat}: {told}"), told)

    def _unfit(self, seat: Seat, work: Work, error: PoolError, why: str = "") -> None:
        """An endpoint that cannot work leaves; if it was the last of its kind the user has to know."""
        self.leave(seat.endpoint)
        others = [other for other in self._seats.values() if other.builds == seat.builds]
        if not any(_target(work) in other.targets for other in others):
            self._give_up(error)
        self._lost(seat, work, why or str(error))

    def _broken(self, seat: Seat, error: Exception) -> None:
        self._give_up(failure(f"{seat} must answer or be lost", error))

    # What is next

    def _wake(self) -> None:
        if not self._woken and not self._closed:
            self._woken = True
            asyncio.get_running_loop().call_soon(self._woken_up)

    def _woken_up(self) -> None:
        self._woken = False
        try:
            self._start_work()
        except Exception as error:  # an endpoint that is none; in a callback it would go unseen
            self._give_up(failure("an endpoint must be a builder or a device", error))

    def _start_work(self) -> None:
        """Starts all that can be started."""
        if self._changed:
            self._changed = False
            self._contended = [host for host in self._hosts.values() if host.contended]
            self.capacity = self._find_capacity()
        for host in self._contended:
            self._choose_phase(host)
        self._assign(self._built, self._free_device)
        self._assign(self._waiting, self._free_builder)
        self._watch()

    def _assign(self, queues: dict[str, deque[Work]], find: Callable[[str], Seat | None]) -> None:
        """Gives the queues' trials away, in the order of submission."""
        served = {target for target, queue in queues.items() if queue}
        while served:
            target = min(served, key=lambda target: queues[target][0].index)
            seat = find(target)
            if seat is not None:
                self._begin(seat, queues[target].popleft())
            if seat is None or not queues[target]:
                served.remove(target)

    def _free_device(self, target: str) -> Seat | None:
        return next((seat for seat in self._free[False][target] if seat.host.admits(seat)), None)

    def _free_builder(self, target: str) -> Seat | None:
        """A builder that has room, rather one on a host where it keeps no timing waiting."""
        if not self._room(target):
            return None
        second = None
        for seat in self._free[True][target]:
            if seat.host.admits(seat):
                if not seat.host.contended:
                    return seat
                second = second or seat
        return second

    def _room(self, target: str) -> bool:
        """Whether more should be built."""
        ahead = len(self._built[target]) + self._building[target]
        return ahead < max(self.settings.batch, self._devices[target])

    def _choose_phase(self, host: Host) -> None:
        """Lets builds and timings take turns on a host, in batches: each change waits for what is under way."""
        ready = any(self._built[target] for seat in host.seats if seat.alone for target in seat.targets)
        spent = host.begun >= self.settings.batch
        if host.phase == "shared":
            if ready and (spent or not self._can_build(host)):
                host.enter("alone")
        elif not host.alone and (not ready or (spent and self._is_needed(host))):
            host.enter("shared")

    def _can_build(self, host: Host) -> bool:
        targets = {target for seat in host.seats if seat.builds for target in seat.targets}
        return any(self._waiting[target] and self._room(target) for target in targets)

    def _is_needed(self, host: Host) -> bool:
        """Whether something waits for the work that cannot go on beside timings of this host."""
        for seat in host.seats:
            if not seat.alone and not seat.builds and any(self._built[target] for target in seat.targets):
                return True
        if not self._can_build(host):
            return False
        elsewhere = {
            target
            for seat in self._seats.values()
            if seat.builds and seat.host is not host and not (seat.host.contended and seat.host.phase == "alone")
            for target in seat.targets
        }
        here = {target for seat in host.seats if seat.builds for target in seat.targets}
        return any(self._waiting[target] and target not in elsewhere for target in here)

    # Whether it goes on at all

    def _watch(self) -> None:
        """Sets the timer while trials wait and nothing goes on, which can only be for want of a machine."""
        queued = any(self._waiting.values()) or any(self._built.values())
        if self._busy or not queued or self._closed:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        elif not self._providers:
            self._give_up(self._want("now that no provider is left to bring one"))
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(min(PATIENCE, self.settings.start_timeout), self._tell)

    def _tell(self) -> None:
        """Says which machine is waited for, and goes on waiting."""
        limit = self.settings.start_timeout
        if limit > PATIENCE:
            role, target, joined = self._missing()
            log.warning("waiting for a %s for target=%r, at most %g s; there is %s so far", role, target, limit, joined)
        self._timer = asyncio.get_running_loop().call_later(max(0.0, limit - PATIENCE), self._timed_out)

    def _timed_out(self) -> None:
        self._give_up(self._want(f"within {self.settings.start_timeout:g} s"))

    def _missing(self) -> tuple[str, str, str]:
        """What machine is missing: builder or device, for which target; and which have joined."""
        role, target = next(
            (role, target)
            for role, queues in (("builder", self._waiting), ("device", self._built))
            for target, queue in queues.items()
            if queue and (role == "device" or self._room(target))
        )  # there is one: all others would have been started
        return role, target, ", ".join(map(str, self._seats.values())) or "none at all"

    def _want(self, when: str) -> PoolError:
        """Says what machine is missing."""
        role, target, joined = self._missing()
        lost = f"; {self._last_loss}" if self._last_loss else ""
        return PoolError(f"the fleet must have a {role} for target={target!r} {when}, but got {joined}{lost}")

    def _give_up(self, error: PoolError) -> None:
        if not self._closed:
            self._fail(error)

    # Small parts

    def _find_capacity(self) -> int:
        devices = [seat for seat in self._seats.values() if not seat.builds and seat.targets]
        if all(seat.alone and seat.endpoint.host == machine_name() for seat in devices):
            return 1
        slots = sum(cast(Builder, seat.endpoint).slots for seat in self._seats.values() if seat.builds)
        return 2 * len(devices) + slots

    def _offer(self, seat: Seat) -> None:
        if seat.free:
            for target in seat.targets:
                self._free[seat.builds][target][seat] = None

    def _withdraw(self, seat: Seat) -> None:
        for target in seat.targets:
            self._free[seat.builds][target].pop(seat, None)

    def _forget_host(self, name: str) -> None:
        host = self._hosts.get(name)
        if host is not None and not host.seats and host.idle:
            del self._hosts[name]

    def _provider_ended(self, task: asyncio.Task[None]) -> None:
        self._providers.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._give_up(failure("a provider must go on", error))
        self._wake()

    def _in_background(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _close_endpoint(self, endpoint: Builder | Device) -> None:
        try:
            await endpoint.close()
        except EndpointLost as error:
            log.info("%s was gone before it was closed: %s", endpoint.name, error)
        except Exception:  # it has left: nothing depends on it any more, but the user may want to know
            log.warning("closing %s failed", endpoint.name, exc_info=True)


def _target(work: Work) -> str:
    """Name of a trial's target, without its variant."""
    return work.trial.target.partition(":")[0]
