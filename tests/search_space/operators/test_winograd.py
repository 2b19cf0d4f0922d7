"""Winograd convolution: where it is defined, its transforms, its error, and random schedules of its sketches."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from measure.pool import Trial
from search_space import te, te_json, workloads
from search_space.operators import winograd
from search_space.operators.algorithms import within
from search_space.space import Sketch, algorithms_on, concrete, generate, make_program
from search_space.workloads import Workload
from targets import registry
from tests.golden.cases import HARDWARE
from tests.interpreter import interpret
from tests.native import run_program
from tests.search_space.operators.test_definitions import check, run_interpreter

WINOGRAD = ("winograd2", "winograd4")
DOT = winograd.DOT
BFLOAT16 = "avx512bf16" in registry.get("cpu").hardware.features


def conv(height: int = 6, width: int = 6, channels: tuple[int, int] = (4, 4), **more: object) -> Workload:
    named = dict(zip(("in_channels", "out_channels"), channels, strict=True))
    return Workload("conv2d", {"height": height, "width": width, **named, "padding": 1, **more})


@pytest.mark.parametrize(
    "other",
    [
        {"kernel": 5},
        {"kernel": 1},
        {"kernel": (2, 1)},
        {"kernel": (1, 9), "padding": 4},
        {"kernel": (3, 1), "stride": (2, 1)},
        {"kernel": (1, 7), "padding": 3, "groups": 2},
        {"stride": 2},
        {"dilation": (1, 2)},
        {"groups": 2},
        {"dtype": "int8"},
    ],
)
def test_it_is_defined_for_some_dense_windows_alone(other: dict[str, object]) -> None:
    assert set(WINOGRAD) <= set(conv().algorithms)
    assert not set(WINOGRAD) & set(conv(**other).algorithms)
    with pytest.raises(ValueError, match="`algorithm` must be one of"):
        conv(**other).tensors("winograd4")


@pytest.mark.parametrize(("taps", "algorithms"), [(3, WINOGRAD), (5, WINOGRAD), (7, ("winograd4",))])
@pytest.mark.parametrize("across", [False, True])
def test_windows_along_one_axis_have_it(taps: int, algorithms: tuple[str, ...], across: bool) -> None:
    workload = conv(kernel=(1, taps) if across else (taps, 1), padding=3, dtype="bfloat16")
    assert [name for name in workload.algorithms if name in winograd.TILES] == list(algorithms)
    for algorithm in algorithms:
        m = winograd.TILES[algorithm]
        assert winograd.product_share(workload.args, algorithm) == (m + taps - 1) / (m * taps)
        assert winograd.tile(workload.args, algorithm) == ((1, m) if across else (m, 1))


def test_share_of_products() -> None:
    shares = [winograd.product_share(conv().args, name) for name in ("direct", *WINOGRAD)]
    assert shares == pytest.approx([1, 16 / 36, 36 / 144])


def test_operations_of_an_algorithm_count_its_products() -> None:
    workload = conv(8, 8, (16, 32), bias=True)
    assert [workload.count_flops(name) / workload.flops for name in ("direct", "im2col", *WINOGRAD)] == pytest.approx(
        [1, 1, 16 / 36, 36 / 144]
    )
    x = te.placeholder(tuple(workload.output.shape), name="x")
    doubled = te.compute(x.shape, lambda *i: x[i] * 2.0, name="y")
    fused = Workload("fused", {"anchor": workload.to_json(), "epilogue": te_json.to_json([x, doubled])})
    assert fused.count_flops("direct") == fused.flops
    assert fused.flops - fused.count_flops("winograd4") == pytest.approx(0.75 * workload.flops)
    product = workloads.matmul(m=64, n=128, k=128)
    assert product.count_flops("strassen") == 7 / 8 * product.flops


def test_tiles_are_rounded_where_channels_come_in_pairs_of_bfloat16() -> None:
    assert set(DOT) <= set(conv(dtype="bfloat16").algorithms)
    odd, apart = conv(channels=(3, 4), dtype="bfloat16"), conv(dtype="bfloat16", stride=2)
    for other in (conv(dtype="float16"), conv(), odd, apart):
        assert not set(DOT) & set(other.algorithms)


def test_tiles_are_rounded_for_an_instruction_alone() -> None:
    """Rounded tiles would lose digits for nothing without it."""
    workload, without = conv(dtype="bfloat16"), replace(HARDWARE, features=("avx512f",))
    assert set(DOT) <= set(algorithms_on(workload, HARDWARE))
    assert algorithms_on(workload, without) == ("direct", "im2col", *WINOGRAD)
    for sketch in generate(workload, HARDWARE, DOT).sketches:
        assert "bf16_dot_16x2" in str(sketch.program)
        packed = next(b for b in sketch.program.params if b.name == "weight_tiles.packed")
        assert packed.dtype == "bfloat16" and packed.shape[-1].value == 2


def test_a_tolerance_of_their_own_leaves_that_of_the_others() -> None:
    """Also where an ending follows that rounds to 16 bits."""
    plain, lowered = conv(), conv(dtype="bfloat16")
    assert lowered.tolerance == plain.tolerance == lowered.get_tolerance("direct") == lowered.get_tolerance("winograd4")
    small, large = (lowered.get_tolerance(algorithm)[1] for algorithm in DOT)
    assert lowered.tolerance[1] < small < large
    x = te.placeholder(lowered.output.shape, name="x")
    epilogue = te_json.to_json([x, te.compute(x.shape, lambda n, h, w, k: x[n, h, w, k].astype("bfloat16"), name="y")])
    fused = Workload("fused", {"anchor": lowered.to_json(), "epilogue": epilogue})
    assert fused.get_tolerance("winograd2_dot")[1] - fused.tolerance[1] == pytest.approx(small - lowered.tolerance[1])


def trial(algorithm: str) -> Trial:
    return Trial({}, algorithm, [], workload_key="conv", trace_key=algorithm)


def test_references_are_shared_by_algorithms_of_one_tolerance() -> None:
    assert trial("direct").task_key == trial("winograd4").task_key
    assert len({trial(algorithm).task_key for algorithm in ("direct", *DOT)}) == 3


def test_by_default_an_error_of_a_hundredth_is_the_most() -> None:
    assert within(["direct", *winograd.TILES]) == ["direct", *WINOGRAD, "winograd2_dot"]
    assert within(["direct", *winograd.TILES], 0.0) == ["direct"]
    assert within(winograd.TILES, 0.04) == list(winograd.TILES)


def round_narrow(array: NDArray[np.float64]) -> NDArray[np.float64]:
    return array.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)


def in_numpy(algorithm: str, data: NDArray[np.float64], weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """The convolution without padding of whole tiles (h, w, c) by (3, 3, c, k): rounded tiles, all else in float64."""
    m, size = winograd.TILES[algorithm], winograd.TILES[algorithm] + 2
    data_pass, weight_pass, output_pass = winograd.transforms(m, 3)
    b, g, a = (np.array(f(list(np.eye(n)))) for f, n in ((data_pass, size), (weight_pass, 3), (output_pass, size)))
    u = round_narrow(np.einsum("ir,js,rsck->ijck", g, g, weight))
    out = np.zeros((data.shape[0] - 2, data.shape[1] - 2, weight.shape[-1]))
    for y in range(0, out.shape[0], m):
        for x in range(0, out.shape[1], m):
            v = round_narrow(np.einsum("ir,js,rsc->ijc", b, b, data[y : y + size, x : x + size]))
            out[y : y + m, x : x + m] = np.einsum("pi,qj,ijk->pqk", a, a, np.einsum("ijc,ijck->ijk", v, u))
    return out


@pytest.mark.skipif(not BFLOAT16, reason="this processor has no bfloat16 dot product")
@settings(max_examples=12, deadline=None)
@given(st.data())
def test_kernels_round_where_numpy_does(data: st.DataObject) -> None:
    """Random schedules against tiles rounded in NumPy: what is left are sums in float32, and values next to a tie."""
    algorithm = data.draw(st.sampled_from(DOT), "algorithm")
    m = winograd.TILES[algorithm]
    sizes = [m * data.draw(st.integers(1, 4), side) + 2 for side in ("height", "width")]
    channels = data.draw(st.sampled_from([2, 6, 16, 38]), "in"), data.draw(st.sampled_from([2, 16, 33]), "out")
    workload, target = conv(*sizes, channels, padding=0, dtype="bfloat16"), registry.get("cpu")
    inputs = workload.make_inputs(data.draw(st.integers(0, 99), "seed"))
    image, weight = (array.astype(np.float64) for array in inputs)
    wanted = in_numpy(algorithm, image[0], weight)
    sketch = data.draw(st.sampled_from(generate(workload, target.hardware, [algorithm]).sketches), "sketch")
    (row,) = random_candidates(sketch, np.random.default_rng(data.draw(st.integers(0, 99), "row")), 1)
    program = make_program(workload, algorithm, sketch.trace(row))
    error = np.abs(run_program(target, program, inputs, 2)[0][0] - wanted)
    assert error.max() < 0.2 * winograd.RELATIVE_ERROR[algorithm] * np.abs(wanted).max()


def test_other_numbers_of_axes_have_none() -> None:
    assert not set(WINOGRAD) & set(workloads.conv1d(width=9, in_channels=2, out_channels=2).algorithms)
    assert not set(WINOGRAD) & set(workloads.conv3d(1, 5, 5, 5, 2, 2).algorithms)


@pytest.mark.parametrize("algorithm", winograd.TILES)
@pytest.mark.parametrize(("height", "width", "padding"), [(3, 3, 0), (6, 7, 0), (4, 9, 1), (5, 6, (0, 2)), (1, 1, 1)])
def test_definitions_mean_the_reference(algorithm: str, height: int, width: int, padding: int) -> None:
    dtype = "bfloat16" if algorithm in DOT else "float32"
    workload = conv(height, width, (2, 3), padding=padding, batch=2, bias=True, activation="relu", dtype=dtype)
    inputs = workload.make_inputs(0)
    rtol, atol = workload.get_tolerance(algorithm)
    found = run_interpreter(workload, algorithm, inputs)
    np.testing.assert_allclose(found, workload.reference(*inputs), rtol=rtol, atol=atol)


@pytest.mark.parametrize("kernel", [(1, 3), (5, 1), (1, 7)])
@pytest.mark.parametrize(("height", "width"), [(1, 1), (3, 7), (8, 5)])
def test_definitions_along_one_axis_mean_the_reference(kernel: tuple[int, int], height: int, width: int) -> None:
    workload = conv(height, width, (2, 3), kernel=kernel, padding=[k // 2 for k in kernel], bias=True)
    inputs = workload.make_inputs(0)
    for algorithm in set(workload.algorithms) & set(WINOGRAD):
        rtol, atol = workload.get_tolerance(algorithm)
        found = run_interpreter(workload, algorithm, inputs)
        np.testing.assert_allclose(found, workload.reference(*inputs), rtol=rtol, atol=atol)


@pytest.mark.parametrize(("m", "taps"), [(2, 3), (4, 3), (2, 5), (4, 5), (4, 7), (1, 1)])
def test_transforms_are_those_of_the_algorithm(m: int, taps: int) -> None:
    """A^T [(G g) * (B^T d)] is the correlation of d with g, for every unit vector d and g."""
    data_pass, weight_pass, output_pass = winograd.transforms(m, taps)
    for at in range(m + taps - 1):
        for tap in range(taps):
            d, g = np.eye(m + taps - 1)[at], np.eye(taps)[tap]
            products = np.array(weight_pass(list(g))) * np.array(data_pass(list(d)))
            expected = [float(at - tap == place) for place in range(m)]
            np.testing.assert_allclose(output_pass(list(products)), expected, atol=2e-14)


def random_candidates(sketch: Sketch, rng: np.random.Generator, count: int) -> NDArray[np.int32]:
    """Legal choices, spread over the tables."""
    tables = [rng.integers(len(g.table), size=500) for g in sketch.groups]
    drawn = np.stack(tables, 1).astype(np.int32) if tables else np.zeros((1, 0), np.int32)
    legal = drawn[sketch.legal(drawn)]
    assert len(legal), sketch.name
    return legal[:count]


@settings(max_examples=10, deadline=None)
@given(st.data())
def test_random_schedules_of_any_extents(data: st.DataObject) -> None:
    """A random candidate of a sketch: the kernel and the reference. Neither tiles nor vectors need divide."""
    extent = st.integers(1, 11)
    workload = conv(
        data.draw(extent, "height"),
        data.draw(extent, "width"),
        (data.draw(st.sampled_from([1, 3, 16, 20]), "in"), data.draw(st.sampled_from([2, 16, 33]), "out")),
        batch=data.draw(st.integers(1, 2), "batch"),
        kernel=data.draw(st.sampled_from([(3, 3), (3, 3), (1, 3), (5, 1), (1, 7), (7, 1)]), "kernel"),
        padding=data.draw(st.sampled_from([3, (4, 3)]), "padding"),
        bias=data.draw(st.booleans(), "bias"),
        activation=data.draw(st.sampled_from([None, "relu", "silu"]), "activation"),
    )
    target, rng, inputs = (
        registry.get("cpu"),
        np.random.default_rng(data.draw(st.integers(0, 99))),
        workload.make_inputs(0),
    )
    known = [name for name in workload.algorithms if name in WINOGRAD]
    space = generate(workload, target.hardware, [data.draw(st.sampled_from(known), "algorithm")])
    sketch = data.draw(st.sampled_from(space.sketches), "sketch")
    for row in random_candidates(sketch, rng, 1):
        program = make_program(workload, sketch.algorithm, sketch.trace(row))
        check(workload, run_program(target, program, inputs, 2)[0], inputs)


@pytest.mark.parametrize("algorithm", WINOGRAD)
@pytest.mark.parametrize(("filters", "constant"), [(18, True), (18, False), (64, False)])
def test_interpreter_agrees_and_both_ways_to_lower_do(algorithm: str, filters: int, constant: bool) -> None:
    """Weights that are no constants are transformed by each call, and 64 filters lie in two blocks."""
    workload = conv(5, 3, (2, filters), batch=2 if constant else 1, bias=True, constant_weight=constant)
    inputs = workload.make_inputs(0)
    named = {spec.name: array for spec, array in zip(workload.inputs, inputs, strict=True)}
    rng = np.random.default_rng(0)
    for number, sketch in enumerate(generate(workload, HARDWARE, [algorithm]).sketches):
        for row in random_candidates(sketch, rng, 1):
            own = make_program(workload, algorithm, sketch.trace(row))
            lines = [
                [x for x in str(p).splitlines() if not x.startswith("  require ")]
                for p in (own, concrete(sketch, sketch.values(row)))
            ]
            assert lines[0] == lines[1]
        if number % 3 == 0:  # element by element is slow
            check(workload, interpret(own, named)["epilogue"], inputs)


def test_sketches_transform_by_block_or_by_image_and_pack_the_weights() -> None:
    sketches = generate(conv(56, 56, (64, 64)), HARDWARE, ["winograd4"]).sketches
    assert {s.name.split("/")[0] for s in sketches} == {f"winograd4:{name}" for name in ("block", "image", "filters")}
    for sketch in sketches:
        packed = next(b for b in sketch.program.params if b.name == "weight_tiles.packed")
        assert packed.constant and "weight" not in {b.name for b in sketch.program.params}
        assert [b.name for b in sketch.program.inputs] == ["data", "weight"]


def test_weights_that_change_are_transformed_at_each_call() -> None:
    workload = conv(14, 14, (16, 128), constant_weight=False)
    assert set(DOT).isdisjoint(workload.algorithms) and winograd.constant_bytes(workload.args, "winograd4") == 0
    for sketch in generate(workload, HARDWARE, ["winograd4"]).sketches:
        assert not [b.name for b in sketch.program.params if b.constant]
        assert [b.name for b in sketch.program.inputs] == ["data", "weight"]


def test_limits_of_registers_and_of_cache_are_kept() -> None:
    (sketch, *_) = generate(conv(112, 112, (256, 64)), HARDWARE, ["winograd4"]).sketches
    drawn = np.stack([np.random.default_rng(0).integers(len(g.table), size=2000) for g in sketch.groups], 1)
    broken = sketch.violations(drawn.astype(np.int32))
    assert {"registers", "bytes between transforms", "unrolled operations"} <= set(broken)
    values = [sketch.values(row) for row in drawn[sketch.legal(drawn.astype(np.int32))]]
    for v in values:
        tile = v["conv.y.tile"] * v["conv.x.tile"] * v["conv.k.vectors"]
        assert tile + v["conv.k.vectors"] + 1 <= HARDWARE.vector_registers
        kept = 256 + 16 * v["conv.k.blocks"] * v["conv.k.vectors"]
        assert 36 * 4 * kept * v["conv.y.block"] * v["conv.x.block"] <= 2 * HARDWARE.l2_bytes


@pytest.mark.parametrize(
    ("algorithm", "channels"),
    [(name, n) for name in winograd.TILES for n in (1, 2, 8, 64, 256) if n % 2 == 0 or name not in DOT],
)
def test_errors_are_what_is_documented(algorithm: str, channels: int) -> None:
    """The error from float64 is below the documented share of the greatest output, and the workload's tolerance."""
    workload = conv(16, 16, (channels, 32), dtype="bfloat16" if algorithm in DOT else "float32")
    if algorithm in DOT and not BFLOAT16:
        pytest.skip("needs avx512bf16")
    target, inputs = registry.get("cpu"), workload.make_inputs(channels)
    sketch = generate(workload, target.hardware, [algorithm]).sketches[0]
    (row,) = random_candidates(sketch, np.random.default_rng(1), 1)
    program = make_program(workload, algorithm, sketch.trace(row))
    exact = workload._operator.reference(workload.args, *(a.astype(np.float64) for a in inputs))
    error = np.abs(run_program(target, program, inputs)[0] - exact)
    assert error.max() <= winograd.RELATIVE_ERROR[algorithm] * np.abs(exact).max()
    rtol, atol = workload.get_tolerance(algorithm)
    assert (error <= 0.8 * (atol + rtol * np.abs(exact))).all()


