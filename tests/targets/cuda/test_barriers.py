"""Barriers: as many as races need and no more; the emulator finds the race that each of them prevents."""

from __future__ import annotations

import numpy as np
import pytest

from search_space.ir.expr import const, eq, var
from search_space.ir.stmt import Allocate, Barrier, Store, walk_stmt
from targets.base import BuildError
from targets.cuda.kernels import device_program
from tests.targets.cuda.emulator import RaceError, emulate
from tests.targets.cuda.programs import (
    LIMITS,
    at,
    buffer,
    inputs,
    loop,
    make_device_program,
    matmul_program,
    output,
    without_each_barrier,
)

X = buffer("x", 64)
Y = buffer("y", 64)
TILE = buffer("tile", 64, scope="shared")
T = var("t")


@pytest.mark.parametrize(("pipeline", "barriers"), [(1, 2), (2, 1), (3, 1)])
def test_a_product_has_two_barriers_a_step_and_one_where_it_is_pipelined(pipeline: int, barriers: int) -> None:
    program = matmul_program(16, 16, 32, pipeline=pipeline)
    (kernel,) = device_program(program, LIMITS).kernels
    steps = [n for n in walk_stmt(kernel.body) if getattr(n, "var", "") == "product.r.0"]
    assert kernel.barriers == barriers
    assert sum(isinstance(n, Barrier) for n in walk_stmt(steps[0])) == barriers


@pytest.mark.parametrize("pipeline", [1, 2, 3])
@pytest.mark.parametrize(("m", "n", "k"), [(16, 16, 32), (13, 7, 5), (3, 33, 12)])
def test_products_are_right(m: int, n: int, k: int, pipeline: int) -> None:
    program = matmul_program(m, n, k, pipeline=pipeline)
    arrays = inputs(program)
    out = output(device_program(program, LIMITS), arrays)
    np.testing.assert_allclose(out, np.maximum(arrays["a"] @ arrays["b"], 0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("pipeline", [1, 2, 3])
def test_every_barrier_prevents_a_race(pipeline: int) -> None:
    program = matmul_program(16, 16, 32, pipeline=pipeline)
    arrays, count = inputs(program), 0
    for mutant in without_each_barrier(device_program(program, LIMITS)):
        count += 1
        with pytest.raises(RaceError, match="two threads must not reach an element"):
            emulate(mutant, arrays)
    assert count


def test_nothing_shared_nothing_waits() -> None:
    body = loop("b", 2, "blockIdx.x", loop("t", 32, "threadIdx.x", Store("y", (var("b") * 32 + T,), at("x", T))))
    (kernel,) = make_device_program(body, X, Y).kernels
    assert kernel.barriers == 0


def test_elements_of_one_thread_each_need_no_barrier() -> None:
    steps = loop("k", 4, "serial", Store("tile", (T,), at("x", T), "sum"))
    body = loop(
        "t",
        64,
        "threadIdx.x",
        Allocate(TILE, _both(Store("tile", (T,), const(0.0, "float32")), steps, Store("y", (T,), at("tile", T)))),
    )
    program = make_device_program(body, X, Y)
    assert program.kernels[0].barriers == 0
    x = np.arange(64, dtype=np.float32)
    np.testing.assert_array_equal(output(program, {"x": x}), 4 * x)


def test_a_neighbours_element_needs_one() -> None:
    moved = Store("y", (T,), at("tile", (T + 1) % 64))
    body = loop("t", 64, "threadIdx.x", Allocate(TILE, _both(Store("tile", (T,), at("x", T)), moved)))
    program = make_device_program(body, X, Y)
    assert program.kernels[0].barriers == 1
    x = np.arange(64, dtype=np.float32)
    np.testing.assert_array_equal(output(program, {"x": x}), np.roll(x, -1))
    for mutant in without_each_barrier(program):
        with pytest.raises(RaceError, match=r"tile\[\d+\]"):
            output(mutant, {"x": x})


def test_initial_values_that_all_threads_write_and_one_adds_to_need_one() -> None:
    total = buffer("total", 1, scope="shared")
    zero = const(0)
    body = Allocate(
        total,
        _both(
            Store("total", (zero,), const(1.0, "float32")),
            loop("t", 64, "threadIdx.x", Store("total", (zero,), at("x", T), "sum", eq(T, 0))),
            loop("u", 64, "threadIdx.x", Store("y", (var("u"),), at("total", 0))),
        ),
    )
    program = make_device_program(loop("b", 1, "blockIdx.x", body), X, Y)
    assert program.kernels[0].barriers == 2


def test_a_barrier_must_be_reached_by_all_threads() -> None:
    some = loop(
        "u",
        32,
        "threadIdx.x",
        Allocate(
            TILE,
            _both(
                Store("tile", (var("u"),), at("x", var("u"))),
                Store("y", (var("u"),), at("tile", 31 - var("u"))),
            ),
        ),
    )
    all_of_them = loop("t", 64, "threadIdx.x", Store("y", (T,), at("x", T)))
    with pytest.raises(BuildError, match="must all come to the same place, but loop u has 32 of 64 along threadIdx.x"):
        make_device_program(loop("b", 1, "blockIdx.x", _both(all_of_them, some)), X, Y)


def _both(*stmts):
    from search_space.ir.stmt import seq

    return seq(*stmts)
