"""Comparisons of seeds and of dtypes, with tuning made up; integers are checked by real kernels."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import quantized, results, seeds
from search_space import workloads
from search_space.space import generate
from search_space.workloads import Workload
from targets import registry
from tests.benchmarks.fake_tuning import Fakes

load = results.load


def by_seed(workload: Workload, seed: int) -> float:
    return (1.0 + 0.25 * seed) * 1e-3


def by_dtype(workload: Workload, seed: int) -> float:
    return 1e-3 if workload.args["dtype"] == "int8" else 3e-3


def test_every_seed_is_tuned_and_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fakes = Fakes(by_seed)
    fakes.install(seeds, tmp_path, monkeypatch)
    assert seeds.main(["--rows", "conv3x3_7_512_512", "--seeds", "3", "--trials", "9", "--threads", "1"]) == 0
    assert [(trials, seed, threads) for _, trials, seed, threads in fakes.tuned] == [(9, seed, 1) for seed in range(3)]
    assert len(fakes.prepared) == fakes.closed == 3
    saved = load("seeds", tmp_path)
    assert saved is not None
    (row,) = saved["rows"].values()
    assert row["seconds"] == {str(seed): pytest.approx((1 + 0.25 * seed) * 1e-3) for seed in range(3)}
    assert "| conv 3x3 7² 512→512 | 9 | 3 | 1.000 | 1.500 | 50 % |" in capsys.readouterr().out


def test_seeds_are_of_the_3x3_convolutions() -> None:
    options = seeds.parse([])
    assert options.rows.count("conv3x3") == len(options.rows.split(",")) == 4
    assert (options.seeds, options.trials) == (5, 128)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seeds", "1"], "`seeds` must be at least 2, but got seeds=1"),
        (["--rows", "conv9"], "`rows` must be of conv3x3_56_64_64, "),
    ],
)
def test_bad_options_of_seeds(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert seeds.main(arguments) == 2
    assert message in capsys.readouterr().err


def test_both_dtypes_are_tuned_timed_and_the_integers_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fakes, checked = Fakes(by_dtype), []
    fakes.install(quantized, tmp_path, monkeypatch)
    monkeypatch.setattr(quantized, "check_exactly", lambda workload, *rest: checked.append(workload.args["dtype"]))
    assert quantized.main(["--trials", "7"]) == 0
    assert checked == ["int8", "int8"] and len(fakes.tuned) == fakes.closed == 4
    saved = load("quantized", tmp_path)
    assert saved is not None and set(saved["rows"]) == set(quantized.ROWS)
    assert saved["rows"]["matmul_1024"]["flops"] == 2 * 1024**3
    assert saved["rows"]["conv3x3_14_256_256"]["flops"] == 2 * 14 * 14 * 256 * 256 * 9
    assert capsys.readouterr().out.count("| 3.00x |") == 2


def test_a_wrong_result_is_not_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*arguments: Any) -> None:
        raise AssertionError("differs")

    fakes = Fakes(by_dtype)
    fakes.install(quantized, tmp_path, monkeypatch)
    monkeypatch.setattr(quantized, "check_exactly", wrong)
    with pytest.raises(AssertionError, match="differs"):
        quantized.compare("matmul_1024", argparse.Namespace(trials=7, seed=0, threads=1, repeat=10))
    assert not fakes.prepared and load("quantized", tmp_path) is None


def test_bad_rows_of_quantized(capsys: pytest.CaptureFixture[str]) -> None:
    assert quantized.main(["--rows", "conv9"]) == 2
    assert "`rows` must be of matmul_1024, conv3x3_14_256_256, but got rows='conv9'" in capsys.readouterr().err


def test_integers_are_compared_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = workloads.matmul(5, 33, 12, dtype="int8")
    sketch = generate(workload, registry.get("cpu").hardware).sketches[0]
    row = np.zeros((1, len(sketch.groups)), np.int32)
    assert sketch.legal(row).all()
    schedule = {"algorithm": sketch.algorithm, "trace": sketch.trace(row[0]).to_json(), "target": "cpu"}
    quantized.check_exactly(workload, schedule, 1)
    right = Workload.reference
    monkeypatch.setattr(
        Workload, "reference", lambda self, *arrays: right(self, *arrays) + np.eye(5, 33, dtype=np.int32)
    )
    with pytest.raises(AssertionError, match="Mismatched elements: 5 / 165"):
        quantized.check_exactly(workload, schedule, 1)
