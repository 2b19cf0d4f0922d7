"""The core's own tests, without the laboratory: `python -m tests.without_lab [PATH ...] [OPTION of pytest ...]`.

Copies the checkout without the folders of the laboratory to a temporary folder and runs the tests there, by default
all that are left.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]

FOLDERS = ("autotune/lab", "tests/autotune/lab")
"""Folders of the laboratory: the core works, and its tests pass, with these deleted."""
PROGRAMS = (
    "benchmarks/hub.py",
    "benchmarks/kernel_tuner_peer.py",
    "benchmarks/models.py",
    "benchmarks/pools.py",
    "benchmarks/substitutions",
    "notebooks/lab",
)
"""Programs that need the laboratory. They may stay without it; the tests of the core do not run them."""
COMMANDS = ("collect", "costmodel", "dataset")
"""Commands of `autotune` that the laboratory adds."""


def has_lab() -> bool:
    """Says whether this checkout has the laboratory."""
    return (ROOT / FOLDERS[0] / "extension.py").exists()  # caches of a deleted folder may be left over


def is_of_lab(path: str) -> bool:
    """Says whether a path, relative to the checkout, lies in a folder of the laboratory."""
    return any(path == folder or path.startswith(f"{folder}/") for folder in FOLDERS)


def is_left_out(path: str) -> bool:
    """Says whether a path of the laboratory is missing because this checkout has no laboratory."""
    return is_of_lab(path) and not has_lab()


def copy_core(folder: Path) -> None:
    """Copies the checkout into a folder, less the laboratory, Git's files and those that Git ignores."""
    patterns = [line.strip("/") for line in (ROOT / ".gitignore").read_text().split()]
    ignored = shutil.ignore_patterns(".git", *patterns)

    def list_skipped(parent: str, names: list[str]) -> set[str]:
        within = Path(parent).relative_to(ROOT)
        return ignored(parent, names) | {name for name in names if is_of_lab((within / name).as_posix())}

    shutil.copytree(ROOT, folder, ignore=list_skipped, dirs_exist_ok=True)


def commit(folder: Path) -> None:
    """Makes a folder a repository of one commit: runs say which commit they are of."""
    who = ("-c", "user.name=tests", "-c", "user.email=tests@localhost")
    for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "The core"]):
        subprocess.run(["git", *words], cwd=folder, check=True)


def main(words: Sequence[str]) -> int:
    """Runs pytest with these words in a copy, and returns its exit status."""
    with tempfile.TemporaryDirectory(prefix="without-lab-") as name:
        copy_core(Path(name))
        commit(Path(name))
        variables = {**os.environ, "PYTHONPATH": name}
        return subprocess.run([sys.executable, "-m", "pytest", *words], cwd=name, env=variables, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
