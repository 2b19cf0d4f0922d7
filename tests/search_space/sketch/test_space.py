"""Search spaces: every sketch is correct on random candidates, and both ways to lower a candidate agree."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from autotune.tuner.search import Candidate
from search_space import workloads
from search_space.hardware import Hardware
from search_space.ir.expr import var
from search_space.ir.stmt import Allocate, walk_stmt
from search_space.machines.registry import get_rules, register_rule
from search_space.schedule.trace import Trace
from search_space.sketch.base import Draft, SketchRule
from search_space.sketch.tables import (
    MAX_WASTE,
    block_counts,
    ceildiv,
    clamped_tiles,
    nested_tiles,
    reduce_tiles,
    vector_tiles,
)
from search_space.space import concrete, generate, make_program
from search_space.workloads import Workload
from targets import registry
from tests.autotune import fakes
from tests.interpreter import interpret

SMALL = {
    "conv3x3": workloads.conv2d(height=9, width=7, in_channels=5, out_channels=40, kernel=3, padding=1),
    "conv1x1": workloads.conv2d(height=6, width=6, in_channels=16, out_channels=33, kernel=1),
    "conv_strided": workloads.conv2d(
        height=13, width=13, in_channels=3, out_channels=16, kernel=7, stride=2, padding=3
    ),
    "depthwise": workloads.depthwise_conv2d(height=11, width=11, channels=20, kernel=3, stride=2, padding=1),
    "matmul": workloads.matmul(13, 113, 7),
    "matmul_variable": workloads.matmul(8, 32, 12, constant_b=False),
    "dense": workloads.dense(1, 64, 50),
    "int8": workloads.matmul(9, 48, 32, dtype="int8"),
    "softmax": workloads.softmax(5, 77),
    "layer_norm": workloads.layer_norm(3, 100),
}


def draw(sketch, rng: np.random.Generator, count: int) -> np.ndarray:
    """`count` legal candidates at random."""
    rows = [rng.integers(len(g.table), size=4000) for g in sketch.groups]
    choices = np.stack(rows, axis=1).astype(np.int32) if rows else np.zeros((1, 0), np.int32)
    return choices[sketch.legal(choices)][:count]


@pytest.fixture(scope="module")
def hardware() -> Hardware:
    return registry.get("cpu").hardware


@pytest.mark.parametrize("name", SMALL)
def test_every_sketch_computes_the_reference(name: str, hardware: Hardware) -> None:
    workload = SMALL[name]
    space = generate(workload, hardware)
    inputs = workload.make_inputs(0)
    expected = workload.reference(*inputs)
    target, rng = registry.get("cpu"), np.random.default_rng(1)
    assert space.sketches
    for place, sketch in enumerate(space.sketches):
        for choice in draw(sketch, rng, 1):
            kernel = target.load(target.build(space.program(Candidate(place, tuple(choice)))))
            found = kernel.bind(inputs).run()
            rtol, atol = workload.tolerance
            np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol, err_msg=str(sketch.values(choice)))


@pytest.mark.parametrize("name", ["conv3x3", "matmul", "softmax", "depthwise"])
def test_substitution_agrees_with_lowering_the_concrete_trace(name: str, hardware: Hardware) -> None:
    workload = SMALL[name]
    inputs = workload.make_inputs(3)
    target, rng = registry.get("cpu"), np.random.default_rng(2)
    for sketch in generate(workload, hardware).sketches[::3]:
        for choice in draw(sketch, rng, 2):
            lowered = make_program(workload, sketch.algorithm, sketch.trace(choice))
            replaced = concrete(sketch, sketch.values(choice))
            assert sizes(lowered) == sizes(replaced)
            results = [target.load(target.build(p)).bind(inputs).run().copy() for p in (lowered, replaced)]
            np.testing.assert_array_equal(*results)


def test_regions_of_groups_have_the_same_size_either_way(hardware: Hardware) -> None:
    """Five filters of a group are no divisor of a vector; a block of all filters runs once, and begins at a group."""
    workload = workloads.conv2d(
        height=9, width=9, in_channels=16, out_channels=20, kernel=3, stride=2, padding=2, dilation=2, groups=4
    )
    count = 0
    for sketch in generate(workload, hardware).sketches:
        for choice in draw(sketch, np.random.default_rng(0), 4):
            lowered = make_program(workload, sketch.algorithm, sketch.trace(choice))
            assert sizes(lowered) == sizes(concrete(sketch, sketch.values(choice)))
            count += 1
    assert count >= 4


def sizes(program) -> dict[str, list[int]]:
    buffers = [*program.params, *(s.buffer for s in walk_stmt(program.body) if isinstance(s, Allocate))]
    return {b.name: [e.value for e in b.shape] for b in buffers}


def test_traces_replay_from_json(hardware: Hardware) -> None:
    workload = SMALL["conv3x3"]
    sketch = generate(workload, hardware).sketches[0]
    (choice,) = draw(sketch, np.random.default_rng(0), 1)
    trace = sketch.trace(choice)
    again = Trace.from_json(trace.to_json())
    assert again == trace and again.key == trace.key
    assert str(make_program(workload, "direct", again)) == str(make_program(workload, "direct", trace))


def test_legality_is_the_register_limit(hardware: Hardware) -> None:
    small = dataclasses.replace(hardware, vector_registers=8)
    sketch = generate(SMALL["matmul"], small).sketches[0]
    rng = np.random.default_rng(0)
    choices = np.stack([rng.integers(len(g.table), size=500) for g in sketch.groups], axis=1).astype(np.int32)
    legal = sketch.legal(choices)
    columns = dict(zip(sketch.columns, sketch.expand(choices), strict=True))
    tile = columns["matmul.i.tile"] * columns["matmul.j.vectors"]
    np.testing.assert_array_equal(legal, tile + columns["matmul.j.vectors"] + 1 <= 8)
    assert sketch.violations(choices)["registers"] == int((~legal).sum())


def test_int8_uses_the_dot_product_where_the_host_has_it(hardware: Hardware) -> None:
    with_it = dataclasses.replace(hardware, vector_bytes=64, vector_registers=32, features=("avx512vnni",))
    steps = [s.name for s in generate(SMALL["int8"], with_it).sketches[0].steps.steps]
    assert "tensorize" in steps
    without = dataclasses.replace(hardware, features=())
    assert "tensorize" not in [s.name for s in generate(SMALL["int8"], without).sketches[0].steps.steps]


@pytest.mark.parametrize("extent", [1, 7, 13, 56, 113, 1000])
def test_tables_cover_the_axis_with_little_waste(extent: int) -> None:
    for blocks, tile in clamped_tiles(extent, 28, 2):
        outer = -(-extent // (blocks * tile))
        assert tile <= extent and outer * blocks * tile >= extent and -(-extent // tile) * tile <= 1.25 * extent
    for blocks, vectors in vector_tiles(extent, 16, 8):
        tiles = ceildiv(ceildiv(extent, 16), vectors)
        assert tiles % blocks == 0
    assert all(extent % f == 0 for (f,) in reduce_tiles(extent, 16)) or extent in (113,)
    assert {1, extent} <= set(block_counts(extent))


def test_a_rule_of_ones_own_is_used(hardware: Hardware) -> None:
    class Nothing(SketchRule):
        name = "nothing"

        def matches(self, draft: Draft, stage, hardware: Hardware) -> bool:
            return True

        def apply(self, draft: Draft, stage, hardware: Hardware) -> list[Draft]:
            return [draft.variant("nothing").finish(stage.name)]

    before = list(get_rules("cpu"))
    try:
        register_rule(Nothing())
        assert [s.name for s in generate(SMALL["dense"], hardware, ["direct"]).sketches] == ["direct:nothing"]
        with pytest.raises(ValueError, match="`before` must be one of"):
            register_rule(Nothing(), before="no_such_rule")
    finally:
        get_rules("cpu")[:] = before


def test_a_rule_of_ones_own_that_decides_nothing_is_named(hardware: Hardware, caplog: pytest.LogCaptureFixture) -> None:
    class Rows(SketchRule):
        name = "rows"

        def matches(self, draft: Draft, stage, hardware: Hardware) -> bool:
            return len(stage.reduction) == 3

        def apply(self, draft: Draft, stage, hardware: Hardware) -> list[Draft]:
            return [draft.variant("rows").finish(stage.name)]

    before = list(get_rules("cpu"))
    try:
        register_rule(Rows())
        assert generate(SMALL["dense"], hardware).unmatched_rules == ("rows",)
        assert generate(SMALL["conv3x3"], hardware, ["direct"]).unmatched_rules == ()
        fakes.tune(SMALL["dense"], pool=fakes.HashPool(), trials=1, finalists=0)
        (said,) = [record.getMessage() for record in caplog.records if "sketch rule" in record.getMessage()]
        assert said.startswith("sketch rule 'rows' decides no stage of dense(")
    finally:
        get_rules("cpu")[:] = before
    assert generate(SMALL["dense"], hardware).unmatched_rules == ()  # those of the project say nothing


def test_spaces_are_deterministic(hardware: Hardware) -> None:
    first, second = (generate(SMALL["conv3x3"], hardware) for _ in range(2))
    assert [s.name for s in first.sketches] == [s.name for s in second.sketches]
    assert [str(s.steps) for s in first.sketches] == [str(s.steps) for s in second.sketches]
    assert isinstance(first.workload, Workload) and first.size == sum(s.size for s in first.sketches)


def test_decision_variables_never_share_a_name_with_loops(hardware: Hardware) -> None:
    for sketch in generate(SMALL["conv3x3"], hardware).sketches:
        loops = {s.var for s in walk_stmt(sketch.program.body) if hasattr(s, "var")}
        assert not loops & set(sketch.columns)
        assert all(var(c).op == "var" for c in sketch.columns)


def test_nested_tiles_waste_little_at_either_level() -> None:
    rows = nested_tiles(14, 8)
    assert (14, 7) in rows and (7, 7) in rows and (1, 1) in rows
    assert (14, 14) not in rows and (13, 7) not in rows  # too large a tile; 2 blocks of 13 for 14
    for block, tile in rows:
        assert 1 <= tile <= min(block, 8)
        assert -(-14 // block) * block <= 14 * MAX_WASTE and -(-block // tile) * tile <= block * MAX_WASTE


def test_the_dot_product_runs_along_what_lies_in_memory(hardware: Hardware) -> None:
    """The first layer of a network, its three channels filled up to four: its window is longer than its channels."""
    with_it = dataclasses.replace(hardware, vector_bytes=64, vector_registers=32, features=("avx512vnni",))
    first = workloads.conv2d(height=9, width=9, in_channels=4, out_channels=16, kernel=7, stride=2, dtype="int8")
    for sketch in generate(first, with_it, ["direct"]).sketches:
        (step,) = (s for s in sketch.steps.steps if s.name == "tensorize")
        assert step.intrinsic == "vnni_dot_16x4"
    data, weight = first.make_inputs(0)
    sketch = generate(first, with_it, ["direct"]).sketches[0]
    program = make_program(first, "direct", sketch.trace([0] * len(sketch.groups)))
    names = [s.name for s in first.inputs]
    found = interpret(program, dict(zip(names, (data, weight), strict=True)))[first.output.name]
    np.testing.assert_array_equal(found, first.reference(data, weight))
