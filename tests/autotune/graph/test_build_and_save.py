"""The example that builds and saves a model runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from autotune.graph.frontends.onnx.model import load_model

ROOT = Path(__file__).parents[3]


def build_and_save(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "examples" / "models" / "build_and_save.py"), *arguments]
    return subprocess.run(command, cwd=folder, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)


def test_an_option_is_no_name_of_a_file(tmp_path: Path) -> None:
    run = build_and_save(tmp_path, "--help")
    assert run.returncode == 1 and "build_and_save.py bert.onnx" in run.stderr
    assert list(tmp_path.iterdir()) == []


def test_build_and_save(tmp_path: Path) -> None:
    path = tmp_path / "bert.onnx"
    run = build_and_save(tmp_path, str(path))
    assert run.returncode == 0, run.stderr
    assert "output (1, 16, 64)" in run.stdout
    assert load_model(path).graph.input[0].name == "tokens"
