"""Crowding of cache sets against the sets that a nest's addresses really fall on."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest

from costmodel.features import FeatureExtractor
from costmodel.features.estimators.conflicts import content, crowding
from costmodel.features.nest import LINE, Nest
from costmodel.features.statement import statements
from search_space import workloads
from search_space.ir.columns import Columns
from search_space.ir.expr import Expr, const, minimum, substitute, var
from search_space.ir.stmt import Buffer
from search_space.ir.tape import Tape
from search_space.space import generate
from tests.costmodel import programs

WAY = 4096
Loops = tuple[tuple[str, int, str], ...]


def compute_crowding(indices: tuple[Expr, ...], source: Buffer, loops: Loops) -> list[float] | None:
    (statement,) = statements(programs.copy(indices, source, *loops))
    nest = Nest(statement, Columns(Tape(), (), loops=True))
    access = next(a for a in statement.inputs if a.buffer is source)
    found = crowding(nest, access, WAY)
    return None if found is None else [float(v.number) for v in found]


def worst(indices: tuple[Expr, ...], source: Buffer, loops: Loops) -> float:
    """Bytes beyond those of an even spread that the fullest set stands for, while all loops run."""
    shape, lines = [int(s.value) for s in source.shape], set()
    for place in product(*(range(e) for _, e, _ in loops)):
        values = {v: i for (v, _, _), i in zip(loops, place, strict=True)}
        at = tuple(int(substitute(i, values).value) for i in indices)
        lines.add(int(np.ravel_multi_index(at, shape)) * 4 // LINE)
    sets = WAY // LINE
    fullest = max(Counter(line % sets for line in lines).values())
    return max(0.0, fullest - max(1.0, len(lines) / sets)) * WAY


def serial(**extents: int) -> Loops:
    return tuple((name, extent, "serial") for name, extent in extents.items())


h, w, c = (var(v) for v in "hwc")
CASES = {
    "pixels a way apart": ((h, w, c), programs.buffer("x", 4, 14, 1024), serial(h=2, w=14, c=16)),
    "every other pixel": ((h * 2, w * 2, c), programs.buffer("x", 8, 28, 512), serial(h=2, w=14, c=16)),
    "half a way apart": ((h, w, c), programs.buffer("x", 4, 28, 512), serial(h=1, w=14, c=16)),
    "rows and pixels half a way apart": ((h, w, c), programs.buffer("x", 7, 7, 512), serial(h=4, w=7, c=16)),
    "pixels counted through": ((w // 7, w % 7, c), programs.buffer("x", 7, 7, 512), serial(w=25, c=16)),
    "three ways apart": ((h, w, c), programs.buffer("x", 2, 8, 3072), serial(h=1, w=8, c=16)),
    "a way and a line apart": ((h, w, c), programs.buffer("x", 4, 14, 1040), serial(h=1, w=14, c=16)),
    "clamped": ((h, minimum(w, const(12)), c), programs.buffer("x", 4, 14, 1024), serial(h=1, w=14, c=16)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_fullest_set_is_known(name: str) -> None:
    indices, source, loops = CASES[name]
    found = compute_crowding(indices, source, loops)
    wanted = worst(indices, source, loops)
    assert (found[0] if found else 0.0) == pytest.approx(wanted, abs=1.01 * WAY)
    assert (wanted > 4 * WAY) == bool(found and found[0] > 4 * WAY)


def test_arrays_of_one_dimension_and_odd_distances_are_spread() -> None:
    assert compute_crowding((c,), programs.buffer("x", 4096), serial(c=4096)) is None
    assert compute_crowding((w, c), programs.buffer("x", 64, 1040), serial(w=64, c=16)) is None
    assert worst((w, c), programs.buffer("x", 64, 1040), serial(w=64, c=16)) < 2 * WAY


def test_what_divides_every_step() -> None:
    tile = var("tile")
    assert content(h * 2 + w, "h") == 2
    assert content((h * 6 + w * 4) * 3, "h") == 18
    assert content(h * tile * 2, "h") == 2
    assert content(minimum(h * 4, w * 6 + 2), "w") == 6
    assert content(h // 4, "h") == 1
    assert content(h * 2, "w") == 0


def estimate_seconds(channels: int, padding: int) -> float:
    """Seconds of a 3x3 convolution of stride 2 that reads 28 pixels for a register tile, by the estimate.

    Args:
        padding: 1: pixels are read from a padded copy; 0: where they lie.
    """
    size = 30 - 2 * padding
    workload = workloads.conv2d(
        height=size, width=size, in_channels=channels, out_channels=channels, kernel=3, padding=padding, stride=2
    )
    space = generate(workload, programs.HARDWARE, ("direct",))
    sketch = next(s for s in space.sketches if "pad_root" in s.name or not padding)
    wanted = {"conv.h.tile": 2, "conv.w.tile": 14, "conv.k.vectors": 1, "conv.rc.unroll": 1}
    row = []
    for group in sketch.groups:
        keep = np.ones(len(group.table), bool)
        for column, name in enumerate(group.columns):
            if name in wanted:
                keep &= group.table[:, column] == wanted[name]
        row.append(int(np.flatnonzero(keep)[0]))
    extractor = FeatureExtractor(sketch.program, sketch.columns, programs.HARDWARE)
    return float(extractor.roofline(sketch.expand(np.array([row], np.int32)))[0])


def test_channels_that_crowd_are_slower_than_a_few_less() -> None:
    assert estimate_seconds(512, padding=0) > 1.5 * (512 / 496) ** 2 * estimate_seconds(496, padding=0)


def test_pixels_that_are_copied_further_apart_crowd_no_more() -> None:
    assert estimate_seconds(512, padding=1) < 1.05 * (512 / 496) ** 2 * estimate_seconds(496, padding=1)
