"""Features and the roofline of programs for GPUs: threads counted once, amounts right, better tiles preferred."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from costmodel.features.extractor import FeatureExtractor
from costmodel.features.groups import NAMES
from search_space import workloads
from search_space.hardware import Hardware
from search_space.ir.stmt import substitute_program
from search_space.space import Sketch, generate
from search_space.workloads import Workload
from tests.gpu.candidates import draw_rows, legal
from tests.gpu.machines import H200

MATMUL = workloads.matmul(1024, 1024, 1024)


def features(sketch: Sketch, rows: np.ndarray) -> tuple[FeatureExtractor, np.ndarray]:
    extractor = FeatureExtractor(sketch.program, sketch.columns, H200)
    return extractor, np.array(extractor(sketch.expand(rows)))


def find_row(sketch: Sketch, **values: tuple[int, ...]) -> np.ndarray:
    """The candidate of given choices by the last part of a group's name; others are the first of their table."""
    found = []
    for group in sketch.groups:
        wanted = values.get(group.name.split(".", 1)[1].replace(".", "_"))
        table = [tuple(int(v) for v in row) for row in group.table]
        found.append(table.index(wanted) if wanted else 0)
    return np.array([found], np.int32)


def test_work_is_counted_once() -> None:
    """Copies are made by all threads together, so every element of a tile is copied once in a step."""
    sketch = generate(MATMUL, H200, ["direct"]).sketches[0]
    row = find_row(sketch, rows=(2, 8, 1, 4), columns=(2, 8, 1, 4), r=(8, 1, 1), left_vector=(4,), right_vector=(4,))
    assert sketch.legal(row)[0]
    extractor, found = features(sketch, row)
    names = [s.output.buffer.name for s in extractor.statements]
    iterations = np.exp2(found[0, :, NAMES.index("iterations")]) - 1
    assert iterations[names.index("a.shared")] == pytest.approx(16 * 16 * 128 * 64 * 8, rel=1e-3)
    assert iterations[names.index("matmul.local")] == pytest.approx(1024**3, rel=1e-3)
    threads = np.exp2(found[0, :, NAMES.index("thread.product")]) - 1
    np.testing.assert_allclose(threads, 64, rtol=1e-3)


@pytest.mark.parametrize(
    "workload",
    [
        MATMUL,
        workloads.conv2d(1, 56, 56, 64, 64, kernel=3, padding=1),
        workloads.matmul(512, 512, 512, dtype="float16"),
        workloads.softmax(512, 1000),
        workloads.elementwise("relu", (64, 1000)),
        workloads.max_pool2d(1, 112, 112, 64, kernel=3, stride=2, padding=1),
    ],
    ids=str,
)
def test_features_are_finite_and_the_same_with_numbers_put_in(workload: Workload) -> None:
    for sketch in generate(workload, H200).sketches:
        if sketch.algorithm.startswith("winograd"):
            continue
        rows = legal(sketch, 20)
        extractor, found = features(sketch, rows)
        assert np.isfinite(found).all()
        seconds = extractor.roofline(sketch.expand(rows))
        assert np.isfinite(seconds).all() and (seconds > 1e-7).all() and (seconds < 10).all()
        alone = FeatureExtractor(substitute_program(sketch.program, sketch.values(rows[0])), (), H200)
        np.testing.assert_array_equal(alone(np.empty((0, 1)))[0], found[0])


