"""A CUDA driver that processes of tests can load on a machine without one: see `fake_driver.c`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_suffix(".c")


def build(folder: Path) -> Path:
    """Compiles it; the folder in which the loader finds it."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("a fake driver needs cc")
    names = re.findall(r"^int (cu\w+)\(", SOURCE.read_text(), re.MULTILINE)
    (folder / "fake_driver.table").write_text("".join(f"_S({name}),\n" for name in names if "ProcAddress" not in name))
    library = folder / "libcuda.so.1"
    command = [compiler, "-std=c11", "-O1", "-w", "-shared", "-fPIC", f"-I{folder}"]
    subprocess.run([*command, str(SOURCE), "-o", str(library)], check=True)
    return folder


def environment(folder: Path, behaviour: str = "", **more: str) -> dict[str, str]:
    """Returns the environment of a process that finds the driver in `folder`, which does as `FAKE_CUDA` says."""
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("LD_LIBRARY_PATH")]))
    return {**os.environ, "LD_LIBRARY_PATH": path, "FAKE_CUDA": behaviour, **more}
