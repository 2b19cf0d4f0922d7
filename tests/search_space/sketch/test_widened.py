"""Products of 16-bit floats by multiply-adds of float32: the factor that lanes share is widened once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune.tuner.task import Task
from autotune.tuner.untimed import select_by_roofline
from search_space import te, workloads
from search_space.dtypes import numpy_dtype
from search_space.hardware import Hardware
from search_space.intrinsics import BF16_DOT, BF16_LANE_DOT, PAIR_PRODUCTS
from search_space.ir.stmt import Intrinsic, LoopProgram, walk_stmt
from search_space.schedule.steps import Widen
from search_space.space import Sketch, concrete, generate, make_program
from search_space.workloads import Workload
from targets import registry
from targets.cpu.descriptions import DESCRIPTIONS, get_description
from targets.cpu.target import CpuTarget
from tests.autotune.fakes import settings_with
from tests.gpu import candidates
from tests.interpreter import interpret
from tests.native import run_program
from tests.properties.running import examples
from tests.search_space.operators.test_definitions import check
from tests.search_space.sketch.test_chained_products import attention

CPU = registry.get("cpu")
HASWELL = registry.get("cpu:haswell")
"""A processor of vectors of eight float32, whose code runs on most hosts."""
OPTIONS: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck)}
NARROW = st.sampled_from(["bfloat16", "float16"])
PAIRS = {intrinsic.extents[0]: intrinsic.name for intrinsic in PAIR_PRODUCTS}


SLOW_DOTS = replace(CPU.hardware, rates=get_description("emeraldrapids").rates)
"""This host with slow dot products."""


def make_product(orders: str, m: int, n: int, k: int, dtype: str) -> Workload:
    """Returns a product of matrices of which each is transposed (t) or not (n)."""
    a = te.placeholder((k, m) if orders[0] == "t" else (m, k), dtype, "a")
    b = te.placeholder((n, k) if orders[1] == "t" else (k, n), dtype, "b")
    r = te.reduce_axis((0, k), "r")

    def term(i: Any, j: Any) -> Any:
        left, right = a[(r, i) if orders[0] == "t" else (i, r)], b[(j, r) if orders[1] == "t" else (r, j)]
        return te.sum(left.astype("float32") * right.astype("float32"), axis=r)

    return Workload.of([a, b, te.compute((m, n), term, name="c")])


def calls(program: LoopProgram) -> set[str]:
    return {s.name for s in walk_stmt(program.body) if isinstance(s, Intrinsic)}


def widens(sketch: Sketch) -> bool:
    return any(isinstance(step, Widen) for step in sketch.steps.steps)


def find_widened(workload: Workload, hardware: Hardware) -> list[Sketch]:
    space = generate(workload, hardware, [workload.algorithms[0]])
    assert not space.refusals
    found = [sketch for sketch in space.sketches if widens(sketch)]
    assert found
    return found


@given(st.integers(1, 40), st.integers(1, 150), st.integers(1, 40), st.booleans(), NARROW, st.integers(0, 99))
@settings(max_examples=examples(6), **OPTIONS)
def test_any_extents_compute_the_reference(m: int, n: int, k: int, constant: bool, dtype: str, seed: int) -> None:
    workload = workloads.matmul(m, n + 63, k, dtype=dtype, constant_b=constant)
    inputs = workload.make_inputs(seed)
    for sketch in find_widened(workload, SLOW_DOTS)[:: 1 + seed % 2]:
        program = make_program(workload, sketch.algorithm, sketch.trace(candidates.legal(sketch, 1, seed)[0]))
        check(workload, run_program(CPU, program, inputs)[0], inputs)


@pytest.mark.parametrize(
    "workload",
    [
        workloads.matmul(5, 70, 10, dtype="bfloat16"),
        workloads.conv2d(1, 3, 4, 4, 64, kernel=3, padding=1, dtype="bfloat16"),
        workloads.conv2d(1, 3, 4, 4, 64, kernel=1, stride=2, dtype="float16"),
        workloads.conv2d(1, 3, 4, 6, 64, kernel=3, padding=1, groups=2, dtype="bfloat16"),
        workloads.conv1d(1, 7, 16, 128, kernel=1, groups=4, dtype="float16"),
        make_product("tn", 5, 70, 10, "bfloat16"),
        make_product("nt", 5, 70, 10, "float16"),
        make_product("tt", 5, 70, 10, "bfloat16"),
        attention(2, 7, 19, 5, 20, dtype="bfloat16"),
    ],
    ids=str,
)
def test_a_candidate_is_the_same_lowered_either_way(workload: Workload) -> None:
    inputs = workload.make_inputs(1)
    named = {spec.name: array for spec, array in zip(workload.inputs, inputs, strict=True)}
    sketch = find_widened(workload, SLOW_DOTS)[-1]
    (row,) = candidates.legal(sketch, 1, 3)
    trace = sketch.trace(row)
    for program in (
        make_program(workload, sketch.algorithm, type(trace).from_json(trace.to_json())),
        concrete(sketch, sketch.values(row)),
    ):
        check(workload, interpret(program, named)[program.outputs[0]], inputs)
    check(workload, run_program(CPU, program, inputs)[0], inputs)


@pytest.mark.parametrize("target", [HASWELL, registry.get("cpu:aarch64:cortex-a72")], ids=lambda target: target.name)
def test_weights_in_pairs_are_widened_in_vectors_of_any_width(target: CpuTarget) -> None:
    workload = workloads.matmul(5, 35, 10, dtype="bfloat16")
    inputs = workload.make_inputs(2)
    named = {spec.name: array for spec, array in zip(workload.inputs, inputs, strict=True)}
    sketch = find_widened(workload, target.hardware)[0]
    program = make_program(workload, sketch.algorithm, sketch.trace(candidates.legal(sketch, 1, 5)[0]))
    assert calls(program) == {PAIRS[target.hardware.float_lanes]}
    check(workload, interpret(program, named)[program.outputs[0]], inputs)
    assert target.build(program)
    if target is HASWELL and "avx2" in CPU.hardware.features:
        check(workload, run_program(target, program, inputs)[0], inputs)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_special_values_are_those_of_float32(dtype: str) -> None:
    """Infinity, NaN and numbers below the smallest normal one: a dot instruction takes the last for zero."""
    workload, kind = workloads.matmul(6, 64, 8, dtype=dtype), numpy_dtype(dtype)
    a, b = (array.astype(np.float32) for array in workload.make_inputs(0))
    tiny = float(ml_dtypes.finfo(kind).smallest_subnormal)
    a[0, 0], a[1, 1], a[2, 2], a[3], b[:, 5] = np.inf, np.nan, -np.inf, tiny * np.arange(8), 1.0
    b[3, 7] = np.inf
    a, b = a.astype(kind), b.astype(kind)
    with np.errstate(invalid="ignore"):
        expected = a.astype(np.float64) @ b.astype(np.float64)
    sketch = find_widened(workload, SLOW_DOTS)[0]
    program = make_program(workload, sketch.algorithm, sketch.trace(candidates.legal(sketch, 1, 1)[0]))
    found = run_program(CPU, program, [a, b])[0]
    # of products of infinity and numbers of both signs the order of the sum decides nothing
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6)
    assert found[3, 5] == np.float32(28 * tiny) != 0


@pytest.mark.parametrize("orders", ["tn", "tt"])
def test_a_transposed_left_factor_is_copied_for_dots_that_are_faster(orders: str) -> None:
    workload, zen = make_product(orders, 9, 70, 26, "bfloat16"), registry.get("cpu:znver5").hardware
    inputs = workload.make_inputs(1)
    named = {spec.name: array for spec, array in zip(workload.inputs, inputs, strict=True)}
    space = generate(workload, zen)
    aligned = [sketch for sketch in space.sketches if ":aligned/" in sketch.name]
    assert aligned and not space.refusals
    for sketch in aligned:
        program = concrete(sketch, sketch.values(candidates.legal(sketch, 1, 2)[0]))
        assert calls(program) == {BF16_DOT.name}
        check(workload, interpret(program, named)[program.outputs[0]], inputs)
        if BF16_DOT.feature in CPU.hardware.features:
            check(workload, run_program(CPU, program, inputs)[0], inputs)
    slow = generate(workload, registry.get("cpu:emeraldrapids").hardware)
    assert not any(":aligned/" in sketch.name for sketch in slow.sketches)


def test_channels_in_groups_are_multiplied_both_ways_if_dots_are_slow() -> None:
    workload = workloads.conv2d(1, 4, 5, 32, 32, kernel=3, padding=1, groups=8, dtype="bfloat16")
    inputs = workload.make_inputs(1)
    emerald = registry.get("cpu:emeraldrapids").hardware
    ways = {}
    for sketch in generate(workload, emerald, ["direct"]).sketches:
        program = make_program(workload, "direct", sketch.trace(candidates.legal(sketch, 1, 2)[0]))
        ways.setdefault(frozenset(calls(program)), program)
    assert set(ways) == {frozenset(), frozenset({BF16_LANE_DOT.name})}
    check(workload, run_program(CPU, ways[frozenset()], inputs)[0], inputs)


DOTS = {BF16_DOT.name, BF16_LANE_DOT.name}
CHOICES = {
    "product": workloads.matmul(128, 512, 512, dtype="bfloat16"),
    "product of activations": workloads.matmul(128, 256, 256, dtype="bfloat16", constant_b=False),
    "convolution": workloads.conv2d(1, 28, 28, 64, 128, kernel=3, padding=1, dtype="bfloat16"),
    "channels in groups": workloads.conv1d(1, 128, 512, 512, kernel=1, groups=4, dtype="bfloat16"),
    "padded channels in groups": workloads.conv2d(1, 14, 14, 256, 256, kernel=3, padding=1, groups=4, dtype="bfloat16"),
    "attention": attention(2, 64, 64, 64, 64, dtype="bfloat16"),
    "transposed": make_product("tt", 128, 256, 256, "bfloat16"),
}


@pytest.mark.parametrize(("cpu", "dots"), [("emeraldrapids", False), ("znver5", True), ("znver4", True)])
@pytest.mark.parametrize("name", CHOICES)
def test_the_rates_of_a_processor_decide(name: str, cpu: str, dots: bool) -> None:
    chosen = select_by_roofline(
        Task("product", CHOICES[name]), settings_with(f"cpu:{cpu}"), algorithms=CHOICES[name].algorithms[:1]
    )
    steps = chosen.schedule.trace.steps
    assert any(getattr(step, "intrinsic", "") in DOTS for step in steps) is dots
    assert any(isinstance(step, Widen) for step in steps) is not dots


@pytest.mark.parametrize("cpu", ["emeraldrapids", "znver5", "haswell", "aarch64:cortex-a72"])
def test_float16_is_widened_once(cpu: str) -> None:
    workload = workloads.matmul(128, 512, 512, dtype="float16")
    chosen = select_by_roofline(Task("product", workload), settings_with(f"cpu:{cpu}"))
    assert any(isinstance(step, Widen) for step in chosen.schedule.trace.steps)


@pytest.mark.parametrize("cpu", ["emeraldrapids", "haswell", "aarch64:cortex-a72"])
def test_code_for_named_processors_has_no_dot_products(cpu: str) -> None:
    workload, target = workloads.matmul(32, 256, 64, dtype="bfloat16"), registry.get(f"cpu:{cpu}")
    chosen = select_by_roofline(Task("product", workload), settings_with(f"cpu:{cpu}"))
    program = make_program(workload, chosen.algorithm, chosen.schedule.trace)
    assert calls(program) == {PAIRS[target.hardware.float_lanes]}
    assert "dpbf16" not in target.assembly(target.build(program))


def test_only_dots_that_are_faster_leave_out_the_other_ways() -> None:
    assert not get_description("emeraldrapids").rates.gains_by_dots
    assert get_description("znver4").rates.gains_by_dots and get_description("znver5").rates.gains_by_dots
    space = generate(CHOICES["product"], registry.get("cpu:emeraldrapids").hardware)
    assert {widens(sketch) for sketch in space.sketches} == {True, False}
    space = generate(CHOICES["product"], registry.get("cpu:znver5").hardware)
    assert not any(widens(sketch) for sketch in space.sketches)


def test_rates_that_the_probe_has_not_confirmed_say_so() -> None:
    probed = {name for name, description in DESCRIPTIONS.items() if "dots" in description.probe_rates}
    assert probed == {"emeraldrapids", "znver4", "znver5"}
    assert get_description("sapphirerapids").rates == get_description("emeraldrapids").rates
