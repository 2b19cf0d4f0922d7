"""Data that are rounded to bytes as a product reads them: what is rounded to what, and that bytes give the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.config import Measure
from autotune.tuner.settings import Settings
from autotune.tuner.task import Task
from autotune.tuner.untimed import select_by_roofline
from search_space import workloads
from search_space.operators.dynamic import BY_BYTES, block_size, round_data
from search_space.operators.evaluation import evaluate
from targets import registry
from tests.search_space.operators.few_bits import WEIGHTS, draw_inputs


def test_a_block_is_rounded_by_its_largest() -> None:
    data = np.zeros((2, 20), np.float32)
    data[0, :3] = 127.0, 1.4, -1.6
    data[0, 16:] = 1.27, 0.014, -0.016, 0.0
    data[1] = 0.25
    found = round_data({"group": 16}, data)
    np.testing.assert_allclose(found[0, :3], [127, 1, -2], rtol=1e-6)
    np.testing.assert_allclose(found[0, 16:], [1.27, 0.01, -0.02, 0], rtol=1e-5)
    np.testing.assert_allclose(found[1], 0.25, rtol=1e-6)


@pytest.mark.parametrize(("group", "block"), [(8, 8), (24, 8), (48, 16), (64, 32), (96, 32)])
def test_blocks_divide_groups(group: int, block: int) -> None:
    assert block_size(group) == block


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(1, 3), k=st.integers(1, 130), **WEIGHTS)
def test_both_algorithms_multiply_the_rounded_numbers(
    bits: int, group: int, zeros: bool, rows: int, k: int, spread: int, seed: int
) -> None:
    workload = workloads.dynamic_matmul(rows, 5, k, bits, group, zeros)
    data, weights, largest = draw_inputs(workload, spread, seed)
    wanted = workload.reference(data, *weights)
    for algorithm in workload.algorithms:
        assert np.abs(evaluate(workload.tensors(algorithm), [data, *weights]) - wanted).max() <= largest * 2.0**-22
    exact = workloads.matmul_nbits(rows, 5, k, bits, group, zeros).reference(data, *weights)
    assert np.abs(wanted - exact).max() <= largest / 127


def test_data_of_zeros_give_zeros_and_no_number_gives_none() -> None:
    workload = workloads.dynamic_matmul(1, 5, 64)
    data, *weights = workload.make_inputs(0)
    np.testing.assert_array_equal(evaluate(workload.tensors(BY_BYTES), [data * 0, *weights]), np.zeros((1, 5)))
    for strange in (np.nan, np.inf):
        data[0, 7] = strange
        with np.errstate(all="ignore"):
            assert not np.isfinite(evaluate(workload.tensors(BY_BYTES), [data, *weights])).any()


@pytest.mark.parametrize("rows", [1, 8, 128])
@pytest.mark.parametrize("bits", [4, 8])
def test_bytes_are_chosen_where_an_instruction_multiplies_them(rows: int, bits: int) -> None:
    workload = workloads.dynamic_matmul(rows, 768, 768, bits)
    chosen = select_by_roofline(
        Task("product", workload), Settings(registry.get("cpu:znver4"), 0, measure=Measure(cache="network"))
    )
    assert chosen.algorithm == BY_BYTES


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="`bits` must be 4 or 8, but got bits=2"):
        workloads.dynamic_matmul(1, 2, 3, bits=2)
    with pytest.raises(ValueError, match="`group` must be a multiple of 8, but got group=12"):
        workloads.dynamic_matmul(1, 2, 3, group=12)
