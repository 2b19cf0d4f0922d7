"""Stages of `python -m benchmarks` that need the laboratory."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.stages import Stage
from tests.benchmarks.test_stages import LAB_STAGES, check_end


@pytest.mark.parametrize("stage", LAB_STAGES, ids=lambda stage: stage.table)
def test_every_stage_ends_when_it_is_told_to(stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_end(stage, tmp_path, capsys)


def test_models_are_a_stage() -> None:
    assert [stage.table for stage in LAB_STAGES] == ["models"]
