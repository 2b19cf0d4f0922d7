"""Provenance of a figure: the state of the packages, the machine, the settings, the peers, the day."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from measure.host import describe_host

ROOT = Path(__file__).resolve().parents[1]
EVERYWHERE = ("autotune", "search_space", "costmodel", "measure", "targets", "pyproject.toml")
"""Paths measured by rows of a GPU: a commit that changes none of these leaves earlier results valid."""
MEASURED_PATHS = (*EVERYWHERE, ":(exclude)targets/cuda")
"""Paths measured by rows of a CPU or a simulator. They import no GPU code except the lookup of its target names."""
MEASURING = ("benchmarks/*.py",)
"""Paths of the measuring programs. A row's settings say how it was measured; changed files cannot be reproduced."""
PACKAGES = (
    "llvmlite", "numpy", "scikit-learn", "lightgbm", "onnx", "onnxruntime", "openvino", "timm", "torch", "torchvision",
    "transformers",
)  # fmt: skip


def read_commit(
    folder: Path = ROOT, measured_paths: Sequence[str] = MEASURED_PATHS, measuring: Sequence[str] = MEASURING
) -> str:
    """Returns the newest commit that changed measured paths; "" if no repository has them.

    A `+` follows it if measured or measuring paths differ from the committed ones.
    """

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()

    try:
        commit = git("log", "-1", "--format=%h", "--abbrev=12", "--", *measured_paths)
        return commit + "+" if commit and git("status", "--porcelain", "--", *measured_paths, *measuring) else commit
    except (OSError, subprocess.CalledProcessError):
        return ""


def is_whole(commit: str) -> bool:
    """Tells whether the code was exactly that commit, as `read_commit` names it."""
    return bool(commit) and not commit.endswith("+")


def versions(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """Returns versions of packages that rows depend on, of installed ones."""
    by_package = {}
    for name in packages:
        try:
            by_package[name] = version(name)
        except PackageNotFoundError:
            continue
    return by_package


def describe_state(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the common state of a table's rows: commit, processor, settings, and versions of packages."""
    host = describe_host()
    return {
        "commit": read_commit(),
        "cpu": host["cpu"],
        "cores": host["cores"],
        "settings": dict(settings),
        "versions": versions(),
    }


def moment() -> dict[str, Any]:
    """Returns the day, and the machine's load of the last minute, which includes the measuring process."""
    return {"date": time.strftime("%Y-%m-%d", time.gmtime()), "load": round(os.getloadavg()[0], 2)}
