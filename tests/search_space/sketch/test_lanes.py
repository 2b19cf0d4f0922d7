"""Copies of 16-bit floats and padding of bytes move whole vectors, what computes as many elements as of float32."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from search_space import te, workloads
from search_space.ir.stmt import For, LoopProgram, walk_stmt
from search_space.space import generate, make_program
from search_space.workloads import Workload
from targets import registry
from tests.gpu import candidates
from tests.native import run_program
from tests.properties.running import examples
from tests.search_space.operators.test_definitions import check

OPTIONS: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck)}
ZEN = registry.get("cpu:znver4").hardware


def part(rows: int, columns: int, begin: int, dtype: str) -> Workload:
    """Columns of a matrix, from `begin` on."""
    x = te.placeholder((rows, begin + columns), dtype, "x")
    return Workload.of([x, te.compute((rows, columns), lambda i, j: x[i, begin + j], name="part")])


def clip_rows(rows: int, columns: int, dtype: str) -> Workload:
    x = te.placeholder((rows, columns), dtype, "x")
    return Workload.of([x, te.compute((rows, columns), lambda i, j: te.maximum(x[i, j], 0.0), name="clipped")])


def join_matrices(rows: int, columns: int, more: int, dtype: str) -> Workload:
    """Two matrices side by side."""
    x, y = te.placeholder((rows, columns), dtype, "x"), te.placeholder((rows, more), dtype, "y")

    def either(i: Any, j: Any) -> Any:
        return te.if_then_else(j < columns, x[i, te.minimum(j, columns - 1)], y[i, te.maximum(j - columns, 0)])

    return Workload.of([x, y, te.compute((rows, columns + more), either, name="joined")])


def widths(program: LoopProgram) -> set[int]:
    return {int(s.extent.value) for s in walk_stmt(program.body) if isinstance(s, For) and s.kind == "vectorize"}


def programs(workload: Workload, hardware: Any = ZEN, seed: int = 0) -> list[LoopProgram]:
    sketches = generate(workload, hardware).sketches
    return [make_program(workload, s.algorithm, s.trace(candidates.legal(s, 1, seed)[0])) for s in sketches]


@pytest.mark.parametrize(
    ("workload", "lanes"),
    [
        (part(5, 64, 3, "bfloat16"), {32}),
        (part(5, 64, 3, "float16"), {32}),
        (part(5, 64, 3, "float32"), {16}),
        (part(5, 64, 3, "int8"), {16}),
        (part(5, 24, 3, "bfloat16"), {16}),  # 32 would be a third more
        (join_matrices(5, 40, 24, "bfloat16"), {32}),
        (clip_rows(5, 64, "bfloat16"), {16}),
    ],
    ids=str,
)
def test_as_many_elements_as_fill_a_vector(workload: Workload, lanes: set[int]) -> None:
    assert [widths(program) for program in programs(workload)] == [lanes, lanes]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@given(st.integers(1, 9), st.integers(1, 150), st.integers(0, 40), st.booleans(), st.integers(0, 99))
@settings(max_examples=examples(15), **OPTIONS)
def test_copies_of_any_extents(dtype: str, rows: int, columns: int, other: int, join: bool, seed: int) -> None:
    workload = join_matrices(rows, columns, other + 1, dtype) if join else part(rows, columns, other, dtype)
    on, inputs = registry.get("cpu"), workload.make_inputs(seed)
    for program in programs(workload, on.hardware, seed):
        check(workload, run_program(on, program, inputs, fenced=True)[0], inputs)


def make_grouped_convolution(channels: int, dtype: str) -> Workload:
    """A convolution whose input is padded."""
    window = {"height": 3, "width": 4, "kernel": 3, "padding": 1, "groups": channels // 4, "dtype": dtype}
    return workloads.conv2d(in_channels=channels, out_channels=channels, **window)


@pytest.mark.parametrize(
    ("channels", "dtype", "lanes"),
    [(128, "int8", 64), (144, "int8", 64), (48, "int8", 32), (80, "bfloat16", 32), (144, "float32", 16)],
)
def test_padding_moves_whole_registers_the_last_of_which_may_begin_earlier(
    channels: int, dtype: str, lanes: int
) -> None:
    workload, on = make_grouped_convolution(channels, dtype), registry.get("cpu")
    sketches = [s for s in generate(workload, ZEN, ["direct"]).sketches if s.name.endswith("pad_root")]
    inputs = workload.make_inputs(channels)
    for sketch in sketches:
        program = make_program(workload, "direct", sketch.trace(candidates.legal(sketch, 1, channels)[0]))
        copies = [s for s in walk_stmt(program.body) if isinstance(s, For) and s.var.startswith("pad.")]
        assert {int(s.extent.value) for s in copies if s.kind == "vectorize"} == {lanes}
        if set(ZEN.features) <= set(on.hardware.features):
            check(workload, run_program(on, program, inputs, fenced=True)[0], inputs)
    assert sketches
