"""Every operator is schedulable: random legal candidates of each of its algorithms compute the reference."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from search_space import workloads
from search_space.machines.cpu.panels import FEWEST_ROWS
from search_space.space import Sketch, generate, make_program
from search_space.workloads import Workload
from targets import registry
from tests.gpu import candidates
from tests.search_space.operators.cases import SMALL
from tests.search_space.operators.test_definitions import check

SKETCHES = 3
"""Sketches of each algorithm, others for every workload; `tests/contracts/test_sketch_contract.py` interprets all."""


@pytest.mark.parametrize("workload", SMALL, ids=str)
def test_sketches_mean_the_reference(workload: Workload) -> None:
    target, inputs = registry.get("cpu"), workload.make_inputs(1)
    rng = np.random.default_rng(list(workload.key.encode()))
    space = generate(workload, target.hardware)
    absent = set() if "cblas" in target.hardware.features else {"library"}
    absent |= {"by_panel"} if workload.output.shape[0] < FEWEST_ROWS else set()
    absent |= set() if "avx512bf16" in target.hardware.features else {"pairs"}
    assert {s.algorithm for s in space.sketches} == set(workload.algorithms) - absent
    for sketch, row in (found for a in workload.algorithms for found in some(space.sketches, a, rng)):
        kernel = target.load(target.build(make_program(workload, sketch.algorithm, sketch.trace(row))))
        check(workload, kernel.bind(inputs).run(), inputs)


def some(
    sketches: Sequence[Sketch], algorithm: str, rng: np.random.Generator
) -> list[tuple[Sketch, NDArray[np.int32]]]:
    """A legal candidate of random sketches of an algorithm, one at least where there is a sketch."""
    found = [sketch for sketch in sketches if sketch.algorithm == algorithm]
    chosen = list(itertools.islice(candidates.some_legal(found, rng), SKETCHES))
    assert chosen or not found, algorithm
    return chosen


def test_pixels_of_one_channel_are_no_call() -> None:
    """A 1x1 window over one channel has no axis along which a library reads its left factor."""
    hardware = registry.get("cpu").hardware
    layers = [workloads.conv2d(2, 20, 20, channels, 20, kernel=1, padding=0) for channels in (1, 2)]
    calls = [any(s.algorithm == "library" for s in generate(layer, hardware).sketches) for layer in layers]
    assert calls == [False, "cblas" in hardware.features]
