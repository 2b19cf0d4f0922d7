"""Runs that are killed, run out of room or share their records, as processes: nothing that was measured is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from autotune.cli.app import app
from autotune.tuner.finals import is_final
from measure.database import Database
from measure.record import Record

ROOT = Path(__file__).parents[3]
CONFIG = "workload: {operator: matmul, m: 24, n: 32, k: 16}\ntrials: 24\nsearch: {batch: 6, finalists: 2}\n"
pytestmark = pytest.mark.timeout(300)  # each starts processes, which takes its time where there are many others
STOPPING = """
import os, signal, sys
from autotune.cli.app import main
from measure.database import Database

left, extend = [int(sys.argv.pop(1))], Database.extend


def stopping(database, records):
    found = extend(database, records)
    left[0] -= len(found)
    if left[0] <= 0 < left[0] + len(found):
        os.kill(os.getpid(), signal.SIGSTOP)
    return found


Database.extend = stopping
main()
"""
"""`autotune` that stops itself once so many records are in its file: whoever watches the file may be too late."""
LIMITED_PROGRAM = (
    "import resource, sys; size = int(sys.argv.pop(1)); resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))\n"
    "from autotune.cli.app import main; main()"
)


PROCESSES: list[subprocess.Popen[str]] = []


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "small.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for process in PROCESSES:  # where a test failed
        process.kill()
        process.communicate()
    PROCESSES.clear()


def start(
    folder: Path, *arguments: object, room: int | None = None, stop_after: int | None = None, **environment: str
) -> subprocess.Popen[str]:
    """Starts `autotune run small.yaml ...` in a process of its own.

    Args:
        folder: working directory.
        arguments: arguments behind `run small.yaml`.
        room: bytes that a file may have.
        stop_after: records after which it stops itself, see `wait_until_stopped`.
        environment: variables in addition to this process's.
    """
    program = ["-m", "autotune"] if room is None else ["-c", LIMITED_PROGRAM, str(room)]
    if stop_after is not None:
        program = ["-c", STOPPING, str(stop_after)]
    process = subprocess.Popen(
        [sys.executable, *program, "run", "small.yaml", *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    PROCESSES.append(process)
    return process


def finish(process: subprocess.Popen[str]) -> str:
    """Waits for a run that must succeed; what it said."""
    said, complained = process.communicate(timeout=180)
    assert process.returncode == 0, complained
    return said + complained


def run(*arguments: object) -> Result:
    """`autotune run small.yaml ...` in this process, which is quicker."""
    return CliRunner().invoke(app, ["run", "small.yaml", *map(str, arguments)])


def trials(path: Path, seed: int = 0) -> list[Record]:
    """Records of one seed in a file, timings at the end of a run left out."""
    with Database(path, readonly=True) as database:
        return [record for record in database if record.trial.seed == seed and not is_final(record)]


def wait_until(true: Callable[[], bool], seconds: float = 100.0) -> bool:
    """Waits until a condition holds; returns whether it did in time."""
    deadline = time.monotonic() + seconds
    while not (found := true()) and time.monotonic() < deadline:
        time.sleep(0.005)
    return found


def wait_until_stopped(process: subprocess.Popen[str]) -> None:
    """Waits until a process has stopped itself."""
    found = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    assert found is not None and found.si_code == os.CLD_STOPPED


def children(pid: int) -> list[int]:
    """Processes that a process started, and those that these did."""
    found = [int(child) for file in Path(f"/proc/{pid}/task").glob("*/children") for child in file.read_text().split()]
    return [*found, *(below for child in found for below in children(child))]


def assert_measured_once(records: list[Record], count: int) -> None:
    assert len({record.trace_key for record in records}) == len(records) == count
    orders = [record.provenance.order for record in records]
    assert sorted(orders) == sorted(set(orders))


def test_a_run_that_is_killed_loses_nothing_that_was_finished(folder: Path) -> None:
    records = folder / "runs" / "small" / "records.jsonl"
    running = start(folder, "--quiet", stop_after=9)
    wait_until_stopped(running)
    refused = run("--quiet", "--resume")
    assert refused.exit_code == 2
    assert refused.output == "`output` must be the folder of one run at a time, but got runs/small, in use\n"
    workers = children(running.pid)
    assert len(workers) >= 2
    running.kill()
    running.communicate()
    assert wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))
    kept = records.read_bytes()
    assert 9 <= kept.count(b"\n") < 24, "the run must be killed in its midst"
    assert run("--quiet", "--resume").exit_code == 0
    assert records.read_bytes().startswith(kept)
    assert_measured_once(trials(records), 24)


def test_a_run_that_runs_out_of_room_says_so_and_goes_on_later(folder: Path) -> None:
    records = folder / "runs" / "small" / "records.jsonl"
    full = start(folder, "--quiet", room=20_000)
    said, complained = full.communicate(timeout=180)
    assert full.returncode == 2 and said == ""
    (sentence,) = complained.splitlines()
    assert sentence.startswith("`records` must have room for every record, but writing ")
    assert sentence.endswith(
        "bytes to runs/small/records.jsonl failed: File too large; the records before it are kept. "
        "To go on: autotune run small.yaml --quiet --resume"
    )
    kept = records.read_bytes()
    assert kept.endswith(b"\n") and 1 <= kept.count(b"\n") < 24 and len(kept) <= 20_000
    assert run("--quiet", "--resume").exit_code == 0
    assert records.read_bytes().startswith(kept)
    assert_measured_once(trials(records), 24)


def test_two_runs_share_a_file_and_both_are_resumed(folder: Path) -> None:
    records = folder / "shared.jsonl"
    shared = ("--set", f"records={records}", "--quiet")
    keys = [("--output", folder / name, "--seed", seed) for seed, name in enumerate("ab")]
    # Each run has a lock on timing of its own: the second must not wait for the first, which may be stopped with it.
    locks = [folder / "lock0", folder / "lock1"]
    for lock in locks:
        lock.mkdir(mode=0o700)
    first = start(folder, *shared, *keys[0], "--trials", "12", stop_after=2, XDG_RUNTIME_DIR=str(locks[0]))
    wait_until_stopped(first)
    second = start(folder, *shared, *keys[1], "--trials", "12", XDG_RUNTIME_DIR=str(locks[1]))
    assert wait_until(lambda: len(trials(records, 1)) >= 2)
    first.send_signal(signal.SIGCONT)
    for process in (first, second):
        finish(process)
    before = [trials(records, seed) for seed in (0, 1)]
    times = [[record.provenance.time for record in found] for found in before]
    assert max(map(min, times)) < min(map(max, times)), "they must have run at the same time"
    for found in before:
        assert_measured_once(found, 12)
        assert sorted(record.provenance.order for record in found) == list(range(12))
    for own in keys:
        assert run(*shared, *own, "--resume", "--trials", "14").exit_code == 0
    everything = [trials(records, seed) for seed in (0, 1)]
    for found, old in zip(everything, before, strict=True):
        assert_measured_once(found, 14)
        assert found[:12] == old
    known = {record.trace_key for found in before for record in found}
    assert not known & {record.trace_key for found in everything for record in found[12:]}
