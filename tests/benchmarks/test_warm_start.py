"""Knowledge before the first trial: its networks, and the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import schedules, warm_start
from benchmarks.survey.models import load_models
from benchmarks.warm_start_table import SEARCHES, column_title
from benchmarks.warm_start_table import warm_start as table_of


def test_no_network_that_is_measured_fills_the_database() -> None:
    filled = {*schedules.OWN, *schedules.SURVEY_MODELS}
    assert len(filled) == len(schedules.OWN) + len(schedules.SURVEY_MODELS)
    assert {*schedules.SURVEY_MODELS, *warm_start.NETWORKS} <= {model.name for model in load_models()}
    assert not filled & {*warm_start.NETWORKS}


def test_a_model_that_cannot_be_exported_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="no_such_model was not exported"):
        schedules.export_model(tmp_path, "no_such_model")
    capfd.readouterr()


def test_the_table_holds_every_way_against_the_longest_search() -> None:
    titles = [*warm_start.SOURCES, *(column_title(*search) for search in SEARCHES)]
    ms = {title: 10.0 + place for place, title in enumerate(titles)}
    row = {"layers": 3}
    document = {"rows": {"one": {**row, "milliseconds": ms}, "two": {**row, "milliseconds": ms}}}
    text = table_of(document)
    assert f"| what is known | one ms | two ms | of {titles[-1]} |" in text
    assert f"| {titles[0]} | 10.00 | 10.00 | {10 / ms[titles[-1]]:.3f} |" in text
    assert f"| {titles[-1]} | {ms[titles[-1]]:.2f} | {ms[titles[-1]]:.2f} | 1.000 |" in text
