"""Sparse convolutions: the dense convolution in float64, every sketch in every kind of window, and what is left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from search_space import workloads
from search_space.operators.convolution import reference
from search_space.operators.evaluation import evaluate
from search_space.operators.sparse import pack_blocks
from search_space.space import generate, make_program
from targets import registry
from tests.search_space.operators.test_sparse import first_legal, prune

WINDOWS: tuple[dict[str, Any], ...] = (
    {"height": 9, "width": 7, "padding": 1},
    {"height": 9, "width": 8, "kernel": (3, 2), "stride": 2, "padding": ((1, 0), (2, 1)), "batch": 2},
    {"height": 12, "width": 13, "stride": (2, 3), "padding": 2, "dilation": (2, 2)},
    {"height": 8, "width": 8, "kernel": 5, "padding": 2, "stride": 4},
    {"height": 1, "width": 40, "kernel": (1, 3)},
    {"height": 3, "width": 40},
    {"height": 9, "width": 1, "kernel": (3, 1)},
)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("block", [(16, 1), (4, 4)], ids=str)
def test_kernels_compute_the_dense_convolution(window: dict[str, Any], block: tuple[int, int]) -> None:
    sizes = {"in_channels": 8, "out_channels": 32, **window}
    dense = workloads.conv2d(**sizes).args
    *kernel, depth, outputs = workloads.conv2d(**sizes).inputs[1].shape
    weight = prune(int(np.prod(kernel)) * depth, outputs, block, 0.3)
    packed = pack_blocks(weight, block)
    workload = workloads.sparse_conv2d(**sizes, block=block, blocks=int(packed[2].sum()), fullest=packed[0].shape[1])
    data = np.random.default_rng(1).standard_normal(workload.inputs[0].shape).astype(np.float32)
    wanted = reference(dense, data.astype(np.float64), weight.astype(np.float64).reshape(*kernel, depth, outputs))
    np.testing.assert_allclose(workload.reference(data, *packed), wanted, 1e-4, 1e-5)
    target = registry.get("cpu")
    sketches = generate(workload, target.hardware, ["direct"]).sketches
    assert {sketch.name.partition(":")[2] for sketch in sketches} >= {"columns"}
    assert any(sketch.name.startswith("direct:rows") for sketch in sketches)
    for sketch in sketches:
        program = make_program(workload, "direct", sketch.trace(first_legal(sketch)))
        bound = target.load(target.build(program)).bind([data, *packed], fenced=True)
        np.testing.assert_allclose(bound.run(2), wanted, 1e-4, 1e-5)
        assert not bound.damage()


def test_blocks_of_zeros_are_not_multiplied() -> None:
    weight = np.zeros((3, 3, 4, 16), np.float32)
    weight[1, 1, 2] = 1
    packed = pack_blocks(weight.reshape(36, 16), (16, 1))
    workload = workloads.sparse_conv2d(1, 6, 6, 4, 16, padding=1, block=(16, 1), blocks=1)
    data = np.ones((1, 6, 6, 4), np.float32)
    data[0, 2, 3, 1], data[0, 4, 4, 2] = np.inf, np.nan
    target = registry.get("cpu")
    for sketch in generate(workload, target.hardware, ["direct"]).sketches:
        program = make_program(workload, "direct", sketch.trace(first_legal(sketch)))
        out = target.load(target.build(program)).bind([data, *packed]).run(1)
        assert np.isnan(out[0, 4, 4]).all() and (np.delete(out.reshape(36, 16), 28, axis=0) == 1).all()


def test_winograd_is_one_of_the_algorithms() -> None:
    sizes = {"height": 6, "width": 6, "in_channels": 4, "out_channels": 16, "block": (4, 1), "blocks": 9}
    workload = workloads.sparse_conv2d(**sizes)
    assert workload.algorithms == ("direct", "dense", "winograd2", "winograd4")
    arrays = workload.make_inputs(0)
    for algorithm in workload.algorithms:
        out = evaluate(workload.tensors(algorithm), arrays)
        np.testing.assert_allclose(out, workload.reference(*arrays), 1e-4, 1e-5)
    assert workloads.sparse_conv2d(**sizes, stride=2).algorithms == ("direct", "dense")


def test_a_block_lies_within_a_position_of_the_window() -> None:
    rule = r"`block` must have a depth that divides in_channels, but got block=\(4, 9\), in_channels=6"
    with pytest.raises(ValueError, match=f"^{rule}$"):
        workloads.sparse_conv2d(1, 6, 6, 6, 16, block=(4, 9), blocks=1)
