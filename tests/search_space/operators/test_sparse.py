"""Sparse products: packed blocks, which values are left out, and loops that end at the count of a row's blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.tuner.task import Task
from autotune.tuner.untimed import select_by_roofline
from costmodel.features import FeatureExtractor
from search_space import te_json, workloads
from search_space.ir.stmt import For, walk_stmt
from search_space.lower.counted import assume_mean, end_at_counts
from search_space.operators.sparse import pack_blocks, unpack_blocks
from search_space.space import Sketch, generate, make_program
from search_space.workloads import Workload
from targets import registry
from tests.autotune.fakes import settings_with
from tests.interpreter import interpret


def prune(k: int, n: int, block: tuple[int, int], density: float, seed: int = 0) -> NDArray[np.float32]:
    """A weight (k, n) with a share of its blocks of `block` (columns, depth), and zeros in the others."""
    rng = np.random.default_rng(seed)
    shape = k // block[1], n // block[0]
    mask = rng.permutation(shape[0] * shape[1]).reshape(shape) < density * shape[0] * shape[1]
    return (rng.standard_normal((k, n)) * np.kron(mask, np.ones(block[::-1]))).astype(np.float32)


def make_packed(m: int, weight: NDArray[np.float32], block: tuple[int, int]) -> tuple[Workload, list[NDArray[Any]]]:
    packed = pack_blocks(weight, block)
    sizes = m, weight.shape[1], weight.shape[0], block, int(packed[2].sum()), packed[0].shape[1]
    return workloads.sparse_matmul(*sizes), list(packed)


def first_legal(sketch: Sketch) -> NDArray[np.int32]:
    rng = np.random.default_rng(0)
    drawn = np.stack([rng.integers(len(g.table), size=200) for g in sketch.groups], axis=1).astype(np.int32)
    return drawn[sketch.legal(drawn)][0]


@pytest.mark.parametrize("block", [(4, 4), (16, 1), (1, 16), (8, 2)], ids=str)
def test_packed_blocks_are_the_weight(block: tuple[int, int]) -> None:
    weight = prune(32, 48, block, 0.3)
    weight[:, : block[0]] = 0  # a row of blocks without any
    workload, (values, positions, counts) = make_packed(20, weight, block)
    np.testing.assert_array_equal(unpack_blocks(workload.args, values, positions, counts), weight)
    assert counts[0] == 0 and counts.max() == values.shape[1] == workload.args["fullest"]
    assert workload.flops == 2 * 20 * int(counts.sum()) * block[0] * block[1]
    data = np.random.default_rng(1).standard_normal((20, 32)).astype(np.float32)
    np.testing.assert_allclose(workload.reference(data, values, positions, counts), data @ weight, 1e-4, 1e-5)
    target = registry.get("cpu")
    for sketch in generate(workload, target.hardware).sketches:
        kernel = target.load(target.build(make_program(workload, sketch.algorithm, sketch.trace(first_legal(sketch)))))
        bound = kernel.bind([data, values, positions, counts], fenced=True)
        np.testing.assert_allclose(bound.run(2), data @ weight, 1e-4, 1e-5)
        assert not bound.damage()


def test_blocks_of_zeros_are_not_multiplied() -> None:
    weight = prune(8, 32, (16, 1), 0.5)
    weight[3], weight[4] = 0, 1
    workload, packed = make_packed(16, weight, (16, 1))
    data = np.ones((16, 8), np.float32)
    data[0, 3], data[1, 4] = np.inf, np.nan
    target = registry.get("cpu")
    for sketch in generate(workload, target.hardware, ["direct"]).sketches:
        program = make_program(workload, "direct", sketch.trace(first_legal(sketch)))
        out = target.load(target.build(program)).bind([data, *packed]).run(1)
        assert np.isfinite(out[0]).all() and np.isnan(out[1]).all() and np.isfinite(out[2:]).all()


def test_draws_are_of_the_density_that_the_arguments_say() -> None:
    workload = workloads.sparse_matmul(3, 64, 40, (4, 2), 50, 9)
    _, _, positions, counts = workload.make_inputs(0)
    assert counts.sum() == 50 and counts.max() == 9
    assert (np.diff(positions, axis=1) > 0).all() and positions.min() >= 0 and positions.max() < 20


@pytest.mark.parametrize("of", [(20, (4, 2)), (3, (16, 1))], ids=str)
def test_loops_end_at_the_count(of: tuple[int, tuple[int, int]]) -> None:
    rows, block = of
    workload, packed = make_packed(rows, prune(8, 32, block, 0.4), block)
    data = np.random.default_rng(2).standard_normal((rows, 8)).astype(np.float32)
    inputs = {s.name: a for s, a in zip(workload.inputs, (data, *packed), strict=True)}
    for sketch in generate(workload, registry.get("cpu").hardware, ["direct"]).sketches:
        program = make_program(workload, "direct", sketch.trace(first_legal(sketch)))
        shortened = end_at_counts(program)
        extents = {str(s.extent) for s in walk_stmt(shortened.body) if isinstance(s, For)}
        assert any("counts" in extent for extent in extents) and "<" not in str(shortened)
        (name,) = program.outputs
        np.testing.assert_array_equal(interpret(shortened, inputs)[name], interpret(program, inputs)[name])
        full = assume_mean(program)
        assert "<" not in str(full) and all(s.extent.is_const for s in walk_stmt(full.body) if isinstance(s, For))
        assert assume_mean(full) is full
        varying = replace(program, params=tuple(replace(b, constant=False) for b in program.params))
        assert end_at_counts(varying) is varying and assume_mean(varying) is varying


@pytest.mark.parametrize(("mean", "extent"), [(0, 1), (0.2, 1), (2.6, 3), (1e300, 8)])
def test_estimates_of_a_loop_have_at_least_one_iteration(mean: float, extent: int) -> None:
    workload, _ = make_packed(20, np.ones((8, 32), np.float32), (16, 1))
    (sketch, *_) = generate(workload, registry.get("cpu").hardware, ["direct"]).sketches
    program = make_program(workload, "direct", sketch.trace(first_legal(sketch)))
    params = tuple(replace(b, mean=mean if b.name == "counts" else b.mean) for b in program.params)
    before = [s.extent.value for s in walk_stmt(program.body) if isinstance(s, For)]
    after = [s.extent.value for s in walk_stmt(assume_mean(replace(program, params=params)).body) if isinstance(s, For)]
    changed = [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]]
    assert changed == ([(8, extent)] if extent < 8 else [])


@pytest.mark.parametrize(("density", "algorithm"), [(0.2, "direct"), (0.9, "dense")])
def test_the_choice_without_trials_is_by_density(density: float, algorithm: str) -> None:
    workload, _ = make_packed(64, prune(256, 256, (16, 1), density), (16, 1))
    assert select_by_roofline(Task("sparse", workload), settings_with(threads=1)).algorithm == algorithm


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block": (5, 1)}, r"`block` must divide n and k, but got block=\(5, 1\), n=32"),
        ({"block": (4, 3)}, r"`block` must divide n and k, but got block=\(4, 3\), k=8"),
        ({"block": (4, 0)}, "`block` must be an integer of at least 1, but got block=0"),
        ({"blocks": 65}, "`blocks` must be at most 64, those of the weight, but got blocks=65"),
        ({"blocks": 0}, "`blocks` must be an integer of at least 1, but got blocks=0"),
        ({"fullest": 1}, "`fullest` must be 2 to 8 for blocks=9, but got fullest=1"),
        ({"fullest": 9}, "`fullest` must be 2 to 8 for blocks=9, but got fullest=9"),
    ],
)
def test_bad_arguments_are_one_sentence(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        workloads.sparse_matmul(**{"m": 4, "n": 32, "k": 8, "block": (4, 1), "blocks": 9, **changes})


@pytest.mark.parametrize("block", [(4, 4), (16, 2)], ids=str)
def test_features_see_the_density(block: tuple[int, int]) -> None:
    counts = []
    for density in (0.25, 0.5):
        workload, _ = make_packed(64, prune(128, 128, block, density), block)
        for sketch in generate(workload, registry.get("cpu").hardware, ["direct"]).sketches:
            extractor = FeatureExtractor(sketch.program, sketch.columns, sketch.hardware, True)
            columns = sketch.expand(first_legal(sketch)[None])
            assert np.isfinite(extractor(columns)).all()
            counts.append(extractor.roofline(columns)[0])
    few, many = np.split(np.array(counts), 2)
    assert (few < many).all()


def test_estimates_count_the_mean_of_the_blocks() -> None:
    """The fullest row has most blocks here, and no other estimate than rows of equal numbers."""
    estimates = []
    for fullest in (4, 16):
        workload = workloads.sparse_matmul(64, 128, 64, (16, 1), 8 * 4, fullest)
        (sketch, *_) = generate(workload, registry.get("cpu").hardware, ["direct"]).sketches
        extractor = FeatureExtractor(sketch.program, sketch.columns, sketch.hardware, False)
        estimates.append(float(extractor.roofline(sketch.expand(first_legal(sketch)[None]))[0]))
    even, uneven = estimates
    assert even <= uneven < 1.1 * even


def test_a_definition_keeps_the_mean_of_the_counts() -> None:
    data = te_json.to_json(workloads.sparse_matmul(4, 32, 8, (4, 1), 16).tensors())
    assert [tensor.op.mean for tensor in te_json.from_json(data)] == [None, None, None, 2.0, None]
    data["inputs"][3]["mean"] = "2"
    with pytest.raises(ValueError, match="^`mean` of counts must be a finite number of at least 0, but got mean='2'$"):
        te_json.from_json(data)
