"""Facts of the machine, and the lock that its runs share."""

from __future__ import annotations

import itertools
import json
import os
import tempfile
from types import SimpleNamespace

import pytest

from benchmarks import results
from measure import host
from measure.errors import PoolError
from measure.hostlock import HostLock
from search_space import folders


def test_the_description_is_json_and_stable():
    description = host.describe_host()
    assert json.loads(json.dumps(description)) == description == host.describe_host()
    assert description["cores"] == len(os.sched_getaffinity(0)) and description["cpu"]


def test_cores_are_those_that_we_may_use():
    assert set(host.allowed_cores()) == os.sched_getaffinity(0)
    assert len(host.cores_for(1)) == 1
    assert host.cores_for(10_000) == host.allowed_cores()


def test_one_thread_of_each_physical_core_comes_first(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr(host, "_siblings", lambda core: [core // 2 * 2, core // 2 * 2 + 1])
    assert host.allowed_cores() == (0, 2, 1, 3)
    assert host.cores_for(2) == (0, 2)


def test_threading_settings_do_not_reach_a_worker(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("GOMP_CPU_AFFINITY", "0")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    monkeypatch.setenv("COLOUR", "red")
    environment = host.worker_environment(["/a", "/b"])
    assert not [name for name in environment if name.startswith(("OMP_", "GOMP_", "KMP_"))]
    assert environment["OPENBLAS_NUM_THREADS"] == "1" and environment["COLOUR"] == "red"
    assert environment["PYTHONPATH"] == f"/a{os.pathsep}/b"


@pytest.mark.parametrize(("every_fifth", "noise"), [(100, 0.0), (200, 1.0), (400, 3.0)])
def test_noise_is_the_spread_of_timings_over_their_median(monkeypatch, every_fifth, noise):
    took = itertools.cycle([every_fifth, 100, 100, 100, 100])  # ns
    steps = (step for elapsed in took for step in (0, elapsed))
    clock = itertools.accumulate(itertools.chain([0] * 5, steps))  # five warm up, and have no end
    monkeypatch.setattr(results, "time", SimpleNamespace(perf_counter_ns=lambda: next(clock)))
    assert results.noise_of_host(50) == pytest.approx(noise)


def test_builds_share_the_host_and_timing_has_it_alone(tmp_path):
    one, two = HostLock(tmp_path / "lock"), HostLock(tmp_path / "lock")
    assert one.acquire("build", 0) and two.acquire("build", 0)
    assert not two.acquire("time", 0.01)
    assert two.phase is None
    one.release()
    assert two.acquire("time", 0) and two.acquire("time", 0)
    assert not one.acquire("build", 0.01)
    two.close()
    two.close()
    assert one.acquire("build", 0)
    one.close()


def test_a_lock_whose_folder_somebody_else_has_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(folders, "SESSIONS", tmp_path / "none")
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    HostLock().close()
    (tmp_path / f"autotune-{os.getuid()}").chmod(0o777)
    with pytest.raises(PoolError, match="a folder of this user must be one that nobody else may write to, but got"):
        HostLock()
