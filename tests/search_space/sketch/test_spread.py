"""Rows of intermediate arrays that would crowd on few sets of the first cache lie a line further apart."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.tuner.search import Candidate
from search_space import workloads
from search_space.ir.stmt import Allocate, Buffer, walk_stmt
from search_space.machines.cpu.spread import LINE, rows_held
from search_space.schedule.steps import Relayout
from search_space.schedule.trace import Trace
from search_space.space import SearchSpace, generate, make_program
from search_space.workloads import Workload
from targets import registry
from tests.costmodel.programs import HARDWARE
from tests.search_space.sketch.test_space import draw

Steps = list[Relayout]


def conv(channels: int, size: int = 7, outputs: int = 16, **more: int) -> Workload:
    return workloads.conv2d(
        **{"height": size, "width": size, "in_channels": channels, "out_channels": outputs, "kernel": 3, "padding": 1}
        | more
    )


def relayouts(trace: Trace) -> Steps:
    return [step for step in trace.steps if isinstance(step, Relayout)]


def spread_by_name(space: SearchSpace) -> dict[str, set[str]]:
    return {s.name: {step.stage for step in relayouts(s.steps)} for s in space.sketches}


@given(st.integers(1, 1 << 16), st.sampled_from([(32768, 8), (49152, 12), (65536, 4), (131072, 8)]))
def test_rows_that_fit_are_counted_by_their_sets(lines: int, cache: tuple[int, int]) -> None:
    l1_bytes, ways = cache
    hardware = replace(HARDWARE, l1_bytes=l1_bytes, ways=(ways, 16))
    sets = l1_bytes // ways // LINE
    held = len({row * lines % sets for row in range(sets)}) * ways
    assert rows_held(lines * LINE, hardware) == held


@pytest.mark.parametrize(
    ("workload", "crowded"),
    [
        (conv(1024), True),
        (conv(1008), False),
        (conv(512), True),
        (conv(256), False),
        (conv(256, stride=2), True),
        (conv(240, stride=2), False),
        (conv(250, stride=2), False),
        (conv(1024, dtype="int8"), False),
        (conv(4096, dtype="int8"), True),
    ],
    ids=lambda value: getattr(value, "key", None),
)
def test_what_is_read_pixel_by_pixel_is_spread_where_it_crowds(workload: Workload, crowded: bool) -> None:
    named = spread_by_name(generate(workload, HARDWARE, ("direct",)))
    copies = {name: stages for name, stages in named.items() if "pad_inline" not in name}
    assert copies and all(stages == ({"pad"} if crowded else set()) for stages in copies.values())


def test_of_a_depthwise_convolution_only_whole_pixels_are_spread() -> None:
    """A tile of it holds as many channels as it computes: its pixels lie close together as they are."""
    workload = workloads.depthwise_conv2d(height=7, width=7, channels=1024, kernel=3, padding=1)
    named = spread_by_name(generate(workload, HARDWARE))
    assert {name.rpartition("/")[2]: bool(stages) for name, stages in named.items() if "pad" in name} == {
        name.rpartition("/")[2]: "pad_root" in name for name in named if "pad" in name
    }


def test_transformed_tiles_are_spread() -> None:
    for name, stages in spread_by_name(generate(conv(1024), HARDWARE, ("winograd2", "winograd4"))).items():
        assert "data_tiles" in stages, name
    for name, stages in spread_by_name(generate(conv(1008), HARDWARE, ("winograd2", "winograd4"))).items():
        assert not stages, name


@pytest.mark.parametrize("name", ["cuda:sm_90", "vta"])
def test_other_machines_have_layouts_of_their_own(name: str) -> None:
    workload = conv(1024) if name != "vta" else workloads.matmul(16, 16, 1024, dtype="int8")
    space = generate(workload, registry.get(name).hardware, ("direct",))
    assert all(step.stage != "pad" for sketch in space.sketches for step in relayouts(sketch.steps))


@pytest.mark.parametrize(
    ("workload", "copied"),
    [
        (conv(512, 9, padding=0, stride=2), True),
        (conv(496, 9, padding=0, stride=2), False),
        (conv(512, 8, padding=0, stride=2, kernel=2), False),
        (conv(1024, padding=0, kernel=1), False),
        (workloads.depthwise_conv2d(height=7, width=7, channels=1024, kernel=3), False),
        (workloads.matmul(16, 16, 1024), False),
    ],
    ids=lambda value: getattr(value, "key", None),
)
def test_what_windows_read_that_overlap_may_be_copied(workload: Workload, copied: bool) -> None:
    named = spread_by_name(generate(workload, HARDWARE, ("direct",)))
    assert {"copy" in name for name in named} == ({True, False} if copied else {False})
    assert all(bool(stages) == ("copy" in name) for name, stages in named.items())


def padded_buffer(space: SearchSpace, index: int, choice: np.ndarray) -> Buffer:
    program = space.program(Candidate(index, tuple(choice)))
    return next(s.buffer for s in walk_stmt(program.body) if isinstance(s, Allocate) and s.buffer.name == "pad")


@pytest.mark.parametrize(("channels", "size", "stride"), [(1024, 14, 2), (512, 28, 2), (512, 28, 1), (256, 28, 2)])
def test_a_register_tile_of_pixels_fits_the_sets(channels: int, size: int, stride: int) -> None:
    """Pixels of two rows of 14 are read for one tile: no set of the cache holds more of them than it has lines."""
    space = generate(conv(channels, size, stride=stride), HARDWARE, ("direct",))
    sets = HARDWARE.l1_bytes // HARDWARE.ways[0] // LINE
    for place, sketch in enumerate(space.sketches):
        if "pad_root" not in sketch.name:
            continue
        (choice,) = draw(sketch, np.random.default_rng(0), 1)
        strides = [int(s.value) for s in padded_buffer(space, place, choice).strides]
        columns = min(14, size // stride)
        pixels = product(range(0, 2 * stride, stride), range(0, columns * stride, stride))
        lines = Counter((h * strides[1] + w * strides[2]) * 4 // LINE % sets for h, w in pixels)
        assert max(lines.values()) <= HARDWARE.ways[0]


def unspread(trace: Trace) -> Trace:
    """Returns the trace as it was recorded before there was spreading."""
    return Trace(tuple(step for step in trace.steps if not isinstance(step, Relayout)))


@pytest.mark.parametrize(("algorithm", "padding"), [("direct", 1), ("direct", 0), ("im2col", 1), ("winograd2", 1)])
def test_spreading_changes_no_bit(algorithm: str, padding: int) -> None:
    workload = conv(1024, 5, 32, padding=padding)
    target, rng = registry.get("cpu"), np.random.default_rng(1)
    inputs = workload.make_inputs(0)
    rtol, atol = workload.tolerance
    space = generate(workload, HARDWARE, (algorithm,))
    spread = [s for s in space.sketches if relayouts(s.steps)]
    assert spread
    for sketch in spread[::3]:
        for choice in draw(sketch, rng, 1):
            trace = Trace.from_json(sketch.trace(choice).to_json())
            found, before = (
                target.load(target.build(make_program(workload, algorithm, t))).bind(inputs, fenced=True)
                for t in (trace, unspread(trace))
            )
            np.testing.assert_array_equal(found.run(), before.run())
            np.testing.assert_allclose(found.run(), workload.reference(*inputs), rtol=rtol, atol=atol)
            assert not found.damage()
