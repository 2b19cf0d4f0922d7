"""Products by warpgroups: the layout of their sums, and sketches that compute the reference."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.features.extractor import FeatureExtractor
from search_space import workloads
from search_space.ir.expr import const
from search_space.ir.stmt import Intrinsic, walk_stmt
from search_space.space import Sketch, generate
from search_space.warpgroup_intrinsics import WGMMAS, Wgmma, sums_fragment
from search_space.workloads import Workload
from targets.cuda.hardware import GPUS
from tests.gpu.candidates import check, legal

HOPPER = GPUS["sm_90a"]
SMALL: tuple[tuple[Workload, str], ...] = (
    (workloads.matmul(m=100, n=72, k=80, dtype="float16"), "direct"),
    (workloads.matmul(m=33, n=128, k=300, dtype="bfloat16", constant_b=False), "direct"),
    (workloads.batch_matmul(batch=2, m=70, n=40, k=48, dtype="float16"), "direct"),
    (workloads.dense(batch=50, in_features=90, out_features=66, dtype="bfloat16", bias=True), "direct"),
    (workloads.conv2d(1, 9, 9, 24, 40, 3, 1, 1, dtype="float16", bias=True, activation="relu"), "im2col"),
)


def sketches(workload: Workload, algorithm: str = "direct") -> list[Sketch]:
    """Returns the sketches by warpgroups, each instruction and each number of tiles once."""
    found = [s for s in generate(workload, HOPPER, [algorithm]).sketches if "wgmma" in s.name]
    return [s for i, s in enumerate(found) if i % 4 == 0] if len(found) > 3 else found


@pytest.mark.parametrize("wgmma", WGMMAS, ids=lambda w: w.product.name)
def test_threads_hold_every_element_once(wgmma: Wgmma) -> None:
    """The columns begin each half of the tile; all others are further registers of the same threads."""
    fragment = wgmma.product.fragments[-1]
    assert fragment is not None and fragment.shape == (64, wgmma.columns) and fragment.registers == wgmma.columns // 2
    columns = [*range(8), *range(wgmma.columns - 8, wgmma.columns)]
    places = [
        (int(fragment.lane(const(i), const(j)).value), int(fragment.register(const(i), const(j)).value))
        for i in range(64)
        for j in columns
    ]
    last = fragment.registers
    assert set(places) == {(t, r) for t in range(128) for r in (*range(4), *range(last - 4, last))}
    assert len(set(places)) == len(places)


def test_layout_is_that_of_the_ptx_manual() -> None:
    """Rows and columns of d0, d1, ... of wgmma.m64nNk16, as the PTX ISA gives them by thread."""
    fragment = sums_fragment(128)
    for thread in range(0, 128, 5):
        for i in range(64):
            row = thread // 32 * 16 + thread % 32 // 4 + (8 if i % 4 > 1 else 0)
            column = i // 4 * 8 + thread % 4 * 2 + i % 2
            at = const(row), const(column)
            assert (fragment.lane(*at).value, fragment.register(*at).value) == (thread, i)


@pytest.mark.parametrize(("workload", "algorithm"), SMALL, ids=str)
def test_candidates_mean_the_reference(workload: Workload, algorithm: str) -> None:
    for i, sketch in enumerate(sketches(workload, algorithm)[:2]):
        (row,) = legal(sketch, 1, seed=i)
        program = check(workload, sketch, row)
        assert any(isinstance(s, Intrinsic) and s.name.startswith("wgmma_") for s in walk_stmt(program.body))


def test_blocks_are_whole_warpgroups_within_their_limits() -> None:
    workload = workloads.matmul(m=4096, n=4096, k=4096, dtype="float16")
    found = [s for s in generate(workload, HOPPER, ["direct"]).sketches if "wgmma" in s.name]
    ways = [f"{how}{stages}" for how in ("", "bulk") for stages in (2, 3, 4)]
    assert {s.name for s in found} == {f"direct:wgmma{n}/{way}" for n in (64, 128, 256) for way in ways}
    for sketch in found:
        names, width = sketch.columns, int(sketch.name.split("wgmma")[1].split("/")[0])
        values = dict(zip(names, sketch.expand(legal(sketch, 30)), strict=True))

        def of(label: str, values: dict[str, np.ndarray] = values) -> np.ndarray:
            return np.asarray(values.get(f"matmul.{label}", np.ones(1)))

        rows, columns = of("rows.tiles") * 64, of("columns.tiles") * width
        assert (rows * columns / 128 + 24 <= 255).all()
        blocks = of("rows.warpgroups") * rows, of("columns.warpgroups") * columns
        tile = (blocks[0] + blocks[1]) * 64 * of("r.lines") * 2
        assert (tile * int(sketch.name[-1]) <= 227 * 1024).all()


def test_features_and_the_estimate_know_them() -> None:
    """The wider the tile, the less goes through shared memory; the estimate must be that of a fast kernel."""
    workload = workloads.matmul(m=4096, n=4096, k=4096, dtype="float16")
    for sketch in generate(workload, HOPPER, ["direct"]).sketches:
        rows = legal(sketch, 20)
        extractor = FeatureExtractor(sketch.program, sketch.columns, HOPPER)
        seconds = extractor.roofline(sketch.expand(rows))
        assert np.isfinite(np.array(extractor(sketch.expand(rows)))).all()
        assert (seconds > workload.flops / 989e12).all()
        if "wgmma" in sketch.name:
            assert seconds.min() < 4 * workload.flops / 989e12


def test_the_estimate_of_large_products_prefers_them() -> None:
    workload = workloads.matmul(m=8192, n=8192, k=8192, dtype="float16")
    best: dict[bool, float] = {}
    for sketch in generate(workload, HOPPER, ["direct"]).sketches:
        seconds = FeatureExtractor(sketch.program, sketch.columns, HOPPER).roofline(sketch.expand(legal(sketch, 30)))
        by_groups = "wgmma" in sketch.name
        best[by_groups] = min(best.get(by_groups, np.inf), float(seconds.min()))
    assert best[True] < best[False]


def test_other_machines_and_dtypes_have_none() -> None:
    half = workloads.matmul(m=128, n=128, k=128, dtype="float16")
    for hardware, workload in (
        (GPUS["sm_90"], half),
        (HOPPER, workloads.matmul(m=128, n=128, k=128)),
        (HOPPER, workloads.matmul(m=128, n=128, k=128, dtype="tfloat32")),
        (HOPPER, workloads.matmul(m=128, n=128, k=128, dtype="int8")),
        (HOPPER, workloads.matmul(m=16, n=128, k=128, dtype="float16")),
    ):
        found = generate(workload, hardware, ["direct"]).sketches
        assert found and not any("wgmma" in s.name for s in found)
    both = [s.name for s in generate(half, HOPPER, ["direct"]).sketches]
    assert any("wgmma" in name for name in both) and any("tensor" in name for name in both)
