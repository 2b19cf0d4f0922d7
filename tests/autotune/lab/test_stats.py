"""Figures of a dataset."""

from __future__ import annotations

from autotune.lab.dataset.stats import stats, to_json
from costmodel.dataset.build import build
from tests.costmodel.test_dataset import records


def test_figures_count_what_was_measured() -> None:
    data = build(records())
    (task,), (figures,) = data.tasks, stats(data)
    assert (figures.programs, figures.valid, figures.errors) == (24, 20, {"wrong_output": 4})
    assert to_json([figures])["valid"] == 20 and figures.machine == task.machine
