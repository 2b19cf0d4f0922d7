"""MLflow's databases for tests. The first use of one migrates it for seconds: that is done once, and copied."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def migrated_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of MLflow's with no run in it, not to be written to."""
    from autotune.tracking.mlflow_store import MLflowStore

    file = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    MLflowStore(f"sqlite:///{file}", "Default")
    return file


@pytest.fixture
def mlflow_database(migrated_database: Path, tmp_path: Path) -> Path:
    """A database for one test: `runs/mlflow.db`, where runs in `tmp_path` look for it."""
    folder = tmp_path / "runs"
    folder.mkdir()
    return Path(shutil.copyfile(migrated_database, folder / "mlflow.db"))
