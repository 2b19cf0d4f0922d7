"""Dots of bytes in expressions, and products of one row made of them, whose data is cut into slices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.config import Measure
from autotune.tuner.settings import Settings
from autotune.tuner.task import Task
from autotune.tuner.untimed import select_by_roofline
from search_space import te, workloads
from search_space.ir.expr import Expr, byte_dot
from search_space.operators.dynamic import BY_BYTES
from search_space.operators.evaluation import evaluate
from search_space.operators.weights_only import BY_PANEL, BY_SLICES
from search_space.space import generate, make_program
from search_space.workloads import Workload
from targets import registry
from targets.base import Module
from tests.native import run_module
from tests.search_space.operators.few_bits import WEIGHTS, draw_inputs

HOST = registry.get("cpu")


def chain_dots(count: int) -> Workload:
    """Sums of two dots and a number, of `count` pairs of words."""
    left, right = (te.placeholder((2, count), "int32", name) for name in ("left", "right"))
    total = te.placeholder((count,), "int32", "more")
    body = te.compute(
        (count,),
        lambda i: total[i] + byte_dot(left[0, i], right[0, i]) + byte_dot(left[1, i], right[1, i]),
        name="dots",
    )
    return Workload.of([total, left, right, body])


def build_module(workload: Workload, spec: str) -> Module:
    target = registry.get(spec)
    sketch = generate(workload, target.hardware).sketches[0]
    row = np.zeros(len(sketch.groups), np.int32)
    return target.build(make_program(workload, sketch.algorithm, sketch.trace(row)))


@pytest.mark.parametrize("count", [1, 19, 64])
def test_dots_are_those_of_bytes(count: int) -> None:
    workload, rng = chain_dots(count), np.random.default_rng(count)
    more, left, right = (
        rng.integers(-(1 << 31), 1 << 31, shape).astype(np.int32) for shape in (count, (2, count), (2, count))
    )
    more //= 2
    products = left.view(np.uint8).astype(np.int32) * right.view(np.int8).astype(np.int32)
    wanted = more + products.reshape(2, count, 4).sum(2).sum(0)
    for spec in ("cpu", "cpu:haswell"):
        found = run_module(HOST, build_module(workload, spec), [more, left, right], 1)[0]
        np.testing.assert_array_equal(found, wanted)


MASKS = (0x0F0F0F0F, 0x7F7F7F7F, 0x1F3F7F0F, -1)
"""Words whose bytes are at most 15 (as of 4 bits), 127, and any."""


def chain_masked_dots(masks: Sequence[int]) -> Workload:
    """Sums of a dot for each mask, of words whose bytes are masked, and a number."""
    left, right = (te.placeholder((len(masks), 19), "int32", name) for name in ("left", "right"))
    total = te.placeholder((19,), "int32", "more")

    def add_dots(i: te.IterVar) -> Expr:
        dots = [byte_dot(left[row, i] & mask, right[row, i]) for row, mask in enumerate(masks)]
        return reduce(lambda so_far, dot: so_far + dot, dots) + total[i]

    return Workload.of([total, left, right, te.compute((19,), add_dots, name="dots")])


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from(MASKS), min_size=1, max_size=12), st.integers(0, 1 << 20), st.booleans())
def test_sums_of_small_bytes_do_not_saturate(masks: list[int], seed: int, extreme: bool) -> None:
    rng, shape = np.random.default_rng(seed), (len(masks), 19)
    if extreme:  # the greatest products of one sign
        left = np.full((*shape, 4), 255, np.uint8)
        right = np.full((*shape, 4), rng.choice([-128, 127]), np.int8)
    else:
        left = rng.integers(0, 256, (*shape, 4)).astype(np.uint8)
        right = rng.integers(-128, 128, (*shape, 4)).astype(np.int8)
    more = rng.integers(-1000, 1000, 19).astype(np.int32)
    masked = left & np.array(masks, np.int32).view(np.uint8).reshape(-1, 1, 4)
    wanted = more + (masked.astype(np.int32) * right).sum((0, 2), dtype=np.int32)
    words = [array.view(np.int32)[..., 0] for array in (left, right)]
    found = run_module(HOST, build_module(chain_masked_dots(masks), "cpu:haswell"), [more, *words], 1)[0]
    np.testing.assert_array_equal(found, wanted)


def test_bytes_are_multiplied_in_pairs_where_no_instruction_adds_four() -> None:
    text = registry.get("cpu:haswell").assembly(build_module(chain_masked_dots([0x0F0F0F0F] * 8), "cpu:haswell"))
    # 8 dots of at most 15 * 128 * 2 fit into 16 bits: only their sum is widened.
    loop = [line.split()[0] for line in text.splitlines() if line.split()[:1]]
    assert loop.count("vpmaddubsw") == 8 * loop.count("vpmaddwd") > 0


@pytest.mark.parametrize(
    ("spec", "one"),
    [("cpu:znver4", True), ("cpu:sapphirerapids", True), ("cpu:alderlake", True), ("cpu:haswell", False)],
)
def test_processors_that_have_the_instruction_use_it(spec: str, one: bool) -> None:
    target = registry.get(spec)
    assert ("vpdpbusd" in target.assembly(build_module(chain_dots(64), spec))) == one


@settings(max_examples=25, deadline=None)
@given(k=st.integers(8, 130), **WEIGHTS)
def test_slices_lose_no_more_than_sums_of_floats(
    bits: int, group: int, zeros: bool, k: int, spread: int, seed: int
) -> None:
    workload = workloads.matmul_nbits(1, 5, k, bits, group, zeros)
    data, weights, largest = draw_inputs(workload, spread, seed)
    found = evaluate(workload.tensors(BY_SLICES), [data, *weights])
    wanted = workload.reference(data, *weights)
    # Rounding is that of the largest number, times what the largest weights add up to.
    assert np.abs(found - wanted).max() <= largest * 2.0**-22


def test_data_of_zeros_and_of_no_numbers() -> None:
    workload = workloads.matmul_nbits(1, 5, 64)
    data, *weights = workload.make_inputs(0)
    np.testing.assert_array_equal(evaluate(workload.tensors(BY_SLICES), [data * 0, *weights]), np.zeros((1, 5)))
    for strange in (np.nan, np.inf):
        data[0, 7] = strange
        with np.errstate(all="ignore"):
            assert not np.isfinite(evaluate(workload.tensors(BY_SLICES), [data, *weights])).any()


@pytest.mark.parametrize(
    ("spec", "rows", "algorithm"),
    [
        ("cpu:znver4", 1, {BY_SLICES}),
        ("cpu:sapphirerapids", 1, {BY_SLICES}),
        ("cpu:znver4", 4, {BY_SLICES}),
        ("cpu:haswell", 1, {BY_SLICES}),
        ("cpu:znver4", 128, {BY_PANEL}),
        ("cpu:haswell", 128, {BY_PANEL}),
    ],
)
def test_what_is_chosen_without_a_trial(spec: str, rows: int, algorithm: set[str]) -> None:
    settings = Settings(registry.get(spec), trials=0, measure=Measure(cache="network"))
    chosen = select_by_roofline(Task("product", workloads.matmul_nbits(rows, 768, 768)), settings)
    assert chosen.algorithm in algorithm


@pytest.mark.parametrize(
    ("spec", "bits"),
    [("cpu:znver4", 4), ("cpu:znver4", 8), ("cpu:haswell", 4)],  # of 8 bits, 16 registers may be too few
)
@pytest.mark.parametrize("rows", [1, 128])
def test_data_in_bytes_are_multiplied_as_bytes(spec: str, bits: int, rows: int) -> None:
    settings = Settings(registry.get(spec), trials=0, measure=Measure(cache="network"))
    chosen = select_by_roofline(Task("product", workloads.dynamic_matmul(rows, 1024, 1024, bits)), settings)
    assert chosen.algorithm == BY_BYTES
