"""Schedules of the kernels of a network: the fastest of the records, or choices without trials, made in parallel.

The processes that choose schedules then build the kernels.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from autotune.compiler.cache.kernels import ChoiceStore, KernelCache, symbol_name
from autotune.compiler.compile_workers import Answer, CompileWorkers
from autotune.compiler.selection import Limits, extra_bytes, shrink
from autotune.config import ConfigError, Measure, Model, Search
from autotune.graph.offload import is_offloaded, tuned_as
from autotune.schedule import KernelSpec, OpenKernel, Schedule, build_module, kernel_from_json
from autotune.schedule_store import OrderedStores, ScheduledWorkload, ScheduleStore
from autotune.tuner.settings import Settings
from autotune.tuner.task import Task
from costmodel.pretrained import compute_digest
from measure.child_main import answer_requests, open_parent
from measure.host import allowed_cores
from measure.worker import GARBAGE
from search_space.hardware import Hardware
from search_space.schedule.errors import ScheduleError
from search_space.schedule.trace import Trace
from search_space.workloads import Workload
from targets import registry
from targets.base import BuildError, Module, Target

FEWEST = 8
"""Number of schedules from which on it pays to start processes, which takes a second."""


class Schedules:
    """Schedules of workloads: a store's, the cache's choices, the database's, or the pretrained model's, in this order.

    Args:
        store: store of measured or locked schedules, which come first, or None.
        settings: settings of the run, for workloads that the store lacks.
        limits: limits for these workloads.
        device: target of the workloads that an accelerator computes.
        cache: cache of choices and kernels; None: all are made.
        crew: processes to choose and to build, which `close` ends; None: they are started if there is much to do.

    Attributes:
        cache: the argument.
        untuned_keys: keys of requested workloads that the store lacks.
    """

    def __init__(
        self,
        store: ScheduleStore | None,
        settings: Settings,
        limits: Limits | None = None,
        device: str | None = None,
        cache: KernelCache | None = None,
        crew: CompileWorkers | None = None,
    ) -> None:
        self._settings, self._limits, self._device = settings, limits or Limits(), device
        self._choices = None if cache is None else ChoiceStore(cache, self._depends)
        self._store = OrderedStores([each for each in (store, self._choices) if each is not None])
        self._choice_by_key: dict[str, ScheduledWorkload] = {}  # workload key -> schedule
        self._modules: dict[str, Module] = {}  # name -> kernel that was built to choose its schedule
        self._crew = crew
        self.cache = cache
        self.untuned_keys: set[str] = set()

    def __call__(self, workload: Workload) -> Schedule:
        return self.find_schedule(workload).schedule

    def find_schedule(self, workload: Workload) -> ScheduledWorkload:
        """Returns the schedule of a workload with its latency, measured or by the roofline.

        Raises:
            ConfigError: no candidate is legal.
        """
        workload = tuned_as(workload)
        if not self._has(workload):
            self._keep(_choice(self._task(workload), self._settings, self._limits))
        chosen = self._choice_by_key[workload.key]
        if chosen.provisional:
            self.untuned_keys.add(workload.key)
        return chosen

    def of_tasks(self, tasks: Sequence[Task]) -> list[ScheduledWorkload]:
        """Returns the schedule of each task."""
        return [self.find_schedule(task.workload) for task in tasks]

    def prepare(
        self, workloads: Sequence[Workload], then: Callable[[Workload, Module], None] = lambda workload, module: None
    ) -> None:
        """Chooses schedules for all workloads that have none; many of them in parallel, with a process on each core.

        The schedules equal those that `__call__` makes one by one.

        Args:
            workloads: workloads whose schedules will be requested.
            then: function that is called, while processes go on, with each workload and the kernel that was built to
                choose its schedule, if the choice is final, which `keep_within` may prevent.

        Raises:
            ConfigError: a workload has no legal candidate.
            RuntimeError: a process ended, or met a bug.
        """
        distinct = {tuned.key: tuned for tuned in map(tuned_as, workloads)}
        missing = [workload for workload in distinct.values() if not self._has(workload)]
        if self._crew is None and (len(missing) < FEWEST or len(allowed_cores()) < 2):
            return  # they are made when they are requested
        missing.sort(key=lambda workload: -workload.flops)  # longest first, so that processes end together
        tasks = [self._task(workload) for workload in missing]
        if self._crew is None:
            targets = [self._settings.target, *(self._settings.of(task).target for task in tasks)]
            self._crew = helpers(self._settings, self._limits, targets, len(tasks))
        requests = [
            {"what": "choose", "workload": task.workload.to_json(), "target": task.target or ""} for task in tasks
        ]
        for workload, answer in zip(missing, self._crew.ask(requests, ahead=2), strict=True):
            chosen = _read_choice(answer, workload, self._target(workload))
            self._keep(chosen)
            if chosen.module is not None and self._limits.max_extra_bytes is None:
                then(workload, chosen.module)

    def keep_within(self, workloads: Sequence[Workload]) -> None:
        """Limits the bytes by which algorithms enlarge the constants of all these workloads together.

        Workloads lose such an algorithm one by one, in the order of least estimated time lost per byte. Schedules of
        records stay, as `select` has limited them already.
        """
        most = self._limits.max_extra_bytes
        if most is None:
            return
        counts = Counter(tuned_as(workload).key for workload in workloads)
        chosen = {each.workload.key: each for each in map(self.find_schedule, workloads)}
        larger = [each for each in chosen.values() if each.provisional and extra_bytes(each.workload, each.algorithm)]
        shrink(chosen, {each.workload.key: [self._plain(each.workload)] for each in larger}, counts, most)
        self._choice_by_key.update(chosen)

    def _plain(self, workload: Workload) -> ScheduledWorkload:
        """Chooses among algorithms that read constants as they are."""
        allowed = self._limits.list_algorithms(workload)
        plain = [algorithm for algorithm in allowed if not extra_bytes(workload, algorithm)]
        return _choice(self._task(workload), self._settings, replace(self._limits, algorithms=plain))

    def build_kernels(self, kernels: Sequence[KernelSpec | OpenKernel]) -> Iterator[Module]:
        """Builds kernels; yields their modules in this order, each as soon as it is built, by the processes that chose,
        if any.

        The modules equal those that `build_module` builds one by one.

        Raises:
            BuildError, ScheduleError: a kernel cannot be built.
            RuntimeError: a process ended, or met a bug.
        """
        target = registry.get(self._settings.target.name)  # the target that processes use, looked up by name
        missing = [kernel for kernel in kernels if kernel.name not in self._modules]
        if self._crew is None:
            yield from (self._modules.get(kernel.name) or build_module(kernel, target) for kernel in kernels)
            return
        answers = self._crew.ask([{"what": "build", **kernel.to_json()} for kernel in missing], ahead=2)
        for kernel in kernels:
            if kernel.name in self._modules:
                yield self._modules[kernel.name]
                continue
            header, code = next(answers)
            yield build_module(kernel, target) if "refused" in header else Module.from_bytes(code)

    def close(self) -> None:
        """Ends the processes and forgets their kernels; the next request starts new ones."""
        self._modules.clear()
        if self._crew is not None:
            self._crew.close()
            self._crew = None

    def _has(self, workload: Workload) -> bool:
        """Tells whether there is a schedule already; takes it from the stores, if one of them has it."""
        if workload.key not in self._choice_by_key:
            for chosen in self._store.best(workload, self._target(workload)):
                self._choice_by_key[workload.key] = chosen
        return workload.key in self._choice_by_key

    def _keep(self, choice: ScheduledWorkload) -> None:
        self._choice_by_key[choice.workload.key] = choice
        if choice.module is not None:
            self._modules[choice.module.name] = choice.module
        if self._choices is not None:
            self._choices.add(choice)

    def _depends(self, target: Target) -> dict[str, Any]:
        return _depends(self._settings.on(target.name), self._limits)

    def _target(self, workload: Workload) -> Target:
        return self._settings.of(self._task(workload)).target

    def _task(self, workload: Workload) -> Task:
        return Task(workload.operator, workload, target=self._device if is_offloaded(workload) else None)


def helpers(settings: Settings, limits: Limits, targets: Sequence[Target], most: int) -> CompileWorkers:
    """Starts at most so many processes that choose schedules within limits, for some targets, and build kernels."""
    options = {
        **_depends(settings, limits),
        "target": settings.target.name,
        "hardware": {target.name: target.hardware.to_json() for target in targets},
    }
    return CompileWorkers(options, __name__, most)


def _choice(task: Task, settings: Settings, limits: Limits, hardware: Hardware | None = None) -> ScheduledWorkload:
    """Chooses a schedule without trials: that of the database for exactly this workload, else the pretrained model's.

    Raises:
        ConfigError: no candidate is legal.
    """
    from autotune.tuner.entry_store import EntryStore  # not needed if the cache has all choices
    from autotune.tuner.untimed import select_without_trials

    workload, target = task.workload, settings.of(task).target
    for entry in EntryStore(settings, limits.list_algorithms, hardware).best(workload, target):
        return entry

    def kernel_name(algorithm: str, trace: Trace) -> str | None:
        return symbol_name(workload, Schedule(algorithm, trace), {}, target)

    algorithms = limits.list_algorithms(workload)
    return select_without_trials(task, settings, algorithms, hardware=hardware, kernel_name=kernel_name)


def _depends(settings: Settings, limits: Limits) -> dict[str, Any]:
    """Returns everything that a choice depends on besides the workload, the target and its hardware, as plain data."""
    from autotune.tuner import database

    return {
        "database": [settings.search.database, database.compute_digest(settings.search.database)],
        "pretrained": [settings.cost_model.pretrained, compute_digest(settings.cost_model.pretrained)],
        "seed": settings.seed,
        "measure": {"threads": settings.threads, "cache": settings.measure.cache},
        "limits": asdict(replace(limits, hardware=None)),
        "limited": None if limits.hardware is None else limits.hardware.to_json(),
    }


def _read_choice(answer: Answer, workload: Workload, target: Target) -> ScheduledWorkload:
    """Reads the choice of a process for a workload.

    Raises:
        ConfigError: no candidate is legal.
    """
    header, code = answer
    if "refused" in header:
        raise ConfigError(header["refused"])
    schedule, module = Schedule(header["algorithm"], Trace.from_json(header["trace"])), None
    if code:
        module = Module.from_bytes(code)
    return ScheduledWorkload(workload, target, schedule, float(header["seconds"]), provisional=True, module=module)


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
        chosen = _choice(task, settings, limits, hardware[settings.of(task).target.name])
        header = {"algorithm": chosen.algorithm, "trace": chosen.trace.to_json(), "seconds": chosen.seconds}
        return header, b"" if chosen.module is None else chosen.module.to_bytes()

    def build(request: dict[str, Any]) -> Answer:
        return {}, build_module(kernel_from_json(request), settings.target).to_bytes()

    def answer(request: dict[str, Any], blob: bytes) -> Answer:
        return (build if request["what"] == "build" else choose)(request)

    answer_requests(channel, answer, (ConfigError, BuildError, ScheduleError))
