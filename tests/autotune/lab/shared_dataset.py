"""Commands of the laboratory on the small dataset that is kept for tests, opened once a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.lab.evaluate import evaluation
from costmodel.dataset import Dataset
from tests.costmodel.fixture import FIXTURE, open_fixture


def share(monkeypatch: pytest.MonkeyPatch, data: Dataset | None = None) -> Dataset:
    """Commands that open the fixture get `data`, by default all of it; the speed of models is not taken for long."""
    found, read = data or open_fixture(), Dataset.open
    monkeypatch.setattr(Dataset, "open", lambda folder: found if Path(folder) == FIXTURE else read(folder))
    monkeypatch.setattr(evaluation, "_POPULATION", 256)
    monkeypatch.setattr(evaluation, "_SPEED_SECONDS", 0.01)
    return found
