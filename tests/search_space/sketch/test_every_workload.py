"""Every legal workload has a legal schedule on every target: whatever its axes, also where these have one element."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import autotune
from autotune.tuner.search import NoLegalSchedule
from autotune.tuner.search.sampling import require_legal
from search_space import te, te_json, workloads
from search_space.hardware import Hardware
from search_space.ir.verify import verify
from search_space.machines.cpu.elementwise import Elementwise
from search_space.machines.registry import get_rules, register_rule
from search_space.operators import OPERATORS
from search_space.schedule.errors import ScheduleError
from search_space.schedule.state import Stage
from search_space.schedule.steps import Tensorize
from search_space.sketch.base import Draft, SketchRule
from search_space.space import SearchSpace, algorithms_on, generate, make_program
from search_space.workloads import Workload
from targets import registry
from tests.gpu import candidates
from tests.native import run_program
from tests.properties.running import examples
from tests.search_space.operators.test_definitions import check
from tests.search_space.sketch.random_definitions import PRODUCTS, Random
from tests.search_space.sketch.random_workloads import DRAWS, make_random_workload

TARGETS = ("cpu:haswell", "cpu:znver4", "cpu:sapphirerapids", "cuda:sm_80", "cuda:sm_90a")
OPTIONS: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck)}
SEEDS = st.integers(0, (1 << 32) - 1)


def schedulable(workload: Workload, target: str) -> SearchSpace:
    """The workload's space, none of whose sketches was refused, after a random candidate of one was lowered."""
    space = generate(workload, registry.get(target).hardware)
    assert space.sketches and not space.refusals
    require_legal(space)
    rng = np.random.default_rng(list(workload.key.encode()))
    sketch = space.sketches[rng.integers(len(space.sketches))]
    verify(make_program(workload, sketch.algorithm, sketch.trace(candidates.legal(sketch, 1)[0])))
    return space


def compute(workload: Workload, target: str, seed: int) -> None:
    """A random candidate of a random sketch computes the reference on the host's processor.

    The loops of a candidate for a GPU run as they are, those of threads one iteration after another.
    """
    space = schedulable(workload, target)
    sketch = space.sketches[seed % len(space.sketches)]
    row = candidates.legal(sketch, 1, seed)[0]
    on, inputs = registry.get("cpu"), workload.make_inputs(seed)
    program = make_program(workload, sketch.algorithm, sketch.trace(row))
    program = program if space.hardware.gpu is None else candidates.plain(program)
    check(workload, run_program(on, program, inputs)[0], inputs, sketch.algorithm)


# ---------------------------------------------------------------------- what used to have none
def append_ending(anchor: Workload, dtype: str | None = None) -> Workload:
    """Appends a sigmoid or a maximum that reads axes of one element at 0, as a broadcast does."""
    shape = anchor.output.shape
    layer = te.placeholder(shape, anchor.output.dtype, "layer")

    def end(*index: Any) -> Any:
        value = layer[tuple(0 if e == 1 else i for i, e in zip(index, shape, strict=True))]
        return te.sigmoid(value) if dtype is None else te.minimum(te.maximum(value, 0), 255).astype(dtype)

    return workloads.fused(anchor.to_json(), te_json.to_json([layer, te.compute(shape, end, name="end")]))


def make_normalisation(elements: int) -> Workload:
    """exp(a[i]) / s[0], and the same in a[i]'s place."""
    a, r = te.placeholder((elements,), name="a"), te.reduce_axis((0, elements), "r")
    e = te.compute((elements,), lambda i: te.exp(a[i]), name="e")
    s = te.compute((1,), lambda z: te.sum(e[r], axis=r), name="s")
    return Workload.of([a, te.compute((elements,), lambda i: e[i] / s[0], name="share")])


