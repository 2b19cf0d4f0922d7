"""The emulator: races, divergence and accesses out of bounds are found; sketches of all operators are right."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search_space.ir.expr import const, logical_and, select, var
from search_space.ir.stmt import Allocate, Barrier, For, Seq, Store, seq
from search_space.space import generate, make_program
from search_space.workloads import Workload
from targets.base import RunError
from targets.cuda.kernels import device_program
from tests.gpu.candidates import legal
from tests.gpu.machines import H200
from tests.interpreter import interpret
from tests.search_space.operators.cases import SMALL
from tests.targets.cuda.emulator import DivergenceError, RaceError, emulate, emulator
from tests.targets.cuda.programs import (
    LIMITS,
    at,
    buffer,
    inputs,
    loop,
    make_device_program,
    matmul_program,
    output,
    with_body,
)

X, Y = buffer("x", 64), buffer("y", 64)
T, B = var("t"), var("b")
ONES = {"x": np.arange(64, dtype=np.float32)}


@pytest.mark.parametrize("workload", SMALL, ids=str)
def test_every_sketch_computes_the_reference(workload: Workload) -> None:
    given_inputs = workload.make_inputs(0)
    named = dict(zip((spec.name for spec in workload.inputs), given_inputs, strict=True))
    rtol, atol = workload.tolerance
    wanted = workload.reference(*given_inputs).astype(np.float64)
    for i, sketch in enumerate(generate(workload, H200).sketches):
        (row,) = legal(sketch, 1, seed=i)
        program = make_program(workload, sketch.algorithm, sketch.trace(row))
        out = emulate(device_program(program, LIMITS), named)[workload.output.name].astype(np.float64)
        np.testing.assert_allclose(out, wanted, rtol=rtol, atol=atol, err_msg=f"{sketch.name} {sketch.values(row)}")


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 14), st.integers(1, 3), st.integers(0, 3))
def test_products_of_any_size(m: int, n: int, k: int, pipeline: int, seed: int) -> None:
    program = matmul_program(m, n, k, pipeline=pipeline)
    arrays = inputs(program, seed)
    out = emulate(device_program(program, LIMITS), arrays, seed)["out"]
    np.testing.assert_allclose(out, np.maximum(arrays["a"] @ arrays["b"], 0), rtol=1e-5, atol=1e-5)


def test_it_says_what_the_interpreter_says() -> None:
    program = matmul_program(5, 9, 6)
    arrays = inputs(program)
    out = output(device_program(program, LIMITS), arrays)
    np.testing.assert_allclose(out, interpret(program, arrays)["out"], rtol=1e-6, atol=1e-6)


def test_blocks_run_in_the_order_of_the_seed_and_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    program = matmul_program(20, 20, 8)
    arrays = inputs(program)
    wanted = output(device_program(program, LIMITS), arrays)
    monkeypatch.setattr(emulator, "LANES", 8)
    for seed in range(3):
        np.testing.assert_array_equal(emulate(device_program(program, LIMITS), arrays, seed)["out"], wanted)


def test_threads_that_write_different_values_to_one_element_race() -> None:
    program = make_device_program(loop("t", 64, "threadIdx.x", Store("y", (T // 2,), at("x", T))), X, Y)
    with pytest.raises(
        RaceError, match=r"thread \(1, 0, 0\) of block 0 writes and thread \(0, 0, 0\) of block 0 writes y\[0\]"
    ):
        emulate(program, ONES)


def test_threads_that_write_the_same_value_do_not() -> None:
    program = make_device_program(loop("t", 64, "threadIdx.x", Store("y", (T // 2,), at("x", T // 2))), X, Y)
    np.testing.assert_array_equal(output(program, ONES)[:32], ONES["x"][:32])


def test_blocks_that_read_what_others_write_race() -> None:
    """No barrier orders blocks, so what one writes no other may read in the same kernel."""
    body = loop(
        "b",
        2,
        "blockIdx.x",
        loop(
            "t",
            32,
            "threadIdx.x",
            Store("y", (B * 32 + T,), at("x", T)),
            Store("z", (B * 32 + T,), at("y", 63 - B * 32 - T)),
        ),
    )
    with pytest.raises(RaceError, match=r"of block \d reads and thread .* of block \d writes y"):
        emulate(make_device_program(body, X, Y, buffer("z", 64), outputs=("y", "z")), ONES)


def test_kernels_see_what_those_before_them_wrote() -> None:
    first = loop("t", 64, "threadIdx.x", Store("z", (T,), at("x", T) + at("x", T)))
    second = loop("u", 64, "threadIdx.x", Store("y", (var("u"),), at("z", 63 - var("u"))))
    program = make_device_program(Allocate(buffer("z", 64), seq(first, second)), X, Y)
    assert len(program.kernels) == 2 and [b.name for b in program.workspace] == ["z"]
    np.testing.assert_array_equal(output(program, ONES), 2 * ONES["x"][::-1])


def test_a_copy_must_have_arrived_before_it_is_used() -> None:
    program = device_program(matmul_program(16, 16, 32, pipeline=3), LIMITS)
    (kernel,) = program.kernels

    def late(stmt):
        """The program where every thread leaves one more group of copies under way."""
        if isinstance(stmt, Seq):
            return Seq(tuple(late(s) for s in stmt.body))
        if isinstance(stmt, For):
            return For(stmt.var, stmt.extent, stmt.kind, late(stmt.body), stmt.pragmas)
        if isinstance(stmt, Allocate):
            return Allocate(stmt.buffer, late(stmt.body))
        return Barrier(stmt.pending + 1) if isinstance(stmt, Barrier) else stmt

    with pytest.raises(RaceError, match="uses and .* still copies"):
        emulate(with_body(program, kernel, late(kernel.body)), inputs(program.program))


def test_barriers_in_branches_are_found() -> None:
    program = make_device_program(loop("t", 64, "threadIdx.x", Store("y", (T,), at("x", T))), X, Y)
    (kernel,) = program.kernels
    narrow = For("u", const(32), "threadIdx.x", Barrier())
    with pytest.raises(DivergenceError, match="must be reached by all threads of a block, but test_0|kernel_0"):
        emulate(with_body(program, kernel, seq(kernel.body, narrow)), ONES)


def test_what_is_out_of_bounds_is_found_and_what_is_guarded_is_not() -> None:
    with pytest.raises(IndexError, match=r"an index of x must lie in shape \(64,\), but got 1 to 64"):
        emulate(make_device_program(loop("t", 64, "threadIdx.x", Store("y", (T,), at("x", T + 1))), X, Y), ONES)
    inside = select(T + 1 < 64, at("x", T + 1), const(0.0, "float32"))
    out = output(make_device_program(loop("t", 64, "threadIdx.x", Store("y", (T,), inside)), X, Y), ONES)
    np.testing.assert_array_equal(out, np.append(ONES["x"][1:], 0))
    skipped = Store("y", (T,), at("x", T + 1), None, logical_and(T < 63))
    assert np.isnan(output(make_device_program(loop("t", 64, "threadIdx.x", skipped), X, Y), ONES)[63])


def test_inputs_of_another_shape_are_refused() -> None:
    program = make_device_program(loop("t", 64, "threadIdx.x", Store("y", (T,), at("x", T))), X, Y)
    with pytest.raises(RunError, match=r"`x` must have shape \(64,\), but got shape=\(3,\)"):
        emulate(program, {"x": np.zeros(3, np.float32)})


def test_memory_of_a_thread_is_its_own_and_undefined_at_first() -> None:
    mine = buffer("mine", 2, scope="local")
    body = loop("t", 64, "threadIdx.x", Allocate(mine, Store("y", (T,), at("mine", 1))))
    assert np.isnan(output(make_device_program(body, X, Y), ONES)).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"block": (2048, 1, 1)}, "threads along x must be 1 to 1024"),
        ({"block": (1, 1, 128)}, "threads along z must be 1 to 64"),
        ({"block": (64, 32, 1)}, "must have at most 1024 threads, but kernel_0 has 2048"),
        ({"grid": (1, 1 << 16, 1)}, "blocks along y must be 1 to 65535"),
        ({"shared": ((buffer("tile", 60000, scope="shared"), 0),)}, "at most 232448 bytes of shared memory"),
    ],
    ids=["x", "z", "block", "grid", "shared"],
)
def test_launches_that_every_device_refuses_are_found(change: dict[str, Any], message: str) -> None:
    program = matmul_program(4, 4, 4)
    made_of = device_program(program, LIMITS)
    (kernel,) = made_of.kernels
    with pytest.raises(RunError, match=message):
        emulate(replace(made_of, kernels=(replace(kernel, **change),)), inputs(program))
