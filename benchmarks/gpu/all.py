"""Ladder, tests and a benchmark on this machine's GPU: `python3 -m benchmarks.gpu.all [--output FOLDER]`.

It takes 8 minutes at most, one after the other, and needs an interpreter with PyTorch. Other missing packages are taken
from the wheels of `make gpu-wheels`, if they are here; no registry is asked. All results are written at once to the
folder of the environment variable OUT, or else `runs/gpu`. The exit code is 2 without a GPU, and 1 if any result is
missing; the end of the output lists missing ones.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.ladder.__main__ import NO_GPU, output_folder, versions
from benchmarks.gpu.ladder.lines import FILE, read

ROOT = Path(__file__).resolve().parents[2]
WHEELS, SITE = ROOT / ".gpu_wheels", ROOT / "build" / "gpu"
SECONDS = 480.0
"""Time limit of all stages together, in seconds."""
LADDER, TESTS, TIMING = 120.0, 150.0, 30.0
"""Seconds after which a stage is ended; the benchmark gets what is left."""
SECONDS_RESERVED = 15.0
"""Seconds before the end in which nothing is begun."""
TEST_SECONDS = 20
"""Time limit of each test, in seconds."""
_TESTS = "tests/gpu_device"
_OUTCOME = re.compile(r"^\[gw\d+\].* (PASSED|FAILED|ERROR|SKIPPED) (.+?)\s*$", re.MULTILINE)
_TEST_COUNT = re.compile(r"\[(\d+) items?\]")
_CRASH = re.compile(r"crashed while running '?([^'\n]+)'?")


def install() -> None:
    """Unpacks the wheels that lie here.

    Raises:
        CalledProcessError: pip does not.
    """
    wheels = sorted(map(str, WHEELS.glob("*.whl")))
    if wheels:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
        command += ["--no-deps", "--no-compile", "--upgrade", "--target", str(SITE)]
        subprocess.run([*command, *wheels], check=True)


def environment() -> dict[str, str]:
    """Returns the environment of the stages: packages unpacked here come first."""
    paths = [*([str(SITE)] if SITE.exists() else []), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def stage(name: str, command: Sequence[str], folder: Path, seconds: float) -> int | None:
    """Runs a command, its output in a file and here; returns its exit code, or None if its time was up."""
    sys.stdout.write(f"== {name}, at most {seconds:.0f} s\n")
    sys.stdout.flush()
    path, shown, end = folder / f"{name}.txt", 0, time.monotonic() + seconds
    with path.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=ROOT,
            env=environment(),
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        while process.poll() is None and time.monotonic() < end:
            time.sleep(0.2)
            shown = _show(path, shown)
        code = process.poll()
        if code is None:
            os.killpg(process.pid, 9)
            sys.stdout.write(f"its {seconds:.0f} s are over\n")
    _show(path, shown)
    return code


def _show(path: Path, start: int) -> int:
    """Prints a file's contents from a byte on; returns its present end."""
    with path.open("rb") as log:
        log.seek(start)
        data = log.read()
    sys.stdout.write(data.decode(errors="replace"))
    sys.stdout.flush()
    return start + len(data)


def test_command(paths: Sequence[str], processes: int) -> list[str]:
    plugins = ["pytest_timeout", "xdist.plugin", "tests.gpu_device.survival"]
    options = ["--noconftest", "--import-mode=importlib", "-p", "no:cacheprovider", "-v", "--tb=short"]
    options += [f"--timeout={TEST_SECONDS}", "--timeout-method=thread", "-n", str(processes)]
    options += ["--max-worker-restart=1000"]
    return ["pytest", *(word for plugin in plugins for word in ("-p", plugin)), *options, *paths]


def outcomes(text: str) -> dict[str, str]:
    """Reads the outcome of each test from pytest's output: passed, failed, skipped, or crashed with its process."""
    found = {test: outcome.lower() for outcome, test in _OUTCOME.findall(text)}
    return found | {test.strip(): "crashed" for test in _CRASH.findall(text)}


def summary(folder: Path, codes: Mapping[str, int | None]) -> dict[str, Any]:
    """Summarises the result of each stage, and lists missing results."""
    lines = read(folder)
    rungs = {line["rung"]: line["status"] for line in lines}
    tests: dict[str, str] = {}
    collected = 0
    for name in ("tests", "timing_tests"):
        path = folder / f"{name}.txt"
        text = path.read_text(errors="replace") if path.exists() else ""
        tests |= outcomes(text)
        collected += sum(map(int, _TEST_COUNT.findall(text)[:1]))
    path = folder / "gpu.json"
    document = json.loads(path.read_text()) if path.exists() else {}
    rows, wanted = document.get("rows", {}), document.get("wanted", ())
    missing = [f"rung {name}: {status}" for name, status in rungs.items() if status not in ("right", "skipped")]
    missing += [f"test {name}: {outcome}" for name, outcome in tests.items() if outcome not in ("passed", "skipped")]
    missing += [f"row {name}: {row['problem']}" for name, row in rows.items() if "problem" in row]
    missing += [f"row {name}: not reached" for name in wanted if name not in rows]
    missing += [f"{collected - len(tests)} of {collected} tests: not reached"] if collected > len(tests) else []
    missing += [f"{name}: ended with {code}" for name, code in codes.items() if code]
    missing += [f"{name}: ran out of its time" for name, code in codes.items() if code is None]
    missing += [f"no {what} at all" for what, found in (("test", tests), ("row", rows)) if not found]
    return {"rungs": rungs, "tests": tests, "rows": sorted(rows), "missing": missing}


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 if all results are there, 1 if one is missing, and 2 without a GPU."""
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.gpu.all", description=__doc__)
    parser.add_argument("--output", type=Path, help="folder of results; $OUT by default, or runs/gpu")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="that all of it may take")
    options = parser.parse_args(arguments)
    end = time.monotonic() + options.seconds
    folder = output_folder(options.output).resolve()
    (folder / FILE).unlink(missing_ok=True)
    first = versions(folder)
    if first["status"] != "right":
        sys.stderr.write(f"no GPU: {first['why']}\n")
        return NO_GPU
    install()
    arguments_of_stage = ["--output", str(folder)]
    codes: dict[str, int | None] = {}

    def left(most: float) -> float:
        return max(1.0, min(most, end - time.monotonic() - SECONDS_RESERVED))

    codes["ladder"] = stage("ladder", ["benchmarks.gpu.ladder", *arguments_of_stage], folder, left(LADDER))
    processes = max(1, min(6, (os.cpu_count() or 1) // 2))
    timing = f"{_TESTS}/test_timing.py"
    command = test_command([_TESTS, f"--ignore={timing}"], processes)
    codes["tests"] = stage("tests", command, folder, left(TESTS))
    codes["timing_tests"] = stage("timing_tests", test_command([timing], 1), folder, left(TIMING))
    begun = left(options.seconds)
    command = ["benchmarks.gpu", *arguments_of_stage, "--seconds", f"{max(0.0, begun - 20):.0f}"]
    codes["benchmark"] = stage("benchmark", command, folder, begun)
    found = summary(folder, codes)
    (folder / "summary.json").write_text(json.dumps(found, indent=1) + "\n")
    missing = found["missing"]
    sys.stdout.write("\n".join(["== missing", *missing] if missing else ["== nothing is missing"]) + "\n")
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
