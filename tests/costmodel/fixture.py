"""The small dataset that is kept for tests, opened once a process: its features take seconds to make."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from costmodel.dataset import Dataset

FIXTURE = Path(__file__).parents[1] / "datasets" / "vta"


@cache
def opened() -> Dataset:
    """The dataset, not to be changed."""
    return Dataset.open(FIXTURE)


def share(monkeypatch: pytest.MonkeyPatch, data: Dataset | None = None) -> Dataset:
    """Commands that open the fixture get `data`, by default all of it; the speed of models is not taken for long."""
    from autotune.lab.evaluate import evaluation

    found, read = data or opened(), Dataset.open
    monkeypatch.setattr(Dataset, "open", lambda folder: found if Path(folder) == FIXTURE else read(folder))
    monkeypatch.setattr(evaluation, "_POPULATION", 256)
    monkeypatch.setattr(evaluation, "_SPEED_SECONDS", 0.01)
    return found
