"""Random candidates of blocked workloads, built for a design, run, and held against all that a stream must keep."""

from __future__ import annotations

import numpy as np

from search_space.space import Sketch, generate, make_program
from search_space.workloads import Workload
from targets.base import Module
from targets.vta.kernel import VtaKernel
from targets.vta.target import VtaTarget
from tests.targets.vta.checker import verify
from tests.targets.vta.races import races


def draw(sketch: Sketch, rng: np.random.Generator) -> np.ndarray:
    """A random legal candidate."""
    if not sketch.groups:
        return np.zeros(0, np.int32)
    for _ in range(200):
        rows = np.stack([rng.integers(len(group.table), size=64) for group in sketch.groups], 1).astype(np.int32)
        legal = rows[sketch.legal(rows)]
        if len(legal):
            return np.asarray(legal[0])
    raise AssertionError(f"no legal candidate of {sketch.name}: {sketch.violations(rows)}")


def build_candidate(workload: Workload, sketch: Sketch, choices: np.ndarray, target: VtaTarget) -> Module:
    return target.build(make_program(workload, sketch.algorithm, sketch.trace(choices)))


def check(workload: Workload, module: Module, target: VtaTarget, seed: int = 0) -> None:
    """The stream keeps every rule, has no races, and computes the reference bit for bit."""
    kernel = target.load(Module.from_bytes(module.to_bytes()))
    assert isinstance(kernel, VtaKernel)
    inputs = workload.make_inputs(seed)
    bound = kernel.bind(inputs)
    before = bound.dram.copy()
    assert verify(kernel.table, target.vta, before) == []
    assert races(kernel.table, target.vta, before) == []
    np.testing.assert_array_equal(bound.run(), workload.reference(*inputs))
    start, size = module.metadata["places"][workload.output.name], workload.output.shape
    outside = np.ones(len(before), bool)
    outside[start : start + int(np.prod(size))] = False
    np.testing.assert_array_equal(bound.dram[outside], before[outside], err_msg="memory besides the output has changed")


def sketches(workload: Workload, target: VtaTarget) -> tuple[Sketch, ...]:
    return generate(workload, target.hardware).sketches
