"""Cost models by the protocol: both tables."""

from __future__ import annotations

import pytest

from autotune.lab.protocol import Pools
from benchmarks import models, results, tables
from tests.autotune.lab.protocol import made

pytestmark = pytest.mark.xdist_group("dataset")


def test_models_are_validated_and_tested(tmp_path, capsys):
    registered = made.registration()
    Pools.write(tmp_path / "pools", registered, made.make_dataset(registered))
    command = ["--pools", str(tmp_path / "pools"), "--models", "ridge,roofline", "--seeds", "1"]
    command += ["--results", str(tmp_path)]
    assert models.main(command) == 0
    document = results.load("models", tmp_path)
    assert document["rows"]["test"]["networks"] == {"three": 2}
    assert document["rows"]["validation"]["networks"] == {"two": 1}
    table = tables.TABLES["models"](document)
    assert table in capsys.readouterr().out
    for name in ("ridge", "roofline", "random"):
        assert table.count(f"\n| {name} | ") >= 2
    assert table.count("\n| ceiling | ") == 1 and "of ridge in normalised top-1 | p |" in table
    value, low, high = document["rows"]["test"]["models"]["ridge"]["pairwise"]
    assert f"{value:.3f} ({low:.3f}–{high:.3f})" in table and low <= value <= high
