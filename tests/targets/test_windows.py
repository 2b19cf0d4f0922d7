"""Lanes that read close to each other: one load and a permutation, right for every shape, and never past an array."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.tuner.task import Task
from autotune.tuner.untimed import select_by_roofline
from costmodel.features import FeatureExtractor
from costmodel.features.estimators.cpu import PERMUTED_LOADS
from costmodel.features.groups import NAMES
from search_space import te, te_json, workloads
from search_space.ir.expr import var
from search_space.lower import cleanup, lower
from search_space.machines.shared.groups import MAX_VECTORS
from search_space.schedule.steps import Annotate, Split
from search_space.space import generate, make_program
from search_space.workloads import Workload
from targets import registry
from targets.cpu.machine_code import busiest, innermost_loops
from targets.cpu.windows import MOST_RUNS, crosses, runs, window
from tests.autotune.fakes import settings_with
from tests.gpu import candidates
from tests.native import run_module, run_program

GROUPS = [(8, 8, 4), (32, 32, 4), (32, 64, 8), (24, 48, 12), (16, 32, 16), (20, 20, 5), (48, 16, 16), (128, 128, 32)]
GROUPS += [(64, 64, 2), (96, 96, 8), (48, 48, 2)]
"""Input channels, output channels, groups."""


@pytest.mark.parametrize(("given_channels", "out_channels", "groups"), GROUPS)
def test_grouped_convolutions_are_right_and_gather_nothing(given_channels: int, out_channels: int, groups: int) -> None:
    workload = workloads.conv2d(
        height=6, width=7, in_channels=given_channels, out_channels=out_channels, kernel=3, padding=1, groups=groups
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
        module = target.build(make_program(workload, sketch.algorithm, sketch.trace(legal[0])))
        built += 1
        gathered += "llvm.masked.gather" in module.llvm_ir
        found = run_module(target, module, inputs)[0]
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4, err_msg=sketch.name)
    assert built >= 4
    depth, width = given_channels // groups, out_channels // groups
    whole = math.lcm(width, 16)  # lanes behind the last channel are masked
    if out_channels % whole == 0 and whole <= 16 * MAX_VECTORS and depth * max(1, 16 // width) <= 32:
        assert gathered == 0


SHUFFLES = [(7, 2, 116), (3, 4, 2, 58), (2, 3, 3, 20), (5, 4, 40), (4, 2, 16), (3, 9, 3, 7), (5, 7, 33), (2, 3, 1, 40)]
"""Groups and their channels last: of a shuffle these take turns."""


@pytest.mark.parametrize("shape", SHUFFLES)
def test_channels_in_turns_are_right_and_gather_nothing_where_groups_are_few(shape: tuple[int, ...]) -> None:
    x = te.placeholder(shape, name="x")
    out = (*shape[:-2], shape[-1], shape[-2])
    y = te.compute(out, lambda *i: te.maximum(x[(*i[:-2], i[-1], i[-2])], 0), name="y")
    workload, target = Workload.of([x, y]), registry.get("cpu:znver4")
    inputs = workload.make_inputs(seed=0)
    inputs[0] -= 0.5
    (sketch,) = generate(workload, target.hardware).sketches
    rows, rng = candidates.legal(sketch, 4, 0), np.random.default_rng(1)
    on = registry.get("cpu")
    texts = []
    for row in rows[rng.permutation(len(rows))[:3]]:
        program = make_program(workload, sketch.algorithm, sketch.trace(row))
        texts.append(target.build(program).llvm_ir)
        np.testing.assert_array_equal(run_program(on, program, inputs)[0], workload.reference(*inputs))
    if 1 < shape[-2] <= 4 and 16 % shape[-2] == 0:
        assert not any("masked.gather" in text for text in texts)


@given(st.lists(st.integers(-40, 200), min_size=2, max_size=16, unique=True), st.integers(0, 50))
def test_runs_hold_every_lane_once(offsets: list[int], constant: int) -> None:
    found = runs((), constant, tuple(offsets))
    if found is None:
        ordered = np.sort(offsets)
        parts = np.split(ordered, np.flatnonzero(np.diff(ordered) > 2) + 1)
        assert len(parts) > MOST_RUNS or any(part[-1] - part[0] >= len(offsets) for part in parts)
        return
    for lane, offset in enumerate(offsets):
        places = [(part, part.positions[lane]) for part in found if part.positions[lane] >= 0]
        ((part, place),) = places
        assert part.constant + place == constant + offset
        assert place < part.there <= part.size


@pytest.mark.parametrize(
    ("processor", "width", "multiplier", "dtype"),
    [
        ("haswell", 4, 1, "float32"),
        ("haswell", 16, 1, "float32"),
        ("znver4", 8, 1, "float32"),
        ("znver4", 12, 1, "float32"),
        ("skylake-avx512", 32, 1, "float32"),
        ("znver4", 1, 4, "float32"),
        ("aarch64:neoverse-n1", 8, 1, "float32"),
        ("znver4", 4, 1, "bfloat16"),
        ("cooperlake", 8, 1, "bfloat16"),
        ("znver4", 24, 1, "bfloat16"),
        ("znver4", 32, 1, "bfloat16"),
    ],
)
def test_few_instructions_bring_what_a_group_reads(processor: str, width: int, multiplier: int, dtype: str) -> None:
    channels = 96
    workload = workloads.conv2d(
        height=12,
        width=12,
        in_channels=channels,
        out_channels=channels * multiplier,
        kernel=3,
        groups=channels // width,
        dtype=dtype,
    )
    target = registry.get(f"cpu:{processor}")
    found = select_by_roofline(Task("kernel", workload), settings_with(target=target.name), algorithms=("direct",))
    module = target.build(make_program(workload, found.algorithm, found.trace))
    loop = busiest(innermost_loops(module.object_code, module.metadata["triple"]))
    assert loop.products >= 40 and loop.spills == 0, loop
    assert loop.instructions <= 2.5 * loop.products, loop


def with_relu(layer: Workload) -> Workload:
    """A layer as a network has it, with an ending whose axes have other names."""
    x = te.placeholder(layer.output.shape, name="x")
    y = te.compute(layer.output.shape, lambda *index: te.maximum(x[index], 0.0), name="relu")
    return workloads.fused(layer.to_json(), te_json.to_json([x, y]))


@pytest.mark.parametrize("ended", [False, True])
def test_a_window_slides_over_the_tile_and_what_it_brings_is_used_at_every_position(ended: bool) -> None:
    target = registry.get("cpu:znver4")
    workload = workloads.conv2d(height=10, width=10, in_channels=16, out_channels=16, kernel=3, groups=2)
    name, rows_of, columns_of = ("relu", "i1", "i2") if ended else ("conv", "h", "w")
    if ended:
        workload = with_relu(workload)
    space = generate(workload, target.hardware, ("direct",))
    sketch = next(s for s in space.sketches if f"{name}.rw.unroll" in [c for g in s.groups for c in g.columns])
    wanted = {f"{name}.{columns_of}.tile": 8, f"{name}.{rows_of}.tile": 1}
    wanted |= {f"{name}.rw.unroll": 3, f"{name}.rh.unroll": 1, f"{name}.rc.unroll": 8}
    rows = [
        [i for i, row in enumerate(g.table) if all(wanted.get(c, v) == v for c, v in zip(g.columns, row, strict=True))]
        for g in sketch.groups
    ]
    choices = np.array([[row[0] for row in rows]], np.int32)
    assert sketch.legal(choices).all()
    module = target.build(make_program(workload, sketch.algorithm, sketch.trace(choices[0])))
    assert module.llvm_ir.count("call <16 x float> @llvm.x86.avx512.permvar") == 8 * (8 + 3 - 1)
    extractor = FeatureExtractor(sketch.program, sketch.columns, target.hardware)
    features = extractor(sketch.expand(choices))[0, :, NAMES.index("roofline.loads")]
    permuted, weights = 8 * (8 + 3 - 1), 8 * 3
    assert np.exp2(features.max()) - 1 == pytest.approx(PERMUTED_LOADS * permuted + weights, rel=1e-4)
    loop = busiest(innermost_loops(module.object_code, module.metadata["triple"]))
    assert loop.products == 8 * 8 * 3 and loop.instructions <= 1.7 * loop.products


def test_a_window_has_registers() -> None:
    target = registry.get("cpu:haswell")
    space = generate(workloads.depthwise_conv2d(height=16, width=16, channels=8, kernel=7), target.hardware)
    windows = 0
    for sketch in space.sketches:
        choices = np.stack([np.random.default_rng(0).integers(0, len(g.table), 500) for g in sketch.groups], axis=1)
        legal = choices[sketch.legal(choices.astype(np.int32))].astype(np.int32)
        columns = sketch.expand(legal)
        names = [c for g in sketch.groups for c in g.columns]
        tile = np.prod([columns[names.index(n)] for n in names if n.endswith((".tile", ".vectors"))], axis=0)
        window = [columns[names.index(n)] for n in names if n.endswith("rw.unroll")]
        windows += len(window)
        for positions in window:
            assert (tile + 2 * positions + 1 <= target.hardware.vector_registers).all()
    assert windows >= 2


def build_repetition(count: int, each: int, start: int, step: int):
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
    size, module = build_repetition(count, each, start, step)
    x = np.arange(size, dtype=np.float32)
    y = run_module(registry.get("cpu"), module, [x], fenced=True)[0]
    np.testing.assert_array_equal(y, 2 * x[np.arange(count) // each * step + start])


@given(st.permutations(range(8)), st.integers(0, 3))
def test_lanes_that_stay_in_their_part_cross_nothing(order: list[int], shift: int) -> None:
    inside = [(place % 4 + shift) % 4 for place in order[:4]]
    assert not crosses(tuple(part * 4 + place for part in range(4) for place in inside))
    assert crosses(tuple(8 + place for place in order))
    assert crosses((0, 1, 2, 3, 4, 5, 7, 6))


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
    assert [found.constant + p for p in found.positions] == lanes
    assert all(0 <= p < found.there for p in found.positions) and found.there <= found.size <= 2 * len(offsets)
    if found.there == found.size and (min(lanes), max(lanes)) != (found.constant, found.constant + found.size - 1):
        assert grain % found.size == 0 and found.constant % found.size == 0
        assert all(c % found.size == 0 for c in factors)
