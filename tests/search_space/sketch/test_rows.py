"""Kernels along rows on CPUs: rows one at a time and a few at a time, of every length, with what is no number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from benchmarks.row_kinds import EPSILON, KINDS
from search_space import te, workloads
from search_space.hardware import Hardware
from search_space.ir.stmt import For, Store, walk_stmt
from search_space.lower.peeling import peel_last_iterations
from search_space.space import Sketch, generate, make_program
from search_space.workloads import Workload
from targets import registry
from targets.cpu.outputs_ahead import outputs_ahead, outputs_beside
from tests.gpu import candidates
from tests.native import run_program

OPTIONS: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck), "max_examples": 10}
Array = NDArray[Any]


def softmax(x: Array) -> Array:
    e: Array = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def log_softmax(x: Array) -> Array:
    shifted: Array = x - x.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))


def layer_norm(x: Array, gamma: Array, beta: Array) -> Array:
    centred: Array = x - x.mean(1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(1, keepdims=True) + EPSILON) * gamma + beta


def rms_norm(x: Array, gamma: Array) -> Array:
    result: Array = x / np.sqrt((x**2).mean(1, keepdims=True) + EPSILON) * gamma
    return result


EXACT: dict[str, Any] = {
    "softmax": softmax,
    "log_softmax": log_softmax,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "sum": lambda x: x.sum(1),
    "mean": lambda x: x.mean(1),
    "max": lambda x: x.max(1),
}
"""References in float64, in terms of their definitions."""


def sketches(kind: str, rows: int, length: int, hardware: Hardware | None = None) -> tuple[Workload, list[Sketch]]:
    workload = KINDS[kind](rows, length)
    space = generate(workload, hardware or registry.get("cpu").hardware)
    assert space.sketches and not space.refusals
    return workload, list(space.sketches)


def compute_output(workload: Workload, sketch: Sketch, arrays: list[Array], seed: int) -> Array:
    """The output of a random candidate on this host, by two threads."""
    target = registry.get("cpu")
    program = make_program(workload, sketch.algorithm, sketch.trace(candidates.legal(sketch, 1, seed)[0]))
    return run_program(target, program, arrays, 2)[0]


@given(st.integers(1, 90), st.integers(1, 300), st.integers(0, 99))
@pytest.mark.parametrize("kind", KINDS)
@settings(**OPTIONS)
def test_any_number_of_rows_of_any_length(kind: str, rows: int, length: int, seed: int) -> None:
    workload, found = sketches(kind, rows, length)
    rng = np.random.default_rng(seed)
    arrays = [(4 * rng.standard_normal(spec.shape)).astype(np.float32) for spec in workload.inputs]
    wanted = EXACT[kind](*(array.astype(np.float64) for array in arrays))
    for sketch in found:
        output = compute_output(workload, sketch, arrays, seed)
        np.testing.assert_allclose(output, wanted, rtol=2e-5, atol=2e-5 * length**0.5, err_msg=sketch.name)


@pytest.mark.parametrize("length", [16, 31, 33, 50, 1000])
@pytest.mark.parametrize("kind", ["softmax", "log_softmax"])
def test_rows_of_infinities_and_of_what_is_no_number_stay_by_themselves(kind: str, length: int) -> None:
    workload, found = sketches(kind, 67, length)
    x = np.random.default_rng(length).standard_normal((67, length)).astype(np.float32)
    x[3, : length // 2] = -np.inf
    x[4, -1] = -np.inf
    x[5], x[6, 7], x[7, 2], x[66] = -np.inf, np.nan, np.inf, -np.inf
    x[8, 0], x[9] = -3.4e38, -3.4e38
    with np.errstate(invalid="ignore", divide="ignore"):
        wanted = EXACT[kind](x.astype(np.float64))
    assert not np.isnan(wanted[[3, 4, 8, 9]]).any() and np.isnan(wanted[[5, 7, 66]]).all()
    for sketch in found:
        output = compute_output(workload, sketch, [x], 1)
        others = np.arange(67) != 6
        np.testing.assert_allclose(output[others], wanted[others], rtol=2e-5, atol=2e-5, err_msg=sketch.name)
        assert np.isnan(output[6, 7]), sketch.name  # of a maximum, what is not a number may lose against what is
        if kind == "softmax":
            assert (output[3, : length // 2] == 0).all() and output[4, -1] == 0 and output[8, 0] == 0


@pytest.mark.parametrize("shape", [(3, 5, 7, 40), (1, 64, 1, 40), (2, 1, 33, 40), (4, 3, 2, 9)])
def test_rows_along_several_axes(shape: tuple[int, ...]) -> None:
    x = te.placeholder(shape, name="x")
    r, q = te.reduce_axis((0, shape[-1]), "r"), te.reduce_axis((0, shape[-1]), "q")
    rows = shape[:-1]
    most = te.compute(rows, lambda i, j, k: te.max(x[i, j, k, r], axis=r), name="most")
    total = te.compute(rows, lambda i, j, k: te.sum(te.exp(x[i, j, k, q] - most[i, j, k]), axis=q), name="total")
    shift = te.compute(rows, lambda i, j, k: te.log(total[i, j, k]) + most[i, j, k], name="shift")
    workload = workloads.from_tensors([x, te.compute(shape, lambda i, j, k, m: x[i, j, k, m] - shift[i, j, k])])
    data = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    wanted = log_softmax(data.reshape(-1, shape[-1]).astype(np.float64)).reshape(shape)
    for sketch in generate(workload, registry.get("cpu").hardware).sketches:
        for seed in range(3):
            np.testing.assert_allclose(compute_output(workload, sketch, [data], seed), wanted, rtol=2e-5, atol=2e-5)


def variants(kind: str, rows: int, length: int) -> list[str]:
    found = sketches(kind, rows, length, registry.get("cpu:znver4").hardware)[1]
    return [sketch.name.partition(":")[2] for sketch in found]


def test_a_few_rows_at_a_time_where_they_stay_in_cache_and_are_enough_for_all_cores() -> None:
    assert variants("softmax", 1024, 64) == ["rows", "few_rows", "row_vectors"]
    assert variants("softmax", 1024, 1024) == ["rows", "few_rows"]  # whole vectors of rows leave the cache
    assert variants("softmax", 1024, 8192) == ["rows"]
    assert variants("softmax", 4, 64) == ["rows"]
    assert variants("sum", 1024, 64) == ["rows"]  # nothing is made of what a row is reduced to


def test_what_there_is_one_of_in_each_row_is_computed_in_vectors_of_rows() -> None:
    _, found = sketches("log_softmax", 1024, 64, registry.get("cpu:znver4").hardware)
    (sketch,) = (sketch for sketch in found if "row_vectors" in sketch.name)
    loops = [s for s in walk_stmt(sketch.program.body) if isinstance(s, For) and s.var.startswith("logarithm.")]
    assert loops[-1].kind == "vectorize" and loops[-1].extent.value == 16


@pytest.mark.parametrize("length", [1000, 1024])
@pytest.mark.parametrize("variant", ["rows", "few_rows"])
def test_lines_of_the_output_are_asked_for_while_exponents_are_computed(variant: str, length: int) -> None:
    workload, found = sketches("softmax", 1024, length, registry.get("cpu:znver4").hardware)
    (sketch,) = (sketch for sketch in found if sketch.name.endswith(f":{variant}"))
    program = peel_last_iterations(
        make_program(workload, sketch.algorithm, sketch.trace(candidates.legal(sketch, 1, 0)[0]))
    )
    ((buffer, ahead),) = outputs_ahead(program).items()
    assert (buffer, ahead.output) == ("exponent", "softmax")


def test_nothing_is_asked_for_of_what_is_read_twice() -> None:
    workload, (sketch, *_) = sketches("layer_norm", 64, 40)
    assert not outputs_ahead(make_program(workload, sketch.algorithm, sketch.trace(candidates.legal(sketch, 1, 0)[0])))


@pytest.mark.parametrize("length", [40, 64])
@pytest.mark.parametrize("kind", ["layer_norm", "rms_norm"])
def test_lines_of_an_output_that_caches_do_not_hold_are_asked_for_beside_the_last_sum(kind: str, length: int) -> None:
    workload, found = sketches(kind, 64, length)
    for sketch in found:
        program = peel_last_iterations(
            make_program(workload, sketch.algorithm, sketch.trace(candidates.legal(sketch, 1, 0)[0]))
        )
        assert not outputs_beside(program, 4 * 64 * length)
        beside = outputs_beside(program, 4 * 64 * length - 1)
        sums = [s for s in walk_stmt(program.body) if isinstance(s, Store) and id(s) in beside]
        assert sums and {s.buffer for s in sums} == {"squares.rf"}
        assert {output for output, _ in beside.values()} == {kind}


def test_sums_that_no_output_is_made_beside_ask_for_nothing() -> None:
    for kind in ("softmax", "sum"):
        workload, (sketch, *_) = sketches(kind, 64, 40)
        program = make_program(workload, sketch.algorithm, sketch.trace(candidates.legal(sketch, 1, 0)[0]))
        assert not outputs_beside(peel_last_iterations(program), 0)
