"""Orders in which tiles of a product follow each other: by rows, or by vectors of columns where that may be faster."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from costmodel.features import FeatureExtractor
from search_space import workloads
from search_space.hardware import Hardware
from search_space.schedule.opened import exchange_axes
from search_space.schedule.trace import Trace
from search_space.space import Sketch, concrete, generate, make_program
from search_space.workloads import Workload
from targets import registry
from tests.golden.cases import HARDWARE
from tests.gpu import candidates
from tests.interpreter import interpret
from tests.search_space.operators.test_definitions import check

SMALL = replace(HARDWARE, l1_bytes=256, l2_bytes=512)
"""A machine whose caches hold neither operand of small products."""

CASES = (
    workloads.matmul(37, 19, 45),
    workloads.dense(40, 12, 50, bias=True),
    workloads.conv2d(1, 5, 6, 3, 20, kernel=3, padding=1, activation="relu"),
    workloads.conv2d(1, 8, 8, 16, 33, kernel=1),
    workloads.matmul(72, 80, 16, dtype="int8"),
)


def by_columns(workload: Workload, hardware: Hardware) -> list[Sketch]:
    """Sketches that go through the rows of one column of tiles after the other."""
    found = generate(workload, hardware, ["direct"]).sketches
    last = {f"{workload.tensors('direct')[-1].op.axis[-1].name}.0"}
    fused = [next(step for step in sketch.steps.steps if step.name == "fuse").axes for sketch in found]
    return [sketch for sketch, axes in zip(found, fused, strict=True) if axes[0] in last]


@pytest.mark.parametrize(("l2_bytes", "expected"), [(64 * 48 * 4 - 1, 1), (64 * 48 * 4, 0), (1 << 20, 0)])
def test_there_is_another_order_where_no_cache_holds_an_operand(l2_bytes: int, expected: int) -> None:
    hardware = replace(HARDWARE, l2_bytes=l2_bytes)
    workload = workloads.dense(64, 48, 80)  # 64 x 48 numbers and 48 x 80
    assert len(generate(workload, hardware, ["direct"]).sketches) == 2 + expected
    assert len(by_columns(workload, hardware)) == expected


def test_one_row_has_one_order() -> None:
    assert not by_columns(workloads.dense(1, 512, 512), SMALL)


@pytest.mark.parametrize("workload", CASES, ids=str)
def test_tiles_by_columns_compute_the_reference(workload: Workload) -> None:
    target, inputs = registry.get("cpu"), workload.make_inputs(0)
    named = {spec.name: array for spec, array in zip(workload.inputs, inputs, strict=True)}
    sketches = by_columns(workload, replace(SMALL, features=target.hardware.features))
    assert sketches
    for sketch in sketches:
        for place, row in enumerate(candidates.legal(sketch, 3, 1)):
            program = make_program(workload, sketch.algorithm, Trace.from_json(sketch.trace(row).to_json()))
            check(workload, target.load(target.build(program)).bind(inputs).run(2), inputs)
            if place == 0:
                check(workload, interpret(concrete(sketch, sketch.values(row)), named)[workload.output.name], inputs)


@pytest.mark.parametrize(("tile", "faster"), [(8, "columns"), (25, "rows")])
def test_the_estimate_knows_what_each_order_reads_again(tile: int, faster: str) -> None:
    """All weights for the rows of each tile, or all data for its 16 columns: what is less, is faster."""
    hardware = replace(HARDWARE, l1_bytes=1 << 14, l2_bytes=1 << 15, l3_bytes=1 << 15)
    (sketch,) = by_columns(workload := workloads.dense(1000, 64, 1024), hardware)
    sizes = {"blocks": 1, "tile": tile, "vectors": 1, "unroll": 2}
    by_column = sketch.steps.substitute({name: sizes[name.rpartition(".")[2]] for name in sketch.columns})
    by_row = exchange_axes(by_column)
    assert by_row is not None
    programs = [make_program(workload, sketch.algorithm, trace) for trace in (by_row, by_column)]
    first, second = (float(FeatureExtractor(p, (), hardware, True).roofline(np.empty((0, 1)))[0]) for p in programs)
    assert first < 0.95 * second if faster == "rows" else second < 0.95 * first
