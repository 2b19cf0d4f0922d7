"""Ray actors that are proxies of RPC devices: real workers, reached through an actor alone."""

from __future__ import annotations

import os
import signal

import onnx
import pytest

from autotune.config import load_config
from autotune.run.run import run
from measure.database import Database
from measure.errors import ErrorClass, PoolError
from measure.ray.pool import RayPool, ray_pool
from measure.ray.settings import ProxySettings, RaySettings
from measure.settings import LocalSettings
from tests.autotune.compiler.test_stepwise import small
from tests.measure.helpers import EXECUTOR, trial
from tests.measure.ray import session
from tests.measure.rpc.processes import QUICK, TOKEN, worker

pytestmark = pytest.mark.xdist_group("ray")


def make_pool(address, folder, **changes):
    """A pool on the session's Ray whose devices are those of an RPC worker."""
    session.start()
    settings = {"token": TOKEN, "executor": EXECUTOR, **QUICK, **changes}
    workplace = LocalSettings(executor=EXECUTOR, host_lock=str(folder / "host.lock"))
    proxy = ProxySettings(f"rpc://{address}?key=board", settings)
    return RayPool(settings=RaySettings(workplace, poll=0.2), proxy=proxy)


def test_a_worker_is_used_and_lost_and_used_again(tmp_path):
    with worker(tmp_path, "--key", "board") as first:
        place = first.address
        with make_pool(place, tmp_path) as pool:
            good, bad, crash = pool.run([trial(seconds=2e-3), trial(build="compile"), trial(run="segfault")])
            assert good.ok and good.host["device"] == f"board at {place} by ray"
            assert (bad.error, crash.error) == (ErrorClass.compile, ErrorClass.crash)
            pool.submit([trial(run="hang", options={"run_timeout": 60.0})])
            session.until(lambda: first.children)
            pool.cancel()
            assert pool.run([trial(seconds=2e-3)])[0].ok
            pool.submit([trial(seconds=0.2, sleep=True), trial(seconds=1e-3)])
            os.kill(first.process.pid, signal.SIGKILL)
            first.process.wait()
            with worker(tmp_path, "--key", "board", "--listen", place):
                results = [*pool.results(), *pool.results()]
            assert [result.ok for result in results] == [True, True]


def test_a_wrong_token_is_one_sentence(tmp_path):
    with worker(tmp_path, "--key", "board") as served, make_pool(served.address, tmp_path, token="another") as pool:
        pool.submit([trial()])
        with pytest.raises(PoolError, match="token"):
            pool.results()


@pytest.mark.parametrize(
    "spec",
    ["ray:", "ray:near", "ray:ray://host:1", "ray+", "rays", "ray:auto+http://a:1", "ray+rpc://nowhere"],
)
def test_a_spec_must_be_right(spec, tmp_path):
    with pytest.raises(ValueError, match="`pool` must be"):
        ray_pool(spec)


def test_rpc_devices_need_a_token(tmp_path):
    with pytest.raises(PoolError, match="`token_file` must name a file"):
        ray_pool("ray+rpc://127.0.0.1:1")


def test_a_residual_network_is_tuned_on_two_simulated_and_real_devices_behind_ray(tmp_path):
    """`configs/vta_resnet18.yaml` with fewer and smaller layers: accelerator and CPU serve one run together."""
    session.start()
    model = tmp_path / "small.onnx"
    onnx.save(small(), model)
    with worker(tmp_path, target="vta", fake=False) as vta, worker(tmp_path, target="cpu", fake=False) as cpu:
        changes = {
            "model": str(model),
            "trials": 24,
            "output": str(tmp_path / "run"),
            "measure.pool": f"ray+rpc://{vta.address},rpc://{cpu.address}",
            "measure.token_file": str(tmp_path / "token"),
        }
        outcome = run(load_config("configs/vta_resnet18.yaml", changes), "configs/vta_resnet18.yaml")
    assert not outcome.problems
    with Database(tmp_path / "run" / "records.jsonl", readonly=True) as database:
        records = list(database)
    assert len(records) >= 24 and all(record.ok for record in records)
    for target, place in (("vta", vta.address), ("cpu", cpu.address)):
        devices = {record.host["device"] for record in records if record.target.partition(":")[0] == target}
        assert len(devices) == 1 and f"at {place} by ray" in devices.pop()
