"""Cost models beside each other: what is held out is not learned from, and the table has every figure."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import models, results, tables
from costmodel.dataset import SHIPPED, Dataset, DatasetError

VTA = Path(__file__).parents[1] / "datasets" / "vta"


def test_networks_are_held_out_and_the_table_has_every_model(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setattr(results.save, "__defaults__", (tmp_path,))
    command = [str(VTA), "--target", "vta", "--hold-out", "squeezenet", "--models", "ridge,roofline"]
    assert models.main(command) == 0
    document = results.load("models", tmp_path)
    data = Dataset.open(VTA)
    inside = [task for task in data.tasks if "squeezenet" in task.networks]
    assert document["test"] == {"tasks": len(inside), "programs": sum(map(data.count, inside))}
    assert document["train"]["tasks"] + document["test"]["tasks"] <= len(data.tasks)
    table = tables.TABLES["models"](document)
    assert "squeezenet top-1" in table and table.count("\n| ridge | 0.") == table.count("\n| roofline | 0.") == 1
    shown = f"{document['rows']['ridge']['networks']['squeezenet']['top5']:.3f}"
    assert shown in next(line for line in table.splitlines() if line.startswith("| ridge"))


def test_networks_that_are_not_there_are_refused():
    with pytest.raises(DatasetError, match="nowhere"):
        models.run(Dataset.open(VTA), ["nowhere"], ["random"])


def test_the_dataset_that_comes_along_has_what_is_held_out():
    data = Dataset.open(SHIPPED)
    for name in models.HELD_OUT:
        tasks = [task for task in data.tasks if task.target == "cpu" and name in task.networks]
        assert len(tasks) >= 10 and all(data.count(task) >= 300 for task in tasks)
        assert all(0.4 < (data.origin(task) == "random").mean() < 0.6 for task in tasks)
    folder = Path(models.__file__).parents[1] / "costmodel" / "dataset" / "measured"
    assert sum(path.stat().st_size for path in folder.iterdir()) < 10 << 20
