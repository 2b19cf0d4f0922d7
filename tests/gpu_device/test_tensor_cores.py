"""Tests on a GPU: tensor cores multiply as the emulator says, by warps and by warpgroups, rounded where asked for.

`make test-gpu` runs this on a machine with a GPU; elsewhere all of it is skipped.
"""

from __future__ import annotations

import numpy as np
import pytest

from search_space import workloads
from search_space.space import generate, make_program
from search_space.warpgroup_intrinsics import WGMMA
from search_space.workloads import Workload
from targets.cuda.driver import device_arch, missing_device
from targets.cuda.hardware import own_arch
from targets.cuda.kernel import CudaKernel
from targets.cuda.target import CudaTarget
from tests.gpu.candidates import legal
from tests.gpu_device.cases import sketches
from tests.targets.cuda.emulator import emulate

if missing_device():
    pytest.skip(f"no gpu: {missing_device()}", allow_module_level=True)

SOME: tuple[Workload, ...] = (
    workloads.matmul(256, 512, 640, dtype="float16"),
    workloads.matmul(197, 136, 333, dtype="bfloat16", constant_b=False),
    workloads.matmul(197, 136, 328, dtype="bfloat16", constant_b=False),  # rows that the TMA unit can address
    workloads.batch_matmul(3, 70, 72, 200, dtype="float16"),
    workloads.conv2d(2, 14, 14, 136, 96, 1, 1, 0, dtype="float16"),
    workloads.matmul(120, 64, 72, dtype="tfloat32"),
    workloads.conv2d(1, 14, 14, 64, 96, 3, 1, 1, dtype="float16", bias=True, activation="relu"),
)


@pytest.fixture(scope="module")
def target() -> CudaTarget:
    """The device's architecture with what only it has, where there is such a one."""
    from targets.cuda.device import first_device

    return CudaTarget(own_arch(first_device().arch))


@pytest.mark.parametrize(("workload", "index"), sketches(SOME, own_arch(device_arch())))
def test_every_sketch_computes_the_reference(workload: Workload, index: int, target: CudaTarget) -> None:
    given = workload.make_inputs(0)
    rtol, atol = workload.tolerance
    wanted = workload.reference(*given).astype(np.float64)
    sketch = generate(workload, target.hardware).sketches[index]
    for row in legal(sketch, 2, seed=index):
        module = target.build(make_program(workload, sketch.algorithm, sketch.trace(row)))
        assert module.metadata["notes"] == [], (sketch.name, sketch.values(row))
        out = CudaKernel(module).bind(given).run().astype(np.float64)
        np.testing.assert_allclose(out, wanted, rtol=rtol, atol=atol, err_msg=f"{sketch.name} {sketch.values(row)}")


def test_the_device_agrees_with_the_emulator(target: CudaTarget) -> None:
    if WGMMA not in target.hardware.features:
        pytest.skip("no warpgroups on this architecture")
    workload = workloads.matmul(150, 128, 400, dtype="float16")
    given = workload.make_inputs(1)
    named = dict(zip((spec.name for spec in workload.inputs), given, strict=True))
    for sketch in generate(workload, target.hardware, ["direct"]).sketches:
        if "wgmma" not in sketch.name:
            continue
        (row,) = legal(sketch, 1)
        program = make_program(workload, "direct", sketch.trace(row))
        out = CudaKernel(target.build(program)).bind(given).run()
        np.testing.assert_allclose(out, emulate(target.device_program(program), named)["matmul"], rtol=1e-4, atol=1e-4)


def test_products_are_rounded_only_where_it_is_asked_for(target: CudaTarget) -> None:
    """One product: exact in float32, and of rounded factors in tfloat32."""
    from search_space.dtypes import round_tfloat32

    for dtype in ("float32", "tfloat32"):
        workload = workloads.matmul(64, 64, 8, dtype=dtype)
        a, b = workload.make_inputs(0)
        a[:, 1:] = 0
        factors = (round_tfloat32(a), round_tfloat32(b)) if dtype == "tfloat32" else (a, b)
        wanted = factors[0][:, :1] * factors[1][:1]
        for sketch in generate(workload, target.hardware, ["direct"]).sketches:
            (row,) = legal(sketch, 1)
            module = target.build(make_program(workload, "direct", sketch.trace(row)))
            np.testing.assert_array_equal(CudaKernel(module).bind([a, b]).run(), wanted, err_msg=sketch.name)
