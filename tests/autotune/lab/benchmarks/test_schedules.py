"""The database of schedules that comes along: what fills it."""

from __future__ import annotations

from pathlib import Path

from autotune.config import RunConfig
from autotune.lab.protocol import Pools
from autotune.tuner.database import ScheduleDatabase
from benchmarks import schedules


def test_no_network_to_test_with_fills_the_database() -> None:
    registered = Pools.open().registration
    held = {name for name, role in registered.networks.items() if role == "test"}
    assert held and not held & {*schedules.OWN, *schedules.SURVEY_MODELS}


def test_only_layers_without_a_schedule_are_collected(tmp_path: Path) -> None:
    path = tmp_path / "none.jsonl"
    given = ("squeezenet", "squeezenet", tmp_path, "cpu", 1, path)
    config = RunConfig.model_validate(schedules.configuration(*given, None))
    names = schedules.missing(config, ScheduleDatabase(), 1)
    assert len(names) > 15
    again = RunConfig.model_validate(schedules.configuration(*given, names[:3]))
    assert schedules.missing(again, ScheduleDatabase(), 1) == names[:3]
    assert again.search.database == "none"  # as long as there is no file