def square(turned: bool) -> Workload:
    """A product plus itself, turned or mirrored: its elements are read where others are computed."""
    a, b, r = te.placeholder((9, 4), name="a"), te.placeholder((4, 9), name="b"), te.reduce_axis((0, 4), "r")
    c = te.compute((9, 9), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")
    out = te.compute((9, 9), lambda i, j: c[i, j] + (c[j, i] if turned else c[i, 8 - j]), name="out")
    return Workload.of([a, b, out])


def other_rows(elements: int) -> Workload:
    """Sums of rows, each read by the mirrored row."""
    a, r = te.placeholder((elements, 5), name="a"), te.reduce_axis((0, 5), "r")
    s = te.compute((elements,), lambda i: te.sum(a[i, r], axis=r), name="s")
    return Workload.of([a, te.compute((elements,), lambda i: s[i] - s[elements - 1 - i], name="out")])


def reshape_product(shape: tuple[int, ...], turned: bool, constant: bool) -> Workload:
    """A product whose rows are the pixels of images, as a convolution's by `im2col`; its right factor may be turned."""
    *outer, columns = shape
    rows, r = prod(outer), te.reduce_axis((0, 24), "r")
    a = te.placeholder((rows, 24), name="a")
    b = te.placeholder((columns, 24) if turned else (24, columns), name="b", constant=constant)
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, r] * (b[j, r] if turned else b[r, j]), axis=r), name="c")
    bias = te.placeholder((columns,), name="bias", constant=True)

    def end(*index: Any) -> Any:
        *outside, j = index
        row = outside[0]
        for place, extent in zip(outside[1:], outer[1:], strict=True):
            row = row * extent + place
        return te.maximum(c[row, j if columns > 1 else 0] + bias[j], 0)

    return Workload.of([a, b, bias, te.compute(shape, end, name="out")])


HARD = (
    *(reshape_product((2, 3, 5, 19), turned, constant) for turned in (False, True) for constant in (False, True)),
    *(reshape_product((2, 1, 40), turned, constant) for turned in (False, True) for constant in (False, True)),
    reshape_product((3, 1, 33), True, False),
    reshape_product((2, 3, 1), False, True),
    reshape_product((1, 1, 1, 40), False, True),
    reshape_product((7, 1, 33), False, True),
    append_ending(workloads.matmul(5, 1, 9)),
    append_ending(workloads.matmul(1, 1, 8, dtype="bfloat16")),
    append_ending(workloads.dense(3, 8, 1, bias=True)),
    append_ending(workloads.batch_matmul(2, 4, 1, 3)),
    append_ending(workloads.conv2d(height=4, width=3, in_channels=2, out_channels=1, padding=1)),
    append_ending(workloads.conv2d(height=1, width=1, in_channels=8, out_channels=1, kernel=1, dtype="int8"), "uint8"),
    append_ending(workloads.conv2d(height=1, width=1, in_channels=8, out_channels=4, kernel=1, dtype="int8"), "uint8"),
    append_ending(workloads.reduce((4, 6, 1), 1)),
    append_ending(workloads.max_pool2d(height=4, width=4, channels=1, kernel=2)),
    make_normalisation(1),
    make_normalisation(6),
    square(True),
    square(False),
    other_rows(1),
    other_rows(7),
)


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_90a"])
@pytest.mark.parametrize("workload", HARD, ids=str)
def test_what_reads_where_another_element_is_computed(workload: Workload, target: str) -> None:
    compute(workload, target, 1)


def behind(dtype: str, constant: bool, padded: bool) -> Workload:
    """A product of what was clipped, or of what was padded along the reduction."""
    left, right, wide = PRODUCTS[dtype]
    a, b = te.placeholder((5, 8), left, "a"), te.placeholder((8, 16), right, "b", constant)
    r = te.reduce_axis((0, 8), "r")

    def before(i: Any, j: Any) -> Any:
        if padded:
            return te.if_then_else(te.all(j >= 1, j < 7), a[i, j], 0)
        return te.minimum(te.maximum(a[i, j], 0), 6)

    q = te.compute((5, 8), before, name="before")
    c = te.compute((5, 16), lambda i, j: te.sum(q[i, r].astype(wide) * b[r, j].astype(wide), axis=r), name="c")
    return Workload.of([a, b, c])


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("dtype", PRODUCTS)
def test_what_stands_in_front_of_a_product(dtype: str, constant: bool, padded: bool) -> None:
    """Operations before it take no instruction away: all sketches use one that is faster than multiply-adds."""
    workload = behind(dtype, constant, padded)
    for target in TARGETS[:3]:
        features = registry.get(target).hardware.features
        instruction = {"bfloat16": "avx512bf16", "int8": "avx512vnni"}.get(dtype)
        wanted = instruction in features and (constant or dtype == "bfloat16")
        found = {
            any(s.name == "tensorize" for s in sketch.steps.steps) for sketch in schedulable(workload, target).sketches
        }
        slow = dtype == "bfloat16" and not registry.get(target).hardware.rates.gains_by_dots
        assert found == ({True, False} if wanted and slow else {wanted})
    compute(workload, "cpu", 0)


