"""Schedules of the kernels of a network: the fastest of the records, or choices without trials, made side by side.

The processes that choose schedules then build the kernels.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from autotune.cache.kernels import KernelCache, symbol_of
from autotune.config import ConfigError, Measure, Model, Search
from autotune.graph.offload import is_offloaded, tuned_as
from autotune.network.crew import Answer, Crew
from autotune.network.selection import Chosen, Limits, extra_bytes
from autotune.schedule import Kernel, OpenKernel, Schedule, kernel_of, module_of
from autotune.tuning.settings import Settings
from autotune.tuning.task import Task
from costmodel.pretrained import digest_of
from measure.child_main import answer_requests, open_parent
from measure.host import allowed_cores
from measure.worker import GARBAGE
from search_space.hardware import Hardware
from search_space.schedule.errors import ScheduleError
from search_space.schedule.trace import Trace
from search_space.workloads import Workload
from targets import registry
from targets.base import BuildError, Module, Target

Estimated = tuple[Schedule, float]
"""A schedule and its seconds by the roofline."""

FEWEST = 8
"""Schedules for which it pays to start processes, which takes them a second."""


class Schedules:
    """Schedules of workloads: the fastest of the records; without records the database's, else the pretrained model's.

    Args:
        best: as `select` gives them.
        settings: of the run, for those without records.
        limits: for those without records.
        device: target of the workloads that an accelerator computes.
        cache: of choices that were made before, and kernels; None: all are made.
        crew: processes to choose and to build, which `close` ends; None: they are started when there is much to do.

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
        crew: Crew | None = None,
    ) -> None:
        self._best, self._settings, self._limits, self._device = best, settings, limits or Limits(), device
        self._made: dict[str, Estimated] = {}
        self._modules: dict[str, Module] = {}  # by name, of kernels that were built to be chosen
        self._crew = crew
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
        """Seconds that the roofline estimates for the choice of a workload without records."""
        self(workload)
        return self._made[tuned_as(workload).key][1]

    def of_tasks(self, tasks: Sequence[Task]) -> dict[str, Estimated]:
        """Schedule of each task and its seconds, of its records or by the roofline, by the workload's key."""
        for task in tasks:
            self(task.workload)
        return {key: self._best.get(key) or self._made[key] for key in (task.workload.key for task in tasks)}

    def prepare(
        self, workloads: Sequence[Workload], then: Callable[[Workload, Module], None] = lambda workload, module: None
    ) -> None:
        """Makes the schedules of all workloads that have none; of many at once by a process on each core.

        They are the same that `__call__` makes one by one.

        Args:
            workloads: for which schedules will be asked.
            then: called, while processes go on, with each workload whose kernel has been built to be chosen, if nothing
                can change the choice any more, as `keep_within` may.

        Raises:
            ConfigError: a workload without a legal candidate.
            RuntimeError: a process ended, or met a bug.
        """
        known = {tuned.key: tuned for tuned in map(tuned_as, workloads)}
        missing = [w for key, w in known.items() if key not in self._best and key not in self._made]
        missing = [workload for workload in missing if not self._known(workload)]
        if self._crew is None and (len(missing) < FEWEST or len(allowed_cores()) < 2):
            return  # they are made when they are asked for
        missing.sort(key=lambda workload: -workload.flops)  # those that take longest
        tasks = [self._task(workload) for workload in missing]
        if self._crew is None:
            targets = [self._settings.target, *(self._settings.of(task).target for task in tasks)]
            self._crew = helpers(self._settings, self._limits, targets, len(tasks))
        requests = [
            {"what": "choose", "workload": task.workload.to_json(), "target": task.target or ""} for task in tasks
        ]
        for workload, answer in zip(missing, self._crew.ask(requests, ahead=2), strict=True):
            found = _chosen(answer)
            self._keep(workload, found)
            if found.module is not None and self._limits.max_extra_bytes is None:
                then(workload, found.module)

    def keep_within(self, workloads: Sequence[Workload]) -> None:
        """Holds what algorithms make of constants, of all these workloads together, to the bytes that limits allow.

        Those that lose least time for each byte, by the estimate, go without such an algorithm, one by one. Schedules
        of records, which `select` has held to it, stay.
        """
        most = self._limits.max_extra_bytes
        if most is None:
            return
        counts = Counter(tuned_as(workload).key for workload in workloads)
        known = {tuned.key: tuned for tuned in map(tuned_as, workloads)}
        extra = {key: counts[key] * extra_bytes(each, self(each).algorithm) for key, each in known.items()}
        found = {key: self._plain(known[key]) for key in extra if extra[key] > 0 and key not in self._best}
        lost = {key: counts[key] * (plain[1] - self._made[key][1]) / extra[key] for key, plain in found.items()}
        for key in sorted(found, key=lambda key: (lost[key], key)):
            if sum(extra.values()) <= most:
                return
            self._made[key] = found[key]
            extra[key] = 0

    def _plain(self, workload: Workload) -> Estimated:
        """The choice among algorithms that take constants as they are."""
        allowed = self._limits.allowed(workload)
        plain = [algorithm for algorithm in allowed if not extra_bytes(workload, algorithm)]
        return _choice(self._task(workload), self._settings, replace(self._limits, algorithms=plain)).made

    def built(self, kernels: Sequence[Kernel | OpenKernel]) -> Iterator[Module]:
        """Modules of kernels, in this order, each as soon as it is built; by the processes that chose, if any did.

        They are the same that `module_of` makes one by one.

        Raises:
            BuildError, ScheduleError: a kernel that cannot be built.
            RuntimeError: a process ended, or met a bug.
        """
        target = registry.get(self._settings.target.name)  # as processes know it
        missing = [kernel for kernel in kernels if kernel.name not in self._modules]
        if self._crew is None:
            yield from (self._modules.get(kernel.name) or module_of(kernel, target) for kernel in kernels)
            return
        answers = self._crew.ask([{"what": "build", **kernel.to_json()} for kernel in missing], ahead=2)
        for kernel in kernels:
            if kernel.name in self._modules:
                yield self._modules[kernel.name]
                continue
            header, code = next(answers)
            yield module_of(kernel, target) if "refused" in header else Module.from_bytes(code)

    def close(self) -> None:
        """Ends the processes, of which the next that is asked for starts others; forgets what they have built."""
        self._modules.clear()
        if self._crew is not None:
            self._crew.close()
            self._crew = None

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

    def _keep(self, workload: Workload, found: _Found) -> None:
        made = self._made[workload.key] = found.made
        if found.module is not None:
            self._modules[found.module.name] = found.module
        key = self._key(workload)
        if key is not None and self.cache is not None:
            self.cache.keep_choice(key, *made)

    def _task(self, workload: Workload) -> Task:
        return Task(workload.operator, workload, target=self._device if is_offloaded(workload) else None)


