"""Objects built here for AArch64, run by `autotune worker` on an emulated device: what they compute, not how fast."""

from __future__ import annotations

import compileall
import os
import selectors
import shutil
import subprocess

import pytest

from measure.errors import ErrorClass
from measure.rpc.pool import RpcPool
from search_space import workloads
from tests.aarch64 import rootfs
from tests.measure.candidates import candidates
from tests.measure.rpc.processes import ROOT, TOKEN

pytestmark = [pytest.mark.xdist_group("aarch64"), pytest.mark.timeout(300)]  # the first time packages are fetched
OPTIONS = {"target": "cpu:aarch64:cortex-a72", "build_timeout": 60.0, "run_timeout": 60.0}


@pytest.fixture(scope="module")
def python():
    """The emulated interpreter; its packages are fetched where they are not there yet."""
    for program, package in ((rootfs.emulator(), "qemu-user-static"), (shutil.which("apt-get"), "Debian's apt")):
        if program is None:
            pytest.skip(f"{package} must be installed")
    try:
        return rootfs.python()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"packages of the emulated device cannot be had: {error}")


@pytest.fixture(scope="module")
def address(python, tmp_path_factory):
    """`HOST:PORT` of the device, on which the packages of this repository were installed."""
    device = tmp_path_factory.mktemp("device")
    for package in ("search_space", "targets", "measure", "autotune"):
        shutil.copytree(ROOT / package, device / package, ignore=shutil.ignore_patterns("__pycache__"))
    if rootfs.is_ours():
        compileall.compile_dir(device, quiet=2)  # here, which is faster
    (device / "token").write_text(TOKEN)
    (device / "token").chmod(0o600)
    arguments = ["-m", "autotune", "worker", "--key", "board", "--token-file", "token"]
    log = (device / "log").open("w")
    process = subprocess.Popen(
        [python, *arguments, "--host-lock", "lock"],
        cwd=device,
        env={**os.environ, "PYTHONPATH": f"{rootfs.site()}{os.pathsep}{device}"},
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
    )
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            assert selector.select(90), (device / "log").read_text()
        said = process.stdout.readline().strip()
        assert said.startswith("serving cpu as board on "), (device / "log").read_text()
        yield said.rpartition(" ")[2], device / "token"
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()
        log.close()


@pytest.mark.parametrize("check", ["device", "client"])
def test_random_schedules_compute_what_the_reference_does(address, check):
    """The reference is NumPy's on the device, or NumPy's here."""
    products = candidates(workloads.matmul(33, 48, 40), 3, **OPTIONS)
    convolution = workloads.conv2d(height=14, width=14, in_channels=16, out_channels=24, kernel=3, padding=1)
    images = candidates(convolution, 3, seed=1, **OPTIONS)
    int8 = candidates(workloads.matmul(16, 32, 24, dtype="int8"), 1, **OPTIONS)
    with RpcPool.of(f"rpc://{address[0]}?key=board&check={check}", address[1]) as pool:
        results = pool.run([*products, *images, *int8])
    assert len(results) == 7  # a slow one may be cut short, which its message says
    assert [result.message for result in results if result.error is not ErrorClass.ok] == []
    assert all(result.outcome.max_error < 1e-5 for result in results)
    assert {result.host["machine"] for result in results} == {"aarch64"}


def test_an_object_for_this_host_is_refused_by_the_device(address):
    if os.uname().machine == "aarch64":
        pytest.skip("on aarch64 it may run")
    (trial,) = candidates(workloads.matmul(8, 8, 8), 1)
    with RpcPool.of(f"rpc://{address[0]}?key=board", address[1]) as pool:
        (result,) = pool.run([trial])
    assert result.error is ErrorClass.crash and "a module must be for aarch64 to run here" in result.message
