"""Transposed convolutions without zeros between the elements of their input."""

from __future__ import annotations

import math

import numpy as np
import pytest

from search_space import workloads
from search_space.operators import evaluation
from search_space.operators.interleaved import COLUMNS, PHASES
from search_space.schedule.state import initial_state
from search_space.workloads import Workload


def upsample(kernel: int, stride: int = 2, padding: int = 0, **more: object) -> Workload:
    return workloads.conv2d_transpose(1, 5, 4, 3, 2, kernel, stride, padding, **more)


@pytest.mark.parametrize(
    ("workload", "algorithms"),
    [
        (upsample(3, stride=1), ("direct",)),
        (upsample(2), ("direct", PHASES, COLUMNS)),
        (upsample(4, padding=1), ("direct", PHASES, COLUMNS)),
        (upsample(3, padding=1), ("direct", COLUMNS)),
        (upsample(1), ("direct", COLUMNS)),
        (upsample(14), ("direct", PHASES, COLUMNS)),
        (workloads.conv2d_transpose(1, 7, 7, 3, 2, 14, 2), ("direct", PHASES)),
        (workloads.conv2d_transpose(1, 1, 2, 3, 2, 4), ("direct", COLUMNS)),
    ],
    ids=["stride 1", "2x2", "4x4", "3x3", "1x1", "20 terms", "49 terms", "a pixel"],
)
def test_algorithms_are_for_strides(workload: Workload, algorithms: tuple[str, ...]) -> None:
    assert workload.algorithms == algorithms


@pytest.mark.parametrize("kernel", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_an_infinite_element_reaches_only_outputs_that_read_it(kernel: int, value: float) -> None:
    """A phase with fewer positions than others must not multiply the element by a zero."""
    workload = upsample(kernel, padding=kernel // 2, output_padding=1)
    data, weight = workload.make_inputs(seed=0)
    data[0, 2, 1, 0] = value
    reached = ~np.isfinite(workload.reference(data, weight))
    assert 0 < reached.sum() < reached.size
    for algorithm in workload.algorithms:
        found = evaluation.evaluate(workload.tensors(algorithm), [data, weight])
        np.testing.assert_array_equal(~np.isfinite(found), reached, err_msg=algorithm)


def test_phases_multiply_no_zeros() -> None:
    """The plain definition spreads the input among zeros, and multiplies these as well."""
    workload = upsample(4, padding=1)
    assert count_products(workload, "direct") == 10 * 8 * 2 * 4 * 4 * 3
    assert count_products(workload, PHASES) == 6 * 5 * (4 * 2) * 2 * 2 * 3
    assert count_products(workload, COLUMNS) == 5 * 4 * (16 * 2) * 3


def count_products(workload: Workload, algorithm: str) -> int:
    *inputs, output = workload.tensors(algorithm)
    sums = [stage for stage in initial_state([output], inputs=inputs).stages if stage.reducer == "sum"]
    return sum(math.prod(int(axis.extent.value) for axis in (*sum_.axes, *sum_.reduce_axes)) for sum_ in sums)
