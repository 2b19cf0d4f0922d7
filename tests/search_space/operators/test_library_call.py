"""The library call-out: a candidate where there is a BLAS, right on any threads, absent without one."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from search_space import te, workloads
from search_space.lower import cleanup, lower
from search_space.schedule.errors import ScheduleError
from search_space.schedule.intrinsics import get_intrinsic
from search_space.schedule.steps import Tensorize
from search_space.space import generate, make_program
from search_space.workloads import Workload
from targets import registry
from targets.base import BuildError
from tests.interpreter import interpret
from tests.search_space.operators.test_definitions import check

WORKLOADS = (
    workloads.matmul(7, 9, 5),
    workloads.dense(3, 8, 5, bias=True, activation="relu"),
    workloads.conv2d(height=6, width=5, in_channels=3, out_channels=4, padding=1, bias=True),
    workloads.conv2d(batch=2, height=5, width=4, in_channels=3, out_channels=4, kernel=1, stride=2),
)


@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
def test_the_call_means_what_the_loops_do(workload: Workload) -> None:
    hardware = replace(registry.get("cpu").hardware, features=("cblas",))
    inputs = workload.make_inputs(0)
    sketches = generate(workload, hardware, ["library"]).sketches
    assert sketches
    for sketch in sketches:
        choices = np.zeros((1, len(sketch.groups)), np.int32)
        program = make_program(workload, "library", sketch.trace(choices[0]))
        assert "sgemm:" in str(program)
        named = {spec.name: array for spec, array in zip(workload.inputs, inputs, strict=True)}
        check(workload, interpret(program, named)[program.outputs[0]], inputs)
        if "cblas" not in registry.get("cpu").hardware.features:
            pytest.skip("the host must have NumPy's OpenBLAS to run the call")
        bound = registry.get("cpu").load(registry.get("cpu").build(program)).bind(inputs)
        for threads in (1, 2, 1):  # again and again: nothing is left of the run before
            check(workload, bound.run(threads), inputs)


def test_there_is_no_call_without_a_library_or_for_other_types() -> None:
    bare = replace(registry.get("cpu").hardware, features=())
    assert {s.algorithm for s in generate(WORKLOADS[0], bare).sketches} == {"direct"}
    assert "library" not in workloads.matmul(4, 4, 4, dtype="int8").algorithms


def test_sizes_must_be_three() -> None:
    assert get_intrinsic("sgemm:2x3x4").extents == (2, 3, 4)
    with pytest.raises(ScheduleError, match="sizes as MxNxK, but got '2x3'"):
        get_intrinsic("sgemm:2x3")


def test_a_matrix_that_does_not_lie_by_rows_is_refused() -> None:
    a, b = te.placeholder((6, 4), name="a"), te.placeholder((6, 8), name="b")
    r = te.reduce_axis((0, 6), "r")
    c = te.compute((4, 8), lambda i, j: te.sum(a[r, i] * b[r, j], axis=r), name="c")
    s = te.create_schedule(c.op)
    s.apply(Tensorize("c", "i", "sgemm:4x8x6"))
    with pytest.raises(BuildError, match="row by row"):
        registry.get("cpu").build(cleanup(lower(s.state)))


BESIDE = """
import ctypes
import numpy as np
from targets.cpu.kernel import runtime
from targets.blas import blas_symbols

runtime(), blas_symbols()
import scipy.linalg  # only now, so that its OpenBLAS is loaded after the one that kernels call

assert not hasattr(ctypes.CDLL(None), "scipy_cblas_sgemm64_")
np.testing.assert_allclose(scipy.linalg.svd(np.eye(16, 4), full_matrices=False)[1], 1.0)
"""


def test_the_blas_of_kernels_is_not_in_the_way_of_scipys() -> None:
    """The two have functions of the same names, with integers of 64 and of 32 bits."""
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", BESIDE], cwd=root, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
