"""Kernels touch no memory outside of their arrays, not even where a padding's condition is false."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(("kind", "kernels"), [((), 150), (("open",), 60)])
def test_kernels_stay_inside_their_arrays(kind: tuple[str, ...], kernels: int) -> None:
    command = [sys.executable, "-m", "tests.properties.guarded", "0", str(kernels), *kind]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    last = done.stdout[done.stdout.rfind("seed") :]
    assert done.returncode == 0, f"exit code {done.returncode} after {last}\n{done.stderr[-2000:]}"
    assert done.stdout.splitlines().count("ran") == kernels
