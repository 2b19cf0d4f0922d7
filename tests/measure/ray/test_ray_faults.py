"""Faults that measuring on Ray survives, on real processes: misbehaving kernels, killed processes, lost nodes."""

from __future__ import annotations

import itertools
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from measure.errors import ErrorClass, PoolError
from tests.measure.helpers import trial
from tests.measure.ray.session import Node, children, has_ended, ray_pool, until

VTA = {"target": "vta"}

pytestmark = pytest.mark.xdist_group("ray")


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    with ray_pool(tmp_path_factory.mktemp("ray"), memory_bytes=3 << 29) as pool:
        yield pool


def test_a_bad_kernel_costs_its_trial_alone_and_no_actor(pool):
    pool.run([trial()])
    actors = {actor for role in ("build", "run") for _, actor in children(role)}
    short = {"run_timeout": 0.7, "build_timeout": 0.7}
    bad = {
        ErrorClass.crash: trial(run="segfault"),
        ErrorClass.run_timeout: trial(run="hang", options=short),
        ErrorClass.out_of_memory: trial(run="eat"),
        ErrorClass.wrong_output: trial(run="wrong"),
        ErrorClass.build_timeout: trial(build="hang", options=short),
        ErrorClass.compile: trial(build="compile"),
        ErrorClass.unknown: trial(run="bug"),
    }
    results = pool.run([*bad.values(), trial(seconds=2e-3)])
    assert [result.error for result in results] == [*bad, ErrorClass.ok]
    assert all(result.message for result in results[:-1])
    assert pool.run([trial()])[0].ok
    assert {actor for role in ("build", "run") for _, actor in children(role)} == actors


def test_a_killed_actor_is_replaced_and_its_trial_measured_again(pool):
    slow = trial(seconds=0.4, sleep=True)
    pool.submit([slow, trial(seconds=1e-3)])
    child, actor = until(lambda: children("run"))[0]
    os.kill(actor, signal.SIGKILL)
    results = pool.results() + pool.results()
    assert [result.ok for result in results] == [True, True]
    assert children("run")[0][1] != actor and has_ended(child)


def test_a_killed_actor_takes_its_kernel_along(pool):
    pool.submit([trial(run="hang", options={"run_timeout": 600.0})])
    child, actor = until(lambda: children("run"))[0]
    time.sleep(0.3)
    os.kill(actor, signal.SIGKILL)
    until(lambda: has_ended(child), 3.0)  # else it would disturb the next timings
    pool.cancel()


def test_a_killed_builder_is_replaced_and_its_builds_begin_again(pool):
    pool.submit([trial(build="slow", build_seconds=1.0, seconds=1e-3 * place) for place in (1, 2)])
    _, actor = until(lambda: children("build"))[0]
    os.kill(actor, signal.SIGKILL)
    results = pool.results() + pool.results()
    assert sorted(result.seconds for result in results) == [1e-3, 2e-3]


def test_the_trial_of_a_killed_child_is_measured_again(pool, tmp_path):
    pool.run([trial()])
    child, actor = children("run")[0]
    pool.submit([trial(run="hang_once", mark=str(tmp_path / "begun"))])
    until((tmp_path / "begun").exists)
    os.kill(child, signal.SIGKILL)
    (result,) = pool.results()
    assert result.ok
    assert pool.run([trial()])[0].ok and children("run")[0][1] == actor


def test_what_is_cancelled_is_killed_at_once(pool):
    pool.submit([trial(run="hang", options={"run_timeout": 600.0})])
    child, _ = until(lambda: children("run"))[0]
    time.sleep(0.3)
    pool.cancel()
    assert pool.run([trial()])[0].ok and has_ended(child)


def test_nodes_come_and_go_during_a_run(pool):
    numbers = itertools.count()
    results = []

    def work_on(node=None):
        """Keeps the devices busy; the results that came from a node, if one is given."""
        while pool.outstanding < 8:
            pool.submit([trial(seconds=0.05, sleep=True, deterministic=True, number=next(numbers), options=VTA)])
        results.extend(pool.results(0.1))
        return [result for result in results if node and node.id[:6] in result.host["device"]]

    nodes = []
    with ThreadPoolExecutor(1) as thread:
        try:
            for _ in range(2):
                starting = thread.submit(Node, {"autotune_vta": 2.0})
                until(lambda: starting.done() or work_on(), 60.0)  # noqa: B023
                nodes.append(starting.result())
                until(lambda: work_on(nodes[-1]))
                if len(nodes) == 1:
                    nodes[0].kill()
            while pool.outstanding:
                results += pool.results()
        finally:
            for node in nodes:
                node.kill()
    assert all(result.ok for result in results)
    assert sorted(result.trial.trace[0]["number"] for result in results) == list(range(next(numbers)))


def test_an_executor_that_cannot_be_made_is_one_sentence(tmp_path):
    with ray_pool(tmp_path, executor="tests.measure.fake_executor:BrokenExecutor") as broken:
        broken.submit([trial()])
        with pytest.raises(PoolError, match="no such accelerator"):
            broken.results()


def test_an_actor_that_cannot_be_made_is_one_sentence(tmp_path):
    with ray_pool(tmp_path / "missing") as broken:
        broken.submit([trial()])
        with pytest.raises(PoolError, match=r"must come up, but: FileNotFoundError.*host\.lock"):
            broken.results()