@pytest.mark.parametrize("depth", [1, 2])
def test_padding_with_an_axis_of_one_element_between_others(depth: int) -> None:
    window: dict[str, Any] = {"kernel": (1, 3, 3), "padding": (0, 1, 1)}
    compute(workloads.conv3d(2, depth, 5, 5, in_channels=20, out_channels=16, **window), "cpu", 0)


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_80"])
def test_an_operator_of_what_is_transposed_first(target: str) -> None:
    anchor = workloads.elementwise("erf", (32, 48))
    compute(workloads.fused(anchor.to_json(), append_ending(anchor).args["epilogue"], (1, 0)), target, 0)


# ---------------------------------------------------------------------- properties
def test_every_operator_is_drawn() -> None:
    assert DRAWS.keys() == OPERATORS.keys()


@pytest.mark.parametrize("operator", DRAWS)
@settings(max_examples=examples(4), **OPTIONS)
@given(seed=SEEDS)
def test_every_workload_of_an_operator_has_schedules(operator: str, seed: int) -> None:
    targets = (*TARGETS, *(["vta"] if operator.endswith("_blocked") else []))
    schedulable(make_random_workload(operator, seed), targets[seed % len(targets)])


@settings(max_examples=examples(30), **OPTIONS)
@given(seed=SEEDS, target=st.sampled_from(TARGETS))
def test_every_definition_has_schedules(target: str, seed: int) -> None:
    schedulable(Workload.of(Random(seed).definition()), target)


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_80"])
@settings(max_examples=examples(10), **OPTIONS)
@given(seed=SEEDS, operator=st.sampled_from(sorted(DRAWS)))
@example(seed=298, operator="conv2d")  # an algorithm that rounds what it multiplies
def test_schedules_of_random_workloads_compute_the_reference(target: str, seed: int, operator: str) -> None:
    compute(make_random_workload(operator, seed), target, seed)


# ---------------------------------------------------------------------- where there is none
class BrokenRule(SketchRule):
    """A rule that fails at once, or makes a schedule that has no program beside those of the fallback."""

    name = "broken"

    def __init__(self, at_once: bool) -> None:
        self.at_once = at_once

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        return stage.name in draft.state.outputs

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        if self.at_once:
            raise ScheduleError("`tile` must be odd, but got tile=2")
        wrong = draft.apply(Tensorize(stage.name, stage.axes[0].name, "sgemm:1x1x1")).variant("wrong")
        return [wrong.finish(stage.name), *Elementwise().apply(draft, stage, hardware)]


@pytest.fixture
def broken_rule(request: pytest.FixtureRequest) -> Any:
    before = list(get_rules("cpu"))
    register_rule(BrokenRule(request.param))
    yield request.param
    get_rules("cpu")[:] = before


@pytest.mark.parametrize("broken_rule", [False], indirect=True)
def test_a_sketch_that_has_no_program_is_left_out_and_says_why(broken_rule: bool) -> None:
    space = generate(workloads.elementwise("relu", (4, 60)), registry.get("cpu:znver4").hardware)
    assert [s.name for s in space.sketches] == ["direct:flat", "direct:rows"]
    assert space.refusals.keys() == {"direct:wrong"} and "must run over extents" in space.refusals["direct:wrong"]


@pytest.mark.parametrize("broken_rule", [True], indirect=True)
def test_a_workload_without_a_sketch_is_refused_with_the_reason_and_nothing_is_measured(broken_rule: bool) -> None:
    workload = workloads.elementwise("relu", (4, 6))
    space = generate(workload, registry.get("cpu").hardware)
    assert not space.sketches and space.refusals == {"direct:broken": "`tile` must be odd, but got tile=2"}
    assert algorithms_on.__wrapped__(workload, registry.get("cpu").hardware) == ()
    with pytest.raises(
        NoLegalSchedule, match="none of its 1 sketches can be applied, such as direct:broken: `tile` must"
    ):
        autotune.tune(workload, measure="no pool is opened", trials=1000)
