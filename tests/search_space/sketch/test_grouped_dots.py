"""Grouped convolutions by dot products: lanes of one group share their channels, those of several have their own."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from search_space import te, workloads
from search_space.intrinsics import BF16_DOT, BF16_LANE_DOT, PAIR_PRODUCTS, VNNI_DOT, VNNI_LANE_DOT
from search_space.ir.stmt import Intrinsic, LoopProgram, walk_stmt
from search_space.lower import lower
from search_space.space import concrete, generate, make_program
from search_space.workloads import Workload
from targets import registry
from targets.base import BuildError
from tests.gpu import candidates
from tests.interpreter import interpret
from tests.native import run_program
from tests.properties.running import examples
from tests.search_space.operators.test_definitions import check

OPTIONS: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck)}
ZEN = registry.get("cpu:znver4").hardware
"""A processor that has the instructions, whatever this host is."""
CPU = registry.get("cpu")


def make_grouped_convolution(
    groups: int, depth: int, out_channels: int, dtype: str = "bfloat16", **more: Any
) -> Workload:
    """A small convolution in groups that make `out_channels` channels of `depth` each."""
    channels = {"in_channels": groups * depth, "out_channels": groups * out_channels, "groups": groups}
    window = {"height": 4, "width": 5, "kernel": 3, "padding": 1, "bias": True}
    return workloads.conv2d(**{**window, **channels, "dtype": dtype, **more})


PAIRS = {intrinsic.name for intrinsic in PAIR_PRODUCTS}
"""Multiply-adds of float32, of pairs that every processor widens."""


def dots(program: LoopProgram) -> set[str]:
    return {s.name for s in walk_stmt(program.body) if isinstance(s, Intrinsic)} - PAIRS


@given(
    st.sampled_from(("bfloat16", "int8")),
    st.integers(1, 2),
    st.sampled_from((2, 4, 6, 8, 12)),
    st.sampled_from((1, 2, 4, 6, 8, 12, 16, 20, 24, 32)),
    st.integers(1, 2),
    st.integers(0, 1),
    st.integers(0, 99),
)
@settings(max_examples=examples(8), **OPTIONS)
def test_any_groups_compute_the_reference(
    dtype: str, vectors: int, depth: int, out_channels: int, stride: int, padding: int, seed: int
) -> None:
    groups = 16 * vectors // math.gcd(16, out_channels)  # whole vectors of channels
    workload = make_grouped_convolution(groups, depth, out_channels, dtype, stride=stride, padding=padding)
    space, inputs = generate(workload, ZEN, ["direct"]), workload.make_inputs(seed)
    assert not space.refusals
    # A tile of padding may have no whole vectors in any candidate of its sketch.
    sketches = [sketch for sketch in space.sketches if sketch.legal(candidates.draw_rows(sketch, 4000, seed)).any()]
    assert sketches
    sketch = sketches[seed % len(sketches)]
    for row in candidates.legal(sketch, 1, seed):
        program = make_program(workload, sketch.algorithm, sketch.trace(row))
        if not dots(program) or {BF16_DOT.feature, VNNI_DOT.feature} <= set(CPU.hardware.features):
            check(workload, run_program(CPU, program, inputs)[0], inputs)


@pytest.mark.parametrize(
    ("groups", "depth", "out_channels", "dtype"),
    [(8, 4, 4, "bfloat16"), (4, 4, 12, "int8"), (2, 2, 16, "bfloat16")],
    ids=str,
)
def test_a_candidate_is_the_same_lowered_either_way(groups: int, depth: int, out_channels: int, dtype: str) -> None:
    workload = make_grouped_convolution(
        groups, depth, out_channels, dtype, height=2, width=3, kernel=(1, 3), padding=(0, 1)
    )
    inputs = workload.make_inputs(1)
    named = {spec.name: array for spec, array in zip(workload.inputs, inputs, strict=True)}
    space = generate(workload, ZEN, ["direct"])
    for sketch in space.sketches[::3]:
        (row,) = candidates.legal(sketch, 1, 3)
        trace = sketch.trace(row)
        again = type(trace).from_json(trace.to_json())
        for program in (make_program(workload, sketch.algorithm, again), concrete(sketch, sketch.values(row))):
            assert dots(program)
            check(workload, interpret(program, named)[program.outputs[0]], inputs)


@pytest.mark.parametrize(
    ("groups", "depth", "out_channels", "dtype", "name"),
    [
        (32, 4, 4, "bfloat16", BF16_LANE_DOT.name),
        (32, 8, 8, "bfloat16", BF16_LANE_DOT.name),
        (10, 24, 24, "bfloat16", BF16_LANE_DOT.name),
        (32, 2, 1, "bfloat16", BF16_LANE_DOT.name),
        (4, 16, 16, "bfloat16", BF16_DOT.name),
        (4, 6, 48, "bfloat16", BF16_DOT.name),
        (32, 4, 4, "int8", VNNI_LANE_DOT.name),
        (4, 16, 32, "int8", VNNI_DOT.name),
        (32, 3, 4, "bfloat16", None),  # a pair would be of two groups
        (32, 2, 4, "int8", None),
        (13, 8, 8, "bfloat16", None),  # the last vector has lanes without a channel
        (16, 16, 1, "bfloat16", None),  # lanes read further apart than two vectors
        (32, 4, 4, "float16", None),
        (32, 4, 4, "float32", None),
    ],
)
def test_what_is_computed_by_dot_products(
    groups: int, depth: int, out_channels: int, dtype: str, name: str | None
) -> None:
    workload = make_grouped_convolution(groups, depth, out_channels, dtype)
    found = [dots(sketch.program) for sketch in generate(workload, ZEN, ["direct"]).sketches]
    assert found and all(names == ({name} if name else set()) for names in found)
    without = generate(workload, registry.get("cpu:haswell").hardware, ["direct"]).sketches
    assert without and not any(dots(sketch.program) for sketch in without)


@pytest.mark.parametrize(("groups", "depth", "out_channels"), [(32, 4, 4), (4, 24, 24), (16, 2, 1)], ids=str)
def test_nothing_is_gathered(groups: int, depth: int, out_channels: int) -> None:
    workload = make_grouped_convolution(groups, depth, out_channels)
    for sketch in generate(workload, ZEN, ["direct"]).sketches[::5]:
        program = make_program(workload, sketch.algorithm, sketch.trace(candidates.legal(sketch, 1, 0)[0]))
        text = registry.get("cpu:znver4").build(program).llvm_ir
        assert "dpbf16ps" in text and "masked.gather" not in text


def by_hand(distance: int, offset: int = 0) -> tuple[Workload, LoopProgram]:
    """Lanes whose pairs lie `distance` elements apart, in one instruction."""
    a = te.placeholder((16 * distance + offset + 2,), "bfloat16", name="a")
    b = te.placeholder((16, 2), "bfloat16", name="b", constant=True)
    r = te.reduce_axis((0, 2), "r")

    def pairs(i: te.IterVar) -> te.Reduction:
        return te.sum(a[i * distance + offset + r].astype("float32") * b[i, r].astype("float32"), axis=r)

    c = te.compute((16,), pairs, name="c")
    schedule = te.create_schedule(c.op)
    sums = schedule.cache_write(c, "local")
    schedule[sums].tensorize(schedule[sums].op.axis[0], BF16_LANE_DOT)
    schedule[c].vectorize(c.op.axis[0])
    return Workload.of([a, b, c]), lower(schedule.state)


@pytest.mark.parametrize("distance", [2, 4])
def test_words_side_by_side_and_apart_are_read(distance: int) -> None:
    workload, program = by_hand(distance)
    inputs = workload.make_inputs(0)
    named = {spec.name: array for spec, array in zip(workload.inputs, inputs, strict=True)}
    check(workload, interpret(program, named)["c"], inputs)
    if BF16_LANE_DOT.feature in CPU.hardware.features:
        check(workload, run_program(CPU, program, inputs)[0], inputs)


@pytest.mark.parametrize(("distance", "offset"), [(3, 0), (2, 1), (6, 0)])
def test_words_across_others_or_far_apart_are_refused(distance: int, offset: int) -> None:
    with pytest.raises(BuildError, match="lanes must read whole words within two vectors"):
        registry.get("cpu:znver4").build(by_hand(distance, offset)[1])
