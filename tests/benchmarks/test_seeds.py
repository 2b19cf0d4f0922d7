"""The comparison of seeds, with tuning made up."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import seeds
from search_space.workloads import Workload
from tests.benchmarks.fake_tuning import Fakes
from tests.benchmarks.waiting import waiting


def by_seed(workload: Workload, seed: int) -> float:
    return (1.0 + 0.25 * seed) * 1e-3


def test_every_seed_is_tuned_and_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fakes = Fakes(by_seed)
    fakes.install(seeds, monkeypatch)
    words = ["--seeds", "3", "--trials", "9", "--threads", "1", "--results", str(tmp_path)]
    assert seeds.main(["--rows", "conv3x3_7_512_512", *words]) == 0
    assert [(trials, seed, threads) for _, trials, seed, threads in fakes.tunings] == [
        (9, seed, 1) for seed in range(3)
    ]
    assert len(fakes.preparations) == fakes.close_count == 3
    (row,) = waiting("seeds", tmp_path).values()
    assert row["seconds"] == {str(seed): pytest.approx((1 + 0.25 * seed) * 1e-3) for seed in range(3)}
    assert "| conv 3x3 7² 512→512 | 9 | 3 | 1.000 | 1.500 | 50 % |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seeds", "1"], "must be at least 2, but got 1"),
        (["--rows", "conv9"], "`rows` must be of conv3x3_56_64_64, "),
    ],
)
def test_bad_options_of_seeds(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        assert seeds.main(arguments) == 2
    except SystemExit as error:
        assert error.code == 2
    assert message in capsys.readouterr().err
