"""A notebook run as a program in a process of its own, forked from one that has imported the heavy libraries."""

from __future__ import annotations

import multiprocessing
import os
import runpy
from dataclasses import dataclass
from pathlib import Path

HEAVY = ["autotune.tuner.tuner", "autotune.run.sweep", "costmodel.dataset", "lightgbm", "matplotlib.pyplot"]
"""Modules that notebooks import and that take seconds to load."""


@dataclass(frozen=True)
class ProgramResult:
    """A program that has ended: its exit code, and what it wrote."""

    code: int | None
    out: str
    err: str


def run(notebook: Path, folder: Path, logs: Path, timeout: float = 100.0) -> ProgramResult:
    """Runs a notebook in `folder`; what it writes goes through files in `logs`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(HEAVY)
    process = context.Process(target=_execute, args=(str(notebook), str(folder), str(logs)))
    process.start()
    process.join(timeout)
    process.kill()
    process.join()
    return ProgramResult(process.exitcode, (logs / "out").read_text(), (logs / "err").read_text())


def _execute(notebook: str, folder: str, logs: str) -> None:
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(Path(logs, name), os.O_WRONLY | os.O_CREAT), number)
    os.chdir(folder)
    import matplotlib.pyplot as plt

    plt.switch_backend("agg")
    runpy.run_path(notebook, run_name="__main__")
