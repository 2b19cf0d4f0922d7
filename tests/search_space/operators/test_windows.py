"""Padding: one number, one an axis, or before and after; what is symmetric has the form that it always had."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search_space import workloads
from search_space.operators.windows import both_sides, normalise_padding
from search_space.workloads import Workload


@pytest.mark.parametrize(
    ("given_padding", "form"),
    [
        (1, (1, 1)),
        ((1, 2), (1, 2)),
        ([1, 2], (1, 2)),
        (((1, 1), (2, 2)), (1, 2)),
        (((0, 1), (2, 2)), ((0, 1), (2, 2))),
        ([[0, 1], 2], ((0, 1), (2, 2))),
    ],
)
def test_one_form(given_padding: Any, form: tuple[Any, ...]) -> None:
    assert normalise_padding(2, given_padding) == form
    assert normalise_padding(2, form) == form


@pytest.mark.parametrize(
    "wrong", [-1, (1, 2, 3), ((0, 1), (1, 2), (0, 0)), ((0, -1), (0, 0)), ((0, 1, 2), (0, 0)), "1"]
)
def test_wrong_padding(wrong: Any) -> None:
    with pytest.raises(ValueError, match="`padding` must be"):
        normalise_padding(2, wrong)


def test_keys_of_symmetric_padding_are_unchanged_and_others_survive_json() -> None:
    sizes: dict[str, Any] = {"height": 5, "width": 6, "in_channels": 3, "out_channels": 4}
    plain, paired = (workloads.conv2d(**sizes, padding=padding) for padding in (1, ((1, 1), (1, 1))))
    assert plain.key == paired.key
    assert plain.to_json()["args"]["padding"] in ([1, 1], (1, 1))
    uneven = workloads.conv2d(**sizes, padding=((0, 1), (1, 2)))
    again = Workload.from_json(uneven.to_json())
    assert again.key == uneven.key != plain.key
    assert again == uneven
    assert hash(again) == hash(uneven)


@settings(max_examples=30, deadline=None)
@given(
    sides=st.tuples(*[st.tuples(st.integers(0, 2), st.integers(0, 2))] * 2),
    stride=st.integers(1, 3),
    kernel=st.integers(1, 3),
)
def test_uneven_padding_is_padding_written_out(sides: Any, stride: int, kernel: int) -> None:
    sizes: dict[str, Any] = {"in_channels": 2, "out_channels": 3, "kernel": kernel, "stride": stride}
    padded = workloads.conv2d(height=4, width=5, padding=sides, **sizes)
    data, weight = padded.make_inputs(0)
    wide = np.pad(data, [(0, 0), *both_sides(normalise_padding(2, sides)), (0, 0)])
    plain = workloads.conv2d(height=wide.shape[1], width=wide.shape[2], **sizes)
    assert padded.output.shape == plain.output.shape
    np.testing.assert_allclose(padded.reference(data, weight), plain.reference(wide, weight), rtol=1e-6)


def test_a_kernel_must_fit() -> None:
    with pytest.raises(ValueError, match=r"padding=\[\[0, 1\], \[0, 0\]\]"):
        workloads.conv2d(height=1, width=5, in_channels=1, out_channels=1, padding=((0, 1), (0, 0)))
