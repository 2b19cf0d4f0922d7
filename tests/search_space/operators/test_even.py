"""Convolutions over an odd number of channels, filled up to pairs for dot products."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from search_space import workloads
from search_space.intrinsics import BF16_DOT
from search_space.ir.stmt import Intrinsic, walk_stmt
from search_space.operators.even import PAIRS
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


def conv(channels: int, out_channels: int = 20, **more: Any) -> Workload:
    window = {"height": 4, "width": 5, "kernel": 3, "padding": 1, "bias": True, "dtype": "bfloat16"}
    return workloads.conv2d(**{**window, "in_channels": channels, "out_channels": out_channels, **more})


@given(st.sampled_from((3, 5, 7, 25)), st.integers(1, 40), st.integers(1, 3), st.integers(1, 2), st.integers(0, 1))
@settings(max_examples=examples(4), **OPTIONS)
def test_any_odd_number_of_channels_computes_the_reference(
    channels: int, out_channels: int, kernel: int, stride: int, padding: int
) -> None:
    workload = conv(channels, out_channels, kernel=kernel, stride=stride, padding=padding)
    on, inputs = registry.get("cpu"), workload.make_inputs(out_channels)
    sketches = generate(workload, ZEN, [PAIRS]).sketches
    sketch = sketches[out_channels % len(sketches)]
    program = make_program(workload, sketch.algorithm, sketch.trace(candidates.legal(sketch, 1, out_channels)[0]))
    assert any(isinstance(s, Intrinsic) and s.name == BF16_DOT.name for s in walk_stmt(program.body))
    if BF16_DOT.feature in on.hardware.features:
        check(workload, run_program(on, program, inputs)[0], inputs)


def test_the_interpreter_computes_the_same() -> None:
    workload = conv(3, height=2, width=2, kernel=(1, 3), padding=(0, 1))
    inputs = workload.make_inputs(0)
    named = {spec.name: array for spec, array in zip(workload.inputs, inputs, strict=True)}
    for sketch in generate(workload, ZEN, [PAIRS]).sketches[::3]:
        program = make_program(workload, PAIRS, sketch.trace(candidates.legal(sketch, 1, 1)[0]))
        check(workload, interpret(program, named)[program.outputs[0]], inputs)


@pytest.mark.parametrize(
    "other", [{"dtype": "float32"}, {"dtype": "int8"}, {"in_channels": 6}, {"in_channels": 1}, {"groups": 5}]
)
def test_it_is_there_for_odd_numbers_of_dense_bfloat16_alone(other: dict[str, Any]) -> None:
    assert PAIRS in conv(5).algorithms
    assert PAIRS not in conv(5, **other).algorithms


def test_without_the_instruction_it_has_no_schedule() -> None:
    assert PAIRS in algorithms_on(conv(5), ZEN)
    for name in ("cpu:haswell", "c"):
        assert PAIRS not in algorithms_on(conv(5), registry.get(name).hardware)
