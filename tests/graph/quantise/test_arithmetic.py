"""Plans of integer layers: close to the floats, and never beyond int32."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from autotune.graph.ir import Array
from autotune.graph.quantise.arithmetic import NotExact, Sum, plan_average, plan_layer, plan_sum
from autotune.graph.quantise.formats import METHODS, Format, choose_format, quantise_weights

formats = st.builds(Format, st.integers(-12, 6), st.sampled_from([0, 128]))


def done(end: Sum, sums: Array, residuals: list[Array]) -> Array:
    """The plan carried out in unbounded integers; int32 must have held every step."""
    steps = [sums << end.left]
    for residual, shift in zip(residuals, end.residual_shifts, strict=True):
        steps.append(steps[-1] + (residual.astype(np.int64) << shift))
    steps.append(steps[-1] + end.bias)
    assert all(np.abs(step).max() < 2**31 for step in steps)
    assert ((end.right >= 0) & (end.right < 31) & (end.left >= 0) & (end.left < 31)).all()
    return np.clip(steps[-1] >> end.right, end.low, end.high)


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
        weights, end = plan_layer(weight, source, [residual], output, bias, (0.0, np.inf), per_channel)
    except NotExact:
        assume(False)
    found = done(end, data.astype(np.int64) @ weights.values.astype(np.int64), [added])
    exact = source.decode(data).astype(np.float64) @ weights.decode() + bias + residual.decode(added)
    wanted = np.clip(np.maximum(exact, 0) / 2.0**output.exponent + output.zero, 0, 255)
    step = 0.5 + 2.0 ** (end.exponents - output.exponent - 1.0)  # its own rounding, and that of the bias
    assert (np.abs(found - wanted) <= step + 1e-6).all()


def test_usual_scales_are_planned() -> None:
    weight = np.random.default_rng(0).standard_normal((9 * 512, 64)) / 48
    plan_layer(weight, Format(-5), [Format(-4)], Format(-4), np.ones(64), (0.0, np.inf))
    plan_layer(weight, Format(-5, 128), [], None, np.zeros(()), (-np.inf, np.inf))


def test_a_channel_of_zeros_has_its_bias() -> None:
    weights, end = plan_layer(np.zeros((4, 2)), Format(-5), [], Format(-4), np.array([1.0, 0.0]), (-np.inf, np.inf))
    assert not weights.values.any()
    np.testing.assert_array_equal(done(end, np.zeros((1, 2), np.int64), []), [[16, 0]])


def test_what_int32_does_not_hold_is_refused() -> None:
    with pytest.raises(NotExact, match="sums must be at most"):
        plan_layer(np.full((70000, 1), 0.99), Format(0), [], Format(10), np.zeros(()), (-np.inf, np.inf))
    with pytest.raises(NotExact, match="bits apart"):
        plan_sum([Format(0), Format(30)], Format(0), np.zeros(()), (-np.inf, np.inf))
    with pytest.raises(NotExact, match="means must be"):
        plan_average(10**7, Format(0), Format(0))


@settings(max_examples=100, deadline=None)
@given(formats, st.integers(-3, 3), st.sampled_from([0, 128]), st.integers(1, 200), st.integers(0, 1000))
def test_means_are_within_a_step(source: Format, finer: int, zero: int, count: int, seed: int) -> None:
    output = Format(source.exponent + finer, zero)
    rng = np.random.default_rng(seed)
    data = rng.integers(rng.integers(0, 255), 256, (30, count))
    try:
        factor, end = plan_average(count, source, output)
    except NotExact:
        assert finer < 0  # a range that the mean cannot have
        return
    found = done(end, data.sum(1, keepdims=True) * factor, [])
    mean = (data - source.zero).mean(1, keepdims=True) * 2.0 ** (source.exponent - output.exponent) + zero
    assert (np.abs(found - np.clip(mean, 0, 255)) <= 0.51).all()


def test_formats_by_every_method() -> None:
    values = np.random.default_rng(0).standard_normal(10000).astype(np.float32)
    for method in METHODS:
        signed = choose_format(values, float(values.min()), float(values.max()), method)
        assert signed.zero == 128 and -7 <= signed.exponent <= -5
        assert choose_format(np.abs(values), 0.0, float(np.abs(values).max()), method).zero == 0
    whole = choose_format(values, float(values.min()), float(values.max()), "max")
    assert np.abs(whole.decode(whole.encode(values)) - values).max() <= 2.0 ** (whole.exponent - 1)
    with pytest.raises(ValueError, match="`method` must be one of mse, max, percentile"):
        choose_format(values, -1.0, 1.0, "median")


def test_one_outlier_is_clipped_where_that_is_better() -> None:
    values = np.append(np.random.default_rng(0).uniform(0, 1, 10**5), 2.1).astype(np.float32)
    assert choose_format(values, 0.0, 2.1, "mse").exponent < choose_format(values, 0.0, 2.1, "max").exponent


def test_weights_have_an_exponent_a_channel() -> None:
    weight = np.array([[1.0, 100.0], [-0.5, 50.0]])
    found = quantise_weights(weight, np.full(2, -64))
    np.testing.assert_array_equal(found.exponents, [-6, 0])
    np.testing.assert_array_equal(found.decode(), weight)
    together = quantise_weights(weight, np.full(2, -64), per_channel=False)
    assert together.exponents[0] == together.exponents[1]
    assert quantise_weights(weight, np.array([3, 3])).exponents.min() == 3
