"""Comparison with the reference, and poisoned outputs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from measure.check import Oracle


def test_within_tolerance_is_right_and_the_error_is_relative_to_the_largest_value():
    outcome = Oracle(np.array([1, -100], np.float32), 1e-2, 0.0).compare(np.array([1, -100.5], np.float32))
    assert outcome.ok and outcome.max_error == pytest.approx(0.005) and outcome.message == ""


def test_a_small_element_has_its_own_tolerance():
    outcome = Oracle(np.array([[1e-3, 100.0]], np.float32), 1e-2, 1e-6).compare(np.array([[2e-3, 100.0]], np.float32))
    assert not outcome.ok
    assert "1 of 2 elements wrong, first at [0, 0]: expected 0.001, got 0.002" in outcome.message
    assert "rtol=0.01, atol=1e-06" in outcome.message


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_nan_is_wrong(dtype):
    expected = np.ones(5, dtype)
    actual = expected.copy()
    actual[3] = np.nan
    outcome = Oracle(expected, 1.0, 1.0).compare(actual)
    assert not outcome.ok and math.isnan(outcome.max_error) and "first at [3]" in outcome.message


def test_equal_infinities_are_right_and_others_wrong():
    oracle = Oracle(np.array([-np.inf, 2.0], np.float32), 1e-3, 0.0)
    assert oracle.compare(np.array([-np.inf, 2.0], np.float32)).ok
    assert not oracle.compare(np.array([np.inf, 2.0], np.float32)).ok
    assert not oracle.compare(np.array([-np.inf, np.inf], np.float32)).ok


def test_finite_where_infinity_is_expected_is_wrong():
    assert not Oracle(np.array([np.inf, 2.0], np.float32), 1e-3, 0.0).compare(np.array([3.0, 2.0], np.float32)).ok


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.bool_])
def test_integers_are_compared_exactly(dtype):
    expected = np.array([0, 1, 1], dtype)
    assert Oracle(expected, 0.0, 0.0).compare(expected.copy()).ok
    assert not Oracle(expected, 0.0, 0.0).compare(np.array([0, 1, 0], dtype)).ok


def test_unsigned_integers_do_not_wrap_in_the_difference():
    outcome = Oracle(np.array([250], np.uint8), 0.0, 2.0).compare(np.array([253], np.uint8))
    assert not outcome.ok and outcome.max_error == pytest.approx(3 / 250)


@pytest.mark.parametrize("actual", [np.ones((2, 3), np.float32), np.ones(6, np.float64)])
def test_another_shape_or_dtype_is_wrong(actual):
    oracle = Oracle(np.ones(6, np.float32), 1.0, 1.0)
    oracle.poison(actual)
    assert "`output` must be float32[6], but got float" in oracle.compare(actual).message


@pytest.mark.parametrize("dtype", ["float32", "float16", "bool", "int8", "uint8", "int32", "int64"])
def test_a_poisoned_output_is_wrong_everywhere(dtype):
    high = {"bool": 2, "float32": 100, "float16": 100}.get(dtype, 128)
    expected = np.random.default_rng(0).integers(0, high, (4, 50)).astype(dtype)
    oracle = Oracle(expected, 0.0, 0.0)
    output = expected.copy()
    oracle.poison(output)
    assert "200 of 200 elements wrong" in oracle.compare(output).message


def test_a_reference_with_nan_is_refused():
    with pytest.raises(ValueError, match="`reference` must be free of NaN to check against, but got nan=1 of 2"):
        Oracle(np.array([1.0, np.nan]), 0.0, 0.0)


def test_comparing_leaves_the_oracle_fit_for_the_next():
    oracle = Oracle(np.array([1.0, 2.0], np.float32), 1e-3, 0.0)
    assert not oracle.compare(np.array([9.0, np.nan], np.float32)).ok
    assert oracle.compare(np.array([1.0, 2.0], np.float32)).ok
