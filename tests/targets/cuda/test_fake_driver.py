"""The device through `cuda.core` and the driver's binding, on a driver that is a fake: calls, faults, refusals."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu.ladder.kernels import AXPY, BULK_COPY
from tests.targets.cuda.fake_driver import build, environment

pytest.importorskip("cuda.core", reason="no cuda-core: the extra `gpu` is not installed")

DRIVER_PROGRAM = """
import json
import sys
from pathlib import Path
import numpy as np
from benchmarks.gpu.ladder.kernels import MAP
from targets.base import Module, RunError
from targets.cuda.device import CudaDevice, DeviceLost, DeviceMemoryError
from targets.cuda.kernel import CudaKernel
from targets.cuda.packed import MAP_ALIGNMENT
from targets.cuda.stopwatch import Stopwatch

device, said = CudaDevice(), {}
said["about"] = [device.name, device.arch, device.l2_bytes]
given = np.arange(24, dtype=np.float32)
memory, back = device.allocate(given.nbytes), np.zeros_like(given)
device.upload(memory, given)
device.download(memory, back)
said["copied"] = bool((given == back).all())
maps = [device.tensor_map(device.part(memory, 16 * i), MAP) for i in range(5)]
said["maps"] = [len({m.bytes for m in maps}), max(m.address % MAP_ALIGNMENT for m in maps)]
try:
    device.tensor_map(device.part(memory, 8), MAP)
except RunError as error:
    said["unaligned"] = str(error)[:31]
try:
    device.allocate(1 << 40)
except DeviceMemoryError as error:
    said["full"] = str(error)[:18]
axpy, boxes = (Module.from_bytes(Path(name).read_bytes()) for name in sys.argv[1:])
try:
    bound = CudaKernel(axpy, device).bind([np.zeros(p.shape, p.dtype) for p in axpy.sources])
    bound.run()
    replay = device.capture(bound.start)
    replay()
    said["seconds"] = [bool(0 < s < 1e-3) for s in bound.time(3)]
    copied = CudaKernel(boxes, device).bind([np.zeros(p.shape, p.dtype) for p in boxes.sources])
    said["bulk"] = str(copied.run().dtype)
except DeviceLost as error:
    said["lost"] = str(error)
except RunError as error:
    said["refused"] = str(error)
    device.sync()
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its folder, which holds modules, too: NVRTC, where it finds a driver, wants more of it than a fake does."""
    folder = build(tmp_path_factory.mktemp("driver"))
    for written in (AXPY, BULK_COPY):
        (folder / written.name).write_bytes(written.module("sm_90a").to_bytes())
    return folder


def run_program(driver: Path, behaviour: str) -> dict[str, object]:
    command = [sys.executable, "-c", DRIVER_PROGRAM, *(str(driver / written.name) for written in (AXPY, BULK_COPY))]
    done = subprocess.run(command, env=environment(driver, behaviour), capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_a_device_is_used_as_its_driver_wants(driver: Path) -> None:
    assert run_program(driver, "") == {
        "about": ["a fake GPU", "sm_90", 60 << 20],
        "copied": True,
        "maps": [5, 0],
        "unaligned": "an array must have a tensor map",
        "full": "device memory must",
        "seconds": [True, True, True],
        "bulk": "float16",
    }


def test_a_refused_launch_is_no_lost_device(driver: Path) -> None:
    found = run_program(driver, "refuse=axpy")
    assert found["refused"] == "a call of the driver must succeed, but it says CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
    assert "lost" not in found


def test_a_kernel_that_fails_loses_the_device(driver: Path) -> None:
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in str(run_program(driver, "fault=axpy")["lost"])
