"""The comparison of one tuning for all sizes with one for each, on a small layer with few trials; its table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from autotune.config import Measure
from benchmarks import results, sizes
from benchmarks.interleave import measure_turns
from benchmarks.sizes import ROWS, Layer, dense
from search_space import workloads
from search_space.workloads import Workload
from tests.autotune.fakes import HashPool

SMALL = "dense 384→1536 relu"
"""Its place is taken by a small one."""


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Arguments; results go to a folder, and no peer is asked."""
    layer = dense(16, 32)
    monkeypatch.setattr(sizes, "ROWS", {SMALL: Layer(layer.define, None, (1, 3, 10))})
    monkeypatch.setattr(sizes, "measure_turns", lambda peers, repeat, **_: measure_turns(peers, repeat, 1e-4, 0, 1e-4))
    monkeypatch.setattr(sizes, "Measure", lambda threads: Measure(pool=HashPool(), threads=threads))
    few = [
        "--trials",
        "3",
        "--carried",
        "2",
        "--threads",
        "1",
        "--beside",
        "1,10",
        "--records",
        str(tmp_path),
        "--results",
        str(tmp_path),
    ]
    return ["--layers", SMALL, *few]


def test_each_size_is_compared_once(
    small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sizes.main(small) == 0
    saved = results.load("sizes", tmp_path)
    assert saved is not None
    rows = list(saved["rows"].values())
    assert [row["n"] for row in rows] == [1, 10]
    for row in rows:
        assert set(row["seconds"]) == {"sizes", "alone"} and min(row["seconds"].values()) > 0
        assert row["trials_alone"] == 3 and row["trials_together"] == 9  # no more than five sizes: all are searched
        assert row["made"]["commit"] == "0123456789ab" and row["range"][0] <= row["n"] <= row["range"][1]
    shown = capsys.readouterr().out
    assert f"| {SMALL} | 10 | " in shown and "| geometric mean over 2 |" in shown

    def never(*arguments: Any) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(sizes, "tuned_for_sizes", never)
    assert sizes.main(small) == 0


def test_the_table_has_means_over_sizes() -> None:
    common = {"name": "layer"}
    rows = {
        "a": {**common, "n": 1, "seconds": {"sizes": 2e-6, "alone": 1e-6, "torch": 4e-6, "onnxruntime": 3e-6}},
        "b": {**common, "n": 8, "seconds": {"sizes": 2e-6, "alone": 4e-6, "torch": 3e-6}},
    }
    text = sizes.sizes({"rows": rows})
    assert "| layer | 1 | 2.0 | 1.0 | 4.0 | 3.0 | 2.000x | 1.50x |" in text
    assert "| layer | 8 | 2.0 | 4.0 | 3.0 |  | 0.500x | 1.50x |" in text
    assert "| geometric mean over 2 |  |  |  |  |  | 1.000x | 1.50x |" in text


@pytest.mark.parametrize("name", ROWS)
def test_definitions_are_those_of_the_peers(name: str) -> None:
    layer = ROWS[name]
    workload = Workload.of(layer.define(3))
    if layer.make_workload is None:
        assert name.startswith("attention")
        return
    theirs = layer.make_workload(3)
    assert theirs.operator in vars(workloads)
    assert [spec.shape for spec in workload.inputs] == [spec.shape for spec in theirs.inputs]
    assert [spec.constant for spec in workload.inputs] == [spec.constant for spec in theirs.inputs]
    assert workload.output.shape == theirs.output.shape


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--layers", "dense"], "`rows` must be of dense 768→768, "),
        (["--beside", "1,5"], "must be among 1, 2, 3, .*, but got 5"),
        (["--beside", "one"], "must be numbers with commas between them, but got 'one'"),
    ],
)
def test_bad_options(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        assert sizes.main(arguments) == 2
    except SystemExit as error:
        assert error.code == 2
    assert re.search(message, capsys.readouterr().err)
