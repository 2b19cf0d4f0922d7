"""Schedule of every kernel of a network: the fastest of its records, or the roofline's choice, made side by side.

The processes that choose schedules then build the kernels.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from multiprocessing.connection import Connection
from typing import Any

from autotune.cache.kernels import KernelCache
from autotune.config import ConfigError, Measure
from autotune.executable.schedule import Kernel, OpenKernel, Schedule, kernel_of, module_of
from autotune.graph.offload import is_offloaded, tuned_as
from autotune.network.crew import Answer, Crew
from autotune.network.selection import Chosen, Limits
from autotune.tuning.settings import Settings
from autotune.tuning.task import Task
from autotune.tuning.untimed import by_roofline
from measure.host import allowed_cores, end_with
from measure.wire import pack, unpack
from measure.worker import GARBAGE
from search_space.hardware import Hardware
from search_space.schedule.errors import ScheduleError
from search_space.schedule.trace import Trace
from search_space.workloads import Workload
from targets import registry
from targets.base import BuildError, Module

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
        self._crew: Crew | None = None
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
        if len(missing) < FEWEST or len(allowed_cores()) < 2:
            return  # they are made when they are asked for
        tasks = [self._task(workload) for workload in missing]
        crew = self._helpers(len(tasks), tasks)
        requests = [
            {"what": "choose", "workload": task.workload.to_json(), "target": task.target or ""} for task in tasks
        ]
        longest = sorted(range(len(tasks)), key=lambda i: -tasks[i].workload.flops)
        for workload, answer in zip(missing, crew.ask(requests, longest), strict=True):
            self._keep(workload, _chosen(answer))

    def built(self, kernels: Sequence[Kernel | OpenKernel]) -> Iterator[Module]:
        """Modules of kernels, in this order, each as soon as it is built; by the processes that chose, if any did.

        They are the same that `module_of` makes one by one.

        Raises:
            BuildError, ScheduleError: a kernel that cannot be built.
            RuntimeError: a process ended, or met a bug.
        """
        target = registry.get(self._settings.target.name)  # as processes know it
        if self._crew is None:
            yield from (module_of(kernel, target) for kernel in kernels)
            return
        requests = [{"what": "build", **kernel.to_json()} for kernel in kernels]
        for kernel, (header, code) in zip(kernels, self._crew.ask(requests, ahead=2), strict=True):
            yield module_of(kernel, target) if "refused" in header else Module.from_bytes(code)

    def close(self) -> None:
        """Ends the processes, of which the next that is asked for starts others."""
        if self._crew is not None:
            self._crew.close()
            self._crew = None

    def _helpers(self, most: int, tasks: Sequence[Task] = ()) -> Crew:
        """At most so many processes, for targets of tasks besides that of the settings; those there are, if any are."""
        if self._crew is None:
            settings = self._settings
            targets = {of.name: of for of in (settings.target, *(settings.of(task).target for task in tasks))}
            options = {
                **_depends(settings, self._limits),
                "target": settings.target.name,
                "hardware": {name: target.hardware.to_json() for name, target in targets.items()},
            }
            self._crew = Crew(options, __name__, most)
        return self._crew

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


def _chosen(answer: Answer) -> Estimated:
    header, _ = answer
    if "refused" in header:
        raise ConfigError(header["refused"])
    return Schedule(header["algorithm"], Trace.from_json(header["trace"])), float(header["seconds"])


def main() -> None:
    """Answers requests for schedules and for kernels until the parent hangs up."""
    options = json.loads(sys.argv[1])
    end_with(options["parent"])
    gc.set_threshold(GARBAGE)
    connection: Connection[Any, Any] = Connection(options["descriptor"])
    limited = options["limited"]
    limits = Limits(**{**options["limits"], "hardware": None if limited is None else Hardware.from_json(limited)})
    hardware = {name: Hardware.from_json(data) for name, data in options["hardware"].items()}
    measure = Measure(**options["measure"])
    settings = Settings(registry.get(options["target"]), seed=options["seed"], measure=measure)

    def choose(request: dict[str, Any]) -> Answer:
        task = Task("kernel", Workload.from_json(request["workload"]), target=request["target"] or None)
        made, seconds = _choice(task, settings, limits, hardware[settings.of(task).target.name])
        return {"algorithm": made.algorithm, "trace": made.trace.to_json(), "seconds": seconds}, b""

    def build(request: dict[str, Any]) -> Answer:
        return {}, module_of(kernel_of(request), settings.target).to_bytes()

    while True:
        try:
            request, _ = unpack(connection.recv_bytes())
        except EOFError:
            return
        try:
            header, code = (build if request["what"] == "build" else choose)(request)
        except (ConfigError, BuildError, ScheduleError) as error:
            header, code = {"refused": str(error)}, b""
        connection.send_bytes(pack(header, code))
