"""Stages in shared memory: computed by a block's threads together, for all of them."""

from __future__ import annotations

import numpy as np
import pytest

from search_space.ir.stmt import LoopProgram
from search_space.ir.verify import verify
from search_space.lower import cleanup, lower
from tests.gpu.handwritten import Tiles, matmul
from tests.interpreter import interpret


def run(program: LoopProgram, seed: int = 0) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Random inputs by name, and the output."""
    rng = np.random.default_rng(seed)
    shapes = {b.name: tuple(int(e.value) for e in b.shape) for b in program.inputs}
    arrays = {name: rng.uniform(-1, 1, shape).astype(np.float32) for name, shape in shapes.items()}
    return arrays, interpret(program, arrays)[program.outputs[0]]


def test_the_tile_of_a_block_is_copied_for_all_its_threads() -> None:
    program = cleanup(lower(matmul(128, 128, 128).state))
    shapes = {b.name: tuple(int(e.value) for e in b.shape) for b in program.buffers.values()}
    assert shapes["a.shared"] == (64, 8) and shapes["b.shared"] == (8, 64)
    assert shapes["product"] == (4, 4)


@pytest.mark.parametrize(("m", "n", "k"), [(16, 16, 16), (13, 7, 5), (16, 17, 9), (3, 33, 12)])
def test_right_at_all_sizes(m: int, n: int, k: int) -> None:
    tiles = Tiles((2, 2, 2), (2, 2, 4), 4, 2, 2)
    program = cleanup(lower(matmul(m, n, k, tiles).state))
    verify(program)
    arrays, out = run(program)
    np.testing.assert_allclose(out, np.maximum(arrays["a"] @ arrays["b"], 0), rtol=1e-5, atol=1e-5)


def test_zeros_past_the_end_need_no_check_in_the_sum() -> None:
    text = str(cleanup(lower(matmul(113, 128, 13).state)))
    (update,) = [line for line in text.splitlines() if "product[product.i, product.j] +=" in line]
    assert "select" not in update


def test_the_lanes_of_a_vector_are_told_apart_by_one_index_alone() -> None:
    """Divisions, remainders and conditions of a copy are the same for all lanes, and the last index moves by one."""
    text = str(cleanup(lower(matmul(113, 128, 13, Tiles((1, 5, 1), (1, 7, 4), 8)).state)))
    lines = text.splitlines()
    for name in ("a", "b"):
        # One shared term has the lane; the element written, the one read and the condition are made of it.
        assert [f"{name}.shared.d0_d1.3" in line for line in lines].count(True) == 2
        (term,) = [line for line in lines if f"+ {name}.shared.d0_d1.3" in line]
        assert term.strip().endswith(f" + {name}.shared.d0_d1.3") and term.strip().startswith("t")


def test_tiles_are_stored_in_another_order_with_their_rows_apart() -> None:
    schedule = matmul(13, 17, 9, Tiles((1, 2, 2), (1, 2, 4), 4, 2, 1))
    plain = cleanup(lower(schedule.state))
    schedule["a.shared"].relayout((1, 0), 3)
    program = cleanup(lower(schedule.state))
    verify(program)
    shapes = [tuple(int(e.value) for e in p.buffers["a.shared"].shape) for p in (plain, program)]
    assert shapes == [(4, 4), (4, 7)]
    arrays, out = run(program)
    np.testing.assert_allclose(out, np.maximum(arrays["a"] @ arrays["b"], 0), rtol=1e-5, atol=1e-5)
    again = schedule.trace.from_json(schedule.trace.to_json())
    assert str(cleanup(lower(again.apply(schedule.initial)))) == str(program)


def test_the_last_block_of_a_grid_of_one_stays_a_loop() -> None:
    """The loop shows that its body is one kernel."""
    text = str(cleanup(lower(matmul(8, 8, 8).state)))
    assert "blockIdx.x for out.i.0_j.0 in 1:" in text
