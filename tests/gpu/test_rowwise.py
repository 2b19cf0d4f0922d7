"""Row-wise and element-wise operators for GPUs: every variant computes the reference."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from search_space import workloads
from search_space.ir.stmt import For, Store, walk_stmt
from search_space.lower.blocks import kernels
from search_space.space import generate
from search_space.workloads import Workload
from targets.cuda.target import CudaTarget
from tests.gpu.candidates import check, legal
from tests.gpu.machines import H200
from tests.targets.cuda.emulator import emulate

SMALL: tuple[Workload, ...] = (
    workloads.softmax(rows=5, columns=40),
    workloads.softmax(rows=33, columns=7),
    workloads.layer_norm(rows=3, columns=100),
    workloads.layer_norm(rows=16, columns=13),
    workloads.reduce((6, 50), 1),
    workloads.reduce((2, 3, 36), 2, "mean"),
    workloads.reduce((4, 5, 6, 7), (1, 2), "max"),
    workloads.reduce((40, 12), 0),
    workloads.reduce((128, 12), 0, "max"),
    workloads.reduce((2, 64, 3, 5), (1, 2), "mean"),
    workloads.elementwise("relu", (3, 113)),
    workloads.elementwise("add", (7, 13, 8)),
    workloads.max_pool2d(1, 9, 9, 8, kernel=3, stride=2, padding=1),
    workloads.avg_pool2d(1, 7, 7, 16, kernel=7),
    workloads.depthwise_conv2d(1, 8, 8, 12, kernel=3, padding=1, bias=True, activation="relu"),
)


@pytest.mark.parametrize("workload", SMALL, ids=str)
def test_candidates_mean_the_reference(workload: Workload) -> None:
    found = generate(workload, H200).sketches
    assert found
    for i, sketch in enumerate(found):
        for row in legal(sketch, 2, seed=i):
            check(workload, sketch, row)


def test_long_reductions_into_few_elements_are_split() -> None:
    found = {s.name: s for s in generate(workloads.reduce((4096, 128), 0), H200).sketches}
    assert set(found) == {"direct:default", "direct:split"}
    (row,) = legal(found["direct:split"], 1)
    program = check(workloads.reduce((4096, 128), 0), found["direct:split"], row)
    assert len(list(kernels(program.body))) == 2
    assert len(generate(workloads.reduce((64, 12), 0), H200).sketches) == 2
    assert len(generate(workloads.reduce((63, 12), 0), H200).sketches) == 1  # too short for parts


@pytest.mark.parametrize(
    "workload",
    [
        workloads.reduce((3, 16384), 1),
        workloads.reduce((2, 2, 12288), 2, "mean"),
        workloads.reduce((1, 9216), 1, "max"),
    ],
    ids=str,
)
def test_few_long_rows_are_reduced_in_parts(workload: Workload) -> None:
    """Blocks of threads along each part, which a second kernel reduces."""
    found = generate(workload, H200).sketches
    assert [s.name for s in found] == ["direct:again", "direct:split"]
    (inputs,) = workload.make_inputs(0)
    for row in legal(found[1], 3):
        program = check(workload, found[1], row)
        device = CudaTarget().device_program(program)
        assert len(device.kernels) == 2 and device.kernels[0].threads >= 32
        assert device.kernels[0].grid[0] >= 8 * prod(workload.output.shape)
        out = emulate(device, {workload.inputs[0].name: inputs})[workload.output.name]
        np.testing.assert_allclose(out, workload.reference(inputs), rtol=1e-3, atol=1e-3)
    assert len(generate(workloads.reduce((132, 16384), 1), H200).sketches) == 1  # rows enough


def test_sums_of_threads_are_one_loop_bound_to_them() -> None:
    """The form that targets take for a reduction across threads: a store by a reducer that no thread has alone."""
    sketch = generate(workloads.softmax(rows=64, columns=1024), H200).sketches[0]
    for row in legal(sketch, 5):
        program = check(workloads.softmax(rows=64, columns=1024), sketch, row)
        across = [
            loop
            for loop in walk_stmt(program.body)
            if isinstance(loop, For) and loop.kind == "threadIdx.x"
            for store in walk_stmt(loop.body)
            if isinstance(store, Store) and store.reducer and program.buffers[store.buffer].scope == "shared"
        ]
        threads = sketch.values(row)["softmax.columns"]
        assert len(across) == (2 if threads > 1 else 0)
