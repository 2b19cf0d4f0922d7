"""Whole runs on RPC devices: the command line, simulated accelerators, two targets in one run, workers that die."""

from __future__ import annotations

import json
import signal
import threading
import time
from pathlib import Path

import onnx
import pytest

from measure.database import Database
from measure.errors import ErrorClass, PoolError
from measure.fleet.scheduler import FleetSettings
from measure.rpc.pool import RpcPool
from measure.rpc.settings import RpcAddress
from measure.settings import LocalSettings
from tests.autotune.test_network import call
from tests.autotune.test_stepwise import small
from tests.measure.helpers import EXECUTOR, trial
from tests.measure.rpc.processes import ROOT, Process, eventually, settings, worker


def records(path: Path):
    with Database(path, readonly=True) as database:
        return list(database.records())


def test_a_simulated_accelerator_as_an_rpc_device(tmp_path):
    with worker(tmp_path, "--key", "sim", target="vta", fake=False) as process:
        done = call(
            *("run", ROOT / "configs" / "vta_conv2d.yaml", "--trials", 6, "--output", tmp_path / "out"),
            *("--pool", f"rpc://{process.place}?key=sim", "--token-file", tmp_path / "token", "--quiet"),
            *("--set", "search.batch=3", "--set", "cost_model.name=roofline"),
        )
    assert done.exit_code == 0, done.output
    found = records(tmp_path / "out" / "records.jsonl")
    assert len(found) == 6 and all(record.ok and record.target == "vta" for record in found)
    assert {record.host["device"] for record in found} == {f"sim at {process.place}"}
    assert all(record.metrics["cycles"] > 0 for record in found)


def test_a_cpu_and_an_accelerator_serve_one_run(tmp_path):
    """A network whose layers are shared by both, as those of configs/vta_resnet18.yaml; one is found by a tracker."""
    onnx.save(small(), tmp_path / "small.onnx")
    config = tmp_path / "small.yaml"
    config.write_text(
        f"model: {tmp_path / 'small.onnx'}\ntarget: vta\ntrials: 16\noutput: {tmp_path / 'out'}\n"
        f"search: {{finalists: 0, batch: 1}}\ncost_model: {{name: roofline}}\n"
    )
    tracker = Process(tmp_path, "tracker")
    try:
        with (
            worker(tmp_path, "--key", "sim", "--tracker", tracker.place, target="vta", fake=False) as simulator,
            worker(tmp_path, "--key", "board-a", fake=False) as board,
        ):
            pool = f"rpc://{tracker.place}?key=sim,rpc://{board.place}?key=board-a&check=client"
            done = call("run", config, "--pool", pool, "--token-file", tmp_path / "token", "--quiet")
    finally:
        tracker.end()
    assert done.exit_code == 0, done.output
    found = records(tmp_path / "out" / "records.jsonl")
    assert len(found) == 16 and all(record.ok for record in found)
    places = {"cpu": f"board-a at {board.place}", "vta": f"sim at {simulator.place}"}
    assert {(record.target, record.host["device"]) for record in found} == set(places.items())
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert {task["target"] for task in summary["tasks"]} == {"cpu", "vta"}
    assert summary["network"]["max_error"] < 1e-5


def pool_of(folder, *addresses, **changes):
    local = LocalSettings(builders=1, executor=EXECUTOR, host_lock=str(folder / "host.lock"))
    fleet = FleetSettings(start_timeout=changes.pop("start_timeout", 20.0))
    return RpcPool([RpcAddress(place) for place in addresses], settings(**changes), fleet, local)


def test_no_trial_is_lost_when_a_worker_is_killed_and_another_comes_by_the_tracker(tmp_path):
    trials = [
        trial(options={"target": "vta"}, deterministic=True, seconds=0.02, sleep=True, number=number)
        for number in range(24)
    ]
    tracker = Process(tmp_path, "tracker", "--lease", "1.5")
    options = ("--tracker", tracker.place)
    try:
        with (
            worker(tmp_path, *options, target="vta") as first,
            pool_of(tmp_path, tracker.place, patience=0.4) as pool,
        ):
            pool.submit(trials)
            results = pool.results()
            with worker(tmp_path, *options, target="vta") as second:
                first.terminate(signal.SIGKILL)
                while pool.outstanding:
                    results += pool.results()
    finally:
        tracker.end()
    assert sorted(result.index for result in results) == list(range(24))
    assert all(result.ok for result in results)
    assert {result.host["device"].rpartition(" ")[2] for result in results} == {first.place, second.place}


