"""Schedules that several processes choose at once."""

from __future__ import annotations

import json
import os
import signal
from contextlib import closing
from typing import Any

import pytest

from autotune.compiler import compile_workers, schedules
from autotune.compiler.cache.kernels import symbol_name
from autotune.compiler.schedules import FEWEST, Schedules
from autotune.compiler.selection import Limits, extra_bytes
from autotune.config import ConfigError
from autotune.schedule import KernelSpec, Schedule, build_module, kernel_from_json
from autotune.schedule_store import ScheduledWorkload
from autotune.tuner.settings import Settings
from autotune.tuner.task import Task
from search_space.schedule.errors import ScheduleError
from search_space.schedule.trace import Trace
from search_space.workloads import Workload, softmax
from targets import registry
from tests.autotune.fakes import settings_with

pytestmark = pytest.mark.usefixtures("compile_workers")

SETTINGS = settings_with(threads=2, cache="network", seed=3)
WORKLOADS = [Workload("matmul", {"m": 8 * n, "n": 16, "k": 8}) for n in range(1, FEWEST + 1)]


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (schedules, compile_workers):
        monkeypatch.setattr(module, "allowed_cores", lambda: (0, 1))


def of_one_by_one(workloads: list[Workload], settings: Settings, limits: Limits) -> list[Any]:
    chosen = Schedules(None, settings, limits)
    return [chosen(workload) for workload in workloads]


