"""The text of sketches for GPUs is what it was: a change is seen, and meant."""

from __future__ import annotations

import pytest

from search_space import workloads
from search_space.space import generate, make_program
from search_space.workloads import Workload
from tests.golden.compare import Golden
from tests.gpu.candidates import legal
from tests.gpu.machines import H200

CASES: dict[str, tuple[Workload, str]] = {
    "gpu_matmul": (workloads.matmul(64, 64, 40), "direct:columns/double"),
    "gpu_matmul_tensor": (workloads.matmul(48, 40, 64, dtype="float16"), "direct:tensor/2"),
    "gpu_dense_split": (workloads.dense(2, 512, 40, bias=True), "direct:split/rows"),
    "gpu_conv2d": (workloads.conv2d(1, 6, 6, 16, 20, 3, 1, 1, bias=True, activation="relu"), "im2col:rows"),
    "gpu_softmax": (workloads.softmax(12, 100), "direct:copied"),
    "gpu_max_pool": (workloads.max_pool2d(1, 9, 9, 8, kernel=3, stride=2, padding=1), "direct:default"),
}
"""Workload and sketch, by file."""


@pytest.mark.parametrize("name", CASES)
def test_schedule_and_loops(name: str, golden: Golden) -> None:
    workload, of = CASES[name]
    (sketch,) = (s for s in generate(workload, H200).sketches if s.name == of)
    (row,) = legal(sketch, 1)
    parts = {
        "workload": f"{workload.key}\n{of}",
        "schedule": sketch.steps,
        "candidate": "\n".join(f"{variable} = {value}" for variable, value in sketch.values(row).items()),
        "loops of the candidate": make_program(workload, sketch.algorithm, sketch.trace(row)),
    }
    golden.check(f"{name}.txt", "\n\n".join(f"=== {heading} ===\n{part}" for heading, part in parts.items()))
