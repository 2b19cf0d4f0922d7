"""The local pool on real processes: order, exclusion of building and timing, caching, cutting, cancelling."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time

import pytest

from measure.errors import ErrorClass, PoolError
from measure.hostlock import HostLock
from measure.local import LocalPool
from measure.settings import LocalSettings
from tests.measure.helpers import EXECUTOR, trial


@pytest.fixture(scope="module")
def lock(tmp_path_factory):
    return str(tmp_path_factory.mktemp("lock") / "host.lock")


@pytest.fixture(scope="module")
def pool(lock):
    with LocalPool(LocalSettings(builders=2, executor=EXECUTOR, host_lock=lock)) as pool:
        yield pool


def test_a_result_has_everything_that_was_measured(pool):
    (result,) = pool.run([trial(seconds=2e-3)])
    assert result.error is ErrorClass.ok and result.message == ""
    assert result.seconds == 2e-3 and result.spread == 0 and set(result.latencies) == {2e-3}
    assert result.min_seconds == 2e-3
    assert result.outcome.max_error == 0 and result.outcome.rotation_bytes == 0
    assert result.outcome.build_seconds > 0 and result.outcome.run_seconds > 0


def test_what_is_deterministic_is_timed_once(pool):
    told = {"cycles": 2e5}
    first, second = pool.run([trial(seconds=s, deterministic=True, metrics=told) for s in (2e-3, 9e-3)])
    assert first.latencies == (2e-3,) and first.spread == 0 and first.metrics == told
    assert second.latencies == (9e-3,) and second.message == "", "nothing is cut short"


def test_results_come_in_order_of_submission(pool):
    trials = [
        trial(seconds=1e-3 + place * 1e-6, build="slow", build_seconds=0.03 if place % 3 == 0 else 0.0)
        for place in range(10)
    ]
    results = pool.run(trials)
    assert [result.trial for result in results] == trials
    assert [result.seconds for result in results] == [step.trace[0]["seconds"] for step in trials]


def test_nothing_is_built_while_something_is_timed(lock):
    settings = LocalSettings(builders=2, batch=4, executor=EXECUTOR, host_lock=lock)
    trials = [trial(seconds=2e-3, sleep=True, number=place, build="slow", build_seconds=0.02) for place in range(10)]
    with LocalPool(settings) as pool, LocalPool(settings) as other:
        pool.submit(trials)
        other.submit(trials[:5])
        results = []
        while pool.outstanding or other.outstanding:  # two runs on one host, taking turns
            results += pool.results(0.02) + other.results(0.02)
    assert len(results) == 15 and all(result.ok for result in results)
    builds = [result.build_span for result in results]
    runs = [result.run_span for result in results]
    for start, end in runs:
        assert end - start > 5e-3
        assert all(end <= begin or finish <= start for begin, finish in builds)
        assert sum(start < finish and begin < end for begin, finish in runs) == 1, "two kernels timed at once"
    assert any(a < d and c < b for a, b in builds for c, d in builds if (a, b) != (c, d)), "builds ran one by one"


def test_no_result_is_promised_while_another_run_has_the_host(pool, lock):
    held = HostLock(lock)
    assert held.acquire("time", 1)
    pool.submit([trial()])
    start = time.monotonic()
    assert pool.results(0.1) == [] and time.monotonic() - start > 0.09
    held.close()
    assert pool.results()[0].ok


def test_the_task_is_prepared_once(pool, tmp_path):
    args = {"log": str(tmp_path / "log")}
    pool.run([trial(args, seconds=step * 1e-4) for step in range(1, 6)])
    pool.run([trial(args, seconds=1e-3)])
    assert (tmp_path / "log").read_text() == "prepared\n"
    pool.run([trial(args, options={"seed": 1})])
    assert (tmp_path / "log").read_text() == "prepared\n" * 2


def test_a_full_cache_of_tasks_lets_the_oldest_go(lock, tmp_path):
    first, second = {"log": str(tmp_path / "1"), "size": 1000}, {"log": str(tmp_path / "2"), "size": 1000}
    with LocalPool(LocalSettings(builders=1, executor=EXECUTOR, host_lock=lock, task_bytes=30_000)) as pool:
        pool.run([trial(first), trial(second), trial(first)])
    assert (tmp_path / "1").read_text() == "prepared\n" * 2 and (tmp_path / "2").read_text() == "prepared\n"


def test_a_loser_is_cut_short_against_the_given_best(pool):
    slow = trial({"family": "given"}, {"best_seconds": 1e-3}, seconds=0.02, sleep=True)
    (result,) = pool.run([slow])
    assert result.ok and result.latencies == (0.02,) and result.seconds == 0.02
    assert "cut short after the first samples: over 3x the best" in result.message
    assert result.trial is slow


def test_a_loser_is_cut_short_against_the_best_found_on_the_way(pool):
    args = {"family": "found"}
    pool.run([trial(args, seconds=1e-3)])
    slow, other = pool.run([trial(args, seconds=0.02, sleep=True), trial({"family": "new"}, seconds=0.02, sleep=True)])
    assert len(slow.latencies) == 1 and slow.message
    assert len(other.latencies) > 1 and not other.message, "latencies of another workload do not count"


def test_cold_constants_are_rotated_and_recorded(pool):
    (cold,) = pool.run([trial(options={"cache": "network"})])
    assert cold.ok and cold.outcome.rotation_bytes == 1_573_000  # 1.5 x 1 MiB of cache in copies of 1000 bytes


def test_the_runner_has_as_many_cores_as_threads(pool):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")
    pool.run([trial(options={"threads": 1})])
    (runner,) = pool.device.workers
    assert len(os.sched_getaffinity(runner.pid)) == 1
    pool.run([trial(options={"threads": 2})])
    assert len(os.sched_getaffinity(runner.pid)) == 2


def test_submitting_with_results_outstanding(pool):
    pool.submit([trial(number=0)])
    pool.submit([trial(number=1)])
    with pytest.raises(PoolError, match="`run` must start with no result outstanding, but got outstanding=2"):
        pool.run([trial()])
    seen = []
    while pool.outstanding:
        seen += pool.results()
        if len(seen) == 1:
            pool.submit([trial(number=2)])
    assert sorted(result.trial.trace[0]["number"] for result in seen) == [0, 1, 2]
    assert pool.results() == []


def test_cancelling_forgets_and_the_pool_goes_on(pool):
    pool.submit([trial(build="slow", build_seconds=30.0) for _ in range(3)])
    assert pool.results(0.3) == []
    pool.cancel()
    assert pool.outstanding == 0 and pool.results() == []
    assert pool.run([trial()])[0].ok


def test_processes_come_up_before_there_is_work_unless_another_run_times(tmp_path):
    lock = str(tmp_path / "host.lock")
    other = HostLock(lock)
    with LocalPool(LocalSettings(builders=2, executor=EXECUTOR, host_lock=lock)) as pool:
        workers = pool.builder.workers + pool.device.workers
        assert other.acquire("time", 0.0)
        pool.warm_up(1)
        assert not any(worker.pid for worker in workers)
        other.release()
        pool.warm_up(1)
        before = [worker.pid for worker in workers]
        assert None not in before and not other.acquire("time", 0.0)
        assert pool.run([trial()])[0].ok and [worker.pid for worker in workers] == before
        assert other.acquire("time", 0.0), "who has nothing to do lets others time"
    other.close()


def test_no_kernel_is_timed_while_the_caller_works(pool):
    pool.submit([trial(seconds=1e-3, sleep=True, number=place) for place in range(4)])
    waits, results = [], []
    while pool.outstanding:
        start = time.monotonic()
        results += pool.results()
        waits.append((start, time.monotonic()))
        time.sleep(0.05)
    assert len(results) == 4
    for begin, end in (result.run_span for result in results):
        assert any(start <= begin and end <= until for start, until in waits)


def test_a_pool_is_used_where_another_loop_runs_as_in_a_notebook(lock):
    async def cell():
        with LocalPool(LocalSettings(builders=1, executor=EXECUTOR, host_lock=lock)) as pool:
            assert pool.results(0.01) == []
            return pool.run([trial(number=place) for place in range(2)])

    assert all(result.ok for result in asyncio.run(cell()))


@pytest.mark.parametrize("role", ["build", "run"])
def test_what_is_interrupted_is_killed_by_cancelling_and_the_pool_goes_on(pool, role):
    pool.submit([trial(**{role: "hang"}, options={f"{role}_timeout": 60.0})])
    workers = (pool.builder if role == "build" else pool.device).workers
    while not (busy := [worker.pid for worker in workers if worker.working]):
        assert pool.results(0.05) == []
    before = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    ignored = signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where a shell does not wait
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            pool.results()
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.signal(signal.SIGINT, ignored)
    assert pool.outstanding == 1
    pool.cancel()
    assert pool.outstanding == 0 and not os.path.exists(f"/proc/{busy[0]}")
    assert pool.run([trial()])[0].ok


def test_the_driver_of_a_trial_works_for_milliseconds(pool):
    pool.run([trial()])
    start = time.process_time()
    results = pool.run([trial(number=place, seconds=1e-3) for place in range(50)])
    assert all(result.ok for result in results)
    assert (time.process_time() - start) / 50 < 0.02


def test_closing_ends_the_processes(lock):
    pool = LocalPool(LocalSettings(builders=1, executor=EXECUTOR, host_lock=lock))
    pool.run([trial()])
    pids = [worker.pid for worker in pool.builder.workers + pool.device.workers]
    pool.close()
    pool.close()
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
    with pytest.raises(PoolError, match="open pool"):
        pool.submit([trial()])


def test_workers_that_cannot_start_are_reported_to_the_user(lock):
    broken = LocalSettings(builders=1, executor="tests.measure.fake_executor:BrokenExecutor", host_lock=lock)
    with (
        LocalPool(broken) as pool,
        pytest.raises(PoolError, match="(?s)process must start, but died.*no such acc"),
    ):
        pool.run([trial()])


ORPHANS = """
import os
from measure.local import LocalPool
from measure.settings import LocalSettings
from tests.measure.helpers import EXECUTOR, trial

pool = LocalPool(LocalSettings(builders=2, executor=EXECUTOR, host_lock={lock!r}))
pool.run([trial(number=place) for place in range(4)])
pool.submit([trial(build="hang", options={{"build_timeout": 0.5}})])
pool.results(0.1)
print(*[worker.pid for worker in pool.builder.workers + pool.device.workers], flush=True)
os._exit(0)
"""


def test_workers_end_with_their_parent_even_one_that_hangs_in_native_code(lock):
    program = [sys.executable, "-c", ORPHANS.format(lock=lock)]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    pids = [int(pid) for pid in done.stdout.split()]
    deadline = time.monotonic() + 5
    while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(pids) == 3 and not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]


def test_a_worker_imports_only_what_it_needs():
    program = "import sys, measure.worker;print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    heavy = {"autotune", "costmodel", "lightgbm", "mlflow", "typer", "pydantic", "orjson", "rich", "torch"}
    assert not heavy & set(done.stdout.split())


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"builders": 0}, "`builders` must be at least 1 or None, but got builders=0"),
        ({"batch": 0}, "`batch` must be positive, but got batch=0"),
    ],
)
def test_impossible_settings_are_refused(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        LocalSettings(**options)
