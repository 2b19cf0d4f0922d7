"""Lanes that read close to each other: one load and a permutation, right for every shape, and never past an array."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_space import te, workloads
from search_space.ir.expr import var
from search_space.lower import cleanup, lower
from search_space.schedule.steps import Annotate, Split
from search_space.space import generate, program_of
from targets import registry
from targets.cpu.windows import window

GROUPED = [(8, 8, 4), (32, 32, 4), (32, 64, 8), (24, 48, 12), (16, 32, 16), (20, 20, 5), (48, 16, 16), (128, 128, 32)]
"""Input channels, output channels, groups."""


@pytest.mark.parametrize(("given_channels", "made", "groups"), GROUPED)
def test_grouped_convolutions_are_right_and_gather_nothing(given_channels: int, made: int, groups: int) -> None:
    workload = workloads.conv2d(
        height=6, width=7, in_channels=given_channels, out_channels=made, kernel=3, padding=1, groups=groups
    )
    target = registry.get("cpu")
    space = generate(workload, target.hardware)
    inputs = workload.make_inputs(seed=0)
    wanted = workload.reference(*inputs)
    rng, gathered, built = np.random.default_rng(0), 0, 0
    for sketch in space.sketches:
        choices = np.stack([rng.integers(0, len(g.table), 64) for g in sketch.groups], axis=1).astype(np.int32)
        legal = choices[sketch.legal(choices)]
        if not len(legal):
            continue
        module = target.build(program_of(workload, sketch.algorithm, sketch.trace(legal[0])))
        built += 1
        gathered += "llvm.masked.gather" in module.llvm_ir
        found = target.load(module).bind(inputs).run()
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4, err_msg=sketch.name)
    assert built >= 4
    depth, width = given_channels // groups, made // groups
    if made % 16 == 0 and 16 % width == 0 and depth * 16 // width <= 32:  # lanes behind the last channel are masked
        assert gathered == 0


def repeated(count: int, each: int, start: int, step: int):
    """y[i] = x[i // each * step + start], in vectors of 8."""
    size = (count - 1) // each * step + start + 1
    x = te.placeholder((size,), name="x")
    y = te.compute((count,), lambda i: x[i // each * step + start] * 2.0, name="y")
    s = te.create_schedule(y.op)
    s.apply(Split("y", "i", (8,), "exact"))
    s.apply(Annotate("y", "i.1", "vectorize"))
    target = registry.get("cpu")
    return size, target.build(cleanup(lower(s.state)))


@pytest.mark.parametrize("each", [1, 2, 4, 8, 3])
@pytest.mark.parametrize(("start", "step"), [(0, 1), (1, 2), (3, 4), (5, 3), (2, 40)])
def test_nothing_is_read_past_the_array(each: int, start: int, step: int) -> None:
    count = 24
    size, module = repeated(count, each, start, step)
    x = np.arange(size, dtype=np.float32)
    y = registry.get("cpu").load(module).bind([x], fenced=True).run()
    np.testing.assert_array_equal(y, 2 * x[np.arange(count) // each * step + start])


@given(
    constant=st.integers(0, 100),
    offsets=st.lists(st.integers(-20, 40), min_size=4, max_size=16),
    factors=st.lists(st.sampled_from([1, 2, 4, 16, 64, -32]), max_size=2),
    grain=st.sampled_from([1, 4, 16, 48, 64]),
)
def test_a_window_holds_every_lane_and_is_known_to_be_there(
    constant: int, offsets: list[int], factors: list[int], grain: int
) -> None:
    terms = tuple(((var(f"v{i}"),), c) for i, c in enumerate(factors))
    found = window(terms, constant, tuple(offsets), grain)
    lanes = [constant + o for o in offsets]
    if found is None:
        assert max(lanes) - min(lanes) + 1 > len(offsets)
        return
    assert [found.constant + p for p in found.places] == lanes
    assert all(0 <= p < found.there for p in found.places) and found.there <= found.size <= 2 * len(offsets)
    if found.there == found.size and (min(lanes), max(lanes)) != (found.constant, found.constant + found.size - 1):
        assert grain % found.size == 0 and found.constant % found.size == 0
        assert all(c % found.size == 0 for c in factors)
