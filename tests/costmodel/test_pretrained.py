"""The model that comes along: what its file holds, which targets it is for, and what it makes of programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from costmodel.features import NAMES
from costmodel.models.errors import CostModelError
from costmodel.models.lightgbm_residual import ResidualModel
from costmodel.pretrained import NONE, SHIPPED_FILE, SHIPPED_MODEL, compute_digest, open_pretrained
from costmodel.pretrained.file import read, write

ROWS = np.random.default_rng(0).uniform(0, 8, (300, 2, len(NAMES))).astype(np.float32)


@pytest.fixture(scope="module")
def model() -> ResidualModel:
    of = ResidualModel(tasks_trees=20)
    of.fit_tasks([*ROWS], np.linspace(0.1, 1, len(ROWS)), np.repeat([0, 1, 2], 100))
    return of


def test_a_file_holds_what_was_learned(model: ResidualModel, tmp_path: Path) -> None:
    file = tmp_path / "model.npz"
    write(model, ["cpu", "cpu:haswell"], file)
    kinds, found = read(file)
    assert kinds == {"cpu"}
    np.testing.assert_allclose(found.predict(ROWS), model.predict(ROWS), atol=1e-5)  # leaves are rounded
    assert np.ptp(found.predict(ROWS) + ROWS[:, 0, NAMES.index("program.nanoseconds")]) > 0.1
    write(found, kinds, tmp_path / "again.npz")
    np.testing.assert_array_equal(read(tmp_path / "again.npz")[1].predict(ROWS), found.predict(ROWS))


def test_a_model_is_for_the_targets_that_it_has_learned(model: ResidualModel, tmp_path: Path) -> None:
    file = tmp_path / "model.npz"
    write(model, ["cpu:haswell"], file)
    assert open_pretrained(str(file), "cpu") is open_pretrained(str(file), "cpu:skylake-avx512") is not None
    for target in ("vta", "cuda:sm_90", "c"):
        assert open_pretrained(str(file), target) is None
        assert open_pretrained(SHIPPED_MODEL, target) is None
    assert open_pretrained(SHIPPED_MODEL, "cpu") is not None
    assert open_pretrained(NONE, "cpu") is None


def test_what_a_name_stands_for_has_a_digest(model: ResidualModel, tmp_path: Path) -> None:
    file = tmp_path / "model.npz"
    write(model, ["cpu"], file)
    before = compute_digest(str(file))
    assert len(before) == 12 != compute_digest(SHIPPED_MODEL) != before and compute_digest(NONE) == ""
    write(model, ["vta"], file)
    assert compute_digest(str(file)) != before
    assert open_pretrained(str(file), "vta") is not None  # the file that is there now


def test_a_file_that_is_none_is_refused(model: ResidualModel, tmp_path: Path) -> None:
    with pytest.raises(
        CostModelError, match=r"must be shipped, none or a file that .* but got '.*none.npz': No such file"
    ):
        open_pretrained(str(tmp_path / "none.npz"), "cpu")
    with pytest.raises(CostModelError, match="ends with .npz, but got 'model.txt'"):
        write(model, ["cpu"], tmp_path / "model.txt")
    other = tmp_path / "other.npz"
    for content in (b"", b"tree\n", SHIPPED_FILE.read_bytes()[:5000]):
        other.write_bytes(content)
        with pytest.raises(CostModelError, match="must be what `autotune costmodel pretrain` wrote"):
            read(other)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": np.array("autotune.pretrained/0")}, "`format` must be 'autotune.pretrained/1'"),
        ({"names": np.array("a\nb")}, "of the features that there are"),
        ({"features": np.array([30000], np.int16)}, "must be whole"),
        ({"ends": np.array([1 << 20], np.int32)}, "must be whole"),
        ({"members": np.array("0")}, "must be whole"),
        ({"leaves": np.zeros((1, 3), np.float32)}, "must be whole"),
        ({"format": np.array({"a": 1}, object)}, "must be what .* wrote"),  # a pickle is never loaded
    ],
)
def test_trees_that_native_code_cannot_walk_are_refused(
    changes: dict[str, Any], message: str, model: ResidualModel, tmp_path: Path
) -> None:
    file = tmp_path / "model.npz"
    write(model, ["cpu"], file)
    with np.load(file) as data:
        arrays = {**data, **changes}
    np.savez(file, **arrays)
    with pytest.raises(CostModelError, match=message):
        read(file)
