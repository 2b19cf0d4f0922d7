"""The core works where the laboratory is not installed: commands, tuning and compiling."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("search_space", "targets", "measure", "costmodel", "autotune")

USE = """
import importlib.util
from typer.testing import CliRunner

import autotune
from autotune.cli.app import app
from search_space.workloads import matmul
from tests.executable_cases import images

assert importlib.util.find_spec("autotune.lab") is None
runner = CliRunner()
shown = runner.invoke(app, ["--help"]).output
assert "sweep" in shown and "dataset" not in shown and "costmodel" not in shown, shown
tasks = runner.invoke(app, ["tasks", "configs/matmul.yaml"])
assert tasks.exit_code == 0, tasks.output
refused = runner.invoke(app, ["tasks", "configs/collect_cpu.yaml"])
assert refused.exit_code == 2 and "collect" in refused.output, refused.output
network = autotune.compile(images(), threads=1, cache="none")
result = autotune.tune(matmul(16, 16, 16), trials=2)
print(result.best is not None)
"""


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages without the laboratory, and what the program above reads."""
    folder = tmp_path_factory.mktemp("core")
    for name in (*PACKAGES, "tests", "configs"):
        skipped = shutil.ignore_patterns("lab", "__pycache__", "datasets", "text")
        shutil.copytree(ROOT / name, folder / name, ignore=skipped)
    return folder


def test_it_compiles_and_tunes(core: Path) -> None:
    variables = {**os.environ, "PYTHONPATH": str(core)}
    done = subprocess.run([sys.executable, "-P", "-c", USE], cwd=core, env=variables, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.split() == ["True"], done.stderr
