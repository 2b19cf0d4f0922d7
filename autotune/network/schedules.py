"""Schedule of every kernel of a network: the fastest of its records, or the roofline's choice, made side by side."""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from multiprocessing.connection import Connection, wait
from typing import Any

from autotune.cache.kernels import KernelCache
from autotune.config import ConfigError, Measure
from autotune.executable.schedule import Schedule
from autotune.graph.offload import is_offloaded, tuned_as
from autotune.network.selection import Chosen, Limits
from autotune.tuning.settings import Settings
from autotune.tuning.task import Task
from autotune.tuning.untimed import by_roofline
from measure.child import Child
from measure.host import allowed_cores, end_with
from measure.wire import pack, unpack
from measure.worker import GARBAGE
from search_space.hardware import Hardware
from search_space.schedule.trace import Trace
from search_space.workloads import Workload
from targets import registry

Estimated = tuple[Schedule, float]
"""A schedule and its seconds by the roofline."""

FEWEST = 8
"""Schedules for which it pays to start processes, which takes them a second."""


class Schedules:
    """Schedule of any workload: the fastest of its records, or what the roofline says where there are none.

    Args:
        best: as `select` gives them.
        settings: of the run, for those without records.
        limits: for those without records.
        device: target of the workloads that an accelerator computes.
        cache: of choices that were made before, and kernels; None: all are made.

    Attributes:
        cache: as given.
        untuned: keys of the workloads asked for that have no records.
    """

    def __init__(
        self,
        best: Chosen,
        settings: Settings,
        limits: Limits | None = None,
        device: str | None = None,
        cache: KernelCache | None = None,
    ) -> None:
        self._best, self._settings, self._limits, self._device = best, settings, limits or Limits(), device
        self._made: dict[str, Estimated] = {}
        self.cache = cache
        self.untuned: set[str] = set()

    def __call__(self, workload: Workload) -> Schedule:
        workload = tuned_as(workload)
        if workload.key in self._best:
            return self._best[workload.key][0]
        self.untuned.add(workload.key)
        if workload.key not in self._made and not self._known(workload):
            self._keep(workload, _choice(self._task(workload), self._settings, self._limits))
        return self._made[workload.key][0]

    def estimate(self, workload: Workload) -> float:
        """Seconds of the roofline's choice for a workload without records, by the roofline."""
        self(workload)
        return self._made[tuned_as(workload).key][1]

    def of_tasks(self, tasks: Sequence[Task]) -> dict[str, Estimated]:
        """Schedule of each task and its seconds, of its records or by the roofline, by the workload's key."""
        for task in tasks:
            self(task.workload)
        return {key: self._best.get(key) or self._made[key] for key in (task.workload.key for task in tasks)}

    def prepare(self, workloads: Sequence[Workload]) -> None:
        """Makes the schedules of all workloads that have none; of many at once by a process on each core.

        They are the same that `__call__` makes one by one.

        Raises:
            ConfigError: a workload without a legal candidate.
            RuntimeError: a process ended, or met a bug.
        """
        known = {tuned.key: tuned for tuned in map(tuned_as, workloads)}
        missing = [w for key, w in known.items() if key not in self._best and key not in self._made]
        missing = [workload for workload in missing if not self._known(workload)]
        processes = len(allowed_cores())
        if len(missing) < FEWEST or processes < 2:
            return  # they are made when they are asked for
        tasks = [self._task(workload) for workload in missing]
        made = _side_by_side(tasks, self._settings, self._limits, processes)
        for workload, estimated in zip(missing, made, strict=True):
            self._keep(workload, estimated)

    def _key(self, workload: Workload) -> str | None:
        """Of its choice in the cache."""
        if self.cache is None:
            return None
        settings = self._settings.of(self._task(workload))
        return self.cache.choice_key(workload, settings.target, _depends(settings, self._limits))

    def _known(self, workload: Workload) -> bool:
        """Takes a choice from the cache, if it is there."""
        key = self._key(workload)
        found = None if key is None or self.cache is None else self.cache.choice(key)
        if found is not None:
            self._made[workload.key] = found
        return found is not None

    def _keep(self, workload: Workload, made: Estimated) -> None:
        self._made[workload.key] = made
        key = self._key(workload)
        if key is not None and self.cache is not None:
            self.cache.keep_choice(key, *made)

    def _task(self, workload: Workload) -> Task:
        return Task(workload.operator, workload, target=self._device if is_offloaded(workload) else None)


