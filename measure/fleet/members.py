"""State of a fleet: its members, which are endpoints with their work, and the hosts that they share."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from measure.fleet.endpoint import BuildEndpoint, Device
from measure.pool import Trial

Phase = Literal["shared", "alone"]


@dataclass(eq=False)
class Work:
    """A trial on its way through the fleet.

    Attributes:
        index: position in the order of submission.
        trial: the trial.
        target: name by which endpoints list the target; if empty, the trial's target without its variant.
        module: machine code, once the trial is built.
        build_span: start and end of the build, monotonic seconds.
        losses: number of machines that disappeared before they answered.
        forgotten: whether the submitter has cancelled the trial.
        begun_at: time when an endpoint was last given the trial, see `measure.fleet.validation.now`.
    """

    index: int
    trial: Trial
    target: str = ""
    module: bytes = b""
    build_span: tuple[float, float] | None = None
    losses: int = 0
    forgotten: bool = False
    begun_at: float = 0.0

    def __post_init__(self) -> None:
        self.target = self.target or self.trial.target.partition(":")[0]


class Host:
    """A machine: either builds and simulators share it, or one timing has it alone.

    Attributes:
        members: the endpoints on it.
        is_contended: whether builds and timings have to alternate on it.
        phase: kind of work that may start now; matters on contended hosts.
        begun_count: pieces of work begun in this phase: timings while it is "alone", builds while it is "shared".
        shared: number of pieces of work under way that may run beside others.
        alone: number of timings under way that may not: 0 or 1.
    """

    def __init__(self) -> None:
        self.members: set[Member] = set()
        self.is_contended = False
        self.phase: Phase = "shared"
        self.begun_count = self.shared = self.alone = 0

    def add(self, member: Member) -> None:
        """Adds an endpoint that joins."""
        self.members.add(member)
        self._update()

    def remove(self, member: Member) -> None:
        """Removes an endpoint that leaves."""
        self.members.discard(member)
        self._update()

    @property
    def idle(self) -> bool:
        """Tells whether no work is under way."""
        return not self.shared and not self.alone

    def admits(self, member: Member) -> bool:
        """Tells whether a piece of work may start at `member` now."""
        if self.is_contended and (self.phase == "alone") != member.alone:
            return False
        return self.idle if member.alone else not self.alone

    def enter(self, phase: Phase) -> None:
        """Begins a phase; its work starts once work of the other kind that is under way has ended."""
        self.phase, self.begun_count = phase, 0

    def _update(self) -> None:
        self.is_contended = len(self.members) > 1 and any(member.alone for member in self.members)


@dataclass(eq=False)
class Member:
    """An endpoint in the fleet, and its work.

    Attributes:
        endpoint: builder or device.
        host: host that the endpoint is on.
        targets: names of targets that it accepts trials of.
        builds: whether it is a builder.
        alone: whether its work needs the host alone.
        free: number of pieces of work that it could take.
        tasks: work under way, by its task.
        departure: event that is set once it has left.
        description: description of a device, for the records.
    """

    endpoint: BuildEndpoint | Device
    host: Host
    targets: frozenset[str]
    builds: bool
    alone: bool
    free: int
    tasks: dict[asyncio.Task[Any], Work] = field(default_factory=dict)
    departure: asyncio.Event = field(default_factory=asyncio.Event)
    description: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        kind = "builder" if self.builds else "device"
        return f"{kind} {self.endpoint.name} ({', '.join(sorted(self.targets))})"


def make_member(endpoint: BuildEndpoint | Device, host: Host) -> Member:
    """Makes the state of an endpoint that joins."""
    targets = frozenset(endpoint.targets)
    if hasattr(endpoint, "build"):
        return Member(endpoint, host, targets, True, False, cast(BuildEndpoint, endpoint).slots)
    description = {**endpoint.description, "device": endpoint.name}
    return Member(endpoint, host, targets, False, endpoint.exclusive, 1, description=description)
