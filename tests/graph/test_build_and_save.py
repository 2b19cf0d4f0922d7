"""The example that builds and saves a model runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from autotune.graph.onnx.model import load_model

ROOT = Path(__file__).parents[2]


def test_build_and_save(tmp_path: Path) -> None:
    path = tmp_path / "bert.onnx"
    command = [sys.executable, str(ROOT / "examples" / "models" / "build_and_save.py"), str(path)]
    run = subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "output (1, 16, 64)" in run.stdout
    assert load_model(path).graph.input[0].name == "tokens"
