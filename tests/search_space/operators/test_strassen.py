"""Strassen's products: where they are defined, the identity, their error, and random schedules of their sketches."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.compiler.selection import Limits, extra_bytes
from search_space import te, te_json, workloads
from search_space.operators import strassen
from search_space.operators.algorithms import RELATIVE_ERROR, products
from search_space.operators.strassen import STRASSEN
from search_space.space import concrete, generate, make_program
from search_space.workloads import Workload
from targets import registry
from tests.golden.cases import HARDWARE
from tests.interpreter import interpret
from tests.native import run_program
from tests.search_space.operators.test_definitions import check, run_interpreter
from tests.search_space.operators.test_winograd import random_candidates


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """Small layers have it here, which are quick to check."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strassen, "LEAST_DEPTH", 32)
        yield


def conv(height: int = 8, width: int = 5, channels: tuple[int, int] = (32, 32), **more: object) -> Workload:
    named = dict(zip(("in_channels", "out_channels"), channels, strict=True))
    return Workload("conv2d", {"height": height, "width": width, **named, "kernel": 1, **more})


@pytest.mark.parametrize(
    "workload",
    [
        workloads.matmul(m=31, n=64, k=64),
        workloads.matmul(m=64, n=31, k=64),
        workloads.matmul(m=64, n=64, k=30),
        workloads.matmul(m=64, n=64, k=65),
        workloads.matmul(m=64, n=64, k=64, constant_b=False),
        workloads.matmul(m=64, n=64, k=64, dtype="bfloat16"),
        Workload("dense", {"batch": 1, "in_features": 64, "out_features": 64}),
        Workload("dense", {"batch": 64, "in_features": 64, "out_features": 64, "dtype": "bfloat16"}),
        workloads.batch_matmul(batch=2, m=64, n=64, k=64, constant_b=True),
        conv(7, 7),
        conv(constant_weight=False),
        conv(groups=2, channels=(64, 64)),
        conv(dtype="int8"),
        conv(channels=(33, 32)),
        conv(kernel=3, padding=1),  # has Winograd's
    ],
    ids=lambda workload: workload.key,
)
def test_it_is_defined_where_there_are_halves_worth_it_and_constant_weights(workload: Workload) -> None:
    assert STRASSEN not in workload.algorithms
    with pytest.raises(ValueError, match="`algorithm` must be one of"):
        workload.tensors(STRASSEN)


def test_few_channels_or_filters_are_not_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strassen, "LEAST_DEPTH", 128)
    for n, k, worth in ((128, 128, True), (126, 128, False), (128, 126, False)):
        assert (STRASSEN in workloads.matmul(m=64, n=n, k=k).algorithms) is worth


def test_seven_products_make_all_four_quarters() -> None:
    """The matrices are 1 in one quarter each, so that results are exact."""
    for left, right in itertools.product(range(4), repeat=2):
        a, b = ([float(place == at) for place in range(4)] for at in (left, right))
        made = strassen._output([x * y for x, y in zip(strassen._left(a), strassen._right(b), strict=True)])
        expected = np.array(a).reshape(2, 2) @ np.array(b).reshape(2, 2)
        assert np.array(made).reshape(2, 2).tolist() == expected.tolist()


@pytest.mark.parametrize(
    "workload",
    [
        workloads.matmul(m=33, n=40, k=34),
        workloads.matmul(m=32, n=64, k=32),
        Workload("dense", {"batch": 35, "in_features": 32, "out_features": 33, "bias": True, "activation": "relu"}),
        conv(4, 9, (32, 40), batch=2, bias=True, activation="relu"),
        conv(9, 14, (32, 32), kernel=3, stride=2, padding=(2, 1)),
        conv(8, 9, (32, 32), kernel=(1, 3), padding=(0, 1), dilation=(1, 2)),
        Workload("conv1d", {"width": 32, "in_channels": 32, "out_channels": 32, "padding": 1}),
    ],
    ids=lambda workload: workload.key,
)
def test_definitions_mean_the_reference(workload: Workload) -> None:
    inputs = workload.make_inputs(0)
    check(workload, run_interpreter(workload, STRASSEN, inputs), inputs)


