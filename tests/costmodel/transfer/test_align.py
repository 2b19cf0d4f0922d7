"""Alignments: features of any task in one frame, by maps that keep their layout and their order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from costmodel.features import NAMES, SECONDS
from costmodel.transfer import align
from costmodel.transfer.errors import TransferError
from tests.costmodel.transfer.fakes import NARROW, task

SOURCE = [task(seed) for seed in range(3)]


@pytest.mark.parametrize("name", align.ALIGNMENTS)
def test_maps_keep_layout_and_order_and_what_they_are_given(name: str) -> None:
    frame = align.get(name).fit(SOURCE)
    new = task(5, shift=3.0, hardware=NARROW)
    mapped = frame.of(new)
    features = np.stack(new.features)
    before = features.copy()
    found = mapped(features)
    assert found.shape == features.shape and found.dtype == np.float32
    np.testing.assert_array_equal(features, before)
    for column in range(len(NAMES)):
        order = np.argsort(features[:, 0, column], kind="stable")
        assert (np.diff(found[order, 0, column]) >= -1e-4).all()
    again = align.get(name)(**frame.to_json()).of(new)
    np.testing.assert_array_equal(again(features), found)


@pytest.mark.parametrize("name", ["centred", "quantile"])
def test_tasks_that_differ_by_their_scale_alone_become_the_same(name: str) -> None:
    frame = align.get(name).fit(SOURCE)
    one, other = task(7), task(7, shift=5.0)
    np.testing.assert_allclose(
        frame.of(one)(np.stack(one.features)), frame.of(other)(np.stack(other.features)), atol=1e-4
    )


def test_quantiles_of_a_task_become_those_of_the_source() -> None:
    new = task(9, shift=2.0)
    found = align.get("quantile").fit(SOURCE).of(new)(new.sample_rows)
    wanted = np.mean([np.quantile(of.sample_rows, [0.25, 0.5, 0.75], axis=0) for of in SOURCE], axis=0)
    gaps = np.abs(np.quantile(found, [0.25, 0.5, 0.75], axis=0) - wanted)
    assert gaps[:, 1::3].max() < 0.1 and gaps[:, ::3].max() < 1.0  # every third feature is a whole number


def test_machines_are_told_apart_by_their_units() -> None:
    """A peak of half the operations a second: the same seconds are half as many operations."""
    frame = align.get("machine").fit(SOURCE)
    features = np.stack(task(5).features)
    moved = frame.of(task(5, hardware=NARROW))(features) - features
    np.testing.assert_allclose(moved[..., SECONDS], -1.0, atol=1e-5)
    np.testing.assert_allclose(moved[..., NAMES.index("vectorize.length")], 1.0, atol=1e-5)
    np.testing.assert_allclose(moved[..., NAMES.index("roofline.registers")], 1.0, atol=1e-5)
    np.testing.assert_allclose(moved[..., NAMES.index("inner0.working_set")], 1.0, atol=1e-5)
    assert (moved[..., NAMES.index("iterations")] == 0).all()
    np.testing.assert_array_equal(frame.of(task(5))(features), features)


def test_unknown_alignments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TransferError, match="`align` must be one of none, machine, centred, quantile, but got"):
        align.get("rank")
