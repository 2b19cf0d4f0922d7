"""Pictures of the gallery: maps show every measured program, and the page shows every picture."""

from __future__ import annotations

import re

import numpy as np
import pytest

from benchmarks.gallery import FOLDER, ROOT, map_spaces, principal_components
from costmodel.dataset import Dataset

pytest.importorskip("matplotlib", reason="needs the package matplotlib")


def test_components_are_ordered_and_uncorrelated() -> None:
    rows = np.random.default_rng(0).standard_normal((50, 4)) @ np.diag([1.0, 2.0, 3.0, 0.0])
    rows[:, 1] += rows[:, 2]
    points = principal_components(rows)
    assert points.shape == (50, 2)
    first, second = points.std(axis=0)
    assert first > second > 0
    assert abs(np.corrcoef(points.T)[0, 1]) < 1e-9


def test_a_map_shows_every_program() -> None:
    data = Dataset.open(ROOT / "tests/datasets/vta")
    panels = map_spaces(data).axes[: len(data.tasks)]
    shown = [sum(len(drawn.get_offsets()) for drawn in panel.collections) for panel in panels]
    assert shown == [data.count(task) for task in data.tasks]


def test_the_page_shows_the_pictures() -> None:
    page = (FOLDER.parent / "gallery.md").read_text()
    assert set(re.findall(r"\(gallery/(\w+\.png)\)", page)) == {path.name for path in FOLDER.glob("*.png")}
