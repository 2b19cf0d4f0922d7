"""Reductions over any axes, on CPUs: in vectors along what is contiguous, in parts where little is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from search_space import te, workloads
from search_space.hardware import Hardware
from search_space.ir.stmt import For, LoopProgram, walk_stmt
from search_space.operators.reduction import REDUCERS
from search_space.space import Sketch, generate, make_program
from search_space.workloads import Workload
from targets import registry
from tests.gpu import candidates
from tests.native import run_program
from tests.search_space.operators.test_definitions import check

HARDWARE = registry.get("cpu:znver4").hardware
OPTIONS: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck), "max_examples": 12}


def compute(workload: Workload, sketch: Sketch, seed: int = 0) -> None:
    """A random candidate is the reference, on this host."""
    target, inputs = registry.get("cpu"), workload.make_inputs(seed)
    program = make_program(workload, sketch.algorithm, sketch.trace(candidates.legal(sketch, 1, seed)[0]))
    check(workload, run_program(target, program, inputs)[0], inputs)


def has_vectors(program: LoopProgram) -> bool:
    return any(isinstance(stmt, For) and stmt.kind == "vectorize" for stmt in walk_stmt(program.body))


SHAPES = st.lists(st.integers(1, 19), min_size=2, max_size=5)


@given(SHAPES, st.data())
@settings(**OPTIONS)
def test_any_axes_of_any_shape(shape: list[int], data: st.DataObject) -> None:
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1, max_size=len(shape) - 1))
    workload = workloads.reduce(shape, sorted(axes), data.draw(st.sampled_from(sorted(REDUCERS))))
    for sketch in generate(workload, registry.get("cpu").hardware).sketches:
        compute(workload, sketch, data.draw(st.integers(0, 99)))


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((8, 64, 8, 8), (0, 2, 3)), ((8, 64, 8, 8), (2, 3)), ((8, 64, 8, 8), (0, 3)), ((8, 64, 8, 8), (0, 1, 2)),
     ((64, 99), 0), ((64, 99), 1), ((4, 8, 6, 32, 3), (0, 3, 4)), ((5, 6, 7, 33), (1, 3))],
)  # fmt: skip
def test_every_sketch_has_vectors(shape: tuple[int, ...], axes: int | tuple[int, ...]) -> None:
    space = generate(workloads.reduce(shape, axes), HARDWARE)
    assert space.sketches and not space.refusals
    assert all(has_vectors(sketch.program) for sketch in space.sketches)


def parts(workload: Workload, hardware: Hardware = HARDWARE) -> list[Sketch]:
    space = generate(workload, hardware)
    assert not space.refusals
    return [sketch for sketch in space.sketches if "_parts" in sketch.name]


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((1, 99991), 1), ((1, 65536), 1), ((60000, 3), 0), ((4096, 40), 0), ((32, 3, 32, 33), (0, 2, 3)),
     ((16, 31, 32, 48), (0, 1, 2)), ((2, 3, 9973), (1, 2))],
)  # fmt: skip
def test_reductions_to_few_elements_are_also_done_in_parts(shape: tuple[int, ...], axes: int | tuple[int, ...]) -> None:
    workload = workloads.reduce(shape, axes, "mean")
    found = parts(workload)
    assert found
    for sketch in found:
        compute(workload, sketch)


def test_what_keeps_all_cores_busy_or_is_short_is_not_done_in_parts() -> None:
    assert not parts(workloads.reduce((4096, 512), 1))
    assert not parts(workloads.reduce((512, 8192), 0))
    assert not parts(workloads.reduce((1, 512), 1))
    assert not parts(workloads.matmul(2, 2, 65536, constant_b=False))


def test_a_sum_of_bfloat16_over_batch_and_planes() -> None:
    x = te.placeholder((4, 6, 5, 7), "bfloat16", "x")
    n, h, w = (te.reduce_axis((0, extent), name) for extent, name in ((4, "n"), (5, "h"), (7, "w")))
    total = te.compute((6,), lambda c: te.sum(x[n, c, h, w].astype("float32"), axis=[n, h, w]), name="total")
    workload = Workload.of([x, te.compute((6,), lambda c: (total[c] * 0.5).astype("bfloat16"), name="half")])
    for sketch in generate(workload, registry.get("cpu").hardware).sketches:
        compute(workload, sketch)


def test_a_variance_over_batch_and_planes_keeps_its_mean_in_the_row() -> None:
    x = te.placeholder((3, 5, 4, 9), name="x")
    axes = [[te.reduce_axis((0, extent), name) for extent, name in ((3, "n"), (4, "h"), (9, "w"))] for _ in range(2)]

    def at(c: Any, index: int) -> Any:
        n, h, w = axes[index]
        return x[n, c, h, w]

    total = te.compute((5,), lambda c: te.sum(at(c, 0), axis=axes[0]), name="total")
    mean = te.compute((5,), lambda c: total[c] * (1 / 108), name="mean")
    squares = te.compute(
        (5,), lambda c: te.sum((at(c, 1) - mean[c]) * (at(c, 1) - mean[c]), axis=axes[1]), name="squares"
    )
    workload = Workload.of([x, te.compute((5,), lambda c: squares[c] * (1 / 108), name="variance")])
    sketches = generate(workload, registry.get("cpu").hardware).sketches
    assert [sketch.name for sketch in sketches] == ["direct:rows"]
    compute(workload, sketches[0])


def test_infinities_are_greatest_where_rows_are_no_multiple_of_vectors() -> None:
    workload = workloads.reduce((3, 5, 11), (0, 2), "max")
    (data,) = workload.make_inputs(0)
    data[:] = -np.inf
    for sketch in generate(workload, registry.get("cpu").hardware).sketches:
        target = registry.get("cpu")
        program = make_program(workload, sketch.algorithm, sketch.trace(candidates.legal(sketch, 1, 0)[0]))
        assert (run_program(target, program, [data])[0] == -np.inf).all()
