"""The benchmark of choices without trials, on one layer and few candidates."""

from __future__ import annotations

import argparse

import numpy as np
import pytest

from benchmarks.choices import FIRST, ROWS, Candidates, choices, main, measure_row
from search_space.space import generate
from targets import registry

LAYER = "49x512→2048"


def test_the_first_candidate_is_the_choice_and_none_comes_twice() -> None:
    space = generate(ROWS[LAYER], registry.get("cpu:haswell").hardware)
    found, again = (Candidates(space, 10, 3) for _ in range(2))
    assert found.estimates[0] == found.estimates.min()
    assert (np.diff(found.estimates[:FIRST]) >= 0).all()
    assert len(found.estimates) == 10
    assert (found.estimates == again.estimates).all()


def test_a_row_tells_how_far_the_choice_lies_behind() -> None:
    row = measure_row(LAYER, "cpu", argparse.Namespace(candidates=3, rounds=1, seed=0))
    assert row["candidates"] == 3
    assert 0 < row["best_seconds"] <= row["choice_seconds"]
    text = choices({"rows": {"a": {**row, "choice_seconds": 2e-4, "best_seconds": 1e-4, "spearman": 0.5}}})
    assert f"| {LAYER} | cpu | 3 | 200 | 100 | 50% | 0.50 |" in text
    assert "| geometric mean over 1 | cpu |  |  |  | 50% |  |" in text


def test_an_unknown_layer_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rows", "1x1"]) == 2
    assert "but got rows='1x1'" in capsys.readouterr().err
