"""Every operator has sketches for GPUs, and a random legal candidate of each computes the reference."""

from __future__ import annotations

import pytest

from search_space import workloads
from search_space.space import generate
from search_space.workloads import Workload
from tests.gpu.candidates import check, legal
from tests.gpu.machines import H200
from tests.search_space.operators.cases import SMALL

ABSENT = {"library", "pairs", "winograd2", "winograd4"}
"""Algorithms that have no sketch for GPUs."""


@pytest.mark.parametrize("workload", SMALL, ids=str)
def test_every_sketch_means_the_reference(workload: Workload) -> None:
    sketches = generate(workload, H200).sketches
    # No rule for GPUs makes panels of weights whose zero points are floats yet.
    absent = ABSENT | ({"by_panel"} if workload.args.get("zeros") == "float32" else set())
    assert {s.algorithm for s in sketches} == set(workload.algorithms) - absent
    for sketch in sketches:
        (row,) = legal(sketch, 1)
        check(workload, sketch, row, seed=1)


def test_a_last_resort_is_taken_where_there_is_nothing_else() -> None:
    """A thread for each element of a convolution reads all it needs itself: only if no product can be made of it."""
    conv = workloads.conv2d(1, 14, 14, 32, 64, 3, 1, 1)
    assert {s.algorithm for s in generate(conv, H200).sketches} == {"im2col"}
    assert {s.algorithm for s in generate(conv, H200, ["direct"]).sketches} == {"direct"}
    grouped = workloads.conv2d(1, 14, 14, 32, 64, 3, 1, 1, groups=2)
    assert {s.algorithm for s in generate(grouped, H200).sketches} == {"direct"}
