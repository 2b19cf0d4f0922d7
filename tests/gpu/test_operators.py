"""Every operator has sketches for GPUs, and a random legal candidate of each computes the reference."""

from __future__ import annotations

import pytest

from search_space.space import generate
from search_space.workloads import Workload
from tests.gpu.candidates import check, legal
from tests.gpu.machines import H200
from tests.operators.cases import SMALL

ABSENT = {"library", "winograd2", "winograd4"}
"""Algorithms that have no sketch for GPUs."""


@pytest.mark.parametrize("workload", SMALL, ids=str)
def test_every_sketch_means_the_reference(workload: Workload) -> None:
    sketches = generate(workload, H200).sketches
    assert {s.algorithm for s in sketches} == set(workload.algorithms) - ABSENT
    for sketch in sketches:
        (row,) = legal(sketch, 1)
        check(workload, sketch, row, seed=1)
