"""Plans of integer layers: close to the floats, and never beyond int32."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from autotune.graph.ir import Array
from autotune.graph.ops.quantised import exact_scale
from autotune.graph.quantise.arithmetic import FINE, NotExact, Sum, plan_average, plan_layer, plan_sum
from autotune.graph.quantise.formats import (
    METHODS,
    Format,
    choose_format,
    format_of_range,
    least_noise,
    power_weights,
    quantise_weights,
    squared_error,
    weight_scales,
)

formats = st.builds(lambda power, zero: Format(exact_scale(2.0**power), zero), st.floats(-12, 6), st.integers(0, 255))


def compute_plan(end: Sum, sums: Array, residuals: list[Array]) -> Array:
    """The plan carried out in unbounded integers and in float64; int32 must have held every step."""
    steps = [sums << end.left]
    for residual, factor in zip(residuals, end.factors, strict=True):
        steps.append(steps[-1] + residual.astype(np.int64) * factor)
    steps.append(steps[-1] + end.bias)
    assert all(np.abs(step).max() < 2**31 for step in steps)
    assert ((end.left >= 0) & (end.left < 31)).all()
    return np.clip(np.rint(steps[-1] * end.scales.astype(np.float64)), end.low, end.high)


@settings(max_examples=100, deadline=None)
@given(formats, formats, formats, st.booleans(), st.integers(0, 10000), st.floats(-8, 8))
def test_a_layer_is_a_step_from_what_its_weights_give(
    source: Format, residual: Format, output: Format, per_channel: bool, seed: int, size: float
) -> None:
    rng = np.random.default_rng(seed)
    weight = rng.standard_normal((18, 5)) * 2.0 ** (size + rng.integers(-6, 6, 5))
    bias = rng.standard_normal(5) * 2.0**size
    data, added = rng.integers(0, 256, (40, 18)).astype(np.uint8), rng.integers(0, 256, (40, 5)).astype(np.uint8)
    data[0], data[1] = 0, 255
    try:
        weights, end = plan_layer(weight, source, residual, output, bias, (0.0, np.inf), per_channel)
    except NotExact:
        assume(False)
    found = compute_plan(end, data.astype(np.int64) @ weights.values.astype(np.int64), [added])
    numbers = (data.astype(np.float64) - source.zero) * source.scale
    exact = (
        numbers @ (weights.values * weights.scales) + bias + (added.astype(np.float64) - residual.zero) * residual.scale
    )
    wanted = np.clip(np.maximum(exact, 0) / output.scale + output.zero, 0, 255)
    assert (
        np.abs(found - wanted) <= 0.5 + 1.0 / FINE + 1e-3
    ).all()  # its own rounding, that of the bias and of the zero
    apart = np.abs(weights.decode() - weight) / weights.scales
    assert (np.abs(weights.values) < 127).any() and np.median(apart) <= 0.5


def test_a_residual_costs_nothing() -> None:
    """Its scale is a whole multiple of the sum's, so that it comes out as it is where nothing is added to it."""
    residual = Format(exact_scale(0.0371), 117)
    _, end = plan_layer(np.zeros((4, 1)), Format(0.01), residual, residual, np.zeros(()), (-np.inf, np.inf))
    every = np.arange(256, dtype=np.uint8)[:, None]
    np.testing.assert_array_equal(compute_plan(end, np.zeros((256, 1), np.int64), [every]), every)


@settings(max_examples=50, deadline=None)
@given(formats, formats, formats)
def test_sums_of_bytes_are_within_a_step(first: Format, second: Format, output: Format) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 256, (50, 1)).astype(np.uint8) for _ in range(2)]
    try:
        end = plan_sum((first, second), output, np.zeros(()), (-np.inf, np.inf))
    except NotExact:
        scales = [f.scale for f in (first, second, output)]
        assert max(scales) > 256 * min(scales), "scales of usual distances must be planned"
        return
    found = compute_plan(end, np.zeros((50, 1), np.int64), arrays)
    exact = sum((a.astype(np.float64) - f.zero) * f.scale for a, f in zip(arrays, (first, second), strict=True))
    far = 0.5 + 255 * 0.5**14 * max(first.scale, second.scale) / output.scale
    assert (np.abs(found - np.clip(exact / output.scale + output.zero, 0, 255)) <= far + 0.01).all()


def test_usual_scales_are_planned() -> None:
    weight = np.random.default_rng(0).standard_normal((9 * 512, 64)) / 48
    plan_layer(weight, Format(0.031), Format(0.06, 99), Format(0.07), np.ones(64), (0.0, np.inf))
    plan_layer(weight, Format(0.03, 128), None, None, np.zeros(()), (-np.inf, np.inf))


def test_a_channel_of_zeros_has_its_bias() -> None:
    weights, end = plan_layer(
        np.zeros((4, 2)), Format(1 / 32), None, Format(1 / 16), np.array([1.0, 0.0]), (-np.inf, np.inf)
    )
    assert not weights.values.any()
    np.testing.assert_array_equal(compute_plan(end, np.zeros((1, 2), np.int64), []), [[16, 0]])


