"""Faults on real processes: whatever a trial does, it gets its class and the next trial is measured."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess

import pytest

from measure.errors import ErrorClass
from measure.local import LocalPool
from measure.settings import LocalSettings
from tests.measure.helpers import EXECUTOR, trial

QUICK = {"build_timeout": 0.4, "run_timeout": 0.4}


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    settings = LocalSettings(
        builders=2,
        executor=EXECUTOR,
        memory_bytes=1 << 30,
        prepare_timeout=0.6,
        host_lock=str(tmp_path_factory.mktemp("lock") / "host.lock"),
    )
    with LocalPool(settings) as pool:
        pool.run([trial()])  # workers are up
        yield pool


@pytest.mark.parametrize(
    ("step", "error", "message"),
    [
        ({"build": "instantiation"}, ErrorClass.instantiation, "`factor` must divide extent"),
        ({"build": "compile"}, ErrorClass.compile, "but got compile"),
        ({"build": "bug"}, ErrorClass.unknown, "AttributeError: a fault in our own code"),
        ({"build": "segfault"}, ErrorClass.crash, "the build process died (SIGSEGV)"),
        ({"build": "abort"}, ErrorClass.crash, "died (SIGABRT): LLVM ERROR: cannot select"),
        (
            {"build": "hang"},
            ErrorClass.build_timeout,
            "the build process was killed after its time-out of 0.4 s",
        ),
        ({"build": "eat"}, ErrorClass.out_of_memory, "ran out of memory"),
        (
            {"build": "exhaust"},
            ErrorClass.out_of_memory,
            "ran out of memory (SIGABRT): LLVM ERROR: out of memory",
        ),
        ({"run": "segfault"}, ErrorClass.crash, "the run process died (SIGSEGV)"),
        ({"run": "hang"}, ErrorClass.run_timeout, "the run process was killed after its time-out of 0.4 s"),
        ({"run": "eat"}, ErrorClass.out_of_memory, "ran out of memory"),
        ({"run": "killed"}, ErrorClass.crash, "the run process was killed from outside (SIGKILL)"),
        (
            {"run": "lost"},
            ErrorClass.crash,
            "the run process died (exit code 1): a kernel must run to its end, but the driver says: illegal address",
        ),
        ({"run": "bug"}, ErrorClass.unknown, "AttributeError: a fault in our own code"),
        ({"run": "wrong"}, ErrorClass.wrong_output, "1 of 4 elements wrong, first at [1]"),
        ({"run": "poisoned"}, ErrorClass.wrong_output, "first at [2]"),
        ({"run": "lazy"}, ErrorClass.wrong_output, "first at [3]: expected 0."),
        ({"run": "wrong_dtype"}, ErrorClass.wrong_output, "`output` must be float32[4], but got float64[4]"),
        ({"run": "fresh_buffer"}, ErrorClass.unknown, "`Bound.run` must return the same buffer each time"),
        ({"bind": "refuse"}, ErrorClass.crash, "the loader refuses it"),
    ],
)
def test_each_fault_has_its_class_and_the_run_goes_on(pool, step, error, message):
    # What does not hang has a time-out beyond that of this test.
    options = QUICK if "hang" in step.values() else {"build_timeout": 600.0, "run_timeout": 600.0}
    results = pool.run([trial(number=0), trial(options=options, **step), trial(number=1)])
    assert [result.error for result in results] == [ErrorClass.ok, error, ErrorClass.ok]
    assert message in results[1].message
    assert results[1].seconds != results[1].seconds and results[1].latencies == ()


def kill(pool, role):
    """Kills the worker that is at a trial, once it is; the results that came until this was noticed."""
    workers = (pool.builder if role == "build" else pool.device).workers
    while not (busy := [worker for worker in workers if worker.working]):
        assert pool.results(timeout=0.05) == []
    pool.results(timeout=0.2)
    done, victim = [], busy[0].pid
    os.kill(victim, signal.SIGKILL)
    while busy[0].pid == victim:
        done += pool.results(timeout=0.05)
    return done


@pytest.mark.parametrize("role", ["build", "run"])
def test_a_worker_that_somebody_kills_costs_nothing(pool, role, tmp_path):
    begun = tmp_path / "begun"
    pool.submit([trial(**{role: "hang_once"}, mark=str(begun), options={f"{role}_timeout": 60.0})])
    (result,) = kill(pool, role) + pool.results()
    assert result.ok and begun.exists()


def test_a_worker_that_is_killed_while_it_idles_costs_nothing(pool):
    pool.run([trial()])
    os.kill(pool.device.workers[0].pid, signal.SIGKILL)
    assert pool.run([trial()])[0].ok


def test_a_worker_that_is_killed_again_and_again_is_a_crash(pool):
    pool.submit([trial(run="hang", options={"run_timeout": 60.0})])
    kill(pool, "run")
    (result,) = kill(pool, "run") + pool.results()
    assert result.error is ErrorClass.crash and "was killed from outside (SIGKILL)" in result.message


def test_a_worker_that_the_system_kills_for_memory_is_out_of_memory(pool, monkeypatch):
    monkeypatch.setattr("measure.child.oom_kills", itertools.count(7).__next__)  # one more each time it is read
    (result,) = pool.run([trial(run="killed")])
    assert result.error is ErrorClass.out_of_memory and "was killed by the system for its memory" in result.message


def test_a_reference_that_hangs_is_a_time_out(pool):
    results = pool.run([trial({"prepare": "hang"}), trial()])
    assert [result.error for result in results] == [ErrorClass.run_timeout, ErrorClass.ok]
    assert "killed after its time-out of 0.6 s" in results[0].message


def test_a_reference_that_checks_nothing_is_refused(pool):
    (result,) = pool.run([trial({"prepare": "nan"})])
    assert result.error is ErrorClass.unknown and "`reference` must be free of NaN" in result.message


def test_a_kernel_that_spoils_the_inputs_is_not_blamed_on_the_next(pool):
    results = pool.run([trial(run="spoil"), trial(number=1), trial(number=2)])
    assert [result.error for result in results] == [ErrorClass.wrong_output, ErrorClass.ok, ErrorClass.ok]


def test_the_victim_of_an_earlier_kernel_is_tried_again_before_it_is_blamed(pool):
    pool.run([trial(number=0)])
    results = pool.run([trial(run="spoil_late"), trial(number=1)])
    assert [result.error for result in results] == [ErrorClass.ok, ErrorClass.ok]


def test_many_crashes_in_a_row(pool):
    results = pool.run([trial(run="segfault", number=place) for place in range(4)] + [trial()])
    assert [result.error for result in results] == [ErrorClass.crash] * 4 + [ErrorClass.ok]


def test_a_killed_process_that_its_driver_holds_is_left_behind(
    pool: LocalPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that never ends may keep its process in the driver: the next trial gets another one all the same."""
    held: list[float | None] = []

    def wait(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        held.append(timeout)
        raise subprocess.TimeoutExpired("worker", timeout or 0.0)

    with monkeypatch.context() as patch:
        patch.setattr(subprocess.Popen, "wait", wait)
        (hung,) = pool.run([trial(run="hang", options=QUICK)])
    assert hung.error is ErrorClass.run_timeout and held and None not in held
    (fine,) = pool.run([trial()])
    assert fine.ok