def test_the_estimate_prefers_what_gpus_prefer() -> None:
    sketch = generate(MATMUL, H200, ["direct"]).sketches[0]
    extractor = FeatureExtractor(sketch.program, sketch.columns, H200)

    def seconds(**values: tuple[int, ...]) -> float:
        row = find_row(sketch, **values)
        assert sketch.legal(row)[0], sketch.violations(row)
        return float(extractor.roofline(sketch.expand(row))[0])

    good = {"rows": (2, 16, 1, 4), "columns": (2, 8, 1, 4), "r": (8, 1, 2), "left_vector": (4,), "right_vector": (4,)}
    assert seconds(**good) < seconds(**{**good, "rows": (1, 32, 1, 1), "columns": (1, 8, 1, 1)})  # no reuse
    assert seconds(**good) < seconds(**{**good, "left_vector": (1,), "right_vector": (1,)})
    assert seconds(**good) > MATMUL.flops / H200.peak_flops
    softmax = generate(workloads.softmax(4096, 1024), H200).sketches
    rows = draw_rows(softmax[0], 200)
    by_name = {s.name: FeatureExtractor(s.program, s.columns, H200).roofline(s.expand(rows)).min() for s in softmax}
    assert min(by_name.values()) > 2 * 4 * 4096 * 1024 / H200.bandwidth
    assert min(by_name.values()) < 20 * 4 * 4096 * 1024 / H200.bandwidth


def test_banks_of_fragments_count() -> None:
    """Rows of 128 bytes begin in one bank: eight of them are read one after another, unless a vector lies between."""
    sketches = generate(workloads.matmul(4096, 4096, 4096, dtype="float16"), H200, ["direct"]).sketches
    sketch = next(s for s in sketches if s.name == "direct:tensor/2")
    extractor = FeatureExtractor(sketch.program, sketch.columns, H200)
    tile = {"rows": (1, 4, 4), "columns": (1, 2, 8), "r": (4,), "left_vector": (8,), "right_vector": (8,)}

    def seconds(left: int, right: int) -> float:
        row = find_row(sketch, **tile, left_pad=(left,), right_pad=(right,))
        return float(extractor.roofline(sketch.expand(row))[0])

    assert seconds(0, 0) > 2 * seconds(8, 8)
    assert seconds(8, 8) < min(seconds(0, 8), seconds(8, 0))


def test_neighbours_that_share_vectors_read_them_at_once() -> None:
    """Threads form squares where both sides have an even number; otherwise no two read the same columns at once."""
    sketch = next(s for s in generate(workloads.matmul(56, 1024, 1024), H200).sketches if s.name == "direct:columns")
    rows = [find_row(sketch, rows=(1, n, 1, 4), columns=(1, 16, 1, 4), r=(8, 1, 1)) for n in (7, 14)]
    extractor, found = features(sketch, np.concatenate(rows))
    of = [s.output.buffer.name for s in extractor.statements].index("b.shared.local")
    odd, even = np.exp2(found[:, of, NAMES.index("roofline.traffic1")])
    assert odd == pytest.approx(2 * even, rel=1e-3)


def test_blocks_take_time_to_start() -> None:
    (sketch,) = generate(workloads.elementwise("relu", (4096, 4096)), H200).sketches
    extractor = FeatureExtractor(sketch.program, sketch.columns, H200)
    few, many = (
        float(extractor.roofline(sketch.expand(find_row(sketch, vector=(1,), threads=threads)))[0])
        for threads in ((256, 8), (32, 1))
    )
    assert many > 2 * few


def test_tensor_cores_are_estimated_by_their_own_rate() -> None:
    """Large tiles approach neither more than the peak nor less than what plain threads could do."""
    workload = workloads.matmul(4096, 4096, 4096, dtype="float16")
    best = np.inf
    for sketch in generate(workload, H200, ["direct"]).sketches:
        rows = legal(sketch, 3000)
        extractor = FeatureExtractor(sketch.program, sketch.columns, H200)
        best = min(best, float(extractor.roofline(sketch.expand(rows)).min()))
    assert workload.flops / 989e12 < best < workload.flops / H200.peak_flops


def test_the_hardware_of_a_dataset_may_be_a_gpu() -> None:
    """JSON keeps the GPU; that of other machines is as it was before there were GPUs."""
    data = json.loads(json.dumps(H200.to_json()))
    assert Hardware.from_json(data) == H200
    plain = replace(H200, gpu=None)
    assert "gpu" not in plain.to_json() and Hardware.from_json(plain.to_json()) == plain
