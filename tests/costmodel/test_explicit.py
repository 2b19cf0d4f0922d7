"""The estimate for machines with memories of their own: it ranks candidates as the simulated accelerator does."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from costmodel.features import FeatureExtractor
from search_space import workloads
from search_space.space import Sketch, generate, make_program
from search_space.workloads import Workload
from targets import registry
from targets.vta.kernel import VtaKernel

CONV = workloads.conv2d_blocked(28, 28, 64, 64, padding=1, relu=True)


def estimate_rows(sketch: Sketch, rows: np.ndarray) -> np.ndarray:
    extractor = FeatureExtractor(sketch.program, sketch.columns, registry.get("vta").hardware)
    return extractor.roofline(sketch.expand(rows))


def simulate(workload: Workload, sketch: Sketch, row: np.ndarray) -> float:
    target = registry.get("vta")
    kernel = target.load(target.build(make_program(workload, "direct", sketch.trace(row))))
    assert isinstance(kernel, VtaKernel)
    return kernel.seconds


def test_it_ranks_as_the_simulator_does() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = [], []
    for sketch in generate(CONV, registry.get("vta").hardware).sketches:
        rows = np.stack([rng.integers(len(g.table), size=400) for g in sketch.groups], 1).astype(np.int32)
        chosen = rows[sketch.legal(rows)][:12]
        ours += estimate_rows(sketch, chosen).tolist()
        theirs += [simulate(CONV, sketch, row) for row in chosen]
    assert spearmanr(ours, theirs)[0] > 0.85


@pytest.mark.parametrize("change", [{"out.h.threads": 1}, {"out.w.tile": 7}, {"out.rc.tile": 4}])
def test_what_makes_a_schedule_slower_is_seen(change: dict[str, int]) -> None:
    """Copies that nothing hides, short rows, and a long first copy."""
    sketch = generate(CONV, registry.get("vta").hardware).sketches[0]
    good = {"out.k.threads": 1, "out.k.tile": 4, "out.h.threads": 2, "out.h.tile": 7, "out.w.threads": 1}
    good |= {"out.w.tile": 28, "out.rc.tile": 1}
    columns = [np.array([[v[name]] for name in sketch.columns], float) for v in (good, {**good, **change})]
    extractor = FeatureExtractor(sketch.program, sketch.columns, registry.get("vta").hardware)
    before, after = (float(extractor.roofline(c)[0]) for c in columns)
    assert before < after


def test_compute_bounds_it_from_below() -> None:
    hardware = registry.get("vta").hardware
    for sketch in generate(CONV, hardware).sketches:
        rows = np.zeros((1, len(sketch.groups)), np.int32)
        assert estimate_rows(sketch, rows)[0] >= CONV.flops / hardware.peak_flops
