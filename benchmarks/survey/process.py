"""Processes of the survey: limits of time and memory, and facts that remain even after a crash."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure.host import worker_environment

_ROOT = Path(__file__).resolve().parents[2]
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}  # nothing is downloaded


class Facts:
    """Facts that a process writes, a JSON object a line, so that they outlive it.

    Args:
        path: path of the file, which is appended to.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def begin(self, stage: str) -> None:
        """Notes the present stage."""
        self.add(stage=stage)

    def add(self, **facts: Any) -> None:
        """Notes facts; later ones replace earlier ones of the same name."""
        with self._path.open("a") as file:
            file.write(json.dumps(facts) + "\n")

    @contextmanager
    def failures(self) -> Iterator[None]:
        """Notes an exception raised inside, by its first line; the traceback goes on to the starting process."""
        try:
            yield
        except Exception as error:
            self.add(failure=f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}")
            raise

    def all(self) -> dict[str, Any]:
        """Reads the facts of all processes; an incomplete line is left out."""
        facts: dict[str, Any] = {}
        text = self._path.read_text() if self._path.exists() else ""
        for line in text.splitlines(keepends=True):
            if line.endswith("\n"):
                facts |= json.loads(line)
        return facts


@dataclass(frozen=True)
class ProcessEnd:
    """End of a process.

    Attributes:
        why: reason in a sentence; "" where all went well.
        timed_out: whether its time was over.
    """

    why: str
    timed_out: bool = False


def within(memory_bytes: int) -> None:
    """Limits the address space of this process, and of each that it starts; no core dumps."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))


def run_with_limit(module: str, request: Mapping[str, Any], seconds: float) -> ProcessEnd:
    """Runs `python -m module REQUEST`; when it returns, neither the process nor any that it started is left.

    Args:
        module: module that takes a request as JSON.
        request: request to the module.
        seconds: after which it is ended.
    """
    with tempfile.TemporaryFile() as said:
        command = [sys.executable, "-m", module, json.dumps(request)]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env={**worker_environment([str(_ROOT)]), **_OFFLINE},
            start_new_session=True,
        )
        deadline = time.monotonic() + seconds
        running = True
        try:
            while running and time.monotonic() < deadline:
                running = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
                if running:
                    time.sleep(0.05)
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # nobody else has its number, as it has not been waited for
            code = process.wait()
        said.seek(0)
        lines = said.read().decode(errors="replace").strip().splitlines()
    if running:
        return ProcessEnd(f"it took more than {seconds:.0f} s", True)
    if code < 0:
        return ProcessEnd(f"the process was ended by {signal.Signals(-code).name}")
    return ProcessEnd("" if code == 0 else (lines[-1] if lines else f"the process ended with code {code}"))
