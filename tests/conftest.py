"""Options of the tests, and the fixture that holds text against golden files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.golden.compare import Golden
from tests.stores import migrated_database, mlflow_database

os.environ.setdefault("AUTOTUNE_TRACKING", "none")  # tests of tracking say so; no other pays for it


__all__ = ["golden", "migrated_database", "mlflow_database", "pytest_addoption"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--update-golden`."""
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files instead of comparing")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares text with `tests/golden/text/NAME`, or writes it there."""
    folder = Path(__file__).parent / "golden" / "text"
    return Golden(folder, update=bool(request.config.getoption("--update-golden")))
