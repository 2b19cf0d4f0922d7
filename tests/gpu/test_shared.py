"""Stages in shared memory: computed by a block's threads together, for all of them."""

from __future__ import annotations

import numpy as np
import pytest

from search_space.ir.interp import interpret
from search_space.ir.stmt import LoopProgram
from search_space.ir.verify import verify
from search_space.lower import cleanup, lower
from tests.gpu.handwritten import Tiles, matmul


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
