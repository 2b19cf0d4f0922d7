"""Every operator is schedulable: random legal candidates of each of its algorithms compute the reference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from search_space.machines.cpu.panels import FEWEST_ROWS
from search_space.space import Sketch, generate, program_of
from search_space.workloads import Workload
from targets import registry
from tests.operators.cases import SMALL
from tests.operators.test_definitions import check

SKETCHES = 3
"""Of each algorithm, others for every workload; `tests/contracts/test_sketch_contract.py` interprets all."""


@pytest.mark.parametrize("workload", SMALL, ids=str)
def test_sketches_mean_the_reference(workload: Workload) -> None:
    target, inputs = registry.get("cpu"), workload.make_inputs(1)
    rng = np.random.default_rng(list(workload.key.encode()))
    space = generate(workload, target.hardware)
    absent = set() if "cblas" in target.hardware.features else {"library"}
    absent |= {"by_panel"} if workload.output.shape[0] < FEWEST_ROWS else set()
    assert {s.algorithm for s in space.sketches} == set(workload.algorithms) - absent
    for sketch in (s for a in workload.algorithms for s in some(space.sketches, a, rng)):
        rows = [rng.integers(len(g.table), size=500) for g in sketch.groups]
        choices = np.stack(rows, 1).astype(np.int32) if rows else np.zeros((1, 0), np.int32)
        legal = choices[sketch.legal(choices)]
        kernel = target.load(target.build(program_of(workload, sketch.algorithm, sketch.trace(legal[0]))))
        check(workload, kernel.bind(inputs).run(), inputs)


def some(sketches: Sequence[Sketch], algorithm: str, rng: np.random.Generator) -> list[Sketch]:
    """Random ones of an algorithm."""
    found = [sketch for sketch in sketches if sketch.algorithm == algorithm]
    return [found[i] for i in rng.permutation(len(found))[:SKETCHES]]
