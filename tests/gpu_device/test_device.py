"""Tests on a GPU: every kind of kernel computes the reference, faults stay in their process, times make sense.

`make test-gpu` runs this on a machine with a GPU; elsewhere all of it is skipped.
"""

from __future__ import annotations

import numpy as np
import pytest

from measure.errors import ErrorClass
from measure.local import LocalPool
from measure.pool import Trial
from search_space import workloads
from search_space.ir.expr import const, var
from search_space.ir.stmt import LoopProgram, Store
from search_space.space import generate, make_program
from search_space.workloads import Workload
from targets.cuda.driver import device_arch, missing_device
from targets.cuda.kernel import CudaKernel
from targets.cuda.target import CudaTarget
from tests.gpu.candidates import legal
from tests.gpu.handwritten import Tiles
from tests.gpu_device.cases import sketches
from tests.search_space.operators.cases import SMALL
from tests.targets.cuda.emulator import emulate
from tests.targets.cuda.programs import at, buffer, inputs, loop, matmul_program

if missing_device():
    pytest.skip(f"no gpu: {missing_device()}", allow_module_level=True)

LARGER: tuple[Workload, ...] = (
    workloads.matmul(512, 512, 512),
    workloads.matmul(113, 1000, 77),
    workloads.matmul(16, 1000, 2048),
    workloads.matmul(256, 384, 512, dtype="float16"),
    workloads.conv2d(height=28, width=28, in_channels=64, out_channels=96, padding=1, bias=True, activation="relu"),
    workloads.softmax(rows=1000, columns=1024),
    workloads.layer_norm(rows=333, columns=768),
    workloads.reduce((512, 4096), 1),
    workloads.elementwise("add", (1000, 113)),
)


@pytest.fixture(scope="module")
def target() -> CudaTarget:
    from targets.cuda.device import first_device

    return CudaTarget(first_device().arch)


@pytest.mark.parametrize(("workload", "index"), sketches((*SMALL, *LARGER), device_arch()))
def test_every_sketch_computes_the_reference(workload: Workload, index: int, target: CudaTarget) -> None:
    given = workload.make_inputs(0)
    rtol, atol = workload.tolerance
    wanted = workload.reference(*given).astype(np.float64)
    sketch = generate(workload, target.hardware).sketches[index]
    for row in legal(sketch, 2, seed=index):
        module = target.build(make_program(workload, sketch.algorithm, sketch.trace(row)))
        out = CudaKernel(module).bind(given).run().astype(np.float64)
        np.testing.assert_allclose(out, wanted, rtol=rtol, atol=atol, err_msg=f"{sketch.name} {sketch.values(row)}")


@pytest.mark.parametrize("pipeline", [1, 2, 3, 4])
def test_the_device_agrees_with_the_emulator(pipeline: int, target: CudaTarget) -> None:
    program = matmul_program(130, 70, 65, Tiles((2, 8, 4), (2, 8, 4), 8, 2, 1), pipeline)
    arrays = inputs(program)
    out = CudaKernel(target.build(program)).bind(list(arrays.values())).run()
    np.testing.assert_allclose(out, emulate(target.device_program(program), arrays)["out"], rtol=1e-5, atol=1e-5)


def test_more_than_48_kib_of_shared_memory(target: CudaTarget) -> None:
    program = matmul_program(256, 256, 256, Tiles((2, 16, 4), (2, 16, 4), 64, 4, 4))
    module = target.build(program)
    assert module.metadata["launches"]["kernels"][0]["dynamic_shared_bytes"] > 48 * 1024
    arrays = inputs(program)
    out = CudaKernel(module).bind(list(arrays.values())).run()
    np.testing.assert_allclose(out, np.maximum(arrays["a"] @ arrays["b"], 0), rtol=1e-4, atol=1e-4)


def _trial(workload: Workload, target: CudaTarget, seed: int = 0, cache: str = "warm") -> Trial:
    sketch = generate(workload, target.hardware).sketches[0]
    (row,) = legal(sketch, 1, seed=seed)
    return Trial(
        workload=workload.to_json(),
        workload_key=workload.key,
        algorithm=sketch.algorithm,
        trace=tuple(sketch.trace(row).to_json()),
        target=f"cuda:{target.arch}",
        threads=1,
        cache=cache,  # type: ignore[arg-type]
        seed=0,
    )


def test_trials_are_measured_and_recorded(target: CudaTarget) -> None:
    with LocalPool() as pool:
        pool.submit(
            [_trial(workloads.matmul(128, 128, 128), target, seed, c) for seed in (0, 1) for c in ("warm", "network")]
        )
        found = []
        while len(found) < 4:
            found += pool.results()
    assert {r.error for r in found} == {ErrorClass.ok}, [r.message for r in found]
    assert all(0 < r.seconds < 1e-2 and r.metrics["registers"] > 8 for r in found)


def test_an_address_out_of_bounds_ends_its_process_and_no_other(target: CudaTarget) -> None:
    """The kernel is run in a process of its own, as trials are; the device goes on for others."""
    import subprocess
    import sys

    wild = loop("t", 32, "threadIdx.x", Store("y", (var("t") + const(1 << 34),), at("x", var("t"))))
    program = LoopProgram("wild", (buffer("x", 32), buffer("y", 32)), wild, ("y",))
    module = target.build(program).to_bytes()
    code = (
        "import sys, numpy as np\n"
        "from targets.base import Module\n"
        "from targets.cuda.device import DeviceLost\n"
        "from targets.cuda.kernel import CudaKernel\n"
        "bound = CudaKernel(Module.from_bytes(sys.stdin.buffer.read())).bind([np.ones(32, np.float32)])\n"
        "try:\n    bound.run()\nexcept DeviceLost as error:\n    print('lost:', error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], input=module, capture_output=True, timeout=60)
    assert done.stdout.startswith(b"lost:"), done.stderr.decode()
    fine = matmul_program(16, 16, 16)
    arrays = inputs(fine)
    out = CudaKernel(target.build(fine)).bind(list(arrays.values())).run()
    np.testing.assert_allclose(out, np.maximum(arrays["a"] @ arrays["b"], 0), rtol=1e-5, atol=1e-5)
