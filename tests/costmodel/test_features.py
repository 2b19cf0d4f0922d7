"""Features and roofline: the same on columns as on the concrete program, finite, and in a sensible order."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.features import FeatureExtractor
from search_space import workloads
from search_space.hardware import Hardware
from search_space.ir.stmt import substitute_program
from search_space.space import Sketch, generate

MACHINE = Hardware("cpu", 2, 64, 32, 48 << 10, 2 << 20, 32 << 20, 3.5e11, 4e10)


def sketches(name: str) -> tuple[Sketch, ...]:
    shapes = {
        "conv": workloads.conv2d(height=14, width=14, in_channels=32, out_channels=64, kernel=3, padding=1),
        "matmul": workloads.matmul(64, 96, 48),
        "softmax": workloads.softmax(16, 100),
    }
    return generate(shapes[name], MACHINE).sketches


def draw(sketch: Sketch, count: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    choices = np.stack([rng.integers(len(g.table), size=5000) for g in sketch.groups], axis=1).astype(np.int32)
    return choices[sketch.legal(choices)][:count]


@pytest.mark.parametrize("name", ["conv", "matmul", "softmax"])
def test_columns_agree_with_the_substituted_program(name: str) -> None:
    for sketch in sketches(name)[:3]:
        extractor = FeatureExtractor(sketch.program, sketch.columns, MACHINE)
        choices = draw(sketch, 4)
        whole = extractor(sketch.expand(choices))
        assert whole.shape == (len(choices), len(extractor.statements), len(extractor.names))
        assert np.isfinite(whole).all()
        for row, choice in zip(whole, choices, strict=True):
            program = substitute_program(sketch.program, sketch.values(choice))
            single = FeatureExtractor(program, (), MACHINE)(np.empty((0, 1)))
            np.testing.assert_allclose(row, single[0], rtol=1e-5, atol=1e-5)


def test_the_roofline_puts_tiles_without_reuse_last() -> None:
    sketch = next(s for s in sketches("conv") if "pad_root" in s.name)
    choices = draw(sketch, 400)
    estimate = FeatureExtractor(sketch.program, sketch.columns, MACHINE).roofline(sketch.expand(choices))
    columns = dict(zip(sketch.columns, sketch.expand(choices), strict=True))
    tile = columns["conv.h.tile"] * columns["conv.w.tile"] * columns["conv.k.vectors"]
    assert (estimate > 0).all()
    assert tile[np.argsort(estimate)[:20]].min() > tile[np.argsort(estimate)[-20:]].max()


def test_unbalanced_parallel_loops_cost_more() -> None:
    sketch = next(s for s in sketches("matmul"))
    choices = draw(sketch, 300)
    extractor = FeatureExtractor(sketch.program, sketch.columns, MACHINE)
    balance = extractor(sketch.expand(choices))[:, 0, extractor.names.index("roofline.balance")]
    assert balance.min() >= 0.5 and balance.max() == 1.0
