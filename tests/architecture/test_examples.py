"""The examples run, and check their own results."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("kernel_cache")

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("program", "arguments", "output"),
    [
        ("generate.py", ["--hidden=32", "--layers=1", "--heads=2", "--vocabulary=50", "--longest=40"], "tokens/s"),
        ("matmul_schedule.py", [], "GFLOP/s"),
        ("tune_conv2d.py", ["6"], "6 trials"),
        ("propose_neighbours.py", [], ""),
        ("rpc_device.py", [], "the output is right"),
        ("train.py", ["--steps", "5"], "accuracy on 256 new images"),
        ("vta_conv2d.py", [], "2 virtual threads"),
    ],
)
def test_an_example_runs(program: str, arguments: list[str], output: str, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / program), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        command, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert output in run.stdout


def test_every_example_is_run() -> None:
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == {
        "generate.py",
        "matmul_schedule.py",
        "propose_neighbours.py",
        "rpc_device.py",
        "tune_conv2d.py",
        "train.py",
        "vta_conv2d.py",
    }


def test_a_prompt_that_is_text_needs_a_tokenizer() -> None:
    command = [sys.executable, str(ROOT / "examples/generate.py"), "--prompt", "hello"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 2 and "--tokenizer given, but got 'hello'" in done.stderr.splitlines()[-1]