def helpers(settings: Settings, limits: Limits, targets: Sequence[Target], most: int) -> Crew:
    """At most so many processes that choose schedules within limits, for some targets, and build kernels."""
    options = {
        **_depends(settings, limits),
        "target": settings.target.name,
        "hardware": {target.name: target.hardware.to_json() for target in targets},
    }
    return Crew(options, __name__, most)


@dataclass(frozen=True)
class _Found:
    """A choice, and its kernel where it was built to be chosen, under the name that networks know it by."""

    made: Estimated
    module: Module | None = None


def _choice(task: Task, settings: Settings, limits: Limits, hardware: Hardware | None = None) -> _Found:
    from autotune.tuning.untimed import without_trials  # where the cache has all choices, nobody waits for it

    workload, target = task.workload, settings.of(task).target
    if (known := _known_before(task, settings, limits, hardware)) is not None:
        return known

    def named(algorithm: str, trace: Trace) -> str | None:
        return symbol_of(workload, Schedule(algorithm, trace), {}, target)

    found = without_trials(task, settings, limits.allowed(workload), hardware=hardware, named=named)
    return _Found((Schedule(found.algorithm, found.trace), found.seconds), found.module)


def _known_before(task: Task, settings: Settings, limits: Limits, hardware: Hardware | None) -> _Found | None:
    """The schedule that the database has for this very workload, processor, threads and caches."""
    from autotune.database import open_schedules

    database = open_schedules(settings.search.database)
    if not len(database):
        return None
    from autotune.tuning.starts import exact_start  # it knows spaces, which take a while to import

    found = exact_start(database, task, settings.of(task), limits.allowed(task.workload), hardware)
    return None if found is None else _Found((Schedule(found.algorithm, found.trace), found.seconds))


def _depends(settings: Settings, limits: Limits) -> dict[str, Any]:
    """What a choice depends on besides the workload, the target and its hardware, as plain data."""
    from autotune import database

    return {
        "database": [settings.search.database, database.digest_of(settings.search.database)],
        "pretrained": [settings.cost_model.pretrained, digest_of(settings.cost_model.pretrained)],
        "seed": settings.seed,
        "measure": {"threads": settings.threads, "cache": settings.measure.cache},
        "limits": asdict(replace(limits, hardware=None)),
        "limited": None if limits.hardware is None else limits.hardware.to_json(),
    }


def _chosen(answer: Answer) -> _Found:
    header, code = answer
    if "refused" in header:
        raise ConfigError(header["refused"])
    made = Schedule(header["algorithm"], Trace.from_json(header["trace"])), float(header["seconds"])
    return _Found(made, Module.from_bytes(code) if code else None)


def main() -> None:
    """Answers requests for schedules and for kernels until the parent hangs up."""
    options, channel = open_parent()
    gc.set_threshold(GARBAGE)
    limited = options["limited"]
    limits = Limits(**{**options["limits"], "hardware": None if limited is None else Hardware.from_json(limited)})
    hardware = {name: Hardware.from_json(data) for name, data in options["hardware"].items()}
    measure = Measure(**options["measure"])
    search, model = Search(database=options["database"][0]), Model(pretrained=options["pretrained"][0])
    settings = Settings(registry.get(options["target"]), 0, options["seed"], search, model, measure)

    def choose(request: dict[str, Any]) -> Answer:
        task = Task("kernel", Workload.from_json(request["workload"]), target=request["target"] or None)
        found = _choice(task, settings, limits, hardware[settings.of(task).target.name])
        made, seconds = found.made
        header = {"algorithm": made.algorithm, "trace": made.trace.to_json(), "seconds": seconds}
        return header, b"" if found.module is None else found.module.to_bytes()

    def build(request: dict[str, Any]) -> Answer:
        return {}, module_of(kernel_of(request), settings.target).to_bytes()

    def answer(request: dict[str, Any], blob: bytes) -> Answer:
        return (build if request["what"] == "build" else choose)(request)

    answer_requests(channel, answer, (ConfigError, BuildError, ScheduleError))