@st.composite
def layers(draw: st.DrawFn) -> Workload:
    """Products and convolutions of any extents: neither halves, tiles nor vectors need divide."""
    depth, filters = draw(st.sampled_from([32, 34, 80])), draw(st.sampled_from([32, 33, 63, 64, 96]))
    ending = {"bias": draw(st.booleans()), "activation": draw(st.sampled_from([None, "relu", "silu"]))}
    if draw(st.booleans()):
        sizes = {"batch": draw(st.integers(32, 70)), "in_features": depth, "out_features": filters}
        return Workload("dense", {**sizes, **ending})
    kernel, stride = draw(st.sampled_from([((1, 1), 1), ((1, 1), 2), ((1, 3), 2), ((5, 5), 1), ((5, 5), 2)]))
    rows, columns = 2 * draw(st.integers(2, 6)), draw(st.integers(16, 20))
    return conv(
        rows * stride,
        columns * stride,
        (depth, filters),
        kernel=kernel,
        stride=stride,
        padding=tuple(k // 2 for k in kernel),
        batch=draw(st.integers(1, 2)),
        **ending,
    )


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_random_schedules_of_any_extents(data: st.DataObject) -> None:
    workload, target = data.draw(layers(), "workload"), registry.get("cpu")
    inputs = workload.make_inputs(data.draw(st.integers(0, 9), "seed"))
    sketch = data.draw(st.sampled_from(generate(workload, target.hardware, [STRASSEN]).sketches), "sketch")
    for row in random_candidates(sketch, np.random.default_rng(data.draw(st.integers(0, 99), "row")), 1):
        program = make_program(workload, STRASSEN, sketch.trace(row))
        check(workload, run_program(target, program, inputs, 2)[0], inputs)


def test_interpreter_agrees_and_both_ways_to_lower_do() -> None:
    workload = Workload("dense", {"batch": 33, "in_features": 34, "out_features": 40, "bias": True})
    inputs, rng = workload.make_inputs(0), np.random.default_rng(0)
    named = {spec.name: array for spec, array in zip(workload.inputs, inputs, strict=True)}
    for sketch in generate(workload, HARDWARE, [STRASSEN]).sketches:
        (row,) = random_candidates(sketch, rng, 1)
        own = make_program(workload, STRASSEN, sketch.trace(row))
        lines = [
            [x for x in str(p).splitlines() if not x.startswith("  require ")]
            for p in (own, concrete(sketch, sketch.values(row)))
        ]
        assert lines[0] == lines[1]
        check(workload, interpret(own, named)["epilogue"], inputs)


def test_sketches_differ_in_the_order_of_blocks_and_where_sums_are_taken_and_pack_the_weights() -> None:
    sketches = generate(workloads.matmul(m=128, n=256, k=64), HARDWARE, [STRASSEN]).sketches
    assert [s.name for s in sketches] == ["strassen:image", "strassen:block"]
    for sketch in sketches:
        packed = next(b for b in sketch.program.params if b.name == "right.packed")
        assert packed.constant and "b" not in {b.name for b in sketch.program.params}
        assert [b.name for b in sketch.program.inputs] == ["a", "b"]


def test_limits_of_registers_and_of_cache_are_kept() -> None:
    (sketch, *_) = generate(workloads.matmul(m=512, n=1024, k=512), HARDWARE, [STRASSEN]).sketches
    drawn = np.stack([np.random.default_rng(0).integers(len(g.table), size=2000) for g in sketch.groups], 1)
    assert {"registers", "bytes of products"} <= set(sketch.violations(drawn.astype(np.int32)))
    for row in drawn[sketch.legal(drawn.astype(np.int32))]:
        v = sketch.values(row)
        vectors = v["matmul.k.vectors"]
        assert v["matmul.i.tile"] * vectors + vectors + 1 <= HARDWARE.vector_registers
        kept = 4 * strassen.PRODUCTS * v["matmul.i.block"] * v["matmul.k.blocks"] * vectors * 16
        assert kept <= HARDWARE.l2_bytes


@pytest.mark.parametrize(("m", "n", "k"), [(33, 64, 32), (128, 64, 256), (64, 32, 2048)])
def test_errors_are_what_is_documented(m: int, n: int, k: int) -> None:
    """The error from float64 is below the documented share of the greatest output, and the workload's tolerance."""
    workload, target = workloads.matmul(m=m, n=n, k=k), registry.get("cpu")
    a, b = inputs = workload.make_inputs(k)
    sketch = generate(workload, target.hardware, [STRASSEN]).sketches[0]
    (row,) = random_candidates(sketch, np.random.default_rng(1), 1)
    program = make_program(workload, STRASSEN, sketch.trace(row))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    error = np.abs(run_program(target, program, inputs)[0] - exact)
    assert error.max() <= RELATIVE_ERROR[STRASSEN] * np.abs(exact).max()
    rtol, atol = workload.get_tolerance(STRASSEN)
    assert (error <= 0.8 * (atol + rtol * np.abs(exact))).all()


@pytest.mark.parametrize("span", [1e3, 1e12])
def test_the_documented_bound_holds_on_badly_scaled_rows_and_channels(span: float) -> None:
    """Rows and columns share errors with their other half, up to the bound, and with no other; so do infinities."""
    m, n, k = 66, 64, 128
    rng, target = np.random.default_rng(int(np.log10(span))), registry.get("cpu")
    scale_of_rows, scale_of_channels = (10 ** rng.uniform(0, np.log10(span), size) for size in (m, k))
    a = (rng.standard_normal((m, k)) * scale_of_rows[:, None] / scale_of_channels).astype(np.float32)
    b = (rng.standard_normal((k, n)) * scale_of_channels[:, None]).astype(np.float32)
    rows, columns = np.arange(m), np.arange(n)
    other_rows, other_columns = (rows + m // 2) % m, columns ^ strassen.WIDTH
    left, right = np.abs(a).max(1), np.abs(b).max(0)
    left, right = np.maximum(left, left[other_rows]), np.maximum(right, right[other_columns])
    room = np.array([[strassen.error_bound(k, x, y) for y in right] for x in left])
    workload = workloads.matmul(m=m, n=n, k=k)
    exact, hostile = a.astype(np.float64) @ b.astype(np.float64), a.copy()
    hostile[7, 3] = np.inf
    for sketch in generate(workload, target.hardware, [STRASSEN]).sketches:
        for row in random_candidates(sketch, rng, 2):
            kernel = target.load(target.build(make_program(workload, STRASSEN, sketch.trace(row))))
            error = np.abs(kernel.bind([a, b]).run() - exact)
            assert (error <= room).all()
            assert (error > 1e-5 * np.abs(exact)).any()  # no bound of an output's own row and column would hold
            output = kernel.bind([hostile, b]).run()
            assert np.flatnonzero(~np.isfinite(output).all(1)).tolist() == [7, 7 + m // 2]


def test_what_it_costs_is_known() -> None:
    workload = workloads.matmul(m=128, n=96, k=64)
    x = te.placeholder((128, 96), name="x")
    epilogue = te_json.to_json([x, te.compute((128, 96), lambda i, j: x[i, j] * 2.0, name="y")])
    fused = Workload("fused", {"anchor": workload.to_json(), "epilogue": epilogue})
    for each in (workload, fused):
        spec = next(s for s in generate(each, HARDWARE, [STRASSEN]).sketches[0].program.params if s.constant)
        assert spec.name == "right.packed"
        assert extra_bytes(each, STRASSEN) == 4 * (7 * 32 * 48 - 64 * 96)
        assert extra_bytes(each, "direct") == 0
    wide = conv(8, 8, (32, 40), kernel=5, padding=2)
    *_, right = (t for t in (wide.tensors(STRASSEN)[-1].op.inputs[0].op.inputs) if t.op.name == "right")
    assert extra_bytes(wide, STRASSEN) == 4 * (prod(right.shape) - 25 * 32 * 40)
    assert products(workload.args, STRASSEN) == 7 / 8


def test_networks_that_must_be_exact_go_without() -> None:
    workload = workloads.matmul(m=128, n=96, k=64)
    assert STRASSEN in Limits(extra_algorithms=[STRASSEN]).list_algorithms(workload)
    assert Limits(extra_algorithms=[STRASSEN], max_error=0.0).list_algorithms(workload) == ["direct"]
    assert Limits(extra_algorithms=[STRASSEN]).for_open_sizes().list_algorithms(workload) == ["direct"]


def test_on_gpus_it_has_no_schedule() -> None:
    from search_space.space import algorithms_on

    gpu = registry.get("cuda:sm_80").hardware
    assert STRASSEN not in algorithms_on(workloads.matmul(m=128, n=96, k=64), gpu)
