"""Test of a GPU from the bottom up, a process for each rung: `python -m benchmarks.gpu.ladder [--output FOLDER]`.

The folder is that of the environment variable OUT, or else `runs/gpu`. A rung that hangs is killed, a fault ends only
its own process, and the result of each is a line of `ladder.jsonl` at once. This process needs no package.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.gpu.ladder.lines import FILE, append, read
from targets.cuda.driver import driver_version, missing_device

LIMIT = 15.0
"""Time limit of a rung, in seconds."""
PACKAGES = ("cuda-bindings", "cuda-core", "nvidia-cuda-nvrtc", "numpy", "torch", "triton", "pytest", "pytest-xdist")
MODULES = Path(".gpu_wheels/modules")
NO_GPU = 2


def output_folder(folder_option: Path | None) -> Path:
    """Returns the folder of results: the given one, or the one that the environment names, or `runs/gpu`."""
    folder = folder_option or Path(os.environ.get("OUT") or "runs/gpu")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def versions(folder: Path) -> dict[str, Any]:
    """Writes the first line: installed packages, and why there is no GPU if it is missing."""
    begun, versions_by_name = time.perf_counter(), {}
    for name in PACKAGES:
        try:
            versions_by_name[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions_by_name[name] = ""
    why = missing_device()
    facts = {"python": platform.python_version(), "packages": versions_by_name, "cores": os.cpu_count()}
    if why:
        return append(folder, "versions", "no gpu", begun, why=why, **facts)
    return append(folder, "versions", "right", begun, driver=driver_version(), **facts)


def names() -> list[str]:
    """Lists the names of the rungs, by a process of its own, as they import packages that this one does without.

    Raises:
        ModuleNotFoundError: some are missing.
    """
    code = "from benchmarks.gpu.ladder.rungs import RUNGS; print(*(r.name for r in RUNGS))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ModuleNotFoundError(done.stderr.strip().splitlines()[-1])
    return done.stdout.split()


def climb(name: str, folder: Path, modules: Path, limit: float) -> dict[str, Any]:
    """Runs one rung in a process of its own, and returns its line."""
    begun, before = time.perf_counter(), len(read(folder))
    command = [sys.executable, "-m", "benchmarks.gpu.ladder.rung", name]
    command += ["--output", str(folder), "--modules", str(modules)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
    try:
        _, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        # what waits for a device in the driver may outlive a kill; it is left behind then
        errors = b""
        return append(folder, name, "hung", begun, why=f"not done after {limit:g} s")
    lines = read(folder)
    if len(lines) > before:
        return lines[-1]
    tail = errors.decode(errors="replace").strip().splitlines()[-1:] or [""]
    return append(folder, name, "crashed", begun, why=f"ended with {process.returncode}: {tail[0]}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 if all rungs are right, 1 if one is not, and 2 without a GPU."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.ladder", description=__doc__)
    parser.add_argument("--output", type=Path, help="folder of results; $OUT by default, or runs/gpu")
    parser.add_argument("--modules", type=Path, default=MODULES, help="folder of what was compiled beforehand")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds of a rung")
    parser.add_argument("--rungs", help="comma-separated names; all by default")
    options = parser.parse_args(arguments)
    folder = output_folder(options.output)
    (folder / FILE).unlink(missing_ok=True)
    first = versions(folder)
    if first["status"] != "right":
        sys.stderr.write(f"no gpu: {first['why']}\n")
        return NO_GPU
    try:
        all_names = names()
    except ModuleNotFoundError as error:
        append(folder, "packages", "failed", time.perf_counter(), why=str(error))
        sys.stderr.write(f"packages must be installed (`make gpu-wheels`), but {error}\n")
        return 1
    wanted = options.rungs.split(",") if options.rungs else all_names
    if unknown := [name for name in wanted if name not in all_names]:
        sys.stderr.write(f"`--rungs` must be among {', '.join(all_names)}, but got {unknown[0]!r}\n")
        return 1
    red = []
    for name in wanted:
        line = climb(name, folder, options.modules, options.limit)
        if line["status"] not in ("right", "skipped"):
            red.append(name)
        shown = line.get("why") or f"{line['took']:.1f} s"
        sys.stdout.write(f"{name}: {line['status']}, {shown}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{len(wanted) - len(red)} of {len(wanted)} rungs hold{': not ' if red else ''}{', '.join(red)}\n")
    return int(bool(red))


if __name__ == "__main__":
    sys.exit(main())
