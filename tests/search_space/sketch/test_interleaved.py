"""Products of two bfloat16 operands that are both computed: rows of the right one in pairs, for dot products."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from search_space import workloads
from search_space.intrinsics import BF16_DOT
from search_space.ir.stmt import Intrinsic, LoopProgram, walk_stmt
from search_space.schedule.steps import Interleave
from search_space.space import SearchSpace, concrete, generate, make_program
from search_space.workloads import Workload
from targets import registry
from tests.gpu import candidates
from tests.interpreter import interpret
from tests.native import run_program
from tests.properties.running import examples
from tests.search_space.operators.test_definitions import check

EXTENTS = st.integers(1, 70)
OPTIONS: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck)}
ZEN = registry.get("cpu:znver4").hardware
"""A processor that has the instruction, whatever this host is."""


def product(m: int, n: int, k: int, batch: int = 0, dtype: str = "bfloat16") -> Workload:
    if batch:
        return workloads.batch_matmul(batch, m, n, k, dtype=dtype)
    return workloads.matmul(m, n, k, dtype=dtype, constant_b=False)


def dots(program: LoopProgram) -> bool:
    return any(isinstance(s, Intrinsic) and s.name == BF16_DOT.name for s in walk_stmt(program.body))


def spaces(workload: Workload) -> list[SearchSpace]:
    found = [generate(workload, ZEN, [algorithm]) for algorithm in workload.algorithms]
    assert not any(space.refusals for space in found)
    return found


@given(EXTENTS, EXTENTS, EXTENTS, st.integers(0, 3), st.integers(0, 99))
@settings(max_examples=examples(8), **OPTIONS)
def test_any_extents_compute_the_reference(m: int, n: int, k: int, batch: int, seed: int) -> None:
    workload = product(m, n, k, batch)
    on, inputs = registry.get("cpu"), workload.make_inputs(seed)
    for space in spaces(workload):
        for sketch in space.sketches:
            program = make_program(workload, sketch.algorithm, sketch.trace(candidates.legal(sketch, 1, seed)[0]))
            if dots(program) and BF16_DOT.feature not in on.hardware.features:
                continue
            check(workload, run_program(on, program, inputs)[0], inputs)


@pytest.mark.parametrize("extents", [(5, 19, 6), (6, 16, 9), (4, 3, 2), (4, 33, 7)], ids=str)
def test_a_candidate_is_the_same_lowered_either_way(extents: tuple[int, int, int]) -> None:
    workload = product(*extents, batch=2)
    inputs = workload.make_inputs(1)
    named = {spec.name: array for spec, array in zip(workload.inputs, inputs, strict=True)}
    found = [(space, sketch) for space in spaces(workload) for sketch in space.sketches]
    assert any(dots(sketch.program) for _, sketch in found)
    for _, sketch in found:
        (row,) = candidates.legal(sketch, 1, 3)
        trace = sketch.trace(row)
        again = type(trace).from_json(trace.to_json())
        for program in (make_program(workload, sketch.algorithm, again), concrete(sketch, sketch.values(row))):
            check(workload, interpret(program, named)[program.outputs[0]], inputs)


@pytest.mark.parametrize(
    ("workload", "paired"),
    [
        (product(8, 16, 6, 2), {"direct": True}),
        (product(8, 16, 6), {"direct": True}),
        (product(8, 16, 7, 2), {"direct": False, "pairs": True}),
        (product(8, 16, 1, 2), {"direct": False}),
        (product(3, 16, 6, 2), {"direct": False}),  # too few rows share what is laid out
        (product(8, 16, 6, 2, "float16"), {"direct": False}),
        (workloads.matmul(8, 16, 7, dtype="bfloat16"), {"direct": False, "pairs": True}),
        (workloads.matmul(8, 16, 38, dtype="bfloat16"), {"direct": True}),  # of 19 pairs some are left over
    ],
    ids=str,
)
def test_what_is_computed_by_dot_products(workload: Workload, paired: dict[str, bool]) -> None:
    found = {s.sketches[0].algorithm: all(dots(sketch.program) for sketch in s.sketches) for s in spaces(workload)}
    assert found == paired
    packed = workload.inputs[1].constant
    for space in spaces(workload):
        for sketch in space.sketches:
            copied = any(isinstance(step, Interleave) for step in sketch.steps.steps)
            assert copied is (paired[sketch.algorithm] and not packed)


def test_without_the_instruction_nothing_is_laid_out() -> None:
    haswell = registry.get("cpu:haswell").hardware
    space = generate(product(8, 16, 7, 2), haswell)
    assert {sketch.algorithm for sketch in space.sketches} == {"direct"}
    assert not any(isinstance(step, Interleave) for sketch in space.sketches for step in sketch.steps.steps)
