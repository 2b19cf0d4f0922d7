"""Tests alone on a GPU: times grow with the work, and tell the clock.

`make test-gpu` runs this on a machine with a GPU, by one process when all others are done; elsewhere it is skipped.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import autotune
from autotune.compiler.executable.compile import Compiler
from search_space import workloads
from search_space.space import generate, make_program
from targets.cuda.driver import missing_device
from targets.cuda.kernel import CudaKernel
from targets.cuda.target import CudaTarget
from tests.autotune.graph.nets import residual
from tests.gpu.candidates import legal, make_chooser
from tests.targets.cuda.programs import inputs, matmul_program

if missing_device():
    pytest.skip(f"no gpu: {missing_device()}", allow_module_level=True)


@pytest.fixture(scope="module")
def target() -> CudaTarget:
    from targets.cuda.device import first_device

    return CudaTarget(first_device().arch)


def test_times_grow_with_the_work_and_cold_ones_are_not_less(target: CudaTarget) -> None:
    def median(rows: int, copies: int) -> float:
        workload = workloads.softmax(rows=rows, columns=1024)
        sketch = generate(workload, target.hardware).sketches[0]
        (row,) = legal(sketch, 1)
        module = target.build(make_program(workload, sketch.algorithm, sketch.trace(row)))
        bound = CudaKernel(module).bind(workload.make_inputs(0), copies)
        bound.time(4)
        return float(np.median(bound.time(32)))

    small, large, cold = median(256, 1), median(65536, 1), median(256, 2)
    assert 1e-7 < small < large < 1.0 and large > 10 * small
    assert cold > 0.8 * small


def test_metrics_tell_the_clock(target: CudaTarget) -> None:
    program = matmul_program(64, 64, 64)
    bound = CudaKernel(target.build(program)).bind(list(inputs(program).values()))
    bound.run()
    assert bound.metrics()["registers"] > 8 and 100 < bound.metrics()["sm_mhz"] < 4000


def test_times_are_those_of_the_steps(tmp_path: Path) -> None:
    from targets.cuda.device import first_device

    target = CudaTarget(first_device().arch)
    Compiler(residual(), make_chooser(target.hardware, 0), f"cuda:{target.arch}").write(tmp_path)
    network = autotune.load(tmp_path)
    whole, steps = np.median(network.time(32)), np.median(network.profile(8), axis=0)
    assert 1e-6 < whole < 1e-2 and steps.shape == (len(network.manifest["steps"]),)
    assert (steps > 5e-7).all() and whole < 2 * steps.sum()
