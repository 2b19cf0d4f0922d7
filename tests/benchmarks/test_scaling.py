"""Networks on more threads: kernels chosen for many are right on two, and the table tells what does not scale."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.config import Measure
from autotune.tuner.settings import Settings
from autotune.tuner.task import Task
from autotune.tuner.untimed import select_by_roofline
from benchmarks.scaling import POOR, THREADS, scale, scaling
from search_space import workloads
from search_space.space import make_program
from search_space.workloads import Workload
from targets import registry
from targets.threads import host_cores

LAYERS = {
    "product": workloads.matmul(m=33, n=130, k=64, constant_b=True),
    "convolution": workloads.conv2d(height=9, width=9, in_channels=32, out_channels=48, kernel=3, padding=1),
    "pooling": workloads.max_pool2d(height=12, width=12, channels=40, kernel=3, stride=2),
    "long sum": workloads.matmul(m=8, n=16, k=4096),
    "rows": workloads.softmax(rows=7, columns=100),
}


@pytest.mark.parametrize("threads", [4, 8, 16])
@pytest.mark.parametrize("layer", LAYERS)
def test_kernels_that_are_chosen_for_more_threads_are_right_on_fewer(layer: str, threads: int) -> None:
    workload, target = LAYERS[layer], registry.get("cpu")
    settings = Settings(target, 0, measure=Measure(threads=threads, pool="ray"))
    chosen = select_by_roofline(Task(layer, workload), settings, hardware=target.hardware.with_cores(threads))
    kernel = target.load(target.build(make_program(workload, chosen.algorithm, chosen.trace)))
    inputs = workload.make_inputs(seed=0)
    for count in {1, host_cores()}:
        bound = kernel.bind(inputs)
        np.testing.assert_allclose(bound.run(count), workload.reference(*inputs), rtol=2e-4, atol=2e-4)


def estimate(workload: Workload, threads: int) -> float:
    return scale(Task("layer", workload), registry.get("cpu").hardware.with_cores(threads)).seconds


def test_expected_seconds_fall_with_threads_and_small_layers_do_not_scale() -> None:
    large, small = workloads.matmul(m=1024, n=1024, k=512), workloads.matmul(m=1, n=16, k=16)
    assert estimate(large, 1) / estimate(large, 16) > 8
    assert estimate(small, 1) / estimate(small, 16) < 2


def layer(name: str, seconds: float, balance: float) -> dict[str, object]:
    return {"name": name, "seconds": seconds, "balance": balance, "shared_bytes": 4e6}


def test_the_table_names_layers_that_do_not_scale() -> None:
    by_threads = {
        str(n): [layer("good", 1e-3 / n, 1.0), layer("bad", 1e-3 / min(n, 4), 4 / max(n, 4))] for n in THREADS
    }
    took = {"seconds": {"autotune": 2e-3, "onnxruntime": 3e-3, "openvino": 4e-3}, "unsteady": 0.0}
    text = scaling({"rows": {"net": {"threads": by_threads, "measured": {"1": took}}}})
    assert "| net | 1 | 2.00 | 1.0x | 100% | 8.0 | 4 | 2.00 | 3.00 | 4.00 | 1.50x |" in text
    assert "| net | 64 | 0.27 | 7.5x |" in text
    assert "| net | bad | 4.0x | 6% | 94% |" in text and "| net | good |" not in text
    assert f"below {POOR:.0%}" in text
