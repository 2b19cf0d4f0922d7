"""Products with the zeros around a padded input: the same sums without them, and estimates that count what is made."""

from __future__ import annotations

import dataclasses
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.features.borders import executed_share
from costmodel.features.nest import Nest
from costmodel.features.statement import statements
from search_space import workloads
from search_space.hardware import Hardware
from search_space.ir.columns import Columns
from search_space.ir.expr import const, variables
from search_space.ir.stmt import For, Intrinsic, LoopProgram, Stmt, children
from search_space.ir.tape import Tape
from search_space.lower.borders import borders, present, trim_borders
from search_space.space import generate, make_program
from search_space.workloads import Workload
from targets import registry
from tests.interpreter import evaluate, interpret
from tests.native import run_program

HOST = registry.get("cpu").hardware
WITH_DOTS = dataclasses.replace(HOST, features=("avx512vnni",), vector_bytes=64, vector_registers=32)


def layer(size: int = 6, kernel: int = 3, stride: int = 1, **more: Any) -> Workload:
    given = {"height": size, "width": size, "in_channels": 4, "out_channels": 16, "padding": kernel // 2, **more}
    return workloads.conv2d(kernel=kernel, stride=stride, dtype="int8", **given)


def programs(workload: Workload, count: int, seed: int = 0, hardware: Hardware = WITH_DOTS) -> list[LoopProgram]:
    """Random candidates of each sketch whose padded input is written out."""
    rng, found = np.random.default_rng(seed), []
    for sketch in generate(workload, hardware, ["direct"]).sketches:
        choices = np.stack([rng.integers(len(g.table), size=200) for g in sketch.groups], axis=1).astype(np.int32)
        legal = choices[sketch.legal(choices)][:count]
        found += [make_program(workload, "direct", sketch.trace(row)) for row in legal]
    return [program for program in found if borders(program)]


def count_executions(program: LoopProgram) -> tuple[int, int]:
    """Instructions that run, and those of them that are seen to add nothing by the numbers of unrolled loops alone."""
    found, counts = borders(program), [0, 0]

    def run(stmt: Stmt, env: dict[str, int], unrolled_vars: frozenset[str]) -> None:
        if isinstance(stmt, For):
            inner = unrolled_vars | {stmt.var} if stmt.kind == "unroll" else unrolled_vars
            for i in range(int(evaluate(stmt.extent, env, {}))):
                run(stmt.body, {**env, stmt.var: i}, inner)
        elif isinstance(stmt, Intrinsic):
            conditions = [c for c in present(found, stmt) if variables(c) <= unrolled_vars]
            counts[0] += 1
            counts[1] += not all(evaluate(c, env, {}) for c in conditions)
        for child in () if isinstance(stmt, For) else children(stmt):
            run(child, env, unrolled_vars)

    run(program.body, {}, frozenset())
    return counts[0], counts[1]


@given(
    st.integers(3, 9),
    st.sampled_from([1, 3, 5]),
    st.integers(1, 2),
    st.integers(1, 2),
    st.integers(0, 2),
    st.integers(0),
)
@settings(deadline=None, max_examples=15)
def test_sums_are_the_same(size: int, kernel: int, stride: int, dilation: int, padding: int, seed: int) -> None:
    if (kernel - 1) * dilation + 1 > size + 2 * padding:
        return
    workload = layer(size, kernel, stride, padding=padding, dilation=dilation)
    arrays = workload.make_inputs(0)
    named = dict(zip((s.name for s in workload.inputs), arrays, strict=True))
    for program in programs(workload, 1, seed)[:2]:
        found = interpret(trim_borders(program), named)[workload.output.name]
        np.testing.assert_array_equal(found, workload.reference(*arrays))


@pytest.mark.skipif("avx512vnni" not in HOST.features, reason="needs avx512vnni")
@pytest.mark.parametrize(("kernel", "padding"), [(3, 1), (5, 2), (3, ((0, 2), (2, 1))), (3, 3)])
@pytest.mark.parametrize("stride", [1, 2])
def test_kernels_compute_the_same(kernel: int, padding: Any, stride: int) -> None:
    workload, target = layer(7, kernel, stride, padding=padding, out_channels=32), registry.get("cpu")
    arrays = workload.make_inputs(0)
    candidates = programs(workload, 3, hardware=HOST)
    assert candidates
    for program in candidates:
        made_of_it = run_program(target, program, arrays, 1)[0]
        np.testing.assert_array_equal(made_of_it, workload.reference(*arrays), err_msg=str(program))


def test_most_of_what_is_multiplied_by_zeros_is_left_out() -> None:
    """Some candidate leaves out rows and columns: of 12 x 12 places in windows 10 x 10 are inside."""
    workload = layer(4)
    whole = 4 * 4 * 9
    least = whole
    for program in programs(workload, 30):
        ran, nothing = count_executions(trim_borders(program))
        calls = count_executions(program)[0]
        if calls == whole:  # no tile computes elements twice
            least = min(least, ran - nothing)
    assert least == 10 * 10


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kernel", [1, 3])
def test_estimates_count_what_is_made(stride: int, kernel: int) -> None:
    shares = set()
    for program in programs(layer(5, kernel, stride, padding=1), 12):
        calls, _ = count_executions(program)
        ran, nothing = count_executions(trim_borders(program))
        for statement in statements(program):
            if not any(loop.kind == "tensor" for loop in statement.loops):
                assert not statement.inside
                continue
            nest = Nest(statement, Columns(Tape(), (), loops=True))
            share = executed_share(nest).number
            assert share is not None
            shares.add(round(share, 3))
            if all(loop.extent.is_const for loop in statement.loops) and _divides(program):
                assert ran - nothing == pytest.approx(share * calls, abs=0.5)
    assert len(shares) > 1 and max(shares) == 1


def _divides(program: LoopProgram) -> bool:
    """Tells whether no element is computed twice, as by tiles that are moved back from an end."""
    return " min(" not in str(program).split("vnni_dot")[1].split("\n")[0]


def test_what_is_not_exact_stays() -> None:
    """Zero times infinity or NaN is NaN, so that sums of floats keep all their products."""
    with_pairs = dataclasses.replace(WITH_DOTS, features=("avx512bf16",))
    workload = workloads.conv2d(
        height=6, width=6, in_channels=4, out_channels=16, kernel=3, padding=1, dtype="bfloat16"
    )
    candidates = programs(workload, 2, hardware=with_pairs)
    assert any("bf16_dot" in str(program) for program in candidates)
    for program in candidates:
        assert str(trim_borders(program)) == str(program)
        assert not any(statement.inside for statement in statements(program))


def test_where_the_border_is() -> None:
    program = programs(layer(), 1)[0]
    ((_, border),) = borders(program).items()
    for place in product([0], [0, 1, 6, 7], [0, 1, 6, 7], [0]):
        inside = [evaluate(c, {}, {}) for c in border.at(tuple(map(const, place)))]
        assert len(inside) == 4
        assert all(inside) == all(1 <= i < 7 for i in place[1:3])
