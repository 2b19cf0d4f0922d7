"""Schedules that several processes choose at once."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from autotune.config import ConfigError
from autotune.network import schedules
from autotune.network.schedules import FEWEST, Schedules
from autotune.network.selection import Limits
from autotune.tuning.settings import Settings
from search_space.workloads import Workload
from targets import registry
from tests.autotune.fakes import settings_with

SETTINGS = settings_with(threads=2, cache="network", seed=3)
WORKLOADS = [Workload("matmul", {"m": 8 * n, "n": 16, "k": 8}) for n in range(1, FEWEST + 1)]


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "allowed_cores", lambda: (0, 1))


def of_one_by_one(workloads: list[Workload], settings: Settings, limits: Limits) -> list[Any]:
    chosen = Schedules({}, settings, limits)
    return [chosen(workload) for workload in workloads]


@pytest.mark.usefixtures("two_cores")
def test_processes_choose_what_this_one_would(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(hardware=registry.get("cpu").hardware, max_error=1e-3)
    chosen = Schedules({}, SETTINGS, limits)
    chosen.prepare([*WORKLOADS, WORKLOADS[0]])

    def none(*_: Any, **__: Any) -> Any:
        raise AssertionError("every schedule must be at hand")

    with monkeypatch.context() as context:
        context.setattr(schedules, "by_roofline", none)
        found = [chosen(workload) for workload in WORKLOADS]
        chosen.prepare(WORKLOADS)  # nothing is missing
    assert found == of_one_by_one(WORKLOADS, SETTINGS, limits)
    assert chosen.untuned == {workload.key for workload in WORKLOADS}


@pytest.mark.usefixtures("two_cores")
def test_the_machine_is_the_same_in_every_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one process has measured of the machine is not measured again by others, where it would differ."""
    asked: list[Any] = []
    child = schedules.Child

    def noted(options: Any, program: str) -> Any:
        asked.append(options["hardware"]["cpu"])
        return child(options, program)

    monkeypatch.setattr(schedules, "Child", noted)
    Schedules({}, SETTINGS).prepare(WORKLOADS)
    assert asked == [registry.get("cpu").hardware.to_json()] * 2


@pytest.mark.parametrize("count", [1, FEWEST - 1])
@pytest.mark.usefixtures("two_cores")
def test_few_are_chosen_without_processes(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "Child", None)
    Schedules({}, SETTINGS).prepare(WORKLOADS[:count])


@pytest.mark.usefixtures("two_cores")
def test_a_workload_without_a_schedule_says_why() -> None:
    with pytest.raises(ConfigError, match="there is no sketch for it on this target"):
        Schedules({}, settings_with(target="vta")).prepare(WORKLOADS)


@pytest.mark.usefixtures("two_cores")
def test_a_process_that_is_killed_ends_the_choice_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    child = schedules.Child

    def doomed(options: Any, program: str) -> Any:
        made = child(options, program)
        os.kill(made.pid, signal.SIGKILL)
        return made

    monkeypatch.setattr(schedules, "Child", doomed)
    with pytest.raises(RuntimeError, match="must stay alive, but it was killed"):
        Schedules({}, SETTINGS).prepare(WORKLOADS)
