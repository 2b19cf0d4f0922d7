"""Endpoints in this process that do what the trial's step says, and note down when."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from measure.errors import PoolError
from measure.fleet.endpoint import EndpointLost
from measure.fleet.scheduler import Fleet
from measure.pool import Trial
from measure.supervisor import Answer


@dataclass(frozen=True)
class Note:
    """A deed of an endpoint: start and end (monotonic seconds), trial, and how it `ending`."""

    name: str
    host: str
    deed: str  # build, run (needs the host alone) or simulate
    start: float
    end: float
    trial: Trial
    ending: str


@dataclass(eq=False)
class FakeEndpoint:
    """The common part of builders and devices.

    `faults` says by trial what goes wrong: nothing where it returns None, an exception that is raised.
    """

    name: str
    host: str = "here"
    targets: frozenset[str] = frozenset({"cpu"})
    seconds: float = 0.0
    notes: list[Note] = field(default_factory=list)
    faults: Callable[[Trial], BaseException | None] = lambda trial: None
    close_count: int = 0
    busy: int = 0
    most: int = 1
    turns: int = 0  # of the loop that a piece of work takes, besides the seconds

    async def work(self, deed: str, trial: Trial, seconds: float) -> Mapping[str, Any]:
        assert not self.close_count, f"{self.name} is closed"
        assert trial.target.partition(":")[0] in self.targets
        start, ended = time.monotonic(), "ok"
        self.busy += 1
        assert self.busy <= self.most, f"{self.name} has too much to do"
        try:
            await asyncio.sleep(seconds)
            for _ in range(self.turns):
                await asyncio.sleep(0)
            if (fault := self.faults(trial)) is not None:
                raise fault
        except BaseException as error:
            ended = type(error).__name__
            raise
        finally:
            self.busy -= 1
            self.notes.append(Note(self.name, self.host, deed, start, time.monotonic(), trial, ended))
        return {"span": [start, time.monotonic()]}

    async def close(self) -> None:
        self.close_count += 1


@dataclass(eq=False)
class FakeBuilder(FakeEndpoint):
    """A builder that takes `seconds`; the module is the trial's step."""

    slots: int = 1

    async def build(self, trial: Trial) -> Answer:
        self.most = self.slots
        header = await self.work("build", trial, self.seconds)
        step = trial.trace[0]
        if "build" in step:
            return Answer({**header, "error": step["build"], "message": "it does not compile"})
        return Answer(header, json.dumps(dict(step)).encode())


@dataclass(eq=False)
class FakeDevice(FakeEndpoint):
    """Runs in `seconds` and reports the step's latency."""

    exclusive: bool = True
    description: Mapping[str, Any] = field(default_factory=lambda: {"machine": "fake"})
    best_times: list[float | None] = field(default_factory=list)

    async def run(self, trial: Trial, module: bytes, best_seconds: float | None) -> Answer:
        self.best_times.append(best_seconds)
        step = json.loads(module)
        assert step == dict(trial.trace[0])
        header = await self.work("run" if self.exclusive else "simulate", trial, self.seconds)
        if "run" in step:
            return Answer({**header, "error": step["run"], "message": "it does not run"})
        seconds = step.get("seconds", 1e-3)
        return Answer({**header, "latencies": (seconds,), "seconds": seconds, "spread": 0.0, "max_error": 0.0})


class FixedProvider:
    """A provider of endpoints that are there from the beginning; it stays, unless told to return."""

    def __init__(self, *endpoints: Any, stays: bool = True) -> None:
        self.endpoints, self.stays = endpoints, stays

    async def provide(self, fleet: Fleet) -> None:
        for endpoint in self.endpoints:
            fleet.join(endpoint)
        if self.stays:
            await asyncio.Event().wait()


class Script:
    """A provider that does what a coroutine function says."""

    def __init__(self, script: Callable[[Fleet], Any]) -> None:
        self.script = script

    async def provide(self, fleet: Fleet) -> None:
        await self.script(fleet)


def make_lost(name: str = "it") -> EndpointLost:
    """The endpoint is gone."""
    return EndpointLost(f"{name} does not answer any more")


def unfit() -> PoolError:
    """The endpoint cannot work."""
    return PoolError("a run process must start, but was not ready after 60 s")


def overlaps(notes: Sequence[Note], host: str) -> list[tuple[Note, Note]]:
    """Pairs of a timing and something else at the same time on a host."""
    here = [note for note in notes if note.host == host]
    alone = [note for note in here if note.deed == "run"]
    return [(a, b) for a in alone for b in here if a is not b and a.start < b.end and b.start < a.end]
