"""Facts about the machine that measures: hardware, cores for a kernel, and the environment of workers."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import sys
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from targets.cuda.telemetry import gpu_name

_PR_SET_PDEATHSIG = 1  # from <sys/prctl.h>
_SYSTEM = Path("/sys/devices/system/cpu")
_TUNING_PREFIXES = ("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_")


def allowed_cores() -> tuple[int, ...]:
    """Lists the logical cores that this process may use, one of each physical core first."""
    allowed = sorted(os.sched_getaffinity(0))
    rank = {core: _siblings(core).index(core) for core in allowed}
    return tuple(sorted(allowed, key=lambda core: (rank[core], core)))


def cores_for(threads: int) -> tuple[int, ...]:
    """Lists logical cores for a kernel of `threads` threads; all cores if it has more threads."""
    return allowed_cores()[:threads]


def last_level_cache_bytes() -> int:
    """Reads the size of the largest cache of the first core, in bytes; 32 MiB if the system does not tell."""
    sizes = [_cache_bytes(path) for path in (_SYSTEM / "cpu0" / "cache").glob("index*/size")]
    return max(sizes, default=32 << 20)


def cpu_name() -> str:
    """Reads the processor's name by its maker; on virtual machines it often lacks the model."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def describe_host() -> dict[str, Any]:
    """Describes the machine for records and summaries, as plain data that is constant on one machine."""
    return {
        "machine": platform.machine(),
        "cpu": f"{cpu_name()} ({llvm.get_host_cpu_name()})",
        "cores": len(allowed_cores()),
        "affinity": list(allowed_cores()),
        "last_level_cache_bytes": last_level_cache_bytes(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        **({"gpu": gpu} if (gpu := gpu_name()) else {}),
    }


def end_with(parent: int) -> None:
    """Asks the system to kill this process when the thread that has started it ends, for whatever reason.

    Args:
        parent: process id of the parent; if the parent has ended already, this process exits.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


@cache
def machine_name() -> str:
    """Returns a name that is equal for all processes on one machine: builds and timings alternate on it.

    The name identifies the running kernel, so that containers on one machine, whatever their host names, share it.
    """
    try:
        return "machine-" + Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return platform.node()


def worker_environment(python_path: list[str]) -> dict[str, str]:
    """Returns the environment of a worker, without the user's settings of threading libraries.

    NumPy's own matrix library gets one thread: its idle threads would spin beside the kernel that is timed.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_TUNING_PREFIXES)}
    return {
        **inherited,
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join(python_path),
    }


@cache
def _siblings(core: int) -> list[int]:
    """Lists the logical cores on the same physical core."""
    try:
        text = (_SYSTEM / f"cpu{core}" / "topology" / "thread_siblings_list").read_text()
    except OSError:
        return [core]
    cores: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        cores += range(int(first), int(last or first) + 1)
    return cores if core in cores else [core]


def _cache_bytes(path: Path) -> int:
    text = path.read_text(encoding="utf-8").strip()
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)