@pytest.mark.usefixtures("two_cores")
def test_processes_choose_what_this_one_would(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(hardware=registry.get("cpu").hardware, max_error=1e-3)
    chosen = Schedules(None, SETTINGS, limits)
    chosen.prepare([*WORKLOADS, WORKLOADS[0]])
    chosen.close()

    def none(*_: Any, **__: Any) -> Any:
        raise AssertionError("every schedule must be at hand")

    with monkeypatch.context() as context:
        context.setattr("autotune.tuner.untimed.select_by_roofline", none)
        found = [chosen(workload) for workload in WORKLOADS]
        chosen.prepare(WORKLOADS)  # nothing is missing
    assert found == of_one_by_one(WORKLOADS, SETTINGS, limits)
    assert chosen.untuned_keys == {workload.key for workload in WORKLOADS}


def test_constants_are_held_to_the_bytes_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers that lose least for each byte go without larger constants; with no bytes allowed, all layers do."""
    layer = {"kernel": 3, "padding": 1, "height": 16, "width": 16}
    small, large = (Workload("conv2d", {**layer, "in_channels": n, "out_channels": n}) for n in (8, 32))
    # Lost: 1 us of the small one and 100 us of the large one, for a sixteenth of the bytes; it stands there twice.
    seconds = {(small.key, "winograd4"): 9e-6, (small.key, "direct"): 10e-6}
    seconds |= {(large.key, "winograd4"): 100e-6, (large.key, "direct"): 200e-6}

    def choose(task: Task, settings: Settings, limits: Limits) -> ScheduledWorkload:
        name = "winograd4" if "winograd4" in limits.list_algorithms(task.workload) else "direct"
        latency = seconds[task.workload.key, name]
        return ScheduledWorkload(task.workload, settings.target, Schedule(name, Trace()), latency, provisional=True)

    monkeypatch.setattr(schedules, "_choice", choose)
    bytes_of = {w.key: extra_bytes(w, "winograd4") for w in (small, large)}
    every = 2 * bytes_of[small.key] + bytes_of[large.key]
    for most, kept in ((every, {small.key, large.key}), (every - 1, {large.key}), (0, set())):
        found = Schedules(None, SETTINGS, Limits(max_extra_bytes=most))
        found.keep_within([small, large, small])
        assert {w.key for w in (small, large) if extra_bytes(w, found(w).algorithm)} == kept


@pytest.mark.usefixtures("two_cores")
def test_the_machine_is_the_same_in_every_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Child processes do not measure the machine again, since their figures would differ."""
    asked: list[Any] = []
    child = compile_workers.Child

    def note_cpu(options: Any, program: str) -> Any:
        asked.append(options["hardware"]["cpu"])
        return child(options, program)

    monkeypatch.setattr(compile_workers, "Child", note_cpu)
    with closing(Schedules(None, SETTINGS)) as chosen:
        chosen.prepare(WORKLOADS)
    assert asked == [registry.get("cpu").hardware.to_json()] * 2


@pytest.mark.parametrize("count", [1, FEWEST - 1])
@pytest.mark.usefixtures("two_cores")
def test_few_are_chosen_without_processes(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_workers, "Child", None)
    Schedules(None, SETTINGS).prepare(WORKLOADS[:count])


@pytest.mark.usefixtures("two_cores")
def test_a_workload_without_a_schedule_says_why() -> None:
    chosen = Schedules(None, settings_with(target="vta"))
    with closing(chosen), pytest.raises(ConfigError, match="there is no sketch for it on this target"):
        chosen.prepare(WORKLOADS)


@pytest.mark.usefixtures("two_cores")
def test_a_process_that_is_killed_ends_the_choice_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    child = compile_workers.Child

    def start_doomed(options: Any, program: str) -> Any:
        made = child(options, program)
        os.kill(made.pid, signal.SIGKILL)
        return made

    monkeypatch.setattr(compile_workers, "Child", start_doomed)
    chosen = Schedules(None, SETTINGS)
    with closing(chosen), pytest.raises(RuntimeError, match="must stay alive, but it was killed"):
        chosen.prepare(WORKLOADS)


@pytest.mark.usefixtures("two_cores")
def test_processes_build_what_this_one_would() -> None:
    """Kernels come in the order in which they are asked for, the same to the byte, whoever has built them."""
    chosen = Schedules(None, SETTINGS)
    chosen.prepare(WORKLOADS)
    kernels = [KernelSpec(w, chosen(w), {}, f"kernel{number}") for number, w in enumerate(WORKLOADS)]
    with closing(chosen):
        found = [module.to_bytes() for module in chosen.build_kernels(kernels)]
        again = [module.to_bytes() for module in chosen.build_kernels(kernels[::-1])]
    alone = [build_module(kernel, SETTINGS.target).to_bytes() for kernel in kernels]
    assert found == alone
    assert again == alone[::-1]


@pytest.mark.usefixtures("two_cores")
def test_answers_that_nobody_waits_for_are_not_taken_for_others() -> None:
    chosen = Schedules(None, SETTINGS)
    chosen.prepare(WORKLOADS)
    kernels = [KernelSpec(w, chosen(w), {}, f"kernel{number}") for number, w in enumerate(WORKLOADS)]
    with closing(chosen):
        given_up = chosen.build_kernels(kernels)
        next(given_up)
        given_up.close()
        with pytest.raises(RuntimeError, match="must be open to be asked"):
            next(iter(chosen.build_kernels(kernels[::-1])))


@pytest.mark.parametrize("processes", [False, True])
@pytest.mark.usefixtures("two_cores")
def test_what_was_built_to_be_chosen_is_not_built_again(processes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    target = SETTINGS.target
    with closing(Schedules(None, SETTINGS)) as chosen:
        if processes:
            chosen.prepare(WORKLOADS)
        found = [
            KernelSpec(w, s, {}, str(symbol_name(w, s, {}, target))) for w, s in ((w, chosen(w)) for w in WORKLOADS)
        ]
        alone = [build_module(kernel, target).to_bytes() for kernel in found]

        def none(*_: Any, **__: Any) -> Any:
            raise AssertionError("every kernel must be at hand")

        monkeypatch.setattr(schedules, "build_module", none)
        monkeypatch.setattr(compile_workers.Child, "send", none)
        assert [module.to_bytes() for module in chosen.build_kernels(found)] == alone


@pytest.mark.usefixtures("two_cores")
def test_what_cannot_be_built_is_refused_as_by_this_process() -> None:
    chosen = Schedules(None, SETTINGS)
    chosen.prepare(WORKLOADS)
    kernels = [KernelSpec(w, chosen(w), {}, f"kernel{number}") for number, w in enumerate(WORKLOADS)]
    kernels[3] = KernelSpec(WORKLOADS[3], chosen(softmax(8, 8)), {}, "other")
    found = []
    with closing(chosen), pytest.raises(ScheduleError) as here:
        found.extend(chosen.build_kernels(kernels))
    with pytest.raises(ScheduleError) as alone:
        build_module(kernels[3], SETTINGS.target)
    assert str(here.value) == str(alone.value)


def test_a_kernel_is_the_same_as_plain_data() -> None:
    kernel = KernelSpec(WORKLOADS[0], Schedules(None, SETTINGS)(WORKLOADS[0]), {"a": (64, 1)}, "kernel")
    assert kernel_from_json(json.loads(json.dumps(kernel.to_json()))) == kernel
