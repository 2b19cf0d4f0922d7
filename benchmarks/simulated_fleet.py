"""A fleet of simulated machines, which are coroutines: they wait as long as a real one and answer from a table.

It tests the scheduler, and any search above it, at sizes for which there are no machines.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from measure.errors import ErrorClass, PoolError
from measure.fleet.scheduler import Fleet
from measure.pool import Trial
from measure.record import Record
from measure.supervisor import Answer

Latency = Callable[[Trial], float]
"""Seconds of a trial's kernel; NaN for one that fails."""


def make_latency(records: Iterable[Record]) -> Latency:
    """Makes the latency function of some records.

    Raises:
        PoolError: raised by the function, for a trial without a record.
    """
    table = {(record.workload_key, record.target, record.trace_key): record.seconds for record in records}

    def latency(trial: Trial) -> float:
        key = (trial.workload_key, trial.target, trial.trace_key)
        if key not in table:
            raise PoolError(
                f"`trial` must be in the table of {len(table)} records, but got trace_key={trial.trace_key}, "
                f"workload={trial.workload_key}"
            )
        return table[key]

    return latency


@dataclass(eq=False)
class SimulatedBuilder:
    """A builder of empty modules, `seconds` each; see `measure.fleet.endpoint.BuildEndpoint` for the rest."""

    name: str
    targets: frozenset[str]
    slots: int
    seconds: float
    host: str = "simulated builders"

    async def build(self, trial: Trial) -> Answer:
        start = time.monotonic()
        await asyncio.sleep(self.seconds)
        return Answer({"span": (start, time.monotonic())})

    async def close(self) -> None:
        """Does nothing."""


@dataclass(eq=False)
class SimulatedDevice:
    """A device that takes `seconds` for a trial and answers by `latency`; see `measure.fleet.endpoint.Device`.

    Attributes:
        busy_seconds: time that it has worked.
    """

    name: str
    targets: frozenset[str]
    latency: Latency
    seconds: float
    host: str = "simulated devices"
    exclusive: bool = False
    description: Mapping[str, Any] = field(default_factory=lambda: {"machine": "simulated"})
    busy_seconds: float = 0.0

    async def run(self, trial: Trial, module: bytes, best_seconds: float | None) -> Answer:
        seconds, start = self.latency(trial), time.monotonic()
        await asyncio.sleep(self.seconds)
        end = time.monotonic()
        self.busy_seconds += min(end - start, self.seconds)  # waking up late is no work
        header: dict[str, Any] = {"span": (start, end)}
        if math.isnan(seconds):
            return Answer({**header, "error": ErrorClass.unknown, "message": "failed in the replay table"})
        return Answer({**header, "latencies": (seconds,), "seconds": seconds, "spread": 0.0, "max_error": 0.0})

    async def close(self) -> None:
        """Does nothing."""


class SimulatedProvider:
    """A provider of simulated machines.

    Args:
        devices: number of devices.
        latency: latency function of a trial's kernel.
        seconds: wall time of a trial on a device.
        build_seconds: wall time of a build; there are enough builders for the devices.
        targets: targets of all machines.
    """

    def __init__(
        self,
        devices: int,
        latency: Latency,
        seconds: float = 1.0,
        build_seconds: float = 0.05,
        targets: Iterable[str] = ("cpu",),
    ) -> None:
        if devices < 1:
            raise ValueError(f"`devices` must be at least 1, but got devices={devices}")
        served = frozenset(targets)
        slots = 1 + math.ceil(2 * devices * build_seconds / seconds) if seconds > 0 else devices
        self.builder = SimulatedBuilder("simulated builder", served, slots, build_seconds)
        self.devices = [
            SimulatedDevice(f"simulated device {place}", served, latency, seconds) for place in range(devices)
        ]

    async def provide(self, fleet: Fleet) -> None:
        """Makes all join at once."""
        fleet.join(self.builder)
        for device in self.devices:
            fleet.join(device)
        await asyncio.Event().wait()
