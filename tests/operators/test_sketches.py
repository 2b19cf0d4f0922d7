"""Every operator is schedulable: a random legal candidate of every sketch computes the reference."""

from __future__ import annotations

import numpy as np
import pytest

from search_space.space import generate, program_of
from search_space.workloads import Workload
from targets import registry
from tests.operators.cases import SMALL
from tests.operators.test_definitions import check


@pytest.mark.parametrize("workload", SMALL, ids=str)
def test_every_sketch_means_the_reference(workload: Workload) -> None:
    target, rng, inputs = registry.get("cpu"), np.random.default_rng(0), workload.make_inputs(1)
    space = generate(workload, target.hardware)
    absent = set() if "cblas" in target.hardware.features else {"library"}
    assert {s.algorithm for s in space.sketches} == set(workload.algorithms) - absent
    for sketch in space.sketches:
        rows = [rng.integers(len(g.table), size=500) for g in sketch.groups]
        choices = np.stack(rows, 1).astype(np.int32) if rows else np.zeros((1, 0), np.int32)
        legal = choices[sketch.legal(choices)]
        kernel = target.load(target.build(program_of(workload, sketch.algorithm, sketch.trace(legal[0]))))
        check(workload, kernel.bind(inputs).run(), inputs)
