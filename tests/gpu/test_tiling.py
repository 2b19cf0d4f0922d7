"""Products tiled for GPUs: every variant computes the reference, at sizes that tiles divide and at others."""

from __future__ import annotations

import numpy as np
import pytest

from search_space import workloads
from search_space.lower.blocks import kernels, shared_bytes
from search_space.space import concrete, generate
from search_space.workloads import Workload
from tests.gpu.candidates import check, draw_rows, legal
from tests.gpu.machines import H200

SMALL: tuple[tuple[Workload, str], ...] = (
    (workloads.matmul(m=16, n=16, k=16), "direct"),
    (workloads.matmul(m=13, n=7, k=113), "direct"),
    (workloads.batch_matmul(batch=3, m=6, n=10, k=9), "direct"),
    (workloads.dense(batch=1, in_features=24, out_features=40, bias=True, activation="relu"), "direct"),
    (workloads.conv2d(1, 5, 5, 8, 12, kernel=3, padding=1, stride=2, bias=True, activation="relu"), "im2col"),
    (workloads.conv2d(2, 9, 9, 3, 8, kernel=5, padding=2, stride=2), "im2col"),
    (workloads.matmul(m=5, n=12, k=256), "direct"),
    (workloads.conv2d(1, 3, 3, 64, 8, kernel=2, bias=True, activation="relu"), "im2col"),
    (workloads.conv2d(1, 4, 4, 16, 8, kernel=1, activation="relu"), "im2col"),
)


@pytest.mark.parametrize(("workload", "algorithm"), SMALL, ids=str)
def test_candidates_mean_the_reference(workload: Workload, algorithm: str) -> None:
    found = generate(workload, H200, [algorithm]).sketches
    assert found
    for i, sketch in enumerate(found):
        for row in legal(sketch, 2, seed=i):
            check(workload, sketch, row)


RESNET = (
    workloads.conv2d(1, 224, 224, 3, 64, kernel=7, padding=3, stride=2, bias=True, activation="relu"),
    workloads.conv2d(1, 56, 56, 64, 64, kernel=3, padding=1, bias=True, activation="relu"),
    workloads.conv2d(16, 7, 7, 512, 512, kernel=3, padding=1),
    workloads.conv2d(1, 14, 14, 1024, 2048, kernel=1, stride=2, bias=True),
    workloads.dense(batch=1, in_features=2048, out_features=1000, bias=True),
)


@pytest.mark.parametrize("workload", RESNET, ids=str)
def test_layers_of_resnet50_have_legal_candidates_that_lower(workload: Workload) -> None:
    algorithm = "im2col" if "im2col" in workload.algorithms else "direct"
    for sketch in generate(workload, H200, [algorithm]).sketches:
        rows = draw_rows(sketch, 4000)
        rows = rows[sketch.legal(rows)]
        assert len(rows) > 100, sketch.violations(draw_rows(sketch, 4000))
        program = concrete(sketch, sketch.values(rows[0]))
        found = list(kernels(program.body))
        assert len(found) == (2 if "split" in sketch.name else 1)
        assert all(shared_bytes(kernel).value <= H200.gpu.shared_block for kernel in found)  # type: ignore[union-attr]


def test_skinny_products_are_split_over_their_reduction() -> None:
    """Parts are added up by a second kernel, in one order: the result is the same each time."""
    workload = workloads.dense(batch=1, in_features=2048, out_features=1000, bias=True)
    found = {s.name: s for s in generate(workload, H200).sketches}
    assert {"direct:rows", "direct:rows/double", "direct:split/rows", "direct:split/rows/double"} == set(found)
    sketch = found["direct:split/rows"]
    program = concrete(sketch, sketch.values(legal(sketch, 1)[0]))
    assert len(list(kernels(program.body))) == 2
    assert program.buffers["dense.rf"].scope == "global"
    large = generate(workloads.matmul(m=2048, n=2048, k=2048), H200, ["direct"]).sketches
    assert not any("split" in s.name for s in large)


def test_limits_hold_of_legal_candidates_alone() -> None:
    """Bytes of shared memory that a limit counts are those of the program, one buffer twice where it is pipelined."""
    workload = workloads.matmul(m=2048, n=2048, k=512)
    for sketch in generate(workload, H200, ["direct"]).sketches:
        rows = draw_rows(sketch, 200)
        for row, keeps in zip(rows, sketch.legal(rows), strict=True):
            values = sketch.values(row)
            threads = values["matmul.rows.threads"] * values["matmul.columns.threads"]
            assert not keeps or 32 <= threads <= 1024
            tile = np.prod([values[f"matmul.{s}.{x}"] for s in ("rows", "columns") for x in ("vectors", "vector")])
            assert not keeps or tile * threads <= 65536
