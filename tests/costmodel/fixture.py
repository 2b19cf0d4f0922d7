"""The small dataset that is kept for tests, opened once a process: its features take seconds to make."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from costmodel.dataset import Dataset

FIXTURE = Path(__file__).parents[1] / "datasets" / "vta"


@cache
def open_fixture() -> Dataset:
    """The dataset, not to be changed."""
    return Dataset.open(FIXTURE)