def test_what_int32_does_not_hold_is_refused() -> None:
    with pytest.raises(NotExact, match="sums must be at most"):
        plan_layer(np.full((70000, 1), 0.99), Format(1.0), None, Format(1024.0), np.zeros(()), (-np.inf, np.inf))
    with pytest.raises(NotExact, match="times each other, but got 1, 1.07e"):
        plan_sum((Format(1.0), Format(2.0**30)), Format(1.0), np.zeros(()), (-np.inf, np.inf))
    with pytest.raises(NotExact, match="means must be"):
        plan_average(10**6, Format(1.0), Format(4.0))
    with pytest.raises(NotExact, match="sums must be at most"):
        plan_average(10**7, Format(1.0), None)


@settings(max_examples=100, deadline=None)
@given(formats, st.floats(-3, 3), st.integers(0, 255), st.integers(1, 200), st.integers(0, 1000))
def test_means_are_within_a_step(source: Format, finer: float, zero: int, count: int, seed: int) -> None:
    output = Format(exact_scale(source.scale * 2.0**finer), zero)
    rng = np.random.default_rng(seed)
    data = rng.integers(rng.integers(0, 255), 256, (30, count))
    factor, end = plan_average(count, source, output)
    found = compute_plan(end, data.sum(1, keepdims=True) * factor, [])
    mean = (data - source.zero).mean(1, keepdims=True) * source.scale / output.scale + zero
    assert (np.abs(found - np.clip(mean, 0, 255)) <= 0.51).all()


def test_formats_by_every_method() -> None:
    values = np.random.default_rng(0).standard_normal(10000).astype(np.float32)
    for method in METHODS:
        signed = choose_format(values, float(values.min()), float(values.max()), method)
        assert 100 < signed.zero < 156 and 1 / 50 < signed.scale < 1 / 25
        assert choose_format(np.abs(values), 0.0, float(np.abs(values).max()), method).zero == 0
        assert choose_format(-np.abs(values), -float(np.abs(values).max()), 0.0, method).zero == 255
    whole = choose_format(values, float(values.min()), float(values.max()), "max")
    assert np.abs(whole.decode(whole.encode(values)) - values).max() <= whole.scale * 0.501
    with pytest.raises(ValueError, match="`method` must be one of mse, max, percentile"):
        choose_format(values, -1.0, 1.0, "median")


@settings(max_examples=50, deadline=None)
@given(st.floats(-1e6, 1e6), st.floats(0, 1e6))
def test_a_format_of_a_range_takes_both_ends_and_zero(low: float, width: float) -> None:
    found = format_of_range(low, low + width)
    ends = np.array([low, low + width, 0.0], np.float32)
    assert np.abs(found.decode(found.encode(ends)) - ends)[:2].max() <= 0.51 * found.scale and 0 <= found.zero <= 255
    assert found.decode(found.encode(ends))[2] == 0.0


def test_a_range_without_width_has_a_format() -> None:
    found = choose_format(np.zeros(4, np.float32), 0.0, 0.0)
    assert found.encode(np.zeros(3)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("name", ["normal", "gelu", "softmax", "outliers", "relu"])
def test_mse_is_never_worse_than_all_of_the_range(name: str) -> None:
    """The error is also within 3 % of the best range's, which is found by trying ranges one by one."""
    x = np.random.default_rng(1).standard_normal(4000)
    values = {
        "normal": x,
        "gelu": x / (1 + np.exp(-1.7 * x)),
        "softmax": np.exp(3 * x) / np.exp(3 * x).sum(),
        "outliers": np.where(np.arange(4000) % 500 == 0, 30 * x, x),
        "relu": np.maximum(x, 0),
    }[name].astype(np.float32)
    low, high = float(values.min()), float(values.max())
    found = squared_error(values, choose_format(values, low, high))
    assert found <= squared_error(values, choose_format(values, low, high, "max"))
    parts = np.linspace(0.1, 1, 19)
    tried = [squared_error(values, format_of_range(a * low, b * high)) for a in parts for b in parts]
    assert found <= 1.03 * min(tried)
    assert least_noise(values, low, high)[0] >= min(low, 0.0)


def test_one_sided_values_have_all_bytes() -> None:
    """GELU's least value is -0.17: a symmetric format would waste nearly half of its bytes."""
    x = np.random.default_rng(0).standard_normal(4000).astype(np.float32) * 3
    values = x / (1 + np.exp(-1.7 * x))
    found = choose_format(values, float(values.min()), float(values.max()))
    assert 0 < found.zero < 20 and found.scale < 1.1 * float(values.max()) / 240


def test_one_outlier_is_clipped_where_that_is_better() -> None:
    values = np.append(np.random.default_rng(0).uniform(0, 1, 10**5), 2.1).astype(np.float32)
    assert choose_format(values, 0.0, 2.1, "mse").scale < choose_format(values, 0.0, 2.1, "max").scale


def test_weights_have_a_scale_a_channel() -> None:
    weight = np.array([[127.0, 1.27], [-63.0, 0.64]])
    np.testing.assert_allclose(weight_scales(weight), [1.0, 0.01])
    np.testing.assert_allclose(quantise_weights(weight, weight_scales(weight)).decode(), weight, rtol=1e-6)
    together = weight_scales(weight, per_channel=False)
    assert together[0] == together[1] == 1.0


def test_weights_of_powers_of_two() -> None:
    weight = np.array([[1.0, 100.0], [-0.5, 50.0]])
    found, exponent = power_weights(weight, -64)
    assert exponent == 0 and found.values.tolist() == [[1, 100], [0, 50]]
    assert power_weights(weight, 3)[1] == 3