@pytest.mark.parametrize(
    ("kernel", "channels"), [((1, 3), 64), ((5, 1), 256), ((1, 7), 8), ((7, 1), 64), ((1, 7), 256)]
)
def test_errors_along_one_axis_are_what_is_documented(kernel: tuple[int, int], channels: int) -> None:
    workload = conv(16, 16, (channels, 32), kernel=kernel, padding=[k // 2 for k in kernel])
    target, inputs = registry.get("cpu"), workload.make_inputs(channels)
    exact = workload._operator.reference(workload.args, *(a.astype(np.float64) for a in inputs))
    rtol, atol = workload.tolerance
    for algorithm in set(workload.algorithms) & set(WINOGRAD):
        sketch = generate(workload, target.hardware, [algorithm]).sketches[0]
        (row,) = random_candidates(sketch, np.random.default_rng(1), 1)
        program = make_program(workload, algorithm, sketch.trace(row))
        error = np.abs(run_program(target, program, inputs)[0] - exact)
        assert error.max() <= winograd.RELATIVE_ERROR[algorithm] * np.abs(exact).max()
        assert (error <= 0.8 * (atol + rtol * np.abs(exact))).all()


@pytest.mark.parametrize("algorithm", WINOGRAD)
def test_errors_are_within_each_filter_s_own_scale(algorithm: str) -> None:
    """Scales of channels and filters span twelve decades: errors are shares of each filter's own largest output."""
    workload, rng = conv(16, 16, (64, 32)), np.random.default_rng(0)
    data, weight = workload.make_inputs(0)
    channels, filters = (10 ** rng.uniform(-6, 6, size) for size in (64, 32))
    data = (data * channels).astype(np.float32)
    weight = (weight / channels[:, None] * filters).astype(np.float32)
    exact = workload._operator.reference(workload.args, data.astype(np.float64), weight.astype(np.float64))
    target = registry.get("cpu")
    sketch = generate(workload, target.hardware, [algorithm]).sketches[0]
    (row,) = random_candidates(sketch, rng, 1)
    kernel = target.load(target.build(make_program(workload, algorithm, sketch.trace(row))))
    error = np.abs(kernel.bind([data, weight]).run() - exact)
    axes = tuple(range(exact.ndim - 1))
    assert (error.max(axes) <= winograd.RELATIVE_ERROR[algorithm] * np.abs(exact).max(axes)).all()


@pytest.mark.parametrize("algorithm", DOT)
@pytest.mark.parametrize(("channels", "part"), [(64, "channels"), (2, "tap"), (64, "tap"), (512, "tap"), (512, "row")])
def test_the_wider_tolerance_still_refuses_what_is_wrong(algorithm: str, channels: int, part: str) -> None:
    workload = conv(12, 12, (channels, 16), dtype="bfloat16")
    data, weight = workload.make_inputs(0)
    wrong = weight.copy()
    wrong[{"tap": (1, 2), "channels": (slice(None), slice(None), slice(channels - 2, None), 3), "row": 0}[part]] = 0
    rtol, atol = workload.get_tolerance(algorithm)
    exact = workload.reference(data, weight)
    assert (np.abs(workload.reference(data, wrong) - exact) > atol + rtol * np.abs(exact)).any()


def test_bytes_of_transformed_constants() -> None:
    args = conv(14, 14, (256, 128), kernel=(1, 7), padding=3).args
    assert winograd.constant_bytes(args, "winograd4") == 4 * (10 - 7) * 256 * 128
    args = conv(14, 14, (256, 128)).args
    assert winograd.constant_bytes(args, "winograd4") == 4 * (36 - 9) * 256 * 128
    assert winograd.constant_bytes(args, "winograd2") == 4 * (16 - 9) * 256 * 128
    assert winograd.constant_bytes(args, "direct") == 0
    args = conv(14, 14, (256, 128), dtype="bfloat16").args
    assert winograd.constant_bytes(args, "winograd2") == (4 * 16 - 2 * 9) * 256 * 128
    assert winograd.constant_bytes(args, "winograd2_dot") == 2 * (16 - 9) * 256 * 128