def _choice(task: Task, settings: Settings, limits: Limits, hardware: Hardware | None = None) -> Estimated:
    found = by_roofline(task, settings, limits.allowed(task.workload), hardware=hardware)
    return Schedule(found.algorithm, found.trace), found.seconds


def _depends(settings: Settings, limits: Limits) -> dict[str, Any]:
    """What a choice depends on besides the workload, the target and its hardware, as plain data."""
    return {
        "seed": settings.seed,
        "measure": {"threads": settings.threads, "cache": settings.measure.cache},
        "limits": asdict(replace(limits, hardware=None)),
        "limited": None if limits.hardware is None else limits.hardware.to_json(),
    }


def _side_by_side(tasks: Sequence[Task], settings: Settings, limits: Limits, processes: int) -> list[Estimated]:
    """The roofline's choices for tasks, each made by the process that is free; those of most operations first."""
    targets = {of.name: of for of in (settings.of(task).target for task in tasks)}
    options = {
        **_depends(settings, limits),
        "target": settings.target.name,
        "hardware": {name: target.hardware.to_json() for name, target in targets.items()},
    }
    found: dict[int, Estimated] = {}
    todo = sorted(range(len(tasks)), key=lambda i: tasks[i].workload.flops)
    children: list[Child] = []
    working: dict[Connection[Any, Any], tuple[Child, int]] = {}

    def give(child: Child) -> None:
        if todo:
            number = todo.pop()
            child.send({"workload": tasks[number].workload.to_json(), "target": tasks[number].target})
            working[child.connection] = child, number

    try:
        for _ in range(min(processes, len(tasks))):
            children.append(Child({**options, "parent": os.getpid()}, __name__))
            give(children[-1])
        while working:
            ready = wait(list(working))
            for connection in [each for each in working if each in ready]:
                child, number = working.pop(connection)
                found[number] = _answer(child)
                give(child)
    finally:
        for child in children:
            child.close()
    return [found[number] for number in range(len(tasks))]


def _answer(child: Child) -> Estimated:
    message = child.receive()
    if message is None:
        _, death = child.death()
        raise RuntimeError(f"a process that chooses schedules must stay alive, but it {death.how}")
    header, _ = message
    if "refused" in header:
        raise ConfigError(header["refused"])
    return Schedule(header["algorithm"], Trace.from_json(header["trace"])), float(header["seconds"])


def main() -> None:
    """Answers requests for schedules until the parent hangs up."""
    options = json.loads(sys.argv[1])
    end_with(options["parent"])
    gc.set_threshold(GARBAGE)
    connection: Connection[Any, Any] = Connection(options["descriptor"])
    limited = options["limited"]
    limits = Limits(**{**options["limits"], "hardware": None if limited is None else Hardware.from_json(limited)})
    hardware = {name: Hardware.from_json(data) for name, data in options["hardware"].items()}
    measure = Measure(**options["measure"])
    settings = Settings(registry.get(options["target"]), seed=options["seed"], measure=measure)
    while True:
        try:
            request, _ = unpack(connection.recv_bytes())
        except EOFError:
            return
        task = Task("kernel", Workload.from_json(request["workload"]), target=request["target"])
        try:
            made, seconds = _choice(task, settings, limits, hardware[settings.of(task).target.name])
        except ConfigError as error:
            connection.send_bytes(pack({"refused": str(error)}))
        else:
            answer = {"algorithm": made.algorithm, "trace": made.trace.to_json(), "seconds": seconds}
            connection.send_bytes(pack(answer))