def test_a_worker_that_is_started_again_is_joined_again(tmp_path):
    trials = [trial(options={"target": "vta"}, number=number) for number in range(4)]
    with worker(tmp_path, target="vta") as first, pool_of(tmp_path, first.place, patience=0.3) as pool:
        assert all(result.ok for result in pool.run(trials))
        first.terminate(signal.SIGKILL)
        pool.submit(trials)
        assert pool.results(1.5) == []
        with worker(tmp_path, "--listen", first.place, target="vta"):
            results = []
            while pool.outstanding:
                results += pool.results()
    assert [result.error for result in results] == [ErrorClass.ok] * 4


def test_a_cancelled_run_leaves_the_device_free(tmp_path):
    with worker(tmp_path, target="vta") as process, pool_of(tmp_path, process.place) as pool:
        hangs = trial(options={"target": "vta", "run_timeout": 60.0}, run="hang")
        pool.submit([hangs])
        assert pool.results(1.5) == []
        pool.cancel()
        start = time.monotonic()
        (result,) = pool.run([trial(options={"target": "vta"})])
        assert result.ok and time.monotonic() - start < 10


def test_a_recalled_device_goes_to_the_run_that_is_worth_more(tmp_path):
    tracker = Process(tmp_path, "tracker", "--lease", "0.6")
    try:
        with worker(tmp_path, "--tracker", tracker.place, target="vta"):
            addresses = [RpcAddress(tracker.place, priority=priority) for priority in (0, 1)]
            local = LocalSettings(builders=1, executor=EXECUTOR, host_lock=str(tmp_path / "host.lock"))
            low, high = (
                RpcPool([address], settings(), FleetSettings(start_timeout=20.0), local) for address in addresses
            )
            many = [
                trial(options={"target": "vta"}, deterministic=True, seconds=0.05, sleep=True, number=n)
                for n in range(30)
            ]
            with low, high:
                low.submit(many)
                results = low.results()
                assert high.run(many[:2])[1].ok  # while the other one has the most of its trials before it
                results += low.results(0)
                assert len(results) < len(many)
                high.close()
                while low.outstanding:
                    results += low.results()
            assert sorted(result.index for result in results) == list(range(len(many)))
            assert all(result.ok for result in results)
    finally:
        tracker.end()


def test_what_is_wrong_with_the_pool_is_one_sentence(tmp_path):
    (tmp_path / "token").write_text("token")
    config, out = ROOT / "configs" / "vta_conv2d.yaml", tmp_path / "out"
    for pool, options, sentence in (
        ("rpc://127.0.0.1:9", (), "`token_file` must name a file with the token of the RPC devices"),
        ("rpc://127.0.0.1:9", ("--token-file", tmp_path / "none"), "`token_file` must be a readable file with a token"),
        ("rpc://127.0.0.1", ("--token-file", tmp_path / "token"), "`pool` must be HOST:PORT, but got pool='127.0.0.1'"),
    ):
        failed = call("run", config, "--output", out, "--pool", pool, *options)
        assert failed.exit_code == 2 and sentence in failed.output, failed.output


def test_a_pool_nobody_answers_or_that_refuses_us_ends_with_a_sentence(tmp_path):
    tried = trial(options={"target": "vta"})
    with pool_of(tmp_path, "127.0.0.1:9", connect_timeout=0.3) as pool, pytest.raises(PoolError) as caught:
        pool.run([tried])
    assert "must name a worker or tracker that answers, but 127.0.0.1:9 did not within 0.3 s" in str(caught.value)
    with worker(tmp_path, "--key", "sim", target="vta") as process:
        with (
            pool_of(tmp_path, process.place, token="wrong") as pool,
            pytest.raises(PoolError, match="the token must be"),
        ):
            pool.run([tried])
        addresses = [RpcAddress(process.place, ("board",))]
        with RpcPool(addresses, settings()) as pool, pytest.raises(PoolError, match="`key` must be that of the worker"):
            pool.run([tried])
        with pool_of(tmp_path, process.place, start_timeout=0.7) as pool, pytest.raises(PoolError) as caught:
            pool.run([trial()])  # for a CPU
        assert "must have a device for target='cpu' within 0.7 s" in str(caught.value)
        assert f"device sim at {process.place} (vta)" in str(caught.value)


def test_threads_of_a_closed_pool_end(tmp_path):
    with worker(tmp_path, target="vta") as process:
        before = {thread.name for thread in threading.enumerate()}
        with pool_of(tmp_path, process.place) as pool:
            assert pool.run([trial(options={"target": "vta"})])[0].ok
        eventually(lambda: {thread.name for thread in threading.enumerate() if "grpc" not in thread.name} <= before)
