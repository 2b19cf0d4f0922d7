"""Depthwise convolutions of bytes as dot products over words of four rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from search_space import workloads
from search_space.intrinsics import VNNI_LANE_DOT
from search_space.ir.stmt import Intrinsic, LoopProgram, walk_stmt
from search_space.operators.tap_words import TAP_WORDS
from search_space.space import algorithms_on, generate, make_program
from search_space.workloads import Workload
from targets import registry
from tests.gpu import candidates
from tests.interpreter import interpret
from tests.native import run_program
from tests.properties.running import examples
from tests.search_space.operators.test_definitions import check

ZEN = registry.get("cpu:znver4").hardware
"""A processor that has the instruction, whatever this host is."""
OPTIONS: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def depthwise(channels: int = 32, **more: Any) -> Workload:
    window = {"height": 7, "width": 6, "kernel": 3, "padding": 1, "bias": True, "dtype": "int8"}
    return workloads.depthwise_conv2d(**{**window, "channels": channels, **more})


def dots(program: LoopProgram) -> set[str]:
    return {s.name for s in walk_stmt(program.body) if isinstance(s, Intrinsic)}


@given(
    st.sampled_from((16, 48, 80)),
    st.tuples(st.integers(2, 9), st.integers(1, 5)),
    st.tuples(st.integers(1, 3), st.integers(1, 2)),
    st.tuples(st.tuples(st.integers(0, 3), st.integers(0, 4)), st.tuples(st.integers(0, 2), st.integers(0, 2))),
    st.sampled_from((1, (2, 1), (1, 2), 2)),
    st.integers(0, 99),
)
@settings(max_examples=examples(8), **OPTIONS)
def test_any_window_computes_the_reference(
    channels: int, kernel: tuple[int, int], stride: tuple[int, int], padding: Any, dilation: Any, seed: int
) -> None:
    more = {"height": 17, "width": 9, "kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}
    workload = depthwise(channels, batch=1 + seed % 2, **more)
    inputs, host = workload.make_inputs(seed), registry.get("cpu").hardware
    on = registry.get(("cpu", "cpu:cascadelake")[seed % 2])  # which permutes no bytes across a register
    sketches = generate(workload, ZEN, [TAP_WORDS]).sketches
    sketch = sketches[seed % len(sketches)]
    program = make_program(workload, sketch.algorithm, sketch.trace(candidates.legal(sketch, 1, seed)[0]))
    assert dots(program) == {VNNI_LANE_DOT.name}
    if VNNI_LANE_DOT.feature in host.features:
        check(workload, run_program(on, program, inputs, fenced=True)[0], inputs)


def test_the_interpreter_computes_the_same() -> None:
    workload = depthwise(16, height=3, width=2)
    inputs = workload.make_inputs(0)
    named = {spec.name: array for spec, array in zip(workload.inputs, inputs, strict=True)}
    for sketch in generate(workload, ZEN, [TAP_WORDS]).sketches[::3]:
        program = make_program(workload, TAP_WORDS, sketch.trace(candidates.legal(sketch, 1, 1)[0]))
        check(workload, interpret(program, named)[program.outputs[0]], inputs)


def test_the_greatest_bytes_and_weights_do_not_saturate() -> None:
    workload, on = depthwise(16, kernel=5, padding=2), registry.get("cpu")
    data, weight, bias = workload.make_inputs(0)
    for sign in (127, -127):
        inputs = [np.full_like(data, 255), np.full_like(weight, sign), bias]
        if VNNI_LANE_DOT.feature in on.hardware.features:
            sketch = generate(workload, on.hardware, [TAP_WORDS]).sketches[0]
            program = make_program(workload, TAP_WORDS, sketch.trace(candidates.legal(sketch, 1, 1)[0]))
            check(workload, run_program(on, program, inputs)[0], inputs)
        assert np.abs(workload.reference(*inputs) - bias).max() == 25 * 255 * 127


@pytest.mark.parametrize(
    "other", [{"dtype": "float32"}, {"channels": 24}, {"kernel": (1, 3)}, {"constant_weight": False}]
)
def test_it_is_there_for_bytes_windows_of_rows_whole_vectors_and_constants_alone(other: dict[str, Any]) -> None:
    assert TAP_WORDS in depthwise().algorithms
    assert TAP_WORDS not in depthwise(**other).algorithms


def test_without_the_instruction_it_has_no_schedule() -> None:
    assert TAP_WORDS in algorithms_on(depthwise(), ZEN)
    for name in ("cpu:haswell", "c"):
        assert TAP_WORDS not in algorithms_on(depthwise(), registry.get(name).hardware)


def test_words_are_made_by_one_permutation_where_the_processor_has_it() -> None:
    """The permutation is of a register of 64 bytes; it replaces three that take two registers each."""
    workload, target = depthwise(64), registry.get("cpu:znver4")
    sketch = generate(workload, target.hardware, [TAP_WORDS]).sketches[0]
    program = make_program(workload, TAP_WORDS, sketch.trace(candidates.legal(sketch, 1, 1)[0]))
    text = target.assembly(target.build(program))
    assert "vpermb" in text and "vpermt2b" not in text and "vpermi2b" not in text and "gather" not in text
