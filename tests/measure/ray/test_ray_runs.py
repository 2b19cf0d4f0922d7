"""Real kernels on Ray: runs of the command line that join the session's Ray as a cluster, and that start their own."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from measure.database import Database
from tests.measure.ray import session

pytestmark = pytest.mark.xdist_group("ray")
ROOT = Path(__file__).parents[3]


def tune(folder: Path, pool: str, trials: int, **options) -> subprocess.Popen[str]:
    """`autotune run` of a small matmul."""
    sizes = [f"--set=workload.{axis}=96" for axis in "mnk"]
    arguments = ["run", "configs/matmul.yaml", *sizes, "--trials", str(trials), "--pool", pool, "--output", str(folder)]
    return subprocess.Popen(
        [sys.executable, "-m", "autotune", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )


def test_a_run_joins_a_cluster(tmp_path):
    session.start()
    with tune(tmp_path / "run", f"ray:{session.address()}", 6) as process:
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert "SIGTERM" not in said and "raylet" not in said and "INFO" not in said
    with Database(tmp_path / "run" / "records.jsonl", readonly=True) as database:
        records = list(database)
    assert len(records) >= 6 and all(record.ok for record in records)
    assert all(record.host["device"].startswith("ray:") for record in records)


def test_files_of_a_ray_are_for_its_user_alone():
    session.start()
    commands = b"".join(Path(f"/proc/{pid}/cmdline").read_bytes() for pid in session.descendants(os.getpid()))
    (folder,) = set(re.findall(rb"(/[\w/.-]*?/at\w{8})/r/session_", commands))
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700


def test_a_run_that_is_interrupted_leaves_no_process_of_its_ray(tmp_path):
    with tune(tmp_path / "run", "ray", 100_000, start_new_session=True) as process:
        records = tmp_path / "run" / "records.jsonl"
        session.until(lambda: records.exists() and records.stat().st_size > 1000, 40)
        family = session.descendants(process.pid)
        assert len(family) > 3
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does
        said, _ = process.communicate(timeout=30)
    assert process.returncode == 130 and "--resume" in said, said
    session.until(lambda: all(session.has_ended(pid) for pid in family), 20)


def test_a_cluster_that_is_not_there_is_one_sentence(tmp_path):
    with tune(tmp_path / "run", "ray:127.0.0.1:1", 6) as process:
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 2 and "a Ray cluster must answer at 127.0.0.1:1, but" in said, said
    assert "Traceback" not in said
