"""Scratch folders go with their process, however it ends; those of living processes stay."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from search_space import scratch
from search_space.scratch import ScratchFolder, remove_stale

HOLDING = """
import pathlib, sys, time
from search_space.scratch import ScratchFolder
kept = ScratchFolder("test")
pathlib.Path(kept.name, "file").write_text("x")
print(kept.name, flush=True)
time.sleep(600)
"""


PACKAGES = ("search_space", "targets", "measure", "costmodel", "autotune")
BESIDE = {
    "autotune/tracking/mlflow_store.py",  # beside the database that it becomes
    "measure/ray/cluster.py",  # of a short name; its processes outlive the one that made it
    "targets/network_library.py",  # beside the library that it becomes
}
"""Modules that make a temporary folder of another kind, and why."""


def old(path: Path) -> None:
    then = time.time() - 2 * scratch.GRACE_SECONDS
    os.utime(path, (then, then))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_a_signal_leaves_behind_is_removed_by_the_next_process(folder: Path, number: int) -> None:
    command, environment = [sys.executable, "-c", HOLDING], {**os.environ, "TMPDIR": str(folder)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        old(left)
        try:
            remove_stale(folder)
            assert (left / "file").exists()
        finally:
            process.send_signal(number)
        process.wait(30)
    assert left.exists()
    with ScratchFolder("test") as own:
        assert not left.exists() and Path(own).parent == folder
    assert list(folder.iterdir()) == []


def test_only_old_folders_of_ours_are_removed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("autotune-scratch-young", "autotune-scratch-old", "others-old"):
        (folder / name).mkdir()
    (folder / "autotune-scratch-link").symlink_to(folder / "others-old")
    old(folder / "autotune-scratch-old")
    old(folder / "others-old")
    remove_stale(folder)
    assert {path.name for path in folder.iterdir()} == {"autotune-scratch-young", "autotune-scratch-link", "others-old"}
    old(folder / "autotune-scratch-young")
    stranger = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: stranger)
    remove_stale(folder)
    assert (folder / "autotune-scratch-young").exists()


def test_every_temporary_folder_of_the_package_goes_with_its_process() -> None:
    root = Path(scratch.__file__).parents[1]
    makers = set()
    for path in (path for package in PACKAGES for path in (root / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("mkdtemp", "TemporaryDirectory")):
                makers.add(str(path.relative_to(root)))
    assert makers == BESIDE
