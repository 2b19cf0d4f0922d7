"""Complete runs on RPC devices: the command line, simulated accelerators, two targets in one run, workers that die."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from measure.database import Database
from measure.errors import ErrorClass, PoolError
from measure.fleet.scheduler import FleetSettings
from measure.rpc.pool import RpcPool
from measure.rpc.settings import RpcAddress
from measure.settings import LocalSettings
from tests.autotune.compiler.test_network import call
from tests.measure.helpers import EXECUTOR, trial
from tests.measure.rpc.processes import ROOT, Process, settings, worker


def records(path: Path):
    with Database(path, readonly=True) as database:
        return list(database.records())


def test_a_simulated_accelerator_as_an_rpc_device(tmp_path):
    with worker(tmp_path, "--key", "sim", target="vta", fake=False) as process:
        done = call(
            *("run", ROOT / "configs" / "vta_conv2d.yaml", "--trials", 6, "--output", tmp_path / "out"),
            *("--pool", f"rpc://{process.address}?key=sim", "--token-file", tmp_path / "token", "--quiet"),
            *("--set", "search.batch=3", "--set", "cost_model.name=roofline"),
        )
    assert done.exit_code == 0, done.output
    found = records(tmp_path / "out" / "records.jsonl")
    assert len(found) == 6 and all(record.ok and record.target == "vta" for record in found)
    assert {record.host["device"] for record in found} == {f"sim at {process.address}"}
    assert all(record.metrics["cycles"] > 0 for record in found)


@pytest.mark.timeout(300)
def test_a_cpu_and_an_accelerator_serve_one_run_of_resnet18(tmp_path):
    """Every task has a trial, and the network made of them is right; one device is found by a tracker."""
    tracker = Process(tmp_path, "tracker")
    few = ("search.batch=1", "search.finalists=0", "cost_model.name=roofline", "network.quantisation.inputs=1")
    try:
        with (
            worker(tmp_path, "--key", "sim", "--tracker", tracker.address, target="vta", fake=False) as simulator,
            worker(tmp_path, "--key", "board-a", fake=False) as board,
        ):
            done = call(
                *("run", ROOT / "configs" / "vta_resnet18.yaml", "--trials", 22, "--output", tmp_path / "out"),
                *("--pool", f"rpc://{tracker.address}?key=sim,rpc://{board.address}?key=board-a&check=client"),
                *("--token-file", tmp_path / "token", "--quiet", *(part for item in few for part in ("--set", item))),
            )
    finally:
        tracker.end()
    assert done.exit_code == 0, done.output
    found = records(tmp_path / "out" / "records.jsonl")
    assert len({record.workload_key for record in found}) == 22 and all(record.ok for record in found)
    places = {"cpu": f"board-a at {board.address}", "vta": f"sim at {simulator.address}"}
    assert {(record.target, record.host["device"]) for record in found} == set(places.items())
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert [task["target"] for task in summary["tasks"]].count("vta") == 10
    assert summary["network"]["max_error"] < 1e-5


def make_pool(folder, *addresses, **changes):
    local = LocalSettings(builders=1, executor=EXECUTOR, host_lock=str(folder / "host.lock"))
    fleet = FleetSettings(start_timeout=changes.pop("start_timeout", 20.0))
    return RpcPool([RpcAddress(place) for place in addresses], settings(**changes), fleet, local)


def test_no_trial_is_lost_when_a_worker_is_killed_and_another_comes_by_the_tracker(tmp_path):
    trials = [
        trial(options={"target": "vta"}, deterministic=True, seconds=0.02, sleep=True, number=number)
        for number in range(24)
    ]
    tracker = Process(tmp_path, "tracker", "--lease", "1.5")
    options = ("--tracker", tracker.address)
    try:
        with (
            worker(tmp_path, *options, target="vta") as first,
            make_pool(tmp_path, tracker.address, patience=0.4) as pool,
        ):
            pool.submit(trials)
            results = pool.results()
            first.terminate(signal.SIGKILL)
            with worker(tmp_path, *options, target="vta") as second:
                while pool.outstanding:
                    results += pool.results()
    finally:
        tracker.end()
    assert sorted(result.index for result in results) == list(range(24))
    assert all(result.ok for result in results)
    assert {result.host["device"].rpartition(" ")[2] for result in results} == {first.address, second.address}


def test_a_key_that_no_device_has_is_named_beside_those_that_there_are(tmp_path):
    local = LocalSettings(builders=1, executor=EXECUTOR, host_lock=str(tmp_path / "host.lock"))
    tracker = Process(tmp_path, "tracker", "--lease", "1.5")
    addresses = [RpcAddress(tracker.address, ("fone",))]
    try:
        fleet = FleetSettings(start_timeout=3.0)  # in which the tracker must have answered
        with RpcPool(addresses, settings(), fleet, local) as pool, pytest.raises(PoolError) as caught:
            pool.run([trial(options={"target": "vta"})])
        told = f"; the tracker at {tracker.address} has no device, and key=fone is asked for"
        assert "must have a device for target='vta' within 3 s" in str(caught.value) and told in str(caught.value)
        with worker(tmp_path, "--key", "phone", "--tracker", tracker.address, target="vta"):
            with RpcPool(addresses, settings(patience=0.3), None, local) as pool, pytest.raises(PoolError) as caught:
                pool.run([trial(options={"target": "vta"})])
            rule = f"`key` must be one that the tracker at {tracker.address} has, phone, but got key=fone"
            assert str(caught.value) == f"{rule}; did you mean 'phone'?"
    finally:
        tracker.end()


def test_a_worker_that_is_started_again_is_joined_again(tmp_path):
    trials = [trial(options={"target": "vta"}, number=number) for number in range(4)]
    with worker(tmp_path, target="vta") as first, make_pool(tmp_path, first.address, patience=0.3) as pool:
        assert all(result.ok for result in pool.run(trials))
        first.terminate(signal.SIGKILL)
        pool.submit(trials)
        assert pool.results(1.5) == []
        with worker(tmp_path, "--listen", first.address, target="vta"):
            results = []
            while pool.outstanding:
                results += pool.results()
    assert [result.error for result in results] == [ErrorClass.ok] * 4


def test_a_recalled_device_goes_to_the_run_that_is_worth_more(tmp_path):
    tracker = Process(tmp_path, "tracker", "--lease", "0.6")
    try:
        with worker(tmp_path, "--tracker", tracker.address, target="vta"):
            addresses = [RpcAddress(tracker.address, priority=priority) for priority in (0, 1)]
            local = LocalSettings(builders=1, executor=EXECUTOR, host_lock=str(tmp_path / "host.lock"))
            low, high = (
                RpcPool([address], settings(), FleetSettings(start_timeout=20.0), local) for address in addresses
            )
            many = [
                trial(options={"target": "vta"}, deterministic=True, seconds=0.05, sleep=True, number=n)
                for n in range(16)
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
    with make_pool(tmp_path, "127.0.0.1:9", connect_timeout=0.3) as pool, pytest.raises(PoolError) as caught:
        pool.run([tried])
    assert "must name a worker or tracker that answers, but 127.0.0.1:9 did not within 0.3 s" in str(caught.value)
    with worker(tmp_path, "--key", "sim", target="vta") as process:
        with (
            make_pool(tmp_path, process.address, token="wrong") as pool,
            pytest.raises(PoolError, match="the token must be"),
        ):
            pool.run([tried])
        addresses = [RpcAddress(process.address, ("board",))]
        with RpcPool(addresses, settings()) as pool, pytest.raises(PoolError, match="`key` must be that of the worker"):
            pool.run([tried])
        with make_pool(tmp_path, process.address, start_timeout=0.7) as pool, pytest.raises(PoolError) as caught:
            pool.run([trial()])  # for a CPU
        assert "must have a device for target='cpu' within 0.7 s" in str(caught.value)
        assert f"device sim at {process.address} (vta)" in str(caught.value)


@pytest.mark.parametrize(
    ("command", "options", "sentence"),
    [
        ("worker", ("--target", "cup"), "`target` must be one of cpu"),
        ("worker", ("--listen", "9190"), "`listen` must be HOST:PORT, but got listen='9190'"),
        ("worker", ("--key", "a b"), "`key` must be 1 to 200 letters, digits"),
        ("worker", ("--tracker", "host"), "`tracker` must be HOST:PORT, but got tracker='host'"),
        (
            "worker",
            ("--tls-cert", "CONFIG"),
            "`--tls-cert` and `--tls-key` must be given together, but got one of them",
        ),
        ("worker", ("--tls-cert", "CONFIG", "--tls-key", "CONFIG"), "`tls-cert` must be a PEM file"),
        ("worker", ("--listen", "192.0.2.1:0"), "`listen` must be an address to be had, but got 192.0.2.1:0"),
        ("tracker", ("--lease", "-1"), "`lease` must be positive, but got lease=-1.0"),
        ("tracker", ("--token-file", "none"), "`token_file` must be a readable file with a token, but got none"),
    ],
)
def test_what_is_wrong_with_a_server_is_one_sentence(tmp_path, command, options, sentence):
    (tmp_path / "token").write_text("token")
    given = [str(ROOT / "configs" / "vta_conv2d.yaml") if option == "CONFIG" else option for option in options]
    failed = call(command, "--token-file", tmp_path / "token", *given)
    assert failed.exit_code == 2 and sentence in failed.output, failed.output
    assert "Traceback" not in failed.output


def test_a_token_that_others_can_read_gives_a_warning(tmp_path):
    (tmp_path / "token").write_text("token")
    for mode, warned in ((0o600, False), (0o644, True)):
        (tmp_path / "token").chmod(mode)
        failed = call("worker", "--token-file", tmp_path / "token", "--listen", "192.0.2.1:0")
        assert ("others on this machine can read" in failed.output) == warned
        assert "token and code will travel unencrypted" in failed.output
