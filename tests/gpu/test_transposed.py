"""Transpositions for GPUs by tiles in shared memory, and element-wise kernels that reach every multiprocessor."""

from __future__ import annotations

import re

import numpy as np
import pytest

from autotune.tuner.task import Task
from autotune.tuner.untimed import select_by_roofline
from search_space import te, workloads
from search_space.ir.stmt import For, LoopProgram, walk_stmt
from search_space.space import generate, make_program
from search_space.workloads import Workload
from targets.cuda.program_text import emit_program
from targets.cuda.target import CudaTarget
from tests.autotune.fakes import settings_with
from tests.gpu.candidates import check, legal
from tests.gpu.machines import H200
from tests.targets.cuda.emulator import emulate

TARGET = CudaTarget()


def make_transposition(shape: tuple[int, ...], axes: tuple[int, ...], dtype: str = "float32") -> Workload:
    """A transposition with a residual sum: out[i] = x[i, permuted] + y[i]."""
    x = te.placeholder(shape, dtype, "x")
    wanted = tuple(shape[a] for a in axes)
    y = te.placeholder(wanted, dtype, "y")

    def element(*i: te.Expr) -> te.Expr:
        return x[tuple(i[axes.index(d)] for d in range(len(shape)))] + y[i]

    return workloads.from_tensors([x, y, te.compute(wanted, element, "out")])


def first(workload: Workload) -> LoopProgram:
    """The roofline's choice."""
    found = select_by_roofline(Task("task", workload), settings_with(target="cuda"))
    return make_program(workload, found.algorithm, found.trace)


@pytest.mark.parametrize(
    "workload",
    [
        make_transposition((33, 50), (1, 0)),
        make_transposition((2, 20, 3, 36), (0, 3, 2, 1)),
        make_transposition((48, 5, 18), (2, 1, 0), "float16"),
        make_transposition((3, 17, 64), (0, 2, 1), "int8"),
    ],
    ids=str,
)
def test_tiles_mean_the_reference(workload: Workload) -> None:
    tiled, plain = generate(workload, H200).sketches
    assert tiled.name.endswith("tiles") and not plain.name.endswith("tiles")
    for seed in range(2):
        (row,) = legal(tiled, 1, seed)
        program = check(workload, tiled, row, seed)
        inputs = workload.make_inputs(seed)
        named = {spec.name: array for spec, array in zip(workload.inputs, inputs, strict=True)}
        out = emulate(TARGET.device_program(program), named)[workload.output.name]
        np.testing.assert_allclose(out, workload.reference(*inputs), rtol=1e-3, atol=1e-3)


def test_large_transpositions_are_coalesced() -> None:
    """Lanes next to each other read 16 bytes of one row, and write elements of one row."""
    text = emit_program(TARGET.device_program(first(make_transposition((4096, 2048), (1, 0)))))
    assert re.search(r"\*\(const Vec<float, 4>\*\)\(x ", text) and "__shared__" in text
    few = [make_transposition((3, 224, 224), (1, 2, 0)), make_transposition((12, 64, 128), (1, 0, 2))]
    assert all(len(generate(w, H200).sketches) == 1 for w in few)  # too narrow for tiles; along the same rows


@pytest.mark.parametrize(
    ("workload", "least"),
    [
        (workloads.avg_pool2d(1, 7, 7, 2048, kernel=7), 64),
        (workloads.elementwise("relu", (8192,)), 64),
        (workloads.elementwise("relu", (1, 56, 56, 256)), 132),
        (workloads.reduce((4096, 1024), 0), 32),
    ],
    ids=str,
)
def test_small_kernels_have_a_block_for_each_multiprocessor(workload: Workload, least: int) -> None:
    """Kernels with too few elements have a warp to a block instead."""
    blocks = [
        int(n.extent.value) for n in walk_stmt(first(workload).body) if isinstance(n, For) and n.kind == "blockIdx.x"
    ]
    assert min(blocks) >= least
    for sketch in generate(workload, TARGET.hardware).sketches:
        for group in sketch.groups:
            if group.name.endswith(".threads"):
                assert np.all(group.table.prod(axis=1) <= max(32, np.prod(workload.output.shape) // 132 * 4))
