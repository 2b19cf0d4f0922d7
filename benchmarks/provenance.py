"""Where a figure comes from: the state of the packages, the machine, the settings, the peers, the day."""

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
"""What rows of a GPU measure: a commit that changes none of these leaves what was measured before true."""
MEASURED = (*EVERYWHERE, ":(exclude)targets/cuda")
"""What rows of a CPU or a simulator measure. Of a GPU's code they import what asks for its name, and nothing else."""
MEASURING = ("benchmarks/*.py",)
"""What measures them. Rows say by their settings how; what differs from every commit, nobody can run again."""
PACKAGES = (
    "llvmlite", "numpy", "scikit-learn", "lightgbm", "onnx", "onnxruntime", "openvino", "timm", "torch", "torchvision",
    "transformers",
)  # fmt: skip


def commit_of(folder: Path = ROOT, measured: Sequence[str] = MEASURED, measuring: Sequence[str] = MEASURING) -> str:
    """The newest commit that changed what is measured, with a `+` where that or what measures it differs from what is
    committed; "" where there is no repository, or none that has it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()

    try:
        commit = git("log", "-1", "--format=%h", "--abbrev=12", "--", *measured)
        return commit + "+" if commit and git("status", "--porcelain", "--", *measured, *measuring) else commit
    except (OSError, subprocess.CalledProcessError):
        return ""


def is_whole(commit: str) -> bool:
    """Whether what was run is that commit, as `commit_of` names it."""
    return bool(commit) and not commit.endswith("+")


def versions(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """Versions of packages, those that rows depend on, as far as they are installed."""
    found = {}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def state_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What rows of one table have in common: commit, processor, settings, and versions of what it ran beside."""
    host = describe_host()
    return {
        "commit": commit_of(),
        "cpu": host["cpu"],
        "cores": host["cores"],
        "settings": dict(settings),
        "versions": versions(),
    }


def moment() -> dict[str, Any]:
    """The day, and how busy the machine was: its load of the last minute, to which what measures adds its own."""
    return {"date": time.strftime("%Y-%m-%d", time.gmtime()), "load": round(os.getloadavg()[0], 2)}
