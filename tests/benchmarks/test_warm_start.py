"""What is known before the first trial: its configurations, and the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.config import RunConfig
from autotune.lab.protocol import Pools
from autotune.tuner.database import ScheduleDatabase
from benchmarks import schedules, warm_start
from benchmarks.survey.models import load_models
from benchmarks.warm_start_table import SEARCHES, title_of
from benchmarks.warm_start_table import warm_start as table_of


def test_no_network_to_test_with_fills_the_database() -> None:
    registered = Pools.open().registered
    held = {name for name, role in registered.networks.items() if role == "test"}
    filled = {*schedules.OWN, *schedules.SURVEYED}
    assert held and not held & filled and len(filled) == len(schedules.OWN) + len(schedules.SURVEYED)
    assert {*schedules.SURVEYED, *warm_start.NETWORKS} <= {model.name for model in load_models()}
    assert not filled & {*warm_start.NETWORKS}


def test_only_layers_without_a_schedule_are_collected(tmp_path: Path) -> None:
    path = tmp_path / "none.jsonl"
    given = ("squeezenet", "squeezenet", tmp_path, "cpu", 1, path)
    config = RunConfig.model_validate(schedules.configuration(*given, None))
    names = schedules.missing(config, ScheduleDatabase(), 1)
    assert len(names) > 15
    again = RunConfig.model_validate(schedules.configuration(*given, names[:3]))
    assert schedules.missing(again, ScheduleDatabase(), 1) == names[:3]
    assert again.search.database == "none"  # as long as there is no file


def test_a_model_that_cannot_be_exported_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="no_such_model was not exported"):
        schedules.exported(tmp_path, "no_such_model")
    capfd.readouterr()


def test_the_table_holds_every_way_against_the_longest_search() -> None:
    titles = [*warm_start.KNOWN, *(title_of(*search) for search in SEARCHES)]
    ms = {title: 10.0 + place for place, title in enumerate(titles)}
    row = {"layers": 3}
    document = {"rows": {"one": {**row, "milliseconds": ms}, "two": {**row, "milliseconds": ms}}}
    text = table_of(document)
    assert f"| what is known | one ms | two ms | of {titles[-1]} |" in text
    assert f"| {titles[0]} | 10.00 | 10.00 | {10 / ms[titles[-1]]:.3f} |" in text
    assert f"| {titles[-1]} | {ms[titles[-1]]:.2f} | {ms[titles[-1]]:.2f} | 1.000 |" in text
