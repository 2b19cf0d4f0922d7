"""Threads in squares: every part of a tile has one thread, and neighbouring lanes share what they read."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from search_space.ir.expr import const, var
from search_space.ir.stmt import Allocate, Stmt, Store, walk_stmt
from targets.cuda.kernels import device_program
from targets.cuda.lanes import in_squares
from tests.gpu.handwritten import Tiles
from tests.interpreter import evaluate
from tests.targets.cuda.emulator import RaceError
from tests.targets.cuda.programs import LIMITS, buffer, inputs, loop, matmul_program, output, without_each_barrier


def tile(x: int, y: int, scope: str = "shared") -> Stmt:
    """Threads that each store to the element of their own, with a buffer of the block inside."""
    inner = Allocate(buffer("t", y, x, scope=scope), Store("out", (var("y"), var("x")), const(0.0, "float32")))
    return loop("y", y, "threadIdx.y", loop("x", x, "threadIdx.x", inner))


def list_elements(stmt: Stmt, x: int, y: int) -> NDArray[np.int64]:
    """The element (along y, along x) of every thread in the order of lanes, (x * y, 2)."""
    (store,) = (n for n in walk_stmt(stmt) if isinstance(n, Store))
    threads = [{"y": j, "x": i} for j in range(y) for i in range(x)]
    return np.array([[evaluate(index, thread, {}) for index in store.indices] for thread in threads])


@pytest.mark.parametrize("y", [2, 4, 8, 14, 32])
@pytest.mark.parametrize("x", [4, 8, 12, 16, 32])
def test_neighbouring_lanes_share_a_row_or_a_column(x: int, y: int) -> None:
    found = list_elements(in_squares(tile(x, y), (x, y, 1)), x, y)
    assert len(np.unique(found, axis=0)) == x * y
    assert found.min() == 0 and tuple(found.max(0)) == (y - 1, x - 1)
    lanes = np.arange(x * y)
    assert (found[lanes, 0] == found[lanes ^ 1, 0]).all()
    assert (found[lanes, 1] == found[lanes ^ 2, 1]).all()


@pytest.mark.parametrize(
    ("stmt", "block"),
    [
        (tile(6, 4), (6, 4, 1)),
        (tile(8, 3), (8, 3, 1)),
        (tile(8, 4), (8, 4, 2)),
        (tile(8, 4), (16, 4, 1)),
        (tile(8, 4, "local"), (8, 4, 1)),
    ],
    ids=["narrow", "odd", "deep", "fewer threads than the block has", "no tile"],
)
def test_other_threads_stay_in_rows(stmt: Stmt, block: tuple[int, int, int]) -> None:
    (store,) = (n for n in walk_stmt(in_squares(stmt, block)) if isinstance(n, Store))
    assert store.indices == (var("y"), var("x"))


def test_a_product_in_squares_is_right_and_every_barrier_is_needed() -> None:
    program = device_program(matmul_program(32, 48, 16, Tiles((1, 4, 2), (2, 8, 2), 4, 2, 2)), LIMITS)
    assert program.kernels[0].block == (8, 4, 1)
    arrays = inputs(program.program)
    wanted = np.maximum(arrays["a"] @ arrays["b"], 0)
    np.testing.assert_allclose(output(program, arrays), wanted, rtol=1e-5, atol=1e-5)
    for mutant in without_each_barrier(program):
        with pytest.raises(RaceError):
            output(mutant, arrays)
